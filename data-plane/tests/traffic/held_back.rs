//! Responses that are not read from their endpoints, or little by little, because the client of their HTTP/2 connection
//! does not take others.

use std::cell::Cell;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use data_plane::local::{Budgets, Limits};
use rustls::{ServerConnection, StreamOwned};
use shared::budget::Budget;
use shared::policy::{BackendProtocol, LocationPolicy, StatusList, TextList};
use test_kit::client::frames::{
    Block, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RESET, SETTINGS, WINDOW_UPDATE,
};

use super::backend_tls;
use super::harness::*;
use super::hostile::Frames;

/// More streams that wait for their windows than may have a buffer in hand.
const LYING: u32 = 40;

/// More bytes than kernels hold for a client that reads nothing.
const ENDLESS: usize = 64 << 20;

/// Asks for a path of `a.test`.
fn ask(frames: &mut Frames, stream: u32, method: &str, path: &str) {
    let block = Block::request(method, "a.test", path);
    assert!(frames.send(HEADERS, END_HEADERS | END_STREAM, stream, block.bytes()));
}

/// A client whose windows have this size, and that has asked for `/big` so many times.
fn with_lying(proxy: &Proxy, window: u32, lying: u32) -> Frames {
    let mut frames = Frames::new(proxy);
    let [a, b, c, d] = window.to_be_bytes();
    assert!(frames.send(SETTINGS, 0, 0, &[0, 4, a, b, c, d]));
    assert!(frames.send(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    for n in 0..lying {
        ask(&mut frames, 2 * n + 1, "GET", "/big");
        heads(&mut frames, 1);
    }
    frames
}

/// Waits for so many response heads.
fn heads(frames: &mut Frames, mut count: u32) {
    while count > 0 {
        let (kind, stream, payload) = frames.next().unwrap();
        assert!(![RESET, GOAWAY].contains(&kind), "{kind} of {stream}: {payload:?}");
        count -= u32::from(kind == HEADERS);
    }
}

/// An endpoint of a response that is too long for all kernels on its way, and how much of it that has sent.
fn endless() -> (Origin, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let origin = Origin::raw(move |mut stream, connection, _| {
        while read_request(&mut stream, connection).is_some() {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {ENDLESS}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            for _ in 0..ENDLESS / 4096 {
                if stream.write_all(&[b'x'; 4096]).is_err() {
                    return;
                }
                counted.fetch_add(4096, Ordering::Relaxed);
            }
        }
    });
    (origin, sent)
}

/// A client with all the window in the world that has asked for `/endless` and reads nothing, so that its connection
/// takes nothing any more. Others are served meanwhile.
fn stuck(proxy: &Proxy, sent: &AtomicUsize) -> Frames {
    let mut client = with_lying(proxy, i32::MAX as u32, 0);
    ask(&mut client, 1, "GET", "/endless");
    let before = Cell::new(0);
    eventually("its connection takes nothing", || {
        (0..10).for_each(|_| assert_eq!(Client::new(proxy.http).get("/small").text(), "here"));
        let now = sent.load(Ordering::Relaxed);
        before.replace(now) == now && now > 0
    });
    client
}

/// As a browser with paused videos, for ever. What it asks for beside them arrives, whatever its length, and as far as its
/// window goes.
#[test]
fn who_is_paused_keeps_nobody_out() {
    const LIVE: usize = 1_000_000;
    let big = Origin::new(|_| (ok(&"x".repeat(100_000)), true));
    let live = Origin::new(|_| (ok(&"x".repeat(LIVE)), true));
    let exact = Origin::new(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        (format!("{head}2710\r\n{}\r\n0\r\n\r\n", "x".repeat(10_000)).into_bytes(), true)
    });
    let budgets = Budgets { bytes: Budget::new(64 << 20), ..Budgets::default() };
    let mut proxy = Proxy::within(Limits::default(), budgets.clone());
    proxy.policies(false, &["/big", "/live", "/exact"].map(|path| (path, LocationPolicy::default())));
    proxy.endpoints("big", &[big.address]);
    proxy.endpoints("live", &[live.address]);
    proxy.endpoints("exact", &[exact.address]);
    for window in [0, 10_000] {
        let mut client = with_lying(&proxy, window, LYING);
        for (path, more, length) in [("/exact", 10_000 - window, 10_000), ("/live", 2_000_000, LIVE)] {
            let stream = 2 * LYING + if path == "/live" { 3 } else { 1 };
            ask(&mut client, stream, "GET", path);
            if more > 0 {
                assert!(client.send(WINDOW_UPDATE, 0, stream, &more.to_be_bytes()));
            }
            let (mut taken, mut has_ended) = (0, false);
            while !has_ended {
                let (kind, on, flags, payload) = client.next_with_flags().unwrap();
                assert!(![RESET, GOAWAY].contains(&kind), "{kind} of {on}: {payload:?}");
                if on == stream {
                    taken += if kind == DATA { payload.len() } else { 0 };
                    has_ended = flags & END_STREAM != 0;
                }
            }
            assert_eq!(taken, length);
        }
        assert!(budgets.bytes.used() <= 1 << 20, "{}", budgets.bytes.used());
    }
    eventually("all is given back", || budgets.bytes.used() == 0);
}

/// Each event arrives at once, whatever is paused, and nobody waits for the next one.
#[test]
fn events_arrive_beside_paused_responses() {
    let big = Origin::new(|_| (ok(&"x".repeat(100_000)), true));
    let live = Origin::says("here");
    let (go, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let events = Origin::raw(move |mut stream, connection, _| {
        while read_request(&mut stream, connection).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
            let _ = waits.lock().unwrap().recv();
            let _ = stream.write_all(b"3\r\ntwo\r\n0\r\n\r\n");
        }
    });
    let mut proxy = Proxy::start();
    proxy.policies(false, &["/big", "/live", "/events"].map(|path| (path, LocationPolicy::default())));
    proxy.endpoints("big", &[big.address]);
    proxy.endpoints("live", &[live.address]);
    proxy.endpoints("events", &[events.address]);
    let mut client = with_lying(&proxy, 10_000, LYING);
    let says = |client: &mut Frames, stream, text: &[u8]| loop {
        let (kind, on, payload) = client.next().unwrap();
        assert!(![RESET, GOAWAY].contains(&kind), "{kind} of {on}: {payload:?}");
        if kind == DATA && on == stream {
            assert_eq!(payload, text);
            break;
        }
    };
    let (first, second) = (2 * LYING + 1, 2 * LYING + 3);
    ask(&mut client, first, "GET", "/events");
    says(&mut client, first, b"one");
    for n in 0..20 {
        ask(&mut client, second + 2 * n, "GET", "/live");
        says(&mut client, second + 2 * n, b"here");
    }
    drop(go);
    says(&mut client, first, b"two");
}

/// Such a client stalls for longer than endpoints have to respond. Each has: none is asked a second time, and no
/// client is told that one has not.
#[test]
fn response_held_back_by_its_client_is_no_timeout_of_the_endpoint() {
    let (long, sent) = endless();
    let (small, other) = (Origin::says("here"), Origin::says("here"));
    let silent =
        Origin::raw(|mut stream, connection, _| while read_request(&mut stream, connection).is_some() {});
    let limited = LocationPolicy { proxy_read_timeout: Some(1), ..LocationPolicy::default() };
    let mut proxy = Proxy::start();
    proxy.policies(false, &["/endless", "/small", "/held", "/silent"].map(|path| (path, limited.clone())));
    proxy.endpoints("endless", &[long.address]);
    proxy.endpoints("small", &[Origin::says("here").address]);
    proxy.endpoints("held", &[small.address, other.address]);
    proxy.endpoints("silent", &[silent.address]);
    let mut client = stuck(&proxy, &sent);
    ask(&mut client, 3, "GET", "/held");
    ask(&mut client, 5, "POST", "/held");
    let asked = || small.seen().len() + other.seen().len();
    eventually("both are asked for", || asked() == 2);
    // The time in which an endpoint has to respond goes by.
    assert_eq!(Client::new(proxy.http).get("/silent").status, 504);
    assert_eq!(asked(), 2, "none is asked again");
    let worker = proxy.metrics.worker(0);
    let failed = worker.retries.value();
    let (mut here, mut length) = (0, 0);
    while here < 2 || length < ENDLESS {
        let (kind, stream, payload) = client.next().unwrap();
        assert!(![RESET, GOAWAY].contains(&kind), "{kind} of {stream}: {payload:?}");
        match kind {
            HEADERS => assert_eq!(payload[0], 0x88, "`:status: 200`"),
            DATA if stream > 1 => here += usize::from(payload == b"here"),
            DATA => length += payload.len(),
            _ => {}
        }
    }
    assert_eq!((asked(), worker.retries.value()), (2, failed));
}

/// Long responses that a slow client takes steadily have their next pieces in hand all the time. Another one is read in
/// its turn, and not when one of them has ended.
#[test]
fn short_response_is_read_while_long_ones_are_held_back() {
    const LONG: u32 = 16;
    const WINDOW: u32 = 16 * 1024;
    let big = Origin::new(|_| (ok(&"x".repeat(1_000_000)), true));
    let small = Origin::says("here");
    let mut proxy = Proxy::start();
    proxy.policies(false, &["/big", "/small"].map(|path| (path, LocationPolicy::default())));
    proxy.endpoints("big", &[big.address]);
    proxy.endpoints("small", &[small.address]);
    let mut client = with_lying(&proxy, WINDOW, 0);
    for n in 0..LONG {
        ask(&mut client, 2 * n + 1, "GET", "/big");
    }
    eventually("all are asked for", || big.seen().len() == LONG as usize);
    ask(&mut client, 2 * LONG + 1, "GET", "/small");
    eventually("it is asked for", || small.seen().len() == 1);
    let (mut taken, mut is_here) = (0, false);
    while taken < LONG as usize * 1_000_000 {
        let (kind, stream, payload) = client.next().unwrap();
        assert!(![RESET, GOAWAY].contains(&kind), "{kind} of {stream}: {payload:?}");
        if kind != DATA {
            continue;
        }
        is_here |= payload == b"here";
        taken += if stream > 2 * LONG { 0 } else { payload.len() };
        assert!(is_here || taken < 4_000_000, "it is kept out");
        if !payload.is_empty() {
            let [a, b, c, d] = (payload.len() as u32).to_be_bytes();
            client.send(WINDOW_UPDATE, 0, stream, &[a, b, c, d]);
        }
    }
    while !is_here {
        let (kind, _, payload) = client.next().unwrap();
        is_here = kind == DATA && payload == b"here";
    }
}

/// The first responses are small, and come before any page does.
#[test]
fn untaken_error_pages_are_buffered_within_the_limit() {
    let origin = Origin::new(|_| (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_vec(), true));
    let (go, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let pages = Origin::new(move |_| {
        let _ = waits.lock().unwrap().recv();
        (ok(&"x".repeat(100_000)), true)
    });
    let budgets = Budgets { bytes: Budget::new(64 << 20), ..Budgets::default() };
    let mut proxy = Proxy::within(Limits::default(), budgets.clone());
    let listing = LocationPolicy {
        custom_http_errors: Some(StatusList { values: vec![404] }),
        default_backend: Some("ns/pages/80".into()),
        ..LocationPolicy::default()
    };
    proxy.policies(false, &[("/gone", listing), ("/pages", LocationPolicy::default())]);
    proxy.endpoints("gone", &[origin.address]);
    proxy.endpoints("pages", &[pages.address]);
    let mut client = with_lying(&proxy, 0, 0);
    for n in 0..100 {
        ask(&mut client, 2 * n + 1, "GET", "/gone");
    }
    eventually("all pages are asked for", || pages.seen().len() == 100);
    drop(go);
    heads(&mut client, 1);
    // As many pages as have room are read meanwhile, each with a head that this client gets.
    for _ in 0..50 {
        assert_eq!(Client::new(proxy.http).get("/gone").body.len(), 100_000);
        assert!(budgets.bytes.used() <= 1_500 * 1024, "{}", budgets.bytes.used());
    }
    assert!(client.send(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    let mut length = 0;
    while length < 100 * 100_000 {
        let (kind, _, payload) = client.next().unwrap();
        assert!(kind != RESET && kind != GOAWAY, "{kind} {payload:?} after {length} bytes");
        length += if kind == DATA { payload.len() } else { 0 };
    }
    drop(client);
    eventually("all is given back", || budgets.bytes.used() == 0);
}

/// After the handshake, a TLS endpoint has said something (its tickets) that is no response.
#[test]
fn silent_tls_endpoint_times_out_while_other_responses_are_held_back() {
    let (long, sent) = endless();
    let silent = Origin::raw(|mut stream, connection, seen| {
        let mut session = ServerConnection::new(backend_tls::server()).unwrap();
        session.complete_io(&mut stream).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        while let Some(request) = read_request(&mut stream, connection) {
            seen.lock().unwrap().push(request);
        }
    });
    let limited = LocationPolicy {
        backend_protocol: Some(BackendProtocol::Https.into()),
        proxy_read_timeout: Some(1),
        ..LocationPolicy::default()
    };
    let mut proxy = Proxy::start();
    let usual = LocationPolicy::default;
    proxy.policies(false, &[("/endless", usual()), ("/small", usual()), ("/silent", limited)]);
    proxy.endpoints("endless", &[long.address]);
    proxy.endpoints("small", &[Origin::says("here").address]);
    proxy.endpoints("silent", &[silent.address]);
    let mut client = stuck(&proxy, &sent);
    ask(&mut client, 3, "GET", "/silent");
    eventually("it is asked again", || silent.seen().len() > 1);
}

/// The time until its head is not its endpoint's, and is not in the log.
#[test]
fn retried_held_back_response_has_no_header_time_in_the_log() {
    let (long, sent) = endless();
    let busy = || Origin::new(|_| (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(), true));
    let (one, other) = (busy(), busy());
    let values = vec!["http_503".to_owned()];
    let again =
        LocationPolicy { proxy_next_upstream: Some(TextList { values }), ..LocationPolicy::default() };
    let mut proxy = Proxy::start();
    let format = "$upstream_status $upstream_header_time".to_owned();
    let defaults = LocationPolicy { log_format_upstream: Some(format), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let usual = LocationPolicy::default;
    proxy.policies(false, &[("/endless", usual()), ("/small", usual()), ("/busy", again)]);
    proxy.endpoints("endless", &[long.address]);
    proxy.endpoints("small", &[Origin::says("here").address]);
    proxy.endpoints("busy", &[one.address, other.address]);
    let mut client = stuck(&proxy, &sent);
    ask(&mut client, 3, "GET", "/busy");
    eventually("one is asked", || one.seen().len() + other.seen().len() == 1);
    for _ in 0..10 {
        assert_eq!(Client::new(proxy.http).get("/small").status, 200);
    }
    heads(&mut client, 2);
    drop(client);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert!(log.lines().any(|line| line.starts_with("503, 503, 503 -,")), "{log}");
}

/// While memory is short, a single response in hand is enough. Of the others little is read.
#[test]
fn while_memory_is_short_others_arrive_beside_a_response_that_waits() {
    let big = Origin::new(|_| (ok(&"x".repeat(100_000)), true));
    let small = Origin::says("here");
    let budgets = Budgets { bytes: Budget::new(64 << 20), ..Budgets::default() };
    let mut proxy = Proxy::within(Limits::default(), budgets.clone());
    proxy.policies(false, &["/big", "/small"].map(|path| (path, LocationPolicy::default())));
    proxy.endpoints("big", &[big.address]);
    proxy.endpoints("small", &[small.address]);
    let mut client = with_lying(&proxy, 0, 1);
    let _short = budgets.bytes.take(52 << 20).unwrap();
    ask(&mut client, 3, "GET", "/small");
    heads(&mut client, 1);
}
