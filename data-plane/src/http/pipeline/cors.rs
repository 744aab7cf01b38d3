//! Cross-origin requests: preflights are answered here, and every answer of the location says what is allowed
//! (annotations.md 4, 6.5). What answers in its place does not: a page for an error says what its own backend says.

use std::ops::ControlFlow::{Break, Continue};

use bytes::Bytes;

use super::{Exchange, Step, Voice};
use crate::codec::head::{Known, Method};
use crate::http::reply::Reply;
use crate::table::policy::cors::Cors;

/// Answers a preflight. Any OPTIONS of an origin that is allowed is one, before redirects, limits and access rules are
/// looked at; what others ask is the backend's business.
pub(super) fn preflight(exchange: &mut Exchange<'_>) -> Step {
    if exchange.head.method == Method::Options && allowed(exchange).is_some() {
        return Break(Reply::empty(&exchange.call.server.local, 204));
    }
    Continue(())
}

/// Puts what is allowed into an answer of the location, in place of what the backend says. A location that is denied says
/// nothing (annotations.md 1.4).
pub(super) fn say(exchange: &Exchange<'_>, reply: &mut Reply) {
    if matches!(exchange.voice, Voice::Apart | Voice::Host | Voice::Errors) {
        return;
    }
    let Some((cors, origin)) = allowed(exchange) else {
        return;
    };
    let fields = &mut reply.head.fields;
    fields.set(Known::AccessControlAllowOrigin, origin);
    if cors.credentials {
        fields.set(Known::AccessControlAllowCredentials, "true");
    }
    fields.set(Known::AccessControlAllowMethods, &cors.methods);
    fields.set(Known::AccessControlAllowHeaders, &cors.headers);
    if let Some(exposed) = &cors.exposed {
        fields.set(Known::AccessControlExposeHeaders, exposed);
    }
    fields.set(Known::AccessControlMaxAge, &cors.max_age);
}

/// What the request's origin is told, if it is allowed at all. A request with two of them has none that could be.
fn allowed<'a>(exchange: &'a Exchange<'_>) -> Option<(&'a Cors, Bytes)> {
    let location = exchange.location.as_deref().filter(|location| !location.is_denied())?;
    let cors = location.policy.cors.as_deref()?;
    let origin = cors.allowed(exchange.head.fields.joined(Known::Origin).as_ref())?;
    Some((cors, origin))
}
