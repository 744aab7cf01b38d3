//! Cross-origin requests (as in ingress-nginx): preflights are answered here, and every response of the location gets
//! the CORS headers. The page of an error backend does not get them: it has only those that the error backend sends.

use std::ops::ControlFlow::{Break, Continue};

use bytes::Bytes;

use super::{Exchange, HeaderScope, Step};
use crate::codec::head::{Known, Method};
use crate::http::reply::Reply;
use crate::table::PathEntry;
use crate::table::policy::cors::Cors;

/// Whether the location will answer a preflight.
pub(super) fn answers(exchange: &Exchange<'_>, entry: &PathEntry) -> bool {
    exchange.head.method == Method::Options && allowed_by(exchange, entry).is_some()
}

/// Answers preflights. Any OPTIONS request from an allowed origin is one, before redirects, limits and access rules;
/// others go to the backend.
pub(super) fn preflight(exchange: &mut Exchange<'_>) -> Step {
    if exchange.head.method == Method::Options && allowed(exchange).is_some() {
        return Break(Reply::empty(&exchange.call.server.local, 204));
    }
    Continue(())
}

/// Sets the CORS headers in a response of the location, replacing the backend's. A denied location sets none (as in
/// ingress-nginx).
pub(super) fn say(exchange: &Exchange<'_>, reply: &mut Reply) {
    if matches!(exchange.header_scope, HeaderScope::WithoutCors | HeaderScope::Host | HeaderScope::Errors) {
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

/// The CORS settings and the allowed origin, if the request's origin is allowed. A request with two Origin headers has
/// none.
fn allowed<'a>(exchange: &'a Exchange<'_>) -> Option<(&'a Cors, Bytes)> {
    allowed_by(exchange, exchange.location()?)
}

fn allowed_by<'e>(exchange: &Exchange<'_>, location: &'e PathEntry) -> Option<(&'e Cors, Bytes)> {
    let cors = location.policy.cors.as_deref().filter(|_| !location.is_denied())?;
    let origin = cors.allowed(exchange.head.fields.joined(Known::Origin).as_ref())?;
    Some((cors, origin))
}
