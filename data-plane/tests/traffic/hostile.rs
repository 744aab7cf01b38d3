//! Abusive clients: each is disconnected or bounded, and others notice nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use data_plane::local::{Budgets, Limits};
use shared::budget::Budget;
use shared::policy::LocationPolicy;
use shared::resource::{PathType, Resource, Route};
use socket2::{Domain, Socket, Type};
use test_kit::client::frames::{
    Block, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, RESET, WINDOW_UPDATE, frame,
};

use super::harness::*;

/// A byte-level HTTP/2 client.
pub(super) struct Frames {
    pub(super) stream: TcpStream,
}

impl Frames {
    /// Connects and sends the preface.
    pub(super) fn new(proxy: &Proxy) -> Self {
        Self::over(TcpStream::connect(proxy.http).unwrap())
    }

    /// Sends the preface on a connection.
    pub(super) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut frames = Self { stream };
        frames.stream.write_all(PREFACE).unwrap();
        frames.send(4, 0, 0, b"");
        frames
    }

    /// Sends a frame; false if the proxy does not accept it any more.
    pub(super) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.stream.write_all(&frame(kind, flags, stream, payload)).is_ok()
    }

    /// The next frame: type, stream, payload. `None` at the end.
    pub(super) fn next(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        self.next_with_flags().map(|(kind, stream, _, payload)| (kind, stream, payload))
    }

    /// The same with its flags before the payload.
    pub(super) fn next_with_flags(&mut self) -> Option<(u8, u32, u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let [a, b, c, kind, flags, s, t, u, v] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some((kind, u32::from_be_bytes([s, t, u, v]), flags, payload))
    }

    /// The frames of one type until the end.
    fn all(&mut self, kind: u8) -> Vec<(u32, Vec<u8>)> {
        let frames = std::iter::from_fn(|| self.next());
        frames.filter(|(found, ..)| *found == kind).map(|(_, stream, payload)| (stream, payload)).collect()
    }
}

/// `GET / HTTP/2` for `a.test` in HPACK.
pub(super) fn get() -> Vec<u8> {
    Block::request("GET", "a.test", "/").bytes().to_vec()
}

/// An HPACK integer with a prefix of this many bits.
fn number(first: u8, bits: u32, mut value: usize) -> Vec<u8> {
    let most = (1_usize << bits) - 1;
    if value < most {
        return vec![first | value as u8];
    }
    let mut bytes = vec![first | most as u8];
    value -= most;
    while value >= 128 {
        bytes.push((value % 128) as u8 | 128);
        value /= 128;
    }
    bytes.push(value as u8);
    bytes
}

/// The error code of the proxy's GOAWAY, if it has sent one.
pub(super) fn said_goodbye(frames: &mut Frames) -> Option<u32> {
    let goodbyes = frames.all(GOAWAY);
    goodbyes.last().map(|(_, payload)| u32::from_be_bytes(payload[4..8].try_into().unwrap()))
}

const CALM: u32 = 11;

#[test]
fn resets_of_streams_just_opened_end_the_connection() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::new(move |_| {
        let _ = wait.lock().unwrap().recv();
        (ok("late"), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut hostile = Frames::new(&proxy);
    for request in 0..1_000 {
        let stream = 2 * request + 1;
        if !hostile.send(HEADERS, END_HEADERS | END_STREAM, stream, &get()) {
            break;
        }
        // Not before a backend was asked: no limit of h2's own detects this one.
        let asked = || proxy.metrics.worker(0).connected.value() > u64::from(request);
        let gone = || proxy.metrics.worker(0).sent_away.value() > 0;
        eventually("it was asked", || asked() || gone());
        if gone() || !hostile.send(RESET, 0, stream, &8_u32.to_be_bytes()) {
            break;
        }
    }
    assert_eq!(said_goodbye(&mut hostile), Some(CALM));
    let connected = proxy.metrics.worker(0).connected.value();
    assert!((190..=210).contains(&connected), "{connected}");
    drop(go);
    assert_eq!(Client::new(proxy.http).get("/").status, 200);
}

/// A gRPC client resets its calls at their deadlines. In a moment when an endpoint is slow these are many, and it lost all
/// that it had on the connection.
#[test]
fn who_resets_too_much_begins_nothing_more_and_gets_what_was_begun() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::new(move |request| {
        let body = "x".repeat(200_000);
        if request.line().contains("/slow") {
            let _ = wait.lock().unwrap().recv();
        }
        (ok(&body), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Frames::new(&proxy);
    assert!(client.send(HEADERS, END_HEADERS | END_STREAM, 1, &get()));
    let mut length = 0;
    let slow = Block::request("GET", "a.test", "/slow").bytes().to_vec();
    for number in 1..=200 {
        assert!(client.send(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &slow));
        assert!(client.send(RESET, 0, 2 * number + 1, &8_u32.to_be_bytes()));
    }
    let mut goodbye = None;
    while length < 200_000 {
        let (kind, stream, payload) = client.next().expect("it goes on");
        match kind {
            DATA => {
                assert_eq!(stream, 1);
                length += payload.len();
                let grown = (payload.len() as u32).to_be_bytes();
                // An empty frame grows nothing.
                if !payload.is_empty() {
                    assert!([0, 1].into_iter().all(|it| client.send(WINDOW_UPDATE, 0, it, &grown)));
                }
            }
            GOAWAY => goodbye = Some(payload),
            _ => {}
        }
    }
    let goodbye = goodbye.expect("it is told");
    assert_eq!(goodbye[4..8], CALM.to_be_bytes());
    while client.next().is_some() {}
    drop(go);
}

/// Streams that are reset before they were processed, and those that the proxy had to reset.
#[test]
fn resets_at_once_and_resets_of_ours_end_the_connection() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let asks = |stream| frame(HEADERS, END_HEADERS, stream, &get());
    // One write, so that all of it has arrived when the proxy reads.
    let reset = |number: u32| [asks(2 * number + 1), frame(RESET, 0, 2 * number + 1, &[0, 0, 0, 8])].concat();
    // A body shorter than declared is a stream error (RFC 9113 section 8.1.1).
    let error = |number: u32| {
        let head = [&get()[..], &[0x0f, 0x0d, 1, b'5']].concat();
        let stream = 2 * number + 1;
        [frame(HEADERS, END_HEADERS, stream, &head), frame(DATA, END_STREAM, stream, b"x")].concat()
    };
    let ends = |what: &str, rounds: [u32; 3], each: &dyn Fn(u32) -> Vec<u8>| {
        let (mut hostile, mut next) = (Frames::new(&proxy), 0);
        // What is counted as it is written ends the connection after the first answer.
        rounds.into_iter().any(|count| {
            let bytes: Vec<u8> = (next..next + count).flat_map(each).collect();
            next += count;
            hostile.stream.write_all(&bytes).unwrap();
            hostile.send(6, 0, 0, b"are you?");
            let said = std::iter::from_fn(|| hostile.next()).find(|(kind, ..)| [6, GOAWAY].contains(kind));
            let (kind, _, payload) =
                said.unwrap_or_else(|| panic!("{what}: neither an answer nor a goodbye"));
            assert!(kind == 6 || payload[4..8] == CALM.to_be_bytes(), "{what}: {payload:?}");
            kind == GOAWAY
        })
    };
    assert!(!ends("as many as there may be at once", [128, 0, 0], &reset));
    assert!(ends("most of two hundred", [250, 0, 0], &reset));
    // No more at once than streams, beyond which they are refused and no errors.
    assert!(!ends("errors", [100, 28, 0], &error));
    assert!(ends("more errors", [100, 40, 0], &error));
    assert_eq!(Client::new(proxy.http).get("/").text(), "hello");
}

/// Over a slow uplink, or through a gateway with many clients: 128 frames of bodies that came a second late ended the
/// connection with all its other requests.
#[test]
fn late_bodies_of_requests_that_were_refused_are_no_errors() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Frames::new(&proxy);
    // Nobody serves the host of these. h2 remembers 50 streams that it has reset.
    let length = [&[0x0f, 0x0d, 6][..], b"100000"].concat();
    let refused = [Block::request("POST", "z.test", "/").bytes(), &length].concat();
    let streams: Vec<u32> = (0..100).map(|number| 2 * number + 1).collect();
    for stream in &streams {
        client.send(HEADERS, END_HEADERS, *stream, &refused);
        while client.next().is_some_and(|(kind, on, _)| (kind, on) != (RESET, *stream)) {}
    }
    for stream in streams.iter().cycle().take(300) {
        client.send(DATA, 0, *stream, &[b'x'; 1_000]);
    }
    client.send(HEADERS, END_HEADERS | END_STREAM, 1_001, &get());
    let said = std::iter::from_fn(|| client.next()).find(|(kind, on, _)| *kind == GOAWAY || *on == 1_001);
    assert_eq!(said.map(|(kind, ..)| kind), Some(HEADERS));
}

#[test]
fn a_connection_is_told_its_limits_at_first() {
    let proxy = Proxy::start();
    let mut client = Frames::new(&proxy);
    let mut first: Vec<(u8, u32, Vec<u8>)> = Vec::new();
    while first.iter().all(|(kind, ..)| *kind != 8) {
        first.extend(client.next());
    }
    let (_, _, settings) = first.iter().find(|(kind, _, payload)| *kind == 4 && !payload.is_empty()).unwrap();
    let told = |id: u16| {
        let mut pairs = settings.chunks(6).filter(|pair| pair[..2] == id.to_be_bytes());
        pairs.next().map(|pair| u32::from_be_bytes(pair[2..].try_into().unwrap()))
    };
    // Concurrent streams, stream window, header list size.
    assert_eq!([3, 4, 6].map(told), [Some(128), Some(128 << 10), Some(32 << 10)]);
    let (_, _, window) = first.iter().find(|(kind, stream, _)| (*kind, *stream) == (8, 0)).unwrap();
    assert_eq!(u32::from_be_bytes(window[..].try_into().unwrap()), (512 << 10) - 65_535);
}

#[test]
fn frames_about_nothing_end_the_connection() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let nothing: [(u8, u32, &[u8]); 4] =
        [(6, 0, &[0; 8]), (4, 0, b""), (2, 1, &[0, 0, 0, 0, 1]), (8, 0, &[0, 0, 0, 1])];
    for (kind, stream, payload) in nothing {
        let mut hostile = Frames::new(&proxy);
        let many = frame(kind, 0, stream, payload).repeat(3_000);
        // The proxy may close before all of it is sent, and its last frames may be lost.
        let _ = hostile.stream.write_all(&many);
        if let Some(reason) = said_goodbye(&mut hostile) {
            assert_eq!(reason, CALM, "{kind}");
        }
    }
    eventually("all were sent away", || proxy.metrics.worker(0).sent_away.value() == 4);
    eventually("and are gone", || proxy.metrics.open() == 0);
    assert_eq!(Client::new(proxy.http).get("/").text(), "hello");
}

/// It is told so by h2, and counted like those that are sent away for other reasons.
#[test]
fn http2_protocol_error_is_counted() {
    const PROTOCOL_ERROR: u32 = 1;
    let proxy = Proxy::serving(Limits::default(), &[Origin::says("hello").address]);
    let faults: [(u8, u32, &[u8]); 3] =
        [(WINDOW_UPDATE, 0, &[0; 4]), (DATA, 1, b"of no request"), (HEADERS, 2, &get())];
    for (count, (kind, stream, payload)) in (1..).zip(faults) {
        let mut hostile = Frames::new(&proxy);
        // As a flag of DATA, END_HEADERS has no meaning.
        assert!(hostile.send(kind, END_HEADERS, stream, payload));
        assert_eq!(said_goodbye(&mut hostile), Some(PROTOCOL_ERROR), "{kind}");
        eventually("it is counted", || proxy.metrics.worker(0).sent_away.value() == count);
    }
}

#[test]
fn a_connection_serves_so_many_requests() {
    let origin = Origin::says("hello");
    assert_eq!(Limits::default().requests, 1_000);
    let proxy = Proxy::serving(Limits { requests: 3, ..Limits::default() }, &[origin.address]);
    let mut client = Client::new(proxy.http);
    for expected in ["keep-alive", "keep-alive", "close"] {
        assert_eq!(client.get("/").all("connection"), [expected]);
    }
    assert!(client.ended());
    let mut frames = Frames::new(&proxy);
    (0..3).for_each(|n| assert!(frames.send(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &get())));
    let mut answers = 0;
    let goodbye = std::iter::from_fn(|| frames.next()).any(|(kind, ..)| {
        answers += usize::from(kind == DATA);
        kind == GOAWAY && answers == 3
    });
    assert!(goodbye || answers == 3, "{answers}");
}

/// 4,000 bytes in the table, which a single byte refers to from then on.
fn bomb(first: bool, references: usize) -> Vec<u8> {
    let mut block = vec![0x83, 0x84, 0x86, 0x01, 6];
    block.extend(b"a.test");
    if first {
        block.extend([0x40, 1, b'x']);
        block.extend(number(0, 7, 4_000));
        block.extend([b'v'; 4_000]);
    }
    block.extend(vec![0xbe; references]);
    block
}

/// A proxy with `a.test` and this byte budget.
fn within(bytes: usize, origin: &Origin) -> (Proxy, Budgets) {
    let budgets = Budgets { bytes: Budget::new(bytes), ..Budgets::default() };
    let mut proxy = Proxy::within(Limits::default(), budgets.clone());
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    (proxy, budgets)
}

#[test]
fn hpack_bomb_is_refused_within_the_memory_limit() {
    let origin = Origin::says("hello");
    let (proxy, budgets) = within(64 << 20, &origin);
    let mut hostile = Frames::new(&proxy);
    for n in 0..100 {
        // A POST whose body does not arrive yet.
        assert!(hostile.send(HEADERS, END_HEADERS, 2 * n + 1, &bomb(n == 0, 6)));
    }
    let mut refused = 0;
    while refused < 85 {
        let (kind, _, payload) = hostile.next().unwrap();
        if kind == RESET {
            assert_eq!(payload, 7_u32.to_be_bytes(), "refused, so that it may be asked again");
            refused += 1;
        }
    }
    // Some heads of 24 kB, with their text; most of them are queued. Drawn in steps of 256 KiB.
    assert!(budgets.bytes.used() <= 512 * 1024, "{}", budgets.bytes.used());
    assert_eq!(Client::new(proxy.http).get("/").text(), "hello");
    drop(hostile);
    eventually("all is given back", || budgets.bytes.used() == 0);
}

/// As browsers do with their cookies: none is refused, each is served when those before it were answered.
#[test]
fn fifty_requests_with_cookies_of_2_kilobytes_are_all_served() {
    let origin = Origin::says("hello");
    let (proxy, _) = within(64 << 20, &origin);
    let mut browser = Frames::new(&proxy);
    for n in 0..50 {
        let mut block = vec![0x83, 0x84, 0x86, 0x01, 6];
        block.extend(b"a.test");
        match n {
            0 => {
                block.extend([0x40, 1, b'x']);
                block.extend(number(0, 7, 2_000));
                block.extend([b'v'; 2_000]);
            }
            _ => block.push(0xbe),
        }
        assert!(browser.send(HEADERS, END_HEADERS, 2 * n + 1, &block));
    }
    for n in 0..50 {
        assert!(browser.send(DATA, END_STREAM, 2 * n + 1, b"body"));
    }
    let mut answered = 0;
    while answered < 50 {
        let (kind, _, payload) = browser.next().unwrap();
        assert!(kind != RESET && kind != GOAWAY, "{kind} {payload:?} after {answered} answers");
        answered += usize::from(kind == HEADERS);
    }
    let whole = |seen: &Seen| seen.body == b"body" && seen.all("x").iter().any(|value| value.len() == 2_000);
    assert_eq!(origin.seen().iter().filter(|seen| whole(seen)).count(), 50);
}

#[test]
fn a_request_that_waits_for_room_can_be_taken_back() {
    let origin = Origin::says("hello");
    let (proxy, budgets) = within(64 << 20, &origin);
    let mut hostile = Frames::new(&proxy);
    for n in 0..20 {
        assert!(hostile.send(HEADERS, END_HEADERS, 2 * n + 1, &bomb(n == 0, 6)));
    }
    for n in 0..20 {
        assert!(hostile.send(RESET, 0, 2 * n + 1, &8_u32.to_be_bytes()));
    }
    assert!(hostile.send(HEADERS, END_HEADERS | END_STREAM, 101, &get()));
    let answered =
        std::iter::from_fn(|| hostile.next()).any(|(kind, stream, _)| (kind, stream) == (HEADERS, 101));
    assert!(answered && origin.seen().len() == 1, "{:?}", origin.seen());
    drop(hostile);
    eventually("all is given back", || budgets.bytes.used() == 0);
}

#[test]
fn untaken_responses_are_buffered_within_the_limit() {
    let origin = Origin::new(|_| (ok(&"x".repeat(100_000)), true));
    let (proxy, budgets) = within(64 << 20, &origin);
    let mut hostile = Frames::new(&proxy);
    assert!(hostile.send(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    for n in 0..100 {
        assert!(hostile.send(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &get()));
    }
    eventually("all are asked for", || origin.seen().len() == 100);
    // What some had read when the others started stays so: the tasks of a hundred, and less than ten buffers.
    for _ in 0..50 {
        assert_eq!(Client::new(proxy.http).get("/").body.len(), 100_000);
        assert!(budgets.bytes.used() <= 1_500 * 1024, "{}", budgets.bytes.used());
    }
    // All arrive when they are read.
    assert!(hostile.send(8, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    assert!(hostile.send(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    let mut length = 0;
    while length < 100 * 100_000 {
        let (kind, _, payload) = hostile.next().unwrap();
        assert!(kind != RESET && kind != GOAWAY, "{kind} {payload:?} after {length} bytes");
        length += if kind == DATA { payload.len() } else { 0 };
    }
    drop(hostile);
    eventually("all is given back", || budgets.bytes.used() == 0);
}

/// A client asks with a dozen bytes for a head of 4 kB. What its connection does not take is charged.
#[test]
fn redirects_that_nobody_reads_are_charged() {
    let origin = Origin::says("hello");
    let (mut proxy, budgets) = within(64 << 20, &origin);
    let elsewhere = Some(format!("https://b.test/{}", "x".repeat(3_900)));
    let policy = LocationPolicy { permanent_redirect: elsewhere, ..LocationPolicy::default() };
    let paths = vec![to("/", PathType::Prefix, "echo")];
    proxy.config(vec![("ingress/ns/i/a.test", Resource::Route(Route { paths, policy, ..Route::default() }))]);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(&proxy.http.into()).unwrap();
    let mut hostile = Frames::over(socket.into());
    let ask = Block::request("HEAD", "a.test", "/").bytes().to_vec();
    (0..900)
        .for_each(|number| assert!(hostile.send(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &ask)));
    eventually("they are charged", || budgets.bytes.used() >= 64 * 1024);
    assert_eq!(Client::new(proxy.http).get("/").status, 301);
    drop(hostile);
    eventually("all is given back", || budgets.bytes.used() == 0);
}

/// As a browser with paused videos, whose windows are full: each is a stream of its own (RFC 9113 section 5.2).
#[test]
fn answers_that_lie_on_one_connection_hold_up_no_other() {
    const LYING: u32 = 12;
    let origin = Origin::new(|_| (ok(&"x".repeat(200_000)), true));
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut browser = Frames::new(&proxy);
    assert!(browser.send(8, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    let mut window = 0;
    for n in 0..=LYING {
        assert!(browser.send(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &get()));
        window += 65_535;
        while window > 0 {
            let (kind, _, payload) = browser.next().unwrap();
            assert!(kind != RESET && kind != GOAWAY, "{kind} {payload:?}");
            window -= if kind == DATA { payload.len() } else { 0 };
        }
    }
}

#[test]
fn where_memory_is_short_the_idle_go_and_bodies_go_to_files() {
    let origin = Origin::new(|seen| (ok(&seen.body.len().to_string()), true));
    let (proxy, budgets) = within(4 << 20, &origin);
    let mut idle = Client::new(proxy.http);
    assert_eq!(idle.get("/").text(), "0");
    // Beyond three quarters; a worker draws 256 KiB of the rest, which is less than nine tenths.
    let _short = budgets.bytes.take(3_300_000).unwrap();
    assert!(idle.ended());
    assert!(proxy.metrics.worker(0).shed.value() >= 1);
    // A request is served, but its body is not held in memory beyond a first piece.
    let mut client = Client::new(proxy.http);
    client.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 30000\r\n\r\n");
    client.send([b'b'; 29_000]);
    eventually("it is in a file", || budgets.spill.used() > 0);
    client.send([b'b'; 1_000]);
    assert_eq!(client.receive(false).unwrap().text(), "30000");
}

#[test]
fn a_header_list_has_32_kibibytes() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut hostile = Frames::new(&proxy);
    assert!(hostile.send(HEADERS, END_HEADERS, 1, &bomb(true, 8)));
    let answer =
        std::iter::from_fn(|| hostile.next()).find(|(kind, ..)| [HEADERS, RESET, GOAWAY].contains(kind));
    let (kind, _, payload) = answer.unwrap();
    // A literal 431, or a reset.
    let told = payload.windows(3).any(|three| three == b"431");
    assert!(kind != HEADERS || told || payload.len() < 40, "{kind} {payload:?}");
    assert_eq!(proxy.metrics.worker(0).routed.value(), 0);
}

#[test]
fn without_memory_the_new_is_refused_and_the_rest_goes_on() {
    let origin = Origin::says("hello");
    let budgets = Budgets { bytes: Budget::new(16 * 1024), ..Budgets::default() };
    let mut proxy = Proxy::within(Limits::default(), budgets.clone());
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    let held = budgets.bytes.take(15 * 1024).unwrap();
    let mut client = Client::new(proxy.http);
    let response = client.get("/");
    assert_eq!((response.status, response.all("retry-after")), (503, vec!["1"]));
    assert!(client.ended());
    let mut frames = Frames::new(&proxy);
    assert!(frames.send(HEADERS, END_HEADERS | END_STREAM, 1, &get()));
    let reset = std::iter::from_fn(|| frames.next()).find(|(kind, ..)| *kind == RESET);
    assert_eq!(reset.unwrap().2, 7_u32.to_be_bytes());
    drop(held);
    assert_eq!(Client::new(proxy.http).get("/").text(), "hello");
}

#[test]
fn client_that_stops_reading_is_closed() {
    let origin = Origin::new(|_| (ok(&"x".repeat(8 << 20)), true));
    let limits = Limits { client_send: Duration::from_millis(1), ..Limits::default() };
    let proxy = Proxy::serving(limits, &[origin.address]);
    let mut hostile = Frames::new(&proxy);
    // The full window, and not one byte is read.
    assert!(hostile.send(8, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    assert!(hostile.send(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    assert!(hostile.send(HEADERS, END_HEADERS | END_STREAM, 1, &get()));
    eventually("it is asked", || !origin.seen().is_empty());
    eventually("the connection is gone", || proxy.metrics.open() == 0);
}

#[test]
fn plain_http_where_tls_is_spoken_is_told_so() {
    let proxy = Proxy::start();
    let mut client = Client::new(proxy.https);
    let response = client.get("/");
    assert_eq!((response.status, response.all("connection")), (400, vec!["close"]));
    assert_eq!(
        response.text(),
        "<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head>\r\n<body>\r\n\
         <center><h1>400 Bad Request</h1></center>\r\n<center>The plain HTTP request was sent to HTTPS port</center>\r\n\
         <hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
    );
    assert!(client.ended());
}
