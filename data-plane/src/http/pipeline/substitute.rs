//! Replaces text in a response on its way to the client: nginx' `sub_filter` (docs/adr/034-shortcuts.md).

use shared::template::{Overlong, Template};

use super::variables::{self, Allowance};
use super::{Exchange, HeaderScope};
use crate::codec::head::{Framing, Known, Method};
use crate::http::reply::{Coded, Pair, Replacer, Reply, ReplyBody};
use crate::table::policy::substitutions::Substitutions;

/// Replaces text in a response of the location, if that is configured.
pub(super) fn substitute(exchange: &Exchange<'_>, reply: &mut Reply) {
    let said = exchange.location().and_then(|location| location.policy.substitutions.as_deref());
    let Some(said) = said.filter(|said| concerns(exchange, said, reply)) else { return };
    match pairs(exchange, said) {
        Ok(pairs) => replace(exchange, reply, said, pairs),
        Err(overlong) => *reply = variables::refused(exchange, overlong),
    }
}

fn concerns(exchange: &Exchange<'_>, said: &Substitutions, reply: &Reply) -> bool {
    let Reply { head, body, .. } = reply;
    let is_place = matches!(exchange.header_scope, HeaderScope::Location | HeaderScope::WithoutCors);
    is_place
        && matches!(body, ReplyBody::Relay(_) | ReplyBody::Page(_))
        && !(head.framing.is_empty() && exchange.head.method != Method::Head)
        // nginx looks for the text in compressed bodies, too, and finds none.
        && head.fields.get("Content-Encoding").is_none_or(<[u8]>::is_empty)
        && said.takes(head.fields.get(Known::ContentType).unwrap_or_default())
}

fn pairs(exchange: &Exchange<'_>, said: &Substitutions) -> Result<Vec<Pair>, Overlong> {
    let allowance = &mut Allowance::default();
    let pair = |(text, by): &(Box<[u8]>, Template)| -> Result<Pair, Overlong> {
        Ok(Pair { text: text.clone(), by: variables::filled(by, exchange, allowance, |_| &[])? })
    };
    said.pairs.iter().map(pair).collect()
}

fn replace(exchange: &Exchange<'_>, reply: &mut Reply, said: &Substitutions, pairs: Vec<Pair>) {
    let fields = &mut reply.head.fields;
    if !said.keeps_validators {
        fields.remove(Known::LastModified);
        fields.remove(Known::ETag);
    } else if let Some(tag) = fields.get_bytes("ETag").filter(|tag| tag.starts_with(b"\"")) {
        fields.set(Known::ETag, [b"W/", &tag[..]].concat());
    }
    reply.head.declared_length = None;
    if exchange.head.method == Method::Head {
        return;
    }
    reply.head.framing = Framing::Chunked;
    let body = std::mem::replace(&mut reply.body, ReplyBody::Empty);
    reply.body = ReplyBody::Coded(Box::new(Coded::replacing(body, Replacer::new(pairs, said.once))));
}
