use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use test_kit::client::frames::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, RESET, SETTINGS, WINDOW_UPDATE, frame,
};

use super::*;
use crate::codec::frame::ACK;
use crate::codec::h2::connection::AT_ONCE;
use crate::codec::h2::connection::both::{self, Said, number, setting, written};

const LIMITS: Limits = Limits { stream: 100_000, window: 200_000, list: 4_000, block: 20_000 };

const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const BOTH: u8 = END_STREAM | END_HEADERS;

/// `:status` 200 and 204, and 103, without more fields.
const OK: &[u8] = &[0x88];
const NO_CONTENT: &[u8] = &[0x89];
const EARLY: &[u8] = b"\x08\x03103";
/// `GET / HTTP/2`.
const GET: &[u8] = &[0x82, 0x86, 0x84];

fn reset(stream: u32, reason: Reason) -> Said {
    (RESET, 0, stream, number(reason.0).to_vec())
}

/// A server, and the connection that asks it.
struct Server {
    connection: Connection<Client>,
    fields: FieldBlock,
    input: BytesMut,
}

impl Server {
    /// Nothing was said.
    fn new() -> Self {
        let (connection, fields) = (Connection::of_client(LIMITS), FieldBlock::default());
        Self { connection, fields, input: BytesMut::new() }
    }

    /// Settings were exchanged.
    fn greeted() -> Self {
        let mut server = Self::new();
        server.frame(SETTINGS, 0, 0, &[]);
        server.said();
        server
    }

    /// Settings were exchanged, and a call made that has no body; one whose body is not sent yet.
    fn asked() -> Self {
        let mut server = Self::greeted();
        assert_eq!((server.ask(true), server.ask(false)), (1, 3));
        server.said();
        server
    }

    fn ask(&mut self, ended: bool) -> u32 {
        self.connection.open(GET, ended, false).unwrap()
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        self.input.extend_from_slice(bytes);
        let event = self.connection.receive(&mut self.input, &mut self.fields, shared::clock::now())?;
        assert!(event.is_none());
        Ok(())
    }

    /// Sends a frame that is no error.
    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        assert_eq!(self.send(&frame(kind, flags, stream, payload)), Ok(()));
    }

    /// What was written since the last call.
    fn said(&mut self) -> Vec<Said> {
        self.connection.widen();
        let all = written(&mut self.connection, usize::MAX);
        both::frames(all.strip_prefix(PREFACE).unwrap_or(&all))
    }

    /// The status of a response.
    fn head(&mut self, stream: u32) -> Poll<Result<u16, Cut>> {
        let head = self.connection.poll_head(stream, &Context::from_waker(Waker::noop()));
        head.map_ok(|head| head.status)
    }

    /// What has come of a body, which is read, and how it goes on: with its trailers at the end.
    fn read(&mut self, stream: u32) -> (Vec<u8>, Poll<Result<usize, Cut>>) {
        let (mut all, cx) = (Vec::new(), Context::from_waker(Waker::noop()));
        loop {
            match self.connection.poll_data(stream, &cx) {
                Poll::Ready(Some(Ok(piece))) => {
                    self.connection.release(stream, piece.len());
                    all.extend_from_slice(&piece);
                }
                Poll::Ready(Some(Err(cut))) => return (all, Poll::Ready(Err(cut))),
                Poll::Ready(None) => {
                    let trailers = self.connection.take_trailers(stream);
                    return (all, Poll::Ready(Ok(trailers.map_or(0, |fields| fields.iter().count()))));
                }
                Poll::Pending => return (all, Poll::Pending),
            }
        }
    }
}

#[test]
fn a_connection_begins_with_a_preface_and_settings() {
    let mut server = Server::new();
    assert!(written(&mut server.connection, usize::MAX).starts_with(PREFACE));
    let mut server = Server::new();
    let told = [setting(2, 0), setting(4, 100_000), setting(6, 4_000)].concat();
    let widened = (WINDOW_UPDATE, 0, 0, number(200_000 - 65_535).to_vec());
    assert_eq!(server.said(), [(SETTINGS, 0, 0, told), widened]);
    for first in [frame(SETTINGS, ACK, 0, &[]), frame(HEADERS, BOTH, 1, OK), b"HTTP/1.1 400 Bad".to_vec()] {
        assert!(Server::new().send(&first).is_err());
    }
}

#[test]
fn no_call_is_made_before_the_endpoint_has_said_how_many_may() {
    let mut server = Server::new();
    assert_eq!(server.connection.most(), None);
    server.frame(SETTINGS, 0, 0, &setting(4, 1));
    assert_eq!(server.connection.most(), Some(u32::MAX as usize), "there is no limit");
    assert_eq!(server.said().last(), Some(&(SETTINGS, ACK, 0, vec![])));
    server.frame(SETTINGS, 0, 0, &[setting(3, 7), setting(3, 5)].concat());
    server.frame(SETTINGS, 0, 0, &setting(4, 1));
    assert_eq!(server.connection.most(), Some(5), "it stays");
    server.frame(SETTINGS, 0, 0, &setting(3, 0));
    assert_eq!(server.connection.most(), Some(0));
}

#[test]
fn calls_are_numbered_and_answered_in_any_order() {
    let mut server = Server::greeted();
    assert_eq!([server.ask(true), server.ask(false), server.ask(true)], [1, 3, 5]);
    let heads: Vec<_> = server.said().iter().map(|it| (it.0, it.1, it.2)).collect();
    assert_eq!(heads, [(HEADERS, BOTH, 1), (HEADERS, END_HEADERS, 3), (HEADERS, BOTH, 5)]);
    server.frame(HEADERS, END_HEADERS, 3, OK);
    server.frame(HEADERS, BOTH, 1, NO_CONTENT);
    assert_eq!((server.head(1), server.head(3)), (Poll::Ready(Ok(204)), Poll::Ready(Ok(200))));
    assert!(server.head(5).is_pending() && server.connection.has_ended(1));
    server.frame(DATA, 0, 3, b"hello");
    assert_eq!(server.read(3), (b"hello".to_vec(), Poll::Pending));
    server.frame(DATA, END_STREAM, 3, b"");
    assert_eq!(server.read(3), (vec![], Poll::Ready(Ok(0))));
    // Its request has not ended.
    server.connection.drop_call(3);
    server.connection.drop_call(1);
    assert_eq!(server.said(), [reset(3, Reason::CANCEL)]);
    assert_eq!((server.connection.counts().resets, server.connection.counts().answers), (1, 4));
}

#[test]
fn interim_responses_precede_the_head() {
    let mut server = Server::asked();
    server.frame(HEADERS, END_HEADERS, 1, EARLY);
    server.frame(HEADERS, END_HEADERS, 1, &[EARLY, b"\x00\x04link\x01x"].concat());
    assert!(server.head(1).is_pending());
    server.frame(HEADERS, BOTH, 1, OK);
    assert_eq!(server.head(1), Poll::Ready(Ok(200)));
}

#[test]
fn a_server_hints_so_often_before_it_answers() {
    for (times, head) in [(INTERIM, Ok(200)), (INTERIM + 1, Err(Cut::Malformed))] {
        let mut server = Server::asked();
        (0..times).for_each(|_| server.frame(HEADERS, END_HEADERS, 1, EARLY));
        server.frame(HEADERS, BOTH, 1, OK);
        assert_eq!(server.head(1), Poll::Ready(head), "{times}");
    }
}

#[test]
fn malformed_responses_end_their_calls() {
    let long = [OK, b"\x00\x01x\x7f\xa2\x1e", &[b'x'; 4_001]].concat();
    for head in [
        &b"\x00\x01x\x01y"[..],
        b"\x08\x0220",
        b"\x88\x88",
        b"\x88\x82",
        b"\x88\x84",
        b"\x82",
        b"\x88\x00\x01X\x01y",
        b"\x88\x00\x01x\x01\x00",
        b"\x88\x00\x0aconnection\x05close",
        b"\x00\x01x\x01y\x88",
        b"\x08\x03101",
        b"\x88\x0f\x0d\x01x",
        b"\x88\x0f\x0d\x011\x0f\x0d\x011",
        &long,
    ] {
        let mut server = Server::asked();
        server.frame(HEADERS, END_HEADERS, 1, head);
        assert_eq!(server.head(1), Poll::Ready(Err(Cut::Malformed)), "{}", head.escape_ascii());
        assert_eq!(server.said(), [reset(1, Reason::PROTOCOL_ERROR)]);
        server.frame(DATA, END_STREAM, 1, b"late");
        server.frame(HEADERS, BOTH, 3, OK);
        assert_eq!(server.head(3), Poll::Ready(Ok(200)));
    }
    // Nothing is at the end of an interim response.
    let mut server = Server::asked();
    server.frame(HEADERS, BOTH, 1, EARLY);
    assert_eq!(server.head(1), Poll::Ready(Err(Cut::Malformed)));
    // A block of several frames is read to its end, up to a limit.
    let mut server = Server::asked();
    server.frame(HEADERS, 0, 1, OK);
    server.frame(CONTINUATION, 0, 1, &long[1..]);
    server.frame(CONTINUATION, END_HEADERS, 1, &long[1..]);
    assert_eq!(server.head(1), Poll::Ready(Err(Cut::Malformed)));
    server.frame(HEADERS, 0, 3, &[0x88; 16_000]);
    assert_eq!(server.send(&frame(CONTINUATION, 0, 3, &[0x88; 5_000])), Err(Reason::ENHANCE_YOUR_CALM));
}

#[test]
fn trailers() {
    for (fields, flags, end) in [
        (&b"\x00\x0bgrpc-status\x010"[..], BOTH, Ok(1)),
        (b"", BOTH, Ok(0)),
        (b"\x00\x0bgrpc-status\x010", END_HEADERS, Err(Cut::Malformed)),
        (OK, BOTH, Err(Cut::Malformed)),
        (b"\x00\x0bGrpc-Status\x010", BOTH, Err(Cut::Malformed)),
        (b"\x00\x01\"\x010", BOTH, Err(Cut::Malformed)),
    ] {
        let mut server = Server::asked();
        server.frame(HEADERS, END_HEADERS, 1, OK);
        server.frame(DATA, 0, 1, b"hello");
        server.frame(HEADERS, flags, 1, fields);
        assert!(!server.connection.has_ended(1));
        assert_eq!(server.head(1), Poll::Ready(Ok(200)));
        assert_eq!(server.read(1), (b"hello".to_vec(), Poll::Ready(end)), "what came before is read");
        assert_eq!(server.said().len(), usize::from(end.is_err()));
    }
}

#[test]
fn lengths_are_kept() {
    let five = &b"\x88\x0f\x0d\x015"[..];
    let cut = Poll::Ready(Err(Cut::Gone));
    for (data, read) in [(&b"hello"[..], Poll::Ready(Ok(0))), (b"hell", cut), (b"", cut)] {
        let mut server = Server::asked();
        server.frame(HEADERS, END_HEADERS, 1, five);
        server.frame(DATA, END_STREAM, 1, data);
        assert_eq!((server.head(1), server.read(1)), (Poll::Ready(Ok(200)), (data.to_vec(), read)));
    }
    let mut server = Server::asked();
    server.frame(HEADERS, BOTH, 1, five);
    assert_eq!(server.head(1), Poll::Ready(Err(Cut::Malformed)), "it is known before the head is passed on");
    server.frame(HEADERS, END_HEADERS, 3, five);
    server.frame(DATA, 0, 3, b"hello, you");
    assert_eq!(server.said(), [reset(1, Reason::PROTOCOL_ERROR), reset(3, Reason::PROTOCOL_ERROR)]);
    // Where it is not that of the body.
    let mut server = Server::greeted();
    assert_eq!(server.connection.open(GET, true, true), Some(1));
    server.ask(true);
    server.frame(HEADERS, BOTH, 1, five);
    server.frame(HEADERS, END_HEADERS, 3, b"\x8b\x0f\x0d\x015");
    server.frame(DATA, END_STREAM, 3, b"");
    assert_eq!((server.read(1).1, server.read(3).1), (Poll::Ready(Ok(0)), Poll::Ready(Ok(0))));
}

#[test]
fn data_before_the_head_ends_its_call() {
    let mut server = Server::asked();
    server.frame(DATA, END_STREAM, 1, b"x");
    assert_eq!(server.said()[0], reset(1, Reason::PROTOCOL_ERROR));
    assert_eq!((server.head(1), server.connection.unread()), (Poll::Ready(Err(Cut::Gone)), 0));
}

#[test]
fn what_ends_a_connection() {
    for (reason, bytes) in [
        (Reason::PROTOCOL_ERROR, frame(DATA, 0, 0, b"x")),
        (Reason::PROTOCOL_ERROR, frame(DATA, 0, 5, b"of no call")),
        (Reason::PROTOCOL_ERROR, frame(HEADERS, BOTH, 5, OK)),
        (Reason::PROTOCOL_ERROR, frame(HEADERS, BOTH, 2, OK)),
        (Reason::PROTOCOL_ERROR, frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82])),
        (Reason::PROTOCOL_ERROR, frame(PRIORITY, 0, 0, &[0; 5])),
        (Reason::PROTOCOL_ERROR, frame(RESET, 0, 5, &[0; 4])),
        (Reason::PROTOCOL_ERROR, [frame(GOAWAY, 0, 0, &[0; 8]), goaway(1)].concat()),
        (Reason::FRAME_SIZE_ERROR, frame(GOAWAY, 0, 0, &[0; 7])),
        (Reason::FRAME_SIZE_ERROR, frame(RESET, 0, 1, &[0; 3])),
        (Reason::COMPRESSION_ERROR, frame(HEADERS, BOTH, 1, &[0x80])),
    ] {
        let mut server = Server::asked();
        assert_eq!(server.send(&bytes), Err(reason), "{bytes:?}");
        server.connection.end(reason);
        let goaway = server.said().pop().unwrap();
        assert_eq!(goaway, (GOAWAY, 0, 0, [number(0), number(reason.0)].concat()));
        assert!(server.connection.is_over() && server.connection.is_closing());
        assert!(server.head(3).is_ready() && server.connection.open(GET, true, false).is_none());
    }
}

fn goaway(last: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[number(last), number(0)].concat())
}

#[test]
fn calls_that_were_not_heeded() {
    let refusal = frame(RESET, 0, 3, &number(Reason::REFUSED_STREAM.0));
    for (bytes, cut) in [(refusal, Cut::Refused), (goaway(1), Cut::Untouched)] {
        let mut server = Server::asked();
        assert_eq!(server.send(&bytes), Ok(()));
        assert_eq!((server.head(3), server.head(1)), (Poll::Ready(Err(cut)), Poll::Pending));
        assert!(server.said().is_empty(), "nobody is told");
    }
    // A response has begun, or the reason is another one.
    let mut server = Server::asked();
    server.frame(HEADERS, END_HEADERS, 3, OK);
    server.frame(DATA, 0, 3, b"hello");
    server.frame(RESET, 0, 3, &number(Reason::REFUSED_STREAM.0));
    assert_eq!(server.head(3), Poll::Ready(Ok(200)));
    assert_eq!(server.read(3), (b"hello".to_vec(), Poll::Ready(Err(Cut::Reset))), "what has come is read");
    server.frame(RESET, 0, 1, &number(Reason::CANCEL.0));
    assert_eq!(server.head(1), Poll::Ready(Err(Cut::Reset)));
    // A goodbye may come in two parts, and what was begun ends.
    let mut server = Server::asked();
    assert_eq!(server.send(&goaway(LAST)), Ok(()));
    assert!(server.connection.is_closing() && server.connection.open(GET, true, false).is_none());
    assert_eq!(server.send(&goaway(3)), Ok(()));
    server.frame(HEADERS, BOTH, 3, OK);
    assert_eq!(server.head(3), Poll::Ready(Ok(200)));
}

/// RFC 9113 section 8.1.
#[test]
fn a_complete_response_is_one_though_its_stream_is_reset() {
    for reason in [Reason::NO_ERROR, Reason::CANCEL] {
        let mut server = Server::asked();
        server.frame(HEADERS, END_HEADERS, 3, OK);
        server.frame(DATA, END_STREAM, 3, b"enough");
        server.frame(RESET, 0, 3, &number(reason.0));
        assert!(server.connection.data(3, Bytes::from_static(b"more"), true).is_err());
        server.connection.lose();
        assert_eq!(server.head(3), Poll::Ready(Ok(200)));
        assert_eq!(server.read(3), (b"enough".to_vec(), Poll::Ready(Ok(0))));
        server.connection.drop_call(3);
        assert!(server.said().is_empty());
    }
}

#[test]
fn what_comes_late_costs_no_window_and_no_connection() {
    let mut server = Server::asked();
    server.frame(HEADERS, END_HEADERS, 1, OK);
    server.frame(DATA, 0, 1, &[0; 10_000]);
    server.connection.drop_call(1);
    assert_eq!((server.said(), server.connection.unread()), (vec![reset(1, Reason::CANCEL)], 0));
    for _ in 0..30 {
        server.frame(DATA, 0, 1, &[0; 16_000]);
        server.frame(HEADERS, BOTH, 1, b"\x40\x01a\x01b");
        server.frame(WINDOW_UPDATE, 0, 1, &number(1));
        server.frame(RESET, 0, 1, &number(8));
        assert!(server.said().iter().all(|it| (it.0, it.2) == (WINDOW_UPDATE, 0)));
    }
    assert_eq!(server.connection.unread(), 0);
    // The table has what came late.
    server.frame(HEADERS, BOTH, 3, &[0x88, 0xbe]);
    assert_eq!(server.head(3), Poll::Ready(Ok(200)));
}

#[test]
fn windows_open_as_responses_are_read() {
    let mut server = Server::asked();
    let cx = Context::from_waker(Waker::noop());
    server.frame(HEADERS, END_HEADERS, 1, OK);
    let sixteen = frame(DATA, 0, 1, &[b'x'; 16_000]);
    assert_eq!(server.send(&sixteen.repeat(6)), Ok(()));
    assert_eq!((server.connection.poll_unread(1, &cx), server.said()), (96_000, vec![]));
    assert_eq!(server.read(1).0.len(), 96_000);
    assert_eq!(server.connection.poll_unread(1, &cx), 0);
    assert!(server.said().iter().any(|it| (it.0, it.2) == (WINDOW_UPDATE, 1)));
    // What an endpoint that has reset it has sent is held until it is read or dropped.
    server.frame(DATA, 0, 1, &[0; 10_000]);
    server.frame(RESET, 0, 1, &number(8));
    assert_eq!((server.connection.poll_unread(1, &cx), server.connection.unread()), (10_000, 10_000));
    server.connection.drop_call(1);
    assert_eq!(server.connection.unread(), 0);
    let mut server = Server::asked();
    let much = frame(DATA, 0, 3, &[0; 16_000]).repeat(7);
    server.frame(HEADERS, END_HEADERS, 3, OK);
    assert_eq!(server.send(&much), Ok(()));
    assert!(server.said().contains(&reset(3, Reason::FLOW_CONTROL_ERROR)));
}

#[test]
fn bodies_wait_for_both_windows() {
    let mut server = Server::asked();
    let cx = Context::from_waker(Waker::noop());
    let give = |server: &mut Server, bytes: usize, is_end| {
        server.connection.data(3, Bytes::from(vec![b'x'; bytes]), is_end).unwrap();
    };
    assert_eq!(server.connection.poll_capacity(3, &cx), Poll::Ready(Ok(AT_ONCE)));
    give(&mut server, AT_ONCE, false);
    give(&mut server, AT_ONCE - 1, false);
    assert!(server.connection.poll_capacity(3, &cx).is_pending());
    assert_eq!(server.connection.window(), 0);
    server.frame(WINDOW_UPDATE, 0, 0, &number(100));
    assert!(server.connection.poll_capacity(3, &cx).is_pending(), "its own");
    server.frame(WINDOW_UPDATE, 0, 3, &number(50));
    assert_eq!(server.connection.poll_capacity(3, &cx), Poll::Ready(Ok(50)));
    give(&mut server, 50, true);
    assert_eq!(server.said().last().map(|it| (it.0, it.1, it.2)), Some((DATA, END_STREAM, 3)));
    assert_eq!((server.connection.window(), server.connection.counts().openings), (50, 1));
}

#[test]
fn a_question_is_asked_again_when_it_was_answered() {
    let mut server = Server::greeted();
    server.connection.ask();
    server.connection.ask();
    let asked = server.said();
    assert_eq!(asked, [(PING, 0, 0, QUESTION.to_vec())]);
    server.frame(PING, ACK, 0, b"of else!");
    server.connection.ask();
    assert!(server.said().is_empty());
    server.frame(PING, ACK, 0, &asked[0].3);
    server.connection.ask();
    assert_eq!(server.said(), asked);
}

#[test]
fn any_frame_of_a_call_and_any_question_of_its_endpoint_is_heard() {
    let mut server = Server::asked();
    let heard = |server: &Server| [1, 3].map(|stream| server.connection.heard(stream).is_some());
    // Answers to ours, and what is about the connection, say nothing of a call.
    server.frame(PING, ACK, 0, &QUESTION);
    server.frame(WINDOW_UPDATE, 0, 0, &number(5));
    assert_eq!(heard(&server), [false, false]);
    server.frame(WINDOW_UPDATE, 0, 3, &number(5));
    assert_eq!(heard(&server), [false, true]);
    server.frame(PING, 0, 0, b"present?");
    assert_eq!(heard(&server), [true, true]);
    assert_eq!(server.connection.heard(5), None);
}

#[test]
fn an_endpoint_with_a_small_table_is_told_that_there_is_none() {
    let mut server = Server::new();
    server.frame(SETTINGS, 0, 0, &setting(1, 0));
    server.said();
    server.ask(true);
    server.ask(true);
    let blocks: Vec<_> = server.said().into_iter().map(|it| it.3).collect();
    assert_eq!(blocks, [[&[0x20], GET].concat(), GET.to_vec()]);
}

/// Frames that are mostly valid.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![8 => (0_u32..4).prop_map(|it| 2 * it + 1), 1 => 0_u32..12];
    let block = prop_oneof![
        6 => Just(OK.to_vec()), 1 => Just(EARLY.to_vec()), 2 => Just(b"\x40\x01a\x01b".to_vec()),
        1 => Just(vec![0x88, 0xbe]), 1 => Just(b"\x88\x0f\x0d\x015".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..10),
    ];
    let one = prop_oneof![
        6 => (stream.clone(), block, prop_oneof![8 => Just(END_HEADERS), 2 => Just(BOTH), 1 => any::<u8>()])
            .prop_map(|(stream, block, flags)| frame(HEADERS, flags, stream, &block)),
        6 => (stream.clone(), 0_usize..9_000, prop_oneof![4 => Just(0), 2 => Just(END_STREAM), 1 => Just(8)])
            .prop_map(|(stream, length, flags)| frame(DATA, flags, stream, &vec![3; length])),
        1 => (stream.clone(), any::<u16>()).prop_map(|(s, by)| frame(WINDOW_UPDATE, 0, s, &number(by.into()))),
        1 => (0_u16..7, 0_u32..100_000).prop_map(|(id, value)| frame(SETTINGS, 0, 0, &setting(id, value))),
        1 => (stream.clone(), prop_oneof![Just(0), Just(7), Just(8)])
            .prop_map(|(stream, reason)| frame(RESET, 0, stream, &number(reason))),
        1 => stream.clone().prop_map(goaway),
        1 => (any::<u8>(), any::<u8>(), stream, prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload)),
    ];
    prop::collection::vec(one, 0..40).prop_map(|all| all.concat())
}

proptest! {
    #[test]
    fn however_frames_are_split_the_same_happens(bytes in frames()) {
        fuzz::responses(&bytes);
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz::responses(&bytes);
    }
}
