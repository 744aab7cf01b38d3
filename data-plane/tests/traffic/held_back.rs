//! Responses that are not read from their endpoints because the client of their HTTP/2 connection takes no others.

use std::time::Duration;

use data_plane::local::{Budgets, Limits};
use rustls::{ServerConnection, StreamOwned};
use shared::budget::Budget;
use shared::policy::{BackendProtocol, LocationPolicy, StatusList, TextList};
use shared::resource::{Resource, SETTINGS_KEY, Settings};
use test_kit::client::frames::{
    Block, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RESET, SETTINGS, WINDOW_UPDATE,
};

use super::backend_tls;
use super::harness::*;
use super::hostile::Frames;

/// Streams that wait for their windows, each with 16 KiB in hand, until no further response is read.
const LYING: u32 = 5;

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

/// Such a client stalls for longer than endpoints have to respond. Each has: none is asked a second time, and no
/// client is told that one has not.
#[test]
fn what_waits_for_its_client_is_not_late() {
    let big = Origin::new(|_| (ok(&"x".repeat(100_000)), true));
    let (small, other) = (Origin::says("here"), Origin::says("here"));
    let silent =
        Origin::raw(|mut stream, connection, _| while read_request(&mut stream, connection).is_some() {});
    let limited = LocationPolicy { proxy_read_timeout: Some(1), ..LocationPolicy::default() };
    let mut proxy = Proxy::start();
    proxy.policies(false, &["/big", "/small", "/silent"].map(|path| (path, limited.clone())));
    proxy.endpoints("big", &[big.address]);
    proxy.endpoints("small", &[small.address, other.address]);
    proxy.endpoints("silent", &[silent.address]);
    let mut client = with_lying(&proxy, 0, LYING);
    let lying = 2 * LYING;
    ask(&mut client, lying + 1, "GET", "/small");
    ask(&mut client, lying + 3, "POST", "/small");
    let asked = || small.seen().len() + other.seen().len();
    eventually("both are asked for", || asked() == 2);
    // The time in which an endpoint has to respond goes by.
    assert_eq!(Client::new(proxy.http).get("/silent").status, 504);
    assert_eq!(asked(), 2, "none is asked again");
    let worker = proxy.metrics.worker(0);
    let failed = worker.retries.value();
    assert!(client.send(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    let (mut here, mut length) = (0, 0);
    while here < 2 || length < LYING as usize * 100_000 {
        let (kind, stream, payload) = client.next().unwrap();
        assert!(![RESET, GOAWAY].contains(&kind), "{kind} of {stream}: {payload:?}");
        match kind {
            HEADERS if stream > lying => assert_eq!(payload[0], 0x88, "`:status: 200`"),
            DATA if stream > lying => here += usize::from(payload == b"here"),
            DATA => length += payload.len(),
            _ => {}
        }
    }
    assert_eq!((asked(), worker.retries.value()), (2, failed));
}

/// Long responses that a slow client takes steadily have their next pieces in hand all the time. Another one is read in
/// its turn, and not when one of them has ended.
#[test]
fn what_waits_beside_long_responses_has_its_turn() {
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
fn of_error_pages_that_nobody_takes_few_are_in_hand() {
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
fn an_endpoint_behind_tls_that_says_nothing_is_late_beside_responses_that_wait() {
    let big = Origin::new(|_| (ok(&"x".repeat(100_000)), true));
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
        proxy_next_upstream: Some(TextList { values: vec!["off".to_owned()] }),
        ..LocationPolicy::default()
    };
    let mut proxy = Proxy::start();
    proxy.policies(false, &[("/big", LocationPolicy::default()), ("/silent", limited)]);
    proxy.endpoints("big", &[big.address]);
    proxy.endpoints("silent", &[silent.address]);
    let mut client = with_lying(&proxy, 0, LYING);
    ask(&mut client, 2 * LYING + 1, "GET", "/silent");
    heads(&mut client, 1);
    assert_eq!(silent.seen().len(), 1);
}

/// The time until its head is not its endpoint's, and is not in the log.
#[test]
fn a_response_that_waited_and_is_passed_over_has_no_header_time() {
    let big = Origin::new(|_| (ok(&"x".repeat(100_000)), true));
    let busy = || Origin::new(|_| (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(), true));
    let (one, other) = (busy(), busy());
    let values = vec!["http_503".to_owned()];
    let again =
        LocationPolicy { proxy_next_upstream: Some(TextList { values }), ..LocationPolicy::default() };
    let mut proxy = Proxy::start();
    let format = "$upstream_status $upstream_header_time".to_owned();
    let defaults = LocationPolicy { log_format_upstream: Some(format), ..LocationPolicy::default() };
    proxy.config(vec![(SETTINGS_KEY, Resource::Settings(Settings { defaults, ..Settings::default() }))]);
    proxy.policies(false, &[("/big", LocationPolicy::default()), ("/busy", again)]);
    proxy.endpoints("big", &[big.address]);
    proxy.endpoints("busy", &[one.address, other.address]);
    let mut client = with_lying(&proxy, 0, LYING);
    ask(&mut client, 2 * LYING + 1, "GET", "/busy");
    eventually("one is asked", || one.seen().len() + other.seen().len() == 1);
    for _ in 0..10 {
        assert_eq!(Client::new(proxy.http).get("/big").status, 200);
    }
    assert!(client.send(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    heads(&mut client, 1);
    drop(client);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert!(log.lines().any(|line| line.starts_with("503, 503, 503 -, 0.")), "{log}");
}

/// While memory is short, a single response in hand is enough. When it is not any more, no byte has to move.
#[test]
fn what_waits_for_memory_goes_on_when_there_is_some() {
    let big = Origin::new(|_| (ok(&"x".repeat(100_000)), true));
    let small = Origin::says("here");
    let budgets = Budgets { bytes: Budget::new(64 << 20), ..Budgets::default() };
    let mut proxy = Proxy::within(Limits::default(), budgets.clone());
    proxy.policies(false, &["/big", "/small"].map(|path| (path, LocationPolicy::default())));
    proxy.endpoints("big", &[big.address]);
    proxy.endpoints("small", &[small.address]);
    let mut client = with_lying(&proxy, 0, 1);
    let short = budgets.bytes.take(52 << 20).unwrap();
    ask(&mut client, 3, "GET", "/small");
    eventually("it is asked for", || small.seen().len() == 1);
    for _ in 0..10 {
        assert_eq!(Client::new(proxy.http).get("/small").text(), "here");
    }
    drop(short);
    heads(&mut client, 1);
}
