//! Session affinity: reads the client's cookie, selects its endpoint, and issues a new cookie (as in ingress-nginx).

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::Exchange;
use crate::affinity::Token;
use crate::codec::head::{Known, RequestHead};
use crate::http::reply::Reply;
use crate::listen::Scheme;
use crate::table::{Endpoint, EndpointSet, Sticky};
use crate::upstream::Tried;

/// A request to a backend with affinity.
#[derive(Debug)]
pub(super) struct Session {
    sticky: Arc<Sticky>,
    /// The client's cookie, unparsed.
    cookie: Option<Vec<u8>>,
    /// The key of the endpoint that was chosen last.
    issued: Option<String>,
}

impl Session {
    /// Reads the client's cookie.
    pub(super) fn of(sticky: &Arc<Sticky>, head: &RequestHead) -> Self {
        let cookie = cookie(head, sticky.rules.attributes.name.as_bytes()).map(<[u8]>::to_vec);
        Self { sticky: Arc::clone(sticky), cookie, issued: None }
    }

    /// Whether the client has a cookie of exactly this backend.
    pub(super) fn is_known(&self) -> bool {
        self.token().is_some_and(|token| token.is_of(&self.sticky.key))
    }

    /// The endpoint for the next attempt: the client's own, even if it has just failed, unless the rules say that it
    /// changes then; else one that was not tried, for which the client gets a new cookie.
    pub(super) fn endpoint(&mut self, set: &EndpointSet, tried: &Tried) -> Option<Arc<Endpoint>> {
        let own = self.token().and_then(|token| self.sticky.find(set, token.key));
        let changes = !tried.is_empty() && self.sticky.rules.change_on_failure;
        if own.is_some() && !changes {
            return own.map(Arc::clone);
        }
        let failed = |endpoint: &_| tried.has(endpoint);
        let (endpoint, key) = self.sticky.draw(set, failed, shared::clock::wall())?;
        self.issued = Some(key);
        Some(Arc::clone(endpoint))
    }

    fn token(&self) -> Option<Token<'_>> {
        Token::parse(self.cookie.as_deref()?)
    }
}

/// Adds the cookie of the chosen endpoint to the response, if the location issues cookies.
pub(super) fn say(exchange: &Exchange<'_>, reply: &mut Reply) {
    let (Some(session), Some(location)) = (&exchange.session, exchange.location()) else {
        return;
    };
    let Some(key) = session.issued.as_deref().filter(|_| exchange.issues_cookie) else {
        return;
    };
    let now = shared::clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let line = session.sticky.rules.attributes.render(
        (key, &session.sticky.key),
        location.declared(),
        exchange.call.peer.scheme() == Scheme::Https,
        exchange.head.fields.get(Known::UserAgent).unwrap_or_default(),
        i64::try_from(now).unwrap_or(i64::MAX),
    );
    // Before the backend's own cookies, as in ingress-nginx: of several of one name clients keep the last one, and some
    // backends use the same name.
    let fields = &mut reply.head.fields;
    let own: Vec<_> = fields.all(Known::SetCookie).map(<[u8]>::to_vec).collect();
    fields.set(Known::SetCookie, line);
    for cookie in own {
        fields.add(Known::SetCookie, cookie);
    }
}

/// The value of a cookie as ingress-nginx' Lua library reads it: case-sensitive name, the last one of several, up to a
/// space.
fn cookie<'a>(head: &'a RequestHead, name: &[u8]) -> Option<&'a [u8]> {
    let crumbs = head.fields.all(Known::Cookie).flat_map(|line| line.split(|byte| *byte == b';'));
    let values = crumbs.filter_map(|crumb| {
        let value = crumb.trim_ascii_start().strip_prefix(name)?.strip_prefix(b"=")?;
        value.split(|byte| matches!(byte, b' ' | b'\t')).next()
    });
    values.last()
}
