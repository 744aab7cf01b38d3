//! Chooses the backend of a request: the location's, or its canary, once per request (as in ingress-nginx).

use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

use bytes::Bytes;
use shared::pattern::Steps;

use super::affinity::Session;
use super::log::InPlace;
use super::{Exchange, Step, hash};
use crate::codec::head::{Known, OfVariable, RequestHead};
use crate::http::reply::Reply;
use crate::table::policy::balancing::Balancing;
use crate::table::{Action, Alternative, BackendCell, PathEntry, Upstream};
use crate::upstream::Turn;

/// Chooses the backend; `None` is the default backend. Responds if there is nothing to choose.
pub(super) fn pick(exchange: &mut Exchange<'_>) -> Step<Option<Arc<BackendCell>>> {
    let local = &exchange.call.server.local;
    let upstream = match exchange.location().map(|location| &location.action) {
        Some(Action::Backend(upstream)) => upstream,
        Some(Action::Denied(_) | Action::Unavailable) => return Break(Reply::page(local, 503)),
        Some(Action::DefaultBackend) | None => {
            return Continue(exchange.fallback.as_ref().map(|it| Arc::clone(&it.cell)));
        }
    };
    // First of all: without endpoints the response is 503, even to a request that the canary would take.
    let stands_in = match upstream.cell.endpoints().list.is_empty() {
        false => None,
        true => match errors(exchange.location()) {
            // The same access rules protect the error backend.
            Some(errors) => {
                exchange.info.in_place = InPlace::Errors;
                Some(errors)
            }
            None => return Break(Reply::page(local, 503)),
        },
    };
    let head = &*exchange.head;
    let main = upstream.sticky.as_ref().map(|sticky| match stands_in {
        Some(errors) => Session::of(&Arc::new(sticky.of_stand_in(&errors.cell.key)), head),
        None => Session::of(sticky, head),
    });
    // A client with affinity to the main backend stays there, whatever the rules of the canary say (as in
    // ingress-nginx).
    let stays = main.as_ref().is_some_and(Session::is_known);
    let other = upstream
        .alternative
        .as_ref()
        .filter(|_| !stays)
        .and_then(|other| taken(other, head, &exchange.steps));
    let (cell, session, balancing) = match (other, stands_in) {
        // In ingress-nginx, an error backend in place of the main one is the same upstream with other endpoints: the
        // canary still takes its requests, and it has the affinity.
        (Some((alternative, session)), _) => {
            exchange.info.alternative = Some(Arc::clone(&alternative.name));
            (&alternative.cell, session, &alternative.balancing)
        }
        (None, Some(errors)) => {
            (exchange.stands_in, exchange.session) = (true, main);
            return Continue(Some(Arc::clone(&errors.cell)));
        }
        (None, None) => (&upstream.cell, main, &upstream.balancing),
    };
    let cell = Arc::clone(cell);
    // Affinity replaces balancing (as in ingress-nginx).
    let balancing = if session.is_some() { Balancing::RoundRobin } else { balancing.clone() };
    exchange.session = session;
    exchange.turn = match balancing {
        Balancing::RoundRobin => Turn::Rotation,
        Balancing::Ewma => Turn::Latency,
        Balancing::Hash(hashing) => hash::turn(exchange, &hashing),
    };
    local.metrics.routed.add(1);
    Continue(Some(cell))
}

/// The error backend of a location, if it has endpoints: it replaces a backend without endpoints.
fn errors(location: Option<&PathEntry>) -> Option<&Arc<Upstream>> {
    let errors = location.and_then(|location| location.errors());
    errors.filter(|errors| !errors.cell.endpoints().list.is_empty())
}

/// The canary that is asked for an error page, if one takes that: to ingress-nginx the error backend is the location's
/// with other endpoints, and the page is one more request of it.
pub(super) fn canary_of_page<'a>(
    exchange: &Exchange<'_>,
    location: &'a PathEntry,
    page: &Upstream,
) -> Option<&'a Arc<Alternative>> {
    let Action::Backend(upstream) = &location.action else { return None };
    let other = upstream.alternative.as_ref()?;
    let head = &*exchange.head;
    let sticky = upstream.sticky.as_ref().map(|sticky| Arc::new(sticky.of_stand_in(&page.cell.key)));
    let stays = sticky.is_some_and(|sticky| Session::of(&sticky, head).is_known());
    taken(other, head, &exchange.steps).filter(|_| !stays).map(|(other, _)| other)
}

/// A canary, if it takes a request: because of the affinity of the client, or by the rules of the canary. One without
/// endpoints is skipped.
fn taken<'a>(
    alternative: &'a Arc<Alternative>,
    head: &RequestHead,
    steps: &Steps,
) -> Option<(&'a Arc<Alternative>, Option<Session>)> {
    if alternative.cell.endpoints().list.is_empty() {
        return None;
    }
    let session = alternative.sticky.as_ref().map(|sticky| Session::of(sticky, head));
    let takes = session.as_ref().is_some_and(Session::is_known)
        || alternative.canary.as_ref().is_some_and(|canary| {
            canary.decide(
                |name| head.fields.asked(OfVariable(name)),
                |name| cookie(head, name),
                fastrand::u64(..),
                steps,
            )
        });
    takes.then_some((alternative, session))
}

/// The value of a cookie. As nginx' `$cookie_`: the name is case-insensitive, and the first match wins.
pub(super) fn cookie(head: &RequestHead, name: &str) -> Option<Bytes> {
    let mut lines = head.fields.all(Known::Cookie);
    lines.find_map(|line| cookie_in(line, name.as_bytes())).map(Bytes::copy_from_slice)
}

/// A cookie begins after a semicolon or a comma, and its value ends at a semicolon only (as in nginx): what joins lines
/// of Cookie may use commas. Spaces around its equals sign do not count.
fn cookie_in<'a>(mut line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    loop {
        if let Some((found, rest)) = line.split_at_checked(name.len())
            && found.eq_ignore_ascii_case(name)
            && let Some(value) = rest.trim_ascii_start().strip_prefix(b"=")
        {
            return value.split(|byte| *byte == b';').next().map(<[u8]>::trim_ascii);
        }
        let end = line.iter().position(|byte| matches!(byte, b';' | b','))?;
        line = line[end + 1..].trim_ascii_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found_as_by_nginx() {
        for (line, value) in [
            ("ck=a", Some("a")),
            ("CK=a; ck=b", Some("a")),
            ("x=1;ck=a", Some("a")),
            ("x=1, ck=a", Some("a")),
            ("ck = a ; x=1", Some("a")),
            ("ck=a,b; x=1", Some("a,b")),
            ("ck; ck=a", Some("a")),
            ("ck=", Some("")),
            ("xck=a; ckx=b; x ck=c", None),
            ("ck", None),
            ("", None),
        ] {
            let found = cookie_in(line.as_bytes(), b"ck");
            assert_eq!(found, value.map(str::as_bytes), "{line}");
        }
    }
}
