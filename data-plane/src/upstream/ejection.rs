//! Passive health: endpoints that cannot be reached are ejected, and return with their first response
//! (docs/adr/024-who-cannot-be-reached.md).
//!
//! Response times and statuses are up to the application and do not count, except for statuses that the location
//! retries elsewhere. Likewise, only failures that are retried count: one that is reported to the client, such as that
//! of a POST that had reached the endpoint, does not, and the client gets the same response as from ingress-nginx.

use crate::balance::Moment;
use crate::codec::error::{Kind, ProxyError};
use crate::local::Local;
use crate::table::{BackendCell, Endpoint};

/// Statuses that are retried but are not failures of an endpoint, as in nginx; a 429 is as much about the client.
const NO_FAILURE: [u16; 3] = [403, 404, 429];

/// Records a failed attempt, of a kind that its location retries elsewhere.
pub(crate) fn attempt_failed(local: &Local, cell: &BackendCell, endpoint: &Endpoint, error: &ProxyError) {
    let counts = match error.kind {
        Kind::ConnectTimeout | Kind::Closed => true,
        Kind::ConnectFailed => !error.is_no_way() && !error.is_shortage(),
        _ => false,
    };
    if counts {
        count_failure(local, cell, endpoint);
    }
}

/// Records a response with a status that is retried elsewhere.
pub(crate) fn retried_status(local: &Local, cell: &BackendCell, endpoint: &Endpoint, status: u16) {
    if NO_FAILURE.contains(&status) {
        responded(local, cell, endpoint);
    } else {
        count_failure(local, cell, endpoint);
    }
}

/// Records a response, or a successful connect if nothing else is known.
pub(crate) fn responded(local: &Local, cell: &BackendCell, endpoint: &Endpoint) {
    if cell.answered(endpoint) {
        local.metrics.returned.add(1);
        tracing::info!(backend = %cell.key, endpoint = %endpoint.address, "an endpoint is back");
    }
}

fn count_failure(local: &Local, cell: &BackendCell, endpoint: &Endpoint) {
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
