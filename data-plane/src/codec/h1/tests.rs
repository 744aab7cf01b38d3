//! Tests the codec against itself (with the bytes split anywhere), against a slow parser, and with hostile input.

mod cuts;
mod hostile;
mod messages;
mod responses;
mod sizes;
mod slow;
mod write;

use bytes::BytesMut;

use super::{Body, BodyReader, RequestReader, ResponseReader};
use crate::codec::guard::Limits;
use crate::codec::head::RequestHead;

/// A parsed request in comparable form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

pub(super) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}

fn seen(head: &RequestHead, body: Vec<u8>) -> Seen {
    Seen {
        method: head.method_name().to_owned(),
        target: text(head.target()),
        fields: head.fields.iter().map(|(name, value)| (text(name), text(value))).collect(),
        body,
    }
}

/// Reads all requests of a connection whose bytes arrive in the given pieces; also returns how it ended.
pub(super) fn requests<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Seen>, String) {
    let mut buffer = BytesMut::new();
    let mut reader = RequestReader::new(Limits::REQUEST);
    let mut open: Option<(RequestHead, BodyReader, Vec<u8>)> = None;
    let mut out = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let Some((head, mut body, mut bytes)) = open.take() else {
                match reader.feed(&mut buffer) {
                    Ok(None) => break,
                    Ok(Some(head)) => {
                        open = Some(((*head).clone(), BodyReader::new(head.framing), Vec::new()))
                    }
                    Err(error) => return (out, format!("{error:?}")),
                }
                continue;
            };
            match body.next(&mut buffer) {
                Ok(Body::Data(data)) => {
                    assert!(!data.is_empty(), "a piece is never empty");
                    bytes.extend_from_slice(&data);
                }
                Ok(Body::Need) => {
                    open = Some((head, body, bytes));
                    break;
                }
                Ok(Body::End) => {
                    out.push(seen(&head, bytes));
                    continue;
                }
                Err(error) => return (out, format!("{error:?}")),
            }
            open = Some((head, body, bytes));
        }
    }
    let end = match (open, buffer.is_empty()) {
        (None, true) => "idle".to_owned(),
        (None, false) => "within a head".to_owned(),
        (Some((_, _, bytes)), _) => format!("within a body, after {} bytes", bytes.len()),
    };
    (out, end)
}

/// Status, fields, body, and the number of bytes after it.
pub(super) type Answer = (u16, Vec<(String, String)>, Vec<u8>, usize);

/// Reads one response; `Ok` if it is complete.
pub(super) fn response<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    to_head: bool,
    closes: bool,
) -> Result<Answer, String> {
    let mut buffer = BytesMut::new();
    let mut reader = ResponseReader::new(Limits::RESPONSE);
    let mut open = None;
    let mut bytes = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        if open.is_none() {
            open = loop {
                match reader.feed(&mut buffer, to_head).map_err(|error| format!("{error:?}"))? {
                    Some(head) if head.is_interim() => {}
                    Some(head) => break Some((BodyReader::new(head.framing), head)),
                    None => break None,
                }
            };
        }
        if let Some((body, _)) = &mut open {
            while let Body::Data(data) = body.next(&mut buffer).map_err(|error| format!("{error:?}"))? {
                bytes.extend_from_slice(&data);
            }
        }
    }
    let Some((mut body, head)) = open else {
        return Err("no head".to_owned());
    };
    if closes {
        body.close().map_err(|error| format!("{error:?}"))?;
    }
    if !body.is_done() {
        return Err("no end".to_owned());
    }
    let fields = head.fields.iter().map(|(name, value)| (text(name), text(value))).collect();
    Ok((head.status, fields, bytes, buffer.len()))
}
