//! The last look at an answer before it is written: what a backend says to a proxy stays here, and every answer is dated.

use super::{Exchange, cors};
use crate::codec::head::Known;
use crate::http::reply::{Reply, ReplyBody};
use crate::local::Local;

/// Makes an answer the one that the client gets.
pub(super) fn respond(exchange: &Exchange<'_>, reply: Reply) -> Reply {
    let mut reply = finish(&exchange.call.server.local, reply);
    cors::say(exchange, &mut reply);
    reply
}

/// The answer to what is no request. Nothing more is read from its connection.
pub(crate) fn refusal(local: &Local, status: u16) -> Reply {
    unrouted(local, Reply::refusal(local, status))
}

/// The answer to what is not even looked at.
pub(crate) fn unrouted(local: &Local, reply: Reply) -> Reply {
    local.metrics.refusals.add(1);
    finish(local, reply)
}

fn finish(local: &Local, mut reply: Reply) -> Reply {
    let fields = &mut reply.head.fields;
    let relayed = matches!(reply.body, ReplyBody::Relay(_) | ReplyBody::Tunnel(_));
    if relayed {
        fields.retain(|known, _| !is_for_proxies(known));
    }
    // As nginx: the date is ours, whatever the backend says.
    if relayed || !fields.has(Known::Date) {
        let date = local.date.borrow().as_str().to_owned();
        fields.set(Known::Date, date);
    }
    reply
}

/// Whether a backend's field is not meant for clients (controller.md 9).
fn is_for_proxies(known: Known) -> bool {
    matches!(
        known,
        Known::Server
            | Known::XAccelRedirect
            | Known::XAccelExpires
            | Known::XAccelLimitRate
            | Known::XAccelBuffering
            | Known::XAccelCharset
    )
}
