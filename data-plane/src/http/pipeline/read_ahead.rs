//! Reads a response ahead of its client, if its location or its backend asks for that (nginx' `proxy_buffering`): the
//! backend is done with it however slowly the client reads.

use super::Exchange;
use crate::codec::head::Known;
use crate::http::reply::{Ahead, Reply, ReplyBody};

/// What a backend says about its response: `X-Accel-Buffering`, with any other value than these as if it were not there.
pub(super) fn asked(reply: &Reply) -> Option<bool> {
    if !matches!(reply.body, ReplyBody::Relay(_)) {
        return None;
    }
    match reply.head.fields.get(Known::XAccelBuffering)?.to_ascii_lowercase().as_slice() {
        b"yes" => Some(true),
        b"no" => Some(false),
        _ => None,
    }
}

/// Reads its body ahead. A short one, which is here already, is left as it is; so is one that comes before its backend
/// has the whole request.
pub(super) fn read_ahead(exchange: &mut Exchange<'_>, asked: Option<bool>, reply: &mut Reply) {
    let Some(limits) = exchange.location().map(|location| location.policy.read_ahead) else { return };
    if !asked.unwrap_or(limits.is_on) || reply.head.framing.is_empty() || !reply.body.is_arriving() {
        return;
    }
    let body = std::mem::replace(&mut reply.body, ReplyBody::Empty);
    let (body, arrived) = Ahead::begin(&exchange.call.server.local, body, limits, reply.read);
    if let Some(arrived) = arrived {
        exchange.info.attempts.read_ahead(arrived);
    }
    reply.body = body;
}
