//! Any bytes after a preface: however they are split, the same happens, and the books balance.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

use super::{Connection, Limits, Opened, Reason, Server};
use crate::codec::h2::connection::both;
use crate::codec::head::Known;
use crate::codec::hpack::block::FieldBlock;
use crate::codec::hpack::encode;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
const LIMITS: Limits = Limits { stream: 70_000, window: 100_000, list: 2_000, block: 128 * 1024 };

/// The fields of a message.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// What has happened on a connection.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    opened: Vec<(Opened, Fields)>,
    end: Option<Reason>,
    bodies: BTreeMap<u32, Vec<u8>>,
    written: Vec<u8>,
}

/// Frames of a client, behind a preface.
pub fn connection(data: &[u8]) {
    both::in_any_pieces(data, run);
}

fn run(parts: &[&[u8]]) -> Outcome {
    let now = shared::clock::now();
    let (mut connection, mut fields) = (Connection::new(4, LIMITS, now), FieldBlock::default());
    let mut input = BytesMut::from(PREFACE);
    let (mut opened, mut end) = (Vec::new(), None);
    for part in [&[][..]].iter().chain(parts) {
        input.extend_from_slice(part);
        while end.is_none() {
            match connection.receive(&mut input, &mut fields, now) {
                Ok(Some(it)) => {
                    opened.push((it, fields.fields().map(|(_, n, v)| (n.to_vec(), v.to_vec())).collect()));
                    respond(&mut connection, it, opened.len());
                }
                Ok(None) => break,
                Err(reason) => {
                    connection.end(reason);
                    end = Some(reason);
                }
            }
            connection.check();
        }
    }
    let mut bodies = BTreeMap::new();
    let cx = Context::from_waker(Waker::noop());
    for (it, _) in opened.iter().filter(|(it, _)| !it.ended && !is_left(*it)) {
        let body: &mut Vec<u8> = bodies.entry(it.stream).or_default();
        while let Poll::Ready(Some(Ok(piece))) = connection.poll_data(it.stream, &cx) {
            connection.release(it.stream, piece.len());
            body.extend_from_slice(&piece);
        }
        connection.drop_body(it.stream);
    }
    connection.check();
    for (it, _) in &opened {
        connection.drop_response(it.stream);
    }
    connection.check();
    assert!(connection.streams.is_empty() && connection.open == 0);
    assert!(opened.len() <= connection.role.opened as usize);
    connection.widen();
    let written = both::written(&mut connection, 5_000);
    Outcome { opened, end, bodies, written }
}

/// Whether nobody reads the body of a request.
fn is_left(it: Opened) -> bool {
    it.stream % 8 == 3
}

/// Does something about a request, depending on its number only.
fn respond(connection: &mut Connection<Server>, it: Opened, number: usize) {
    if is_left(it) && !it.ended {
        connection.drop_body(it.stream);
    }
    let head = |out: &mut BytesMut| {
        encode::status(out, 200);
        encode::field(out, Known::Other, b"x-long", &vec![b'x'; number % 3 * 9_000]);
    };
    let _ = match number % 5 {
        0 => connection.fields(it.stream, true, head),
        1 | 2 => {
            let _ = connection.fields(it.stream, false, head);
            let room = connection.capacity(it.stream).min(number * 700);
            connection.data(it.stream, Bytes::from(vec![b'd'; room]), number % 5 == 1)
        }
        3 => {
            connection.reset(it.stream, Reason::CANCEL);
            Ok(())
        }
        _ => Ok(()),
    };
}
