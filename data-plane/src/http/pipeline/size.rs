//! Refuses a body whose declared length is too long before any of it is read (ConfigMap option `proxy-body-size`). A
//! body without a declared length is counted while it is read.

use std::ops::ControlFlow::{Break, Continue};

use super::{Exchange, HeaderScope, Step};
use crate::codec::error::Kind;
use crate::codec::head::Framing;
use crate::http::reply::Reply;
use crate::table::PathEntry;

/// Whether the location will answer by that.
pub(super) fn answers(exchange: &Exchange<'_>, entry: &PathEntry) -> bool {
    let sizes = entry.policy.bodies.over(exchange.sizes);
    matches!(exchange.head.framing, Framing::Length(length) if sizes.exceeded(length))
}

/// As in nginx, checked as soon as the location is found, before anything else.
pub(super) fn size(exchange: &mut Exchange<'_>) -> Step {
    match exchange.head.framing {
        Framing::Length(length) if exchange.sizes.exceeded(length) => {
            exchange.header_scope = HeaderScope::WithoutCors;
            Break(Reply::failure(&exchange.call.server.local, &Kind::BodyTooLarge.into()))
        }
        _ => Continue(()),
    }
}
