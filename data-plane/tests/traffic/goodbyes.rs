//! Graceful end of an HTTP/2 connection (GOAWAY): no request in progress is cut off, and none is half processed.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use data_plane::local::Limits;
use socket2::SockRef;
use test_kit::client::frames::{
    Block, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PREFACE, RESET, SETTINGS,
    WINDOW_UPDATE, frame,
};

use super::harness::*;
use super::hostile::{Frames, get};

const PING: u8 = 6;

/// Bytes of a response: the kernel has all of them long before the client.
const LONG: usize = 400_000;

/// A client that reads as much as there is.
struct Talker {
    stream: TcpStream,
}

impl Talker {
    fn new(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        SockRef::from(&stream).set_recv_buffer_size(4096).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let window = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &(1_u32 << 30).to_be_bytes()].concat();
        let opened = frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &window), &opened].concat()).unwrap();
        Self { stream }
    }

    fn begin(&mut self, method: &str, stream: u32) {
        let ends = if method == "GET" { END_STREAM } else { 0 };
        let block = Block::request(method, "a.test", "/");
        self.send(HEADERS, END_HEADERS | ends, stream, block.bytes());
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.stream.write_all(&frame(kind, flags, stream, payload)).unwrap();
    }

    /// The next frame, `None` at the end: type, flags, stream, payload. PINGs are answered.
    fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        match self.stream.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return None,
            Err(error) => panic!("{error}"),
        }
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload).unwrap();
        if matches!(kind, SETTINGS | PING) && flags & 1 == 0 {
            let said = if kind == PING { &payload[..] } else { &[] };
            // A peer that is gone does not receive it.
            let _ = self.stream.write_all(&frame(kind, 1, 0, said));
        }
        Some((kind, flags, u32::from_be_bytes(stream), payload))
    }

    /// The last stream that will be processed, according to the next GOAWAY.
    fn goodbye(&mut self) -> u32 {
        loop {
            let (kind, _, _, payload) = self.next().unwrap();
            if kind == GOAWAY {
                return u32::from_be_bytes(payload[..4].try_into().unwrap());
            }
        }
    }
}

/// An origin that responds when told to.
fn held() -> (Origin, impl Fn()) {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let opens = Arc::clone(&gate);
    let origin = Origin::new(move |seen| {
        let mut open = gate.0.lock().unwrap();
        while !*open {
            open = gate.1.wait(open).unwrap();
        }
        (ok(&seen.body.len().to_string()), true)
    });
    let open = move || {
        *opens.0.lock().unwrap() = true;
        opens.1.notify_all();
    };
    (origin, open)
}

/// Limits with this many requests per connection, and no waiting for idle clients.
fn after(requests: usize) -> Limits {
    Limits { requests, linger: Duration::from_millis(1), ..Limits::default() }
}

/// Firefox took complete responses for incomplete that it had not handed on when the proxy closed.
#[test]
fn a_client_closes_after_the_last_response() {
    let origin = Origin::says("here");
    let limits = Limits { requests: 1, linger: 20 * PATIENCE, ..Limits::default() };
    let proxy = Proxy::serving(limits, &[origin.address]);
    let mut client = Talker::new(proxy.http);
    client.begin("GET", 1);
    assert_eq!([client.goodbye(), client.goodbye()], [(1 << 31) - 1, 1]);
    client.send(PING, 0, 0, b"present?");
    let answer = std::iter::from_fn(|| client.next()).find(|(kind, flags, ..)| (*kind, *flags) == (PING, 1));
    assert_eq!(answer.expect("it is open").3, b"present?");
    drop(client);
    eventually("it is closed", || proxy.metrics.open() == 0);
}

#[test]
fn the_last_answer_is_whole_for_a_client_that_goes_on_talking() {
    let long = "x".repeat(LONG);
    let origin = Origin::new(move |_| (ok(&long), true));
    let proxy = Proxy::serving(Limits { requests: 1, ..Limits::default() }, &[origin.address]);
    let mut client = Talker::new(proxy.http);
    client.begin("GET", 1);
    let mut length = 0;
    while let Some((kind, _, stream, payload)) = client.next() {
        if kind == DATA {
            length += payload.len();
            // A client that reads sends window updates.
            for of in [0, stream] {
                let more = u32::try_from(payload.len().max(1)).unwrap().to_be_bytes();
                client.stream.write_all(&frame(WINDOW_UPDATE, 0, of, &more)).expect("it is listened to");
            }
        }
    }
    assert_eq!(length, LONG);
}

#[test]
fn drain_serves_open_streams_and_refuses_later_ones() {
    let (origin, open) = held();
    let proxy = Proxy::serving(after(3), &[origin.address]);
    let mut client = Talker::new(proxy.http);
    (0..10).for_each(|number| client.begin("GET", 2 * number + 1));
    assert_eq!((client.goodbye(), client.goodbye()), (0x7fff_ffff, 19));
    client.begin("GET", 21);
    eventually("all have arrived", || origin.seen().len() == 10);
    open();
    let mut served = Vec::new();
    while let Some((kind, flags, stream, payload)) = client.next() {
        match kind {
            HEADERS => assert_eq!(payload[0], 0x88, "200"),
            DATA if flags & END_STREAM != 0 => served.push(stream),
            _ => {}
        }
    }
    served.sort_unstable();
    assert_eq!(served, (0..10).map(|number| 2 * number + 1).collect::<Vec<u32>>());
    assert_eq!(origin.seen().len(), 10);
}

#[test]
fn an_upload_goes_on_after_the_goodbye() {
    let (origin, open) = held();
    let proxy = Proxy::serving(after(1), &[origin.address]);
    let mut client = Talker::new(proxy.http);
    client.begin("POST", 1);
    assert_eq!((client.goodbye(), client.goodbye()), (0x7fff_ffff, 1));
    client.send(DATA, 0, 1, b"begun");
    let said = Instant::now();
    eventually("it takes longer than who says nothing is waited for", || {
        said.elapsed() > Duration::from_millis(500)
    });
    client.send(DATA, END_STREAM, 1, b"ended");
    open();
    let answer: Vec<_> = std::iter::from_fn(|| client.next()).filter(|(kind, ..)| *kind == DATA).collect();
    let text: Vec<u8> = answer.into_iter().flat_map(|(.., payload)| payload).collect();
    assert_eq!(text, b"10");
}

/// A client has seen a GOAWAY when it answers the PING that comes with it. One that never does is not served forever.
#[test]
fn client_that_ignores_goaway_is_closed_eventually() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits { requests: 3, ..Limits::default() }, &[origin.address]);
    let mut client = Frames::new(&proxy);
    let mut served = 0;
    let reason = loop {
        let stream = 2 * served + 1;
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &get());
        let (kind, _, payload) = std::iter::from_fn(|| client.next())
            .find(|(kind, of, _)| *of == stream && [DATA, RESET].contains(kind))
            .unwrap();
        if kind == RESET {
            break payload;
        }
        served += 1;
        assert!(served < 1_000, "it is served for ever");
    };
    // REFUSED_STREAM: the request may be retried elsewhere.
    assert_eq!((served, reason), (3 + 256, vec![0, 0, 0, 7]));
    assert_eq!(origin.seen().len(), 3 + 256);
}
