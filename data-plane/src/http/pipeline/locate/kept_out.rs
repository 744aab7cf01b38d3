//! Refuses requests before a location is looked up: with the refusal itself, or with the page that the fleet has for a
//! 403.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Exchange, HeaderScope, enter};
use crate::http::reply::Reply;
use crate::table::{HostTable, PathEntry};

/// What a client gets in place of a 403. In nginx' configuration that rule is outside of the locations, where the
/// fleet's error pages apply.
pub(super) enum Shown {
    /// Nothing: the refusal itself is sent.
    Itself,
    /// The error page of the fleet's default backend. The request is sent through the location of requests that no
    /// other location takes.
    Page(Arc<PathEntry>),
    /// The proxy's own 404, because the fleet has no default backend.
    NotFound,
}

impl Shown {
    /// What a client gets according to the fleet's settings.
    pub(super) fn by(table: &HostTable, client: IpAddr) -> Self {
        let policy = table.policy();
        match table.unclaimed() {
            _ if !policy.errors.takes(403) => Self::Itself,
            // That location checks the address lists of the fleet itself.
            Some(entry) => Self::Page(Arc::clone(entry)),
            None if policy.addresses.blocks(client, true) => Self::Itself,
            None => Self::NotFound,
        }
    }
}

/// The response to a refused request. From here on the request can reach no backend but that of the error page.
pub(super) fn keep_out(exchange: &mut Exchange<'_>, shown: Shown, reply: Reply) -> Reply {
    exchange.header_scope = HeaderScope::Host;
    match shown {
        Shown::Itself => reply,
        Shown::Page(entry) => {
            enter(exchange, entry, None);
            // There are no access rules left to pass.
            exchange.is_let_in = true;
            reply
        }
        Shown::NotFound => Reply::page(&exchange.call.server.local, 404),
    }
}
