//! Passive health: endpoints that cannot be reached are ejected, and return with their first answer
//! (docs/adr/024-who-cannot-be-reached.md).
//!
//! How long an endpoint takes, and what it answers, is up to its application and does not count, except for a status that the location
//! retries elsewhere. Likewise, only failures that are retried count: one that the client is told of, such as of a POST that had reached the
//! endpoint, does not, and clients are told what ingress-nginx would tell them.

use crate::balance::Moment;
use crate::codec::error::{Kind, ProxyError};
use crate::local::Local;
use crate::table::{BackendCell, Endpoint};

/// Statuses by which a request goes elsewhere and which are no failure of an endpoint, as in nginx; that there are too many
/// requests is said of a client as well.
const NO_FAILURE: [u16; 3] = [403, 404, 429];

/// A try has failed, in a way that its location has tried elsewhere.
pub(crate) fn failed(local: &Local, cell: &BackendCell, endpoint: &Endpoint, error: &ProxyError) {
    let speaks_against = match error.kind {
        Kind::ConnectTimeout | Kind::Closed => true,
        Kind::ConnectFailed => !error.is_no_way() && !error.is_shortage(),
        _ => false,
    };
    if speaks_against {
        note(local, cell, endpoint);
    }
}

/// It answered with a status by which the request goes elsewhere.
pub(crate) fn passed_over(local: &Local, cell: &BackendCell, endpoint: &Endpoint, status: u16) {
    if NO_FAILURE.contains(&status) {
        answered(local, cell, endpoint);
    } else {
        note(local, cell, endpoint);
    }
}

/// It has answered, or let itself be connected to where nothing else is known.
pub(crate) fn answered(local: &Local, cell: &BackendCell, endpoint: &Endpoint) {
    if cell.answered(endpoint) {
        local.metrics.returned.add(1);
        tracing::info!(backend = %cell.key, endpoint = %endpoint.address, "an endpoint is back");
    }
}

fn note(local: &Local, cell: &BackendCell, endpoint: &Endpoint) {
    let most = local.limits.eject_after;
    if most == 0 {
        return;
    }
    let failures = endpoint.health.failed();
    if failures >= u64::from(most) && cell.eject(endpoint, Moment::of(shared::clock::now())) {
        local.metrics.ejected.add(1);
        tracing::warn!(backend = %cell.key, endpoint = %endpoint.address, failures, "an endpoint is out");
    }
}
