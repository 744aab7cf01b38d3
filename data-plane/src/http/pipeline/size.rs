//! Refuses a body that says that it is too long, before any of it is read (configmap.md 1.2, proxy-body-size). One that
//! does not say how long it is is counted while it is read.

use std::ops::ControlFlow::{Break, Continue};

use super::{Exchange, Step, Voice};
use crate::codec::error::Kind;
use crate::codec::head::Framing;
use crate::http::reply::Reply;

/// As nginx, when the location is found, before anything else is asked of it.
pub(super) fn size(exchange: &mut Exchange<'_>) -> Step {
    match exchange.head.framing {
        Framing::Length(length) if exchange.sizes.exceeded(length) => {
            exchange.voice = Voice::Apart;
            Break(Reply::failure(&exchange.call.server.local, &Kind::BodyTooLarge.into()))
        }
        _ => Continue(()),
    }
}
