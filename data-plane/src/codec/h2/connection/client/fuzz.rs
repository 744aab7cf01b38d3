//! Any bytes of a server: however they are split, the same happens, and the books balance.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

use super::{Client, Connection, Cut, Limits, Reason};
use crate::codec::h2::connection::both;
use crate::codec::head::Fields;
use crate::codec::hpack::block::FieldBlock;
use crate::codec::hpack::encode;

const SETTINGS: &[u8] = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00";
const LIMITS: Limits = Limits { stream: 70_000, window: 100_000, list: 2_000, block: 128 * 1024 };

/// Calls that are made before anything is answered.
const CALLS: u32 = 4;

/// What became of a call: its status and fields, its body, and its end.
#[derive(PartialEq, Eq, Debug, Default)]
struct Answer {
    head: Option<(u16, Listed)>,
    body: Vec<u8>,
    trailers: Option<Listed>,
    cut: Option<Cut>,
}

/// The fields of a message.
type Listed = Vec<(Vec<u8>, Vec<u8>)>;

/// What has happened on a connection.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    end: Option<Reason>,
    is_closing: bool,
    answers: BTreeMap<u32, Answer>,
    written: Vec<u8>,
}

/// Frames of a server, behind its settings.
pub fn responses(data: &[u8]) {
    both::in_any_pieces(data, run);
}

fn run(parts: &[&[u8]]) -> Outcome {
    let now = shared::clock::now();
    let (mut connection, mut fields) = (Connection::of_client(LIMITS), FieldBlock::default());
    let (mut input, mut end) = (BytesMut::from(SETTINGS), None);
    assert!(matches!(connection.receive(&mut input, &mut fields, now), Ok(None)));
    let streams: Vec<_> = (0..CALLS).filter_map(|number| ask(&mut connection, number)).collect();
    assert_eq!(streams, [1, 3, 5, 7]);
    for part in parts {
        input.extend_from_slice(part);
        if end.is_none()
            && let Err(reason) = connection.receive(&mut input, &mut fields, now)
        {
            connection.end(reason);
            end = Some(reason);
        }
        connection.check();
    }
    let is_closing = connection.is_closing();
    let answers = streams.iter().map(|stream| (*stream, answer(&mut connection, *stream))).collect();
    connection.check();
    for stream in streams {
        connection.drop_call(stream);
        connection.check();
    }
    assert!(connection.streams.is_empty() && connection.open == 0);
    connection.widen();
    let written = both::written(&mut connection, 5_000);
    Outcome { end, is_closing, answers, written }
}

/// Makes a call: some have no body, some have not sent all of it, and one is to HEAD.
fn ask(connection: &mut Connection<Client>, number: u32) -> Option<u32> {
    let mut head = BytesMut::new();
    let is_head = number == 3;
    encode::request(&mut head, if is_head { b"HEAD" } else { b"GET" }, false, b"a.test", b"/");
    let stream = connection.open(&head, number.is_multiple_of(2), is_head)?;
    if number == 1 {
        let _ = connection.data(stream, Bytes::from_static(b"a body"), false);
    }
    Some(stream)
}

/// Takes what has come of an answer.
fn answer(connection: &mut Connection<Client>, stream: u32) -> Answer {
    let (mut answer, cx) = (Answer::default(), Context::from_waker(Waker::noop()));
    let listed =
        |fields: &Fields| fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    match connection.poll_head(stream, &cx) {
        Poll::Ready(Ok(head)) => answer.head = Some((head.status, listed(&head.fields))),
        Poll::Ready(Err(cut)) => {
            answer.cut = Some(cut);
            return answer;
        }
        Poll::Pending => return answer,
    }
    loop {
        match connection.poll_data(stream, &cx) {
            Poll::Ready(Some(Ok(piece))) => {
                connection.release(stream, piece.len());
                answer.body.extend_from_slice(&piece);
                continue;
            }
            Poll::Ready(Some(Err(cut))) => answer.cut = Some(cut),
            Poll::Ready(None) => {
                answer.trailers = connection.take_trailers(stream).map(|fields| listed(&fields));
                assert!(connection.has_ended(stream));
                assert_eq!(connection.poll_unread(stream, &cx), 0);
            }
            Poll::Pending => {}
        }
        return answer;
    }
}
