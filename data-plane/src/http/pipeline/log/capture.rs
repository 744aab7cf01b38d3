//! Saves values for the log line that are no longer known at the end of a request.
//!
//! **Invariant:** if the log format needs no such values, nothing is saved, and nothing is allocated.

use std::sync::Arc;

use shared::template::Variable;

use super::unread::Unread;
use crate::access_log::{Ask, Captured, Format};
use crate::codec::body::RequestBody;
use crate::codec::head::{FieldName, Fields, Known, OfVariable};
use crate::http::pipeline::{Exchange, pick, variables};
use crate::http::reply::{Reply, ReplyBody};
use crate::upstream::payload::Payload;

/// Before the head is changed for a backend: stores the format, and saves values of the head.
pub(in crate::http::pipeline) fn of_head(exchange: &mut Exchange<'_>, format: Option<Arc<Format>>) {
    exchange.info.format = format;
    keep(exchange, |exchange, ask, out| match ask {
        Ask::OfHead(variable) => Some(head(exchange, variable, out)),
        _ => None,
    });
}

/// What can be read of a head that is refused: the host that it names. Nothing else is known of it later on.
pub(super) fn of_unread(unread: &Unread, format: &Format) -> Captured {
    let mut captured = Captured::default();
    for ask in format.asks() {
        let host = match ask {
            Ask::OfHead(Variable::Header(name)) if **name == *"host" => unread.host.as_deref(),
            _ => None,
        };
        captured.put(|out| {
            host.is_some_and(|host| {
                out.extend_from_slice(host);
                true
            })
        });
    }
    captured
}

/// Before the body is sent to a backend: saves it where nginx has it in memory.
pub(in crate::http::pipeline) fn of_body<B: RequestBody>(
    exchange: &mut Exchange<'_>,
    payload: &Payload<'_, B>,
) {
    keep(exchange, |exchange, ask, out| match ask {
        Ask::Body => Some(payload.append_to(out, (Captured::LONGEST, exchange.sizes.buffer))),
        _ => None,
    });
}

/// Before a response is changed for the client: saves values of the backend's response.
pub(in crate::http::pipeline) fn of_backend(exchange: &mut Exchange<'_>, reply: &Reply) {
    let fields = &reply.head.fields;
    let came = matches!(reply.body, ReplyBody::Relay(_) | ReplyBody::Call(_) | ReplyBody::Tunnel(_));
    keep(exchange, |_, ask, out| match ask {
        Ask::Came(name) => Some(came && field(fields, OfVariable(name), out)),
        Ask::CameCookie(name) => Some(came && cookie(fields, name, out)),
        // There was no location, so the values of the head are lost; or no backend was sent a body.
        Ask::OfHead(_) | Ask::Body => Some(false),
        _ => None,
    });
}

/// Before the response is sent: saves its values, and what is known about the request by now.
pub(in crate::http::pipeline) fn of_answer(exchange: &mut Exchange<'_>, reply: &Reply) {
    let fields = &reply.head.fields;
    keep(exchange, |exchange, ask, out| match ask {
        Ask::Sent(name) => Some(match Known::of(name.as_bytes()) {
            Known::ContentLength => length(reply, out),
            _ => field(fields, OfVariable(name), out),
        }),
        Ask::OfAnswer(variable) => {
            variables::append(exchange, variable, out);
            Some(true)
        }
        _ => None,
    });
}

/// Saves the next values, as long as `value` knows them.
fn keep(exchange: &mut Exchange<'_>, value: impl Fn(&Exchange<'_>, &Ask, &mut Vec<u8>) -> Option<bool>) {
    // Taken temporarily: the format is shared by all workers, and its reference count would be contended.
    let Some(format) = exchange.info.format.take() else {
        return;
    };
    let mut captured = std::mem::take(&mut exchange.info.captured);
    for ask in &format.asks()[captured.len().min(format.asks().len())..] {
        let mut is_known = true;
        let before = captured.len();
        captured.put(|out| match value(exchange, ask, out) {
            Some(is_there) => is_there,
            None => {
                is_known = false;
                false
            }
        });
        if !is_known {
            captured.truncate(before);
            break;
        }
    }
    (exchange.info.captured, exchange.info.format) = (captured, Some(format));
}

fn head(exchange: &Exchange<'_>, variable: &Variable, out: &mut Vec<u8>) -> bool {
    let fields = &exchange.head.fields;
    match variable {
        // HTTP/2 has another field for it.
        Variable::Header(name) if **name == *"host" => {
            out.extend_from_slice(exchange.head.host.raw());
            true
        }
        Variable::Header(name) => {
            let value = fields.asked(OfVariable(name));
            value.is_some_and(|value| {
                out.extend_from_slice(&value);
                true
            })
        }
        Variable::ContentType => field(fields, "content-type", out),
        Variable::ContentLength => field(fields, "content-length", out),
        Variable::Cookie(name) => {
            let cookie = pick::cookie(exchange.head, name);
            cookie.is_some_and(|cookie| {
                out.extend_from_slice(&cookie);
                true
            })
        }
        other => {
            variables::append(exchange, other, out);
            true
        }
    }
}

fn field(fields: &Fields, name: impl FieldName, out: &mut Vec<u8>) -> bool {
    let Some(value) = fields.joined(name) else {
        return false;
    };
    out.extend_from_slice(&value);
    true
}

/// The value of the first Set-Cookie with this name, up to the semicolon before its attributes.
fn cookie(fields: &Fields, name: &str, out: &mut Vec<u8>) -> bool {
    let value = fields.all(Known::SetCookie).find_map(|line| {
        let (key, rest) = line.split_at_checked(name.len())?;
        let value = rest.strip_prefix(b"=").filter(|_| key.eq_ignore_ascii_case(name.as_bytes()))?;
        value.split(|byte| *byte == b';').next().map(<[u8]>::trim_ascii_start)
    });
    value.is_some_and(|value| {
        out.extend_from_slice(value);
        true
    })
}

fn length(reply: &Reply, out: &mut Vec<u8>) -> bool {
    let length = reply.head.declared_length;
    length.is_some_and(|length| {
        out.extend_from_slice(length.to_string().as_bytes());
        true
    })
}
