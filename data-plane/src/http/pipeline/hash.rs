//! The hash key that selects the endpoint of a request (`upstream-hash-by`).

use shared::template::Variable;

use super::variables::{self, Allowance};
use super::{Exchange, basic, forwarded};
use crate::table::policy::balancing::Hashing;
use crate::upstream::Turn;

/// How a request with this key chooses its endpoint. An empty key is valid, too.
pub(super) fn turn(exchange: &mut Exchange<'_>, hashing: &Hashing) -> Turn {
    if hashing.asks_id {
        forwarded::identify(exchange, true);
    }
    let buffers = &exchange.call.server.local.buffers;
    let mut key = buffers.text();
    // A truncated key is good enough.
    let _ = hashing.key.fill(&mut key, Allowance::USUAL, |variable, key| append(exchange, variable, key));
    let hash = crc32fast::hash(&key);
    buffers.give_text(key);
    match hashing.subset {
        None => Turn::Key(hash),
        Some(size) => Turn::Group(hash, size),
    }
}

/// The value of a variable at the time the endpoint is chosen: after rewriting and authentication.
fn append(exchange: &Exchange<'_>, variable: &Variable, key: &mut Vec<u8>) {
    match variable {
        Variable::Capture(group) => {
            let location = exchange.location();
            let found = location.and_then(|it| it.groups(exchange.path(), &exchange.steps).ok().flatten());
            if let Some(found) = found {
                key.extend_from_slice(found.get(usize::from(*group), exchange.path()));
            }
        }
        Variable::User => key.extend_from_slice(&basic::user(exchange.head).unwrap_or_default()),
        variable => variables::append(exchange, variable, key),
    }
}
