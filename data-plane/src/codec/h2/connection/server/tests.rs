use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use test_kit::client::frames::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, RESET, SETTINGS, WINDOW_UPDATE, frame,
};

use super::*;
use crate::codec::frame::ACK;
use crate::codec::h2::connection::AT_ONCE;
use crate::codec::h2::connection::both::{self, Said, number, setting, written};
use crate::codec::head::Known;

const LIMITS: Limits = Limits { stream: 100_000, window: 200_000, list: 4_000, block: 128 * 1024 };

const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const BOTH: u8 = END_STREAM | END_HEADERS;
const PADDED: u8 = 8;

/// `GET / HTTP/1.1`, `POST /`, both without more fields.
const GET: &[u8] = &[0x82, 0x86, 0x84];
const POST: &[u8] = &[0x83, 0x86, 0x84];

/// A client, and the connection that it talks to.
struct Client {
    connection: Connection<Server>,
    fields: FieldBlock,
    input: BytesMut,
}

impl Client {
    /// Nothing was said.
    fn new() -> Self {
        let connection = Connection::new(3, LIMITS, shared::clock::now());
        Self { connection, fields: FieldBlock::default(), input: BytesMut::new() }
    }

    /// Settings were exchanged.
    fn greeted() -> Self {
        let mut client = Self::new();
        assert_eq!(client.send(PREFACE), Ok(vec![]));
        assert_eq!(client.send(&frame(SETTINGS, 0, 0, &[])), Ok(vec![]));
        client.said();
        client
    }

    /// Sends bytes: the streams that were opened.
    fn send(&mut self, bytes: &[u8]) -> Result<Vec<u32>, Reason> {
        self.input.extend_from_slice(bytes);
        let mut opened = Vec::new();
        let now = shared::clock::now();
        while let Some(it) = self.connection.receive(&mut self.input, &mut self.fields, now)? {
            opened.push(it.stream);
        }
        Ok(opened)
    }

    /// Sends a frame that is no error and opens nothing.
    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        assert_eq!(self.send(&frame(kind, flags, stream, payload)), Ok(vec![]));
    }

    /// Opens a stream.
    fn open(&mut self, flags: u8, stream: u32, fields: &[u8]) {
        assert_eq!(self.send(&frame(HEADERS, flags, stream, fields)), Ok(vec![stream]));
    }

    /// What was written since the last call.
    fn said(&mut self) -> Vec<Said> {
        self.connection.widen();
        both::frames(&written(&mut self.connection, usize::MAX))
    }

    fn respond(&mut self, stream: u32, is_end: bool) {
        self.connection.fields(stream, is_end, |out| encode::status(out, 200)).unwrap();
    }

    /// All of a body that has come, which is read.
    fn read(&mut self, stream: u32) -> Vec<u8> {
        let (mut all, cx) = (Vec::new(), Context::from_waker(Waker::noop()));
        while let Poll::Ready(Some(Ok(piece))) = self.connection.poll_data(stream, &cx) {
            self.connection.release(stream, piece.len());
            all.extend_from_slice(&piece);
        }
        all
    }

    fn end(&mut self, stream: u32) -> Poll<Option<Result<Bytes, Cut>>> {
        self.connection.poll_data(stream, &Context::from_waker(Waker::noop()))
    }
}

/// Whether a task was woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn reset(stream: u32, reason: Reason) -> Said {
    (RESET, 0, stream, number(reason.0).to_vec())
}

fn widened(stream: u32, by: u32) -> Said {
    (WINDOW_UPDATE, 0, stream, number(by).to_vec())
}

#[test]
fn a_connection_begins_with_settings() {
    let mut client = Client::new();
    let told = [setting(3, 3), setting(4, 100_000), setting(6, 4_000)].concat();
    assert_eq!(client.said(), [(SETTINGS, 0, 0, told), widened(0, 200_000 - 65_535)]);
    assert_eq!(client.send(&PREFACE[..10]), Ok(vec![]));
    assert!(!client.connection.is_greeted());
    assert_eq!(client.send(&PREFACE[10..]), Ok(vec![]));
    assert!(client.connection.is_greeted());
    client.frame(SETTINGS, 0, 0, &[setting(1, 0), setting(99, 7)].concat());
    assert_eq!(client.said(), [(SETTINGS, ACK, 0, vec![])]);
    client.frame(SETTINGS, ACK, 0, &[]);
    client.frame(PING, 0, 0, b"12345678");
    assert_eq!(client.said(), [(PING, ACK, 0, b"12345678".to_vec())]);
    for begun in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\n"] {
        assert_eq!(Client::new().send(begun), Err(Reason::PROTOCOL_ERROR));
    }
    for first in [frame(HEADERS, BOTH, 1, GET), frame(SETTINGS, ACK, 0, &[])] {
        let mut client = Client::new();
        assert_eq!(client.send(&[PREFACE, &first].concat()), Err(Reason::PROTOCOL_ERROR));
    }
}

#[test]
fn what_ends_a_connection() {
    let protocol: Vec<Vec<u8>> = vec![
        frame(DATA, 0, 0, b"x"),
        frame(DATA, 0, 3, b"of no request"),
        frame(DATA, PADDED, 1, &[2, 0]),
        frame(HEADERS, BOTH, 0, GET),
        frame(HEADERS, BOTH, 2, GET),
        frame(HEADERS, BOTH | PADDED, 3, &[9, 0x82]),
        frame(PRIORITY, 0, 0, &[0; 5]),
        frame(PRIORITY, 0, 5, &[0, 0, 0, 5, 1]),
        frame(RESET, 0, 0, &[0; 4]),
        frame(RESET, 0, 3, &[0; 4]),
        frame(SETTINGS, 0, 1, &[]),
        frame(SETTINGS, 0, 0, &setting(2, 2)),
        frame(SETTINGS, 0, 0, &setting(5, 16_383)),
        frame(SETTINGS, 0, 0, &setting(5, 1 << 24)),
        frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]),
        frame(PING, 0, 1, &[0; 8]),
        frame(GOAWAY, 0, 1, &[0; 8]),
        frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
        frame(WINDOW_UPDATE, 0, 3, &number(1)),
        frame(CONTINUATION, END_HEADERS, 1, GET),
        [frame(HEADERS, 0, 3, GET), frame(DATA, 0, 1, b"x")].concat(),
        [frame(HEADERS, 0, 3, GET), frame(CONTINUATION, END_HEADERS, 1, &[])].concat(),
        [frame(HEADERS, 0, 3, GET), frame(99, 0, 3, &[])].concat(),
        [frame(HEADERS, BOTH, 7, GET), frame(HEADERS, BOTH, 3, GET)].concat(),
    ];
    let size = vec![
        [&[0, 0x40, 1, DATA, 0, 0, 0, 0, 1][..]].concat(),
        frame(DATA, PADDED, 1, &[]),
        frame(HEADERS, BOTH | PADDED, 3, &[]),
        frame(HEADERS, BOTH | 0x20, 3, &[0; 4]),
        frame(PRIORITY, 0, 5, &[0; 4]),
        frame(RESET, 0, 1, &[0; 3]),
        frame(SETTINGS, 0, 0, &[0; 5]),
        frame(SETTINGS, ACK, 0, &[0; 6]),
        frame(PING, 0, 0, &[0; 7]),
        frame(GOAWAY, 0, 0, &[0; 7]),
        frame(WINDOW_UPDATE, 0, 0, &[0; 3]),
    ];
    let control = vec![
        frame(SETTINGS, 0, 0, &setting(4, 1 << 31)),
        frame(WINDOW_UPDATE, 0, 0, &number((1 << 31) - 1)),
        [
            frame(SETTINGS, 0, 0, &setting(4, 70_000)),
            frame(WINDOW_UPDATE, 0, 1, &number((1 << 31) - 70_001)),
            frame(SETTINGS, 0, 0, &setting(4, 70_001)),
        ]
        .concat(),
    ];
    let closed = vec![[frame(DATA, END_STREAM, 1, b"x"), frame(HEADERS, BOTH, 1, &[])].concat()];
    for (reason, all) in [
        (Reason::PROTOCOL_ERROR, protocol),
        (Reason::FRAME_SIZE_ERROR, size),
        (Reason::FLOW_CONTROL_ERROR, control),
        (Reason::STREAM_CLOSED, closed),
        (Reason::COMPRESSION_ERROR, vec![frame(HEADERS, BOTH, 3, &[0x80])]),
    ] {
        for bytes in all {
            let mut client = Client::greeted();
            client.open(END_HEADERS, 1, POST);
            assert_eq!(client.send(&bytes).map(|_| ()), Err(reason), "{bytes:?}");
            client.connection.end(reason);
            let goaway = client.said().pop().unwrap();
            assert_eq!((goaway.0, &goaway.3[4..]), (GOAWAY, &number(reason.0)[..]));
            assert!(client.connection.is_over() && client.connection.is_cut(1));
        }
    }
}

#[test]
fn what_ends_a_stream_alone() {
    let declared = [POST, &[0x0f, 0x0d, 1, b'5']].concat();
    for (reason, first, bytes) in [
        (Reason::PROTOCOL_ERROR, POST, frame(WINDOW_UPDATE, 0, 1, &[0; 4])),
        (Reason::FLOW_CONTROL_ERROR, POST, frame(WINDOW_UPDATE, 0, 1, &number((1 << 31) - 1))),
        (Reason::PROTOCOL_ERROR, POST, frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 1])),
        (Reason::FRAME_SIZE_ERROR, POST, frame(PRIORITY, 0, 1, &[0; 4])),
        (Reason::PROTOCOL_ERROR, POST, frame(HEADERS, END_HEADERS, 1, &[])),
        (Reason::PROTOCOL_ERROR, &declared, frame(DATA, 0, 1, b"123456")),
        (Reason::PROTOCOL_ERROR, &declared, frame(DATA, END_STREAM, 1, b"1234")),
        (Reason::PROTOCOL_ERROR, &declared, frame(HEADERS, BOTH, 1, &[])),
        (Reason::FLOW_CONTROL_ERROR, POST, frame(DATA, 0, 1, &[0; 16_384]).repeat(7)),
    ] {
        let mut client = Client::greeted();
        client.open(END_HEADERS, 1, first);
        if first != POST {
            client.connection.declare(1, 5);
        }
        client.open(END_HEADERS, 3, POST);
        assert_eq!(client.send(&bytes), Ok(vec![]), "{bytes:?}");
        let said = client.said();
        assert!(said.contains(&reset(1, reason)), "{said:?}");
        assert!(client.connection.is_cut(1) && !client.connection.is_cut(3));
        assert_eq!(client.end(1), Poll::Ready(Some(Err(Cut::Gone))));
        assert_eq!(client.connection.unread(), 0);
        // What comes late for it is no error, and costs no window.
        for late in
            [frame(DATA, 0, 1, &[0; 10_000]), frame(HEADERS, BOTH, 1, &[]), frame(RESET, 0, 1, &[0; 4])]
        {
            assert_eq!(client.send(&late), Ok(vec![]));
        }
        assert_eq!(client.connection.unread(), 0);
        client.frame(DATA, END_STREAM, 3, b"hello");
        assert_eq!(client.read(3), b"hello");
    }
}

#[test]
fn unknown_frames_and_padding_are_ignored() {
    let mut client = Client::greeted();
    client.frame(99, 0xff, 77, b"whatever");
    client.open(END_HEADERS | PADDED | 0x20, 1, &[&[3][..], &[0, 0, 0, 7, 9], POST, &[0; 3]].concat());
    client.frame(DATA, PADDED, 1, &[&[200][..], b"hello", &[0; 200]].concat());
    assert_eq!(client.connection.unread(), 5);
    client.frame(DATA, PADDED | END_STREAM, 1, &[&[0][..], b", you"].concat());
    assert_eq!(client.read(1), b"hello, you");
    assert_eq!(client.end(1), Poll::Ready(None));
    assert!(client.connection.has_ended(1));
}

#[test]
fn blocks_of_several_frames() {
    let mut client = Client::greeted();
    client.frame(HEADERS, END_STREAM, 1, &GET[..1]);
    client.frame(CONTINUATION, 0, 1, &[]);
    assert_eq!(client.send(&frame(CONTINUATION, END_HEADERS, 1, &GET[1..])), Ok(vec![1]));
    client.frame(HEADERS, END_STREAM, 3, &[]);
    let flood = frame(CONTINUATION, 0, 3, &[0x82; 16_000]).repeat(9);
    assert_eq!(client.send(&flood), Err(Reason::ENHANCE_YOUR_CALM));
}

#[test]
fn trailers() {
    for (fields, end) in [
        (&b"\x00\x05x-sum\x011"[..], Poll::Ready(None)),
        (b"\x82", Poll::Ready(Some(Err(Cut::Malformed)))),
        (b"\x00\x05X-sum\x011", Poll::Ready(Some(Err(Cut::Malformed)))),
    ] {
        let mut client = Client::greeted();
        client.open(END_HEADERS, 1, POST);
        client.frame(DATA, 0, 1, b"hello");
        client.frame(HEADERS, BOTH, 1, fields);
        assert_eq!(client.read(1), b"hello");
        assert_eq!(client.end(1), end);
        client.respond(1, true);
        assert_eq!(client.said().len(), 1, "no reset");
    }
}

/// nghttp2 takes another block for an error (RFC 7541 section 4.2).
#[test]
fn a_client_with_a_small_table_is_told_that_there_is_none() {
    let mut client = Client::greeted();
    client.frame(SETTINGS, 0, 0, &[setting(1, 0), setting(1, 4_096)].concat());
    client.said();
    let status = |client: &mut Client, stream| {
        client.open(BOTH, stream, GET);
        client.respond(stream, true);
        client.said().remove(0).3
    };
    assert_eq!([1, 3].map(|stream| status(&mut client, stream)), [vec![0x20, 0x88], vec![0x88]]);
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let mut client = Client::greeted();
    [1, 3, 5].into_iter().for_each(|stream| client.open(END_HEADERS, stream, POST));
    client.frame(HEADERS, END_HEADERS, 7, POST);
    assert_eq!(client.said(), [reset(7, Reason::REFUSED_STREAM)]);
    client.frame(DATA, 0, 7, b"late");
    client.frame(RESET, 0, 3, &number(8));
    client.open(BOTH, 9, GET);
    assert!(client.connection.is_cut(3) && client.connection.abuse().is_none());
    assert!(client.said().is_empty());
}

#[test]
fn a_list_that_is_too_large_is_answered() {
    let large = [GET, b"\x00\x01x\x7f\xa2\x1e", &[b'x'; 4_001]].concat();
    let mut client = Client::greeted();
    client.frame(HEADERS, BOTH, 1, &large);
    let [(HEADERS, BOTH, 1, status)] = &client.said()[..] else { panic!("it is answered") };
    assert!(status.ends_with(b"431"), "{status:?}");
    client.frame(HEADERS, END_HEADERS, 3, &large);
    let said = client.said();
    assert_eq!((said[0].0, &said[1]), (HEADERS, &reset(3, Reason::NO_ERROR)));
    client.frame(DATA, END_STREAM, 3, b"late");
    client.open(BOTH, 5, GET);
    // Nor does whoever reads none of these answers cause more of them.
    let many: Vec<u8> = (3..20_000).flat_map(|number| frame(HEADERS, BOTH, 2 * number + 1, &large)).collect();
    assert_eq!(client.send(&many), Ok(vec![]));
    assert!(client.connection.is_full() && client.input.len() > many.len() / 2);
}

#[test]
fn windows_open_as_bodies_are_read() {
    let mut client = Client::greeted();
    client.open(END_HEADERS, 1, POST);
    let sixteen = frame(DATA, 0, 1, &[b'x'; 16_000]);
    assert_eq!(client.send(&sixteen.repeat(6)), Ok(vec![]));
    assert!(client.said().is_empty(), "nobody has read it");
    assert_eq!(client.connection.unread(), 96_000);
    assert_eq!(client.read(1).len(), 96_000);
    // When it is worth it.
    let said = client.said();
    let own: u32 =
        said.iter().filter(|it| it.2 == 1).map(|it| u32::from_be_bytes(it.3[..].try_into().unwrap())).sum();
    assert!(said.len() == 1 && (50_000..=64_000).contains(&own), "{said:?}");
    // The connection's share of a body that nobody reads is given back at once, its own is not.
    client.connection.drop_body(1);
    client.open(END_HEADERS, 3, POST);
    client.connection.drop_body(3);
    let three = frame(DATA, 0, 3, &[b'x'; 16_000]);
    assert_eq!(client.send(&three.repeat(6)), Ok(vec![]));
    assert_eq!(client.connection.unread(), 0);
    assert!(client.said().iter().all(|it| it.2 == 0));
}

#[test]
fn data_waits_for_both_windows() {
    let mut client = Client::greeted();
    let cx = Context::from_waker(Waker::noop());
    client.frame(SETTINGS, 0, 0, &setting(4, 40_000));
    [1, 3].into_iter().for_each(|stream| client.open(BOTH, stream, GET));
    [1, 3].into_iter().for_each(|stream| client.respond(stream, false));
    client.said();
    assert_eq!(client.connection.capacity(1), AT_ONCE);
    let give = |client: &mut Client, stream, bytes: usize, is_end| {
        client.connection.data(stream, Bytes::from(vec![b'x'; bytes]), is_end).unwrap();
    };
    give(&mut client, 1, 32_000, false);
    assert_eq!(client.connection.capacity(1), 8_000);
    let lengths: Vec<_> = client.said().iter().map(|it| (it.2, it.3.len())).collect();
    assert_eq!(lengths, [(1, 16_384), (1, 15_616)]);
    // It becomes negative, and positive again.
    client.frame(SETTINGS, 0, 0, &setting(4, 10_000));
    assert!(client.connection.poll_capacity(1, &cx).is_pending());
    client.frame(WINDOW_UPDATE, 0, 1, &number(22_000));
    assert!(client.connection.poll_capacity(1, &cx).is_pending());
    client.frame(WINDOW_UPDATE, 0, 1, &number(1));
    assert_eq!(client.connection.poll_capacity(1, &cx), Poll::Ready(Ok(1)));
    client.frame(SETTINGS, 0, 0, &setting(4, 70_000));
    give(&mut client, 3, 32_000, false);
    assert_eq!(client.connection.capacity(3), 1_535, "that of the connection");
    give(&mut client, 3, 1_535, false);
    assert!(client.connection.poll_capacity(3, &cx).is_pending());
    client.frame(WINDOW_UPDATE, 0, 0, &number(100));
    assert_eq!(client.connection.poll_capacity(3, &cx), Poll::Ready(Ok(100)));
    give(&mut client, 3, 100, true);
    assert_eq!(client.said().last().map(|it| (it.1, it.2)), Some((END_STREAM, 3)));
    assert_eq!(client.connection.poll_capacity(3, &cx), Poll::Ready(Err(Cut::Gone)));
}

#[test]
fn a_response_that_ends_before_its_request() {
    let mut client = Client::greeted();
    client.open(END_HEADERS, 1, POST);
    client.connection.drop_body(1);
    client.respond(1, true);
    assert_eq!(client.said().len(), 1);
    client.connection.drop_response(1);
    assert_eq!(client.said(), [reset(1, Reason::NO_ERROR)]);
    client.open(BOTH, 3, GET);
    client.connection.drop_response(3);
    assert_eq!(client.said(), [reset(3, Reason::CANCEL)]);
    client.frame(DATA, END_STREAM, 1, b"late");
    // What comes for a stream that has ended long ago is told to.
    client.open(END_HEADERS, 5, POST);
    client.frame(DATA, END_STREAM, 5, b"");
    client.respond(5, true);
    client.connection.drop_body(5);
    client.connection.drop_response(5);
    assert_eq!(client.said().len(), 1);
    client.frame(DATA, 0, 5, b"again");
    assert_eq!(client.said(), [reset(5, Reason::STREAM_CLOSED)]);
    assert_eq!(client.connection.unread(), 0);
}

/// As h2spec asks (RFC 9113 section 5.1), whether its task has noticed or not.
#[test]
fn what_a_client_sends_on_a_stream_that_it_has_reset() {
    for is_noticed in [false, true] {
        let mut client = Client::greeted();
        client.open(END_HEADERS, 1, POST);
        client.frame(RESET, 0, 1, &number(Reason::CANCEL.0));
        if is_noticed {
            client.connection.drop_body(1);
            client.connection.drop_response(1);
        }
        for _ in 0..2 {
            client.frame(DATA, 0, 1, &[0; 16_384]);
            assert_eq!(client.said()[0], reset(1, Reason::STREAM_CLOSED));
        }
        assert_eq!((client.connection.unread(), client.connection.abuse()), (0, None));
        let trailers = frame(HEADERS, BOTH, 1, &[]);
        assert_eq!(client.send(&trailers), Err(Reason::STREAM_CLOSED));
    }
}

/// Each has the endpoint's work thrown away, as a reset by the client has.
#[test]
fn data_behind_the_end_of_requests_is_abuse() {
    let mut client = Client::greeted();
    for number in 0..200 {
        assert_eq!(client.connection.abuse(), None, "{number}");
        client.open(BOTH, 2 * number + 1, GET);
        client.frame(DATA, 0, 2 * number + 1, b"x");
        client.connection.drop_response(2 * number + 1);
    }
    assert_eq!(client.connection.abuse(), Some(Abuse::Resets));
}

#[test]
fn only_resets_for_its_errors_count_against_a_client() {
    for (is_its_error, abuse) in [(false, None), (true, Some(Abuse::Malformed))] {
        let mut client = Client::greeted();
        for number in 0..150 {
            let stream = 2 * number + 1;
            client.send(&frame(HEADERS, BOTH, stream, GET)).unwrap();
            match is_its_error {
                true => client.connection.reset(stream, Reason::PROTOCOL_ERROR),
                false => client.connection.close(stream, Reason::PROTOCOL_ERROR),
            }
            client.connection.drop_response(stream);
            client.said();
        }
        assert_eq!(client.connection.abuse(), abuse);
    }
}

#[test]
fn who_writes_is_woken_when_the_last_handle_of_a_stream_is_gone() {
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut client = Client::greeted();
    client.open(END_HEADERS, 1, POST);
    client.frame(RESET, 0, 1, &number(Reason::CANCEL.0));
    client.connection.wait(&Context::from_waker(&waker));
    client.connection.drop_body(1);
    assert!(!woken.0.load(Ordering::Relaxed));
    client.connection.drop_response(1);
    assert!(woken.0.load(Ordering::Relaxed));
}

#[test]
fn a_goodbye_has_two_parts() {
    let mut client = Client::greeted();
    client.open(BOTH, 1, GET);
    client.connection.leave();
    let said = client.said();
    assert_eq!(said[0], (GOAWAY, 0, 0, [number(LAST), number(0)].concat()));
    assert_eq!((said[1].0, said[1].1), (PING, 0));
    client.open(END_HEADERS, 3, POST);
    client.frame(PING, ACK, 0, b"of else!");
    assert!(client.said().is_empty());
    client.frame(PING, ACK, 0, &said[1].3);
    assert_eq!(client.said(), [(GOAWAY, 0, 0, [number(3), number(0)].concat())]);
    // It will come again elsewhere. Its fields are decoded, and its window is given back.
    client.frame(HEADERS, END_HEADERS, 5, &[POST, b"\x40\x01a\x01b"].concat());
    client.frame(DATA, END_STREAM, 5, b"late");
    assert_eq!((client.connection.unread(), client.said()), (0, vec![]));
    client.respond(1, true);
    assert!(!client.connection.is_done());
    client.frame(HEADERS, BOTH, 3, &[0xbe]);
    client.said();
    // It is not told of a later stream, whatever ends the connection.
    client.connection.end(Reason::PROTOCOL_ERROR);
    assert_eq!(client.said(), [(GOAWAY, 0, 0, [number(3), number(1)].concat())]);
    let mut client = Client::greeted();
    client.open(BOTH, 1, GET);
    client.connection.leave();
    client.frame(PING, ACK, 0, &GOODBYE);
    assert!(!client.connection.is_done());
    client.respond(1, true);
    assert!(client.connection.is_done());
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let mut client = Client::greeted();
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(900);
    assert_eq!(client.send(&pings), Ok(vec![]));
    assert!(client.connection.is_full() && client.input.len() > 8_000);
    let mut answers = 0;
    while !client.connection.is_written() {
        answers += client.said().len();
        assert_eq!(client.send(&[]), Ok(vec![]));
    }
    assert_eq!((answers, client.input.len()), (900, 0));
}

/// Heads of responses are as large as paths are, which a client refers to with one byte.
#[test]
fn a_client_that_reads_no_heads_is_not_read() {
    let mut client = Client::greeted();
    let mut streams = (0..200).map(|number| 2 * number + 1);
    let stuck = streams.find(|stream| {
        if client.send(&frame(HEADERS, BOTH, *stream, GET)) == Ok(vec![]) {
            return true;
        }
        let location = [b'x'; 4_000];
        let write = |out: &mut BytesMut| encode::field(out, Known::Location, b"location", &location);
        client.connection.fields(*stream, true, write).unwrap();
        client.connection.drop_response(*stream);
        false
    });
    assert!(stuck.is_some_and(|stream| stream < 2 * 30), "{stuck:?}");
    client.said();
    assert_eq!(client.send(&[]), Ok(vec![stuck.unwrap()]));
}

/// However many come before anything is served: what is not begun yet is bounded, too.
#[test]
fn resets_at_once_are_not_read_on() {
    let mut client = Client::greeted();
    let each = |stream| [frame(HEADERS, BOTH, stream, GET), frame(RESET, 0, stream, &number(8))].concat();
    let all: Vec<u8> = (0..1_000).flat_map(|number| each(2 * number + 1)).collect();
    let opened = client.send(&all).unwrap();
    assert_eq!((opened.len(), client.connection.abuse()), (200, Some(Abuse::Resets)));
    assert!(opened.iter().all(|stream| client.connection.is_cut(*stream) || *stream == 399));
}

#[test]
fn an_idle_connection_holds_no_buffer() {
    let mut client = Client::greeted();
    client.open(BOTH, 1, GET);
    client.respond(1, false);
    client.connection.data(1, Bytes::from(vec![b'x'; 20_000]), true).unwrap();
    client.connection.drop_response(1);
    assert_eq!(client.said().len(), 3);
    assert_ne!(client.connection.role.frames.memory(), 0);
    client.connection.let_go();
    assert_eq!(client.connection.role.frames.memory(), 0);
    assert!(client.connection.streams.capacity() == 0 && client.connection.queue.capacity() == 0);
    assert_eq!(client.connection.out.capacity(), 0);
}

/// Frames that are mostly valid.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![8 => (0_u32..6).prop_map(|it| 2 * it + 1), 1 => 0_u32..12];
    let block = prop_oneof![
        4 => Just(POST.to_vec()), 2 => Just(GET.to_vec()), 1 => Just(b"\x40\x01a\x01b".to_vec()),
        1 => Just(vec![0xbe]), 1 => prop::collection::vec(any::<u8>(), 0..10),
    ];
    let one = prop_oneof![
        6 => (stream.clone(), block, prop_oneof![8 => Just(END_HEADERS), 2 => Just(BOTH), 1 => any::<u8>()])
            .prop_map(|(stream, block, flags)| frame(HEADERS, flags, stream, &block)),
        6 => (stream.clone(), 0_usize..9_000, prop_oneof![4 => Just(0), 2 => Just(END_STREAM), 1 => Just(PADDED)])
            .prop_map(|(stream, length, flags)| frame(DATA, flags, stream, &vec![3; length])),
        2 => (stream.clone(), any::<u16>()).prop_map(|(s, by)| frame(WINDOW_UPDATE, 0, s, &number(by.into()))),
        1 => (0_u32..100_000).prop_map(|size| frame(SETTINGS, 0, 0, &setting(4, size))),
        1 => stream.clone().prop_map(|stream| frame(RESET, 0, stream, &number(8))),
        1 => (any::<u8>(), any::<u8>(), stream, prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload)),
    ];
    prop::collection::vec(one, 0..40).prop_map(|all| all.concat())
}

proptest! {
    #[test]
    fn however_frames_are_split_the_same_happens(bytes in frames()) {
        fuzz::connection(&bytes);
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz::connection(&bytes);
    }
}
