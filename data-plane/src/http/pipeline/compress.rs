//! Compresses a response if the client accepts that (as in ingress-nginx; docs/adr/015).

use shared::budget::Level;

use super::Exchange;
use crate::codec::head::{Fields, Framing, Known, Method, Version};
use crate::http::reply::{Coded, Reply, ReplyBody};
use crate::table::policy::compression::{Answer, Asked, Coding};

const ENCODING: &str = "Content-Encoding";
const ETAG: &str = "ETag";

/// Compresses a response, if that is configured and there is memory for it; the last step that changes its head.
/// Responses that would differ for other clients get a `Vary` header.
pub(super) fn compress(exchange: &Exchange<'_>, reply: &mut Reply) {
    let Exchange { call, head, .. } = exchange;
    let is_said = exchange.location().is_none_or(|location| location.policy.compression.is_some());
    if !is_said || head.method == Method::Head || !may_be(reply) {
        return;
    }
    let chosen = call.server.with_table(|table| {
        let accept = head.fields.joined("Accept-Encoding");
        let asked = Asked {
            accept: accept.as_deref(),
            agent: head.fields.get(Known::UserAgent),
            is_http10: head.version == Version::Http10,
        };
        let answer = Answer {
            media_type: reply.head.fields.get(Known::ContentType).unwrap_or_default(),
            length: match reply.head.framing {
                Framing::Length(length) => Some(length),
                _ => None,
            },
        };
        Some(table.policy().compression.as_deref()?.choose(&asked, &answer))
    });
    let Some((varies, chosen)) = chosen else { return };
    if varies {
        vary(&mut reply.head.fields);
    }
    if let Some((coding, level)) = chosen {
        encode(exchange, reply, coding, level);
    }
}

/// Whether a response may be compressed for any client. One with `no-transform` may not: RFC 9110 section 7.7 requires
/// that, although nginx does not comply.
fn may_be(reply: &Reply) -> bool {
    let Reply { head, body, .. } = reply;
    let fields = &head.fields;
    matches!(head.status, 200 | 403 | 404)
        && match body {
            ReplyBody::Relay(_) | ReplyBody::Page(_) => true,
            ReplyBody::Coded(coded) => !coded.is_compressed(),
            _ => false,
        }
        && !head.framing.is_empty()
        && fields.get(ENCODING).is_none_or(<[u8]>::is_empty)
        && !fields.all(Known::CacheControl).any(|value| has_word(value, b"no-transform"))
}

/// Tells caches that the response depends on the client.
fn vary(fields: &mut Fields) {
    let is_told =
        fields.all(Known::Vary).any(|value| has_word(value, b"accept-encoding") || has_word(value, b"*"));
    if !is_told {
        fields.append(Known::Vary, "Accept-Encoding");
    }
}

/// Whether a list contains a word, ignoring case.
fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(word))
}

fn encode(exchange: &Exchange<'_>, reply: &mut Reply, coding: Coding, level: u32) {
    let quota = &exchange.call.server.local.quota;
    // When memory is short, the response is not compressed.
    let share = if quota.level() == Level::Calm { quota.take(Coded::cost(coding, level)) } else { None };
    let Some(share) = share else { return };
    let fields = &mut reply.head.fields;
    fields.set(ENCODING, coding.as_str());
    fields.remove("Accept-Ranges");
    // It is another representation with the same meaning.
    match fields.get_bytes(ETAG) {
        Some(tag) if tag.starts_with(b"\"") => fields.set(ETAG, [b"W/", &tag[..]].concat()),
        Some(tag) if !tag.starts_with(b"W/") => fields.remove(ETAG),
        _ => {}
    }
    (reply.head.framing, reply.head.declared_length) = (Framing::Chunked, None);
    let body = std::mem::replace(&mut reply.body, ReplyBody::Empty);
    reply.body = ReplyBody::Coded(Box::new(Coded::new(body, coding, level, share)));
}
