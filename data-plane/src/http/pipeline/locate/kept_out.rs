//! Who is kept out by a host as a whole, before a location is looked for: 403, or the fleet's page for it.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Exchange, Voice, enter};
use crate::http::reply::Reply;
use crate::table::{HostTable, PathEntry};

/// What is shown in place of 403. In nginx' file that is said beside the locations, where the fleet's pages hold.
pub(super) enum Shown {
    /// That itself.
    Itself,
    /// What the fleet's default backend says; it is asked by what takes all that no location does.
    Page(Arc<PathEntry>),
    /// The 404 that stands in for that backend where the fleet has none.
    NotFound,
}

impl Shown {
    /// What the fleet says of a client.
    pub(super) fn by(table: &HostTable, client: IpAddr) -> Self {
        let policy = table.policy();
        match table.unclaimed() {
            _ if !policy.errors.takes(403) => Self::Itself,
            // It heeds the fleet's word on addresses itself.
            Some(entry) => Self::Page(Arc::clone(entry)),
            None if policy.addresses.blocks(client, true) => Self::Itself,
            None => Self::NotFound,
        }
    }
}

/// From here on nobody is asked for a request but who has the page in place of this answer.
pub(super) fn keep_out(exchange: &mut Exchange<'_>, shown: Shown, reply: Reply) -> Reply {
    exchange.voice = Voice::Host;
    match shown {
        Shown::Itself => reply,
        Shown::Page(entry) => {
            enter(exchange, entry, None);
            // Nothing that guards it is left.
            exchange.is_let_in = true;
            reply
        }
        Shown::NotFound => Reply::page(&exchange.call.server.local, 404),
    }
}
