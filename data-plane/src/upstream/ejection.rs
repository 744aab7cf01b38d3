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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use rustix::io::Errno;

    use super::*;
    use crate::table::EndpointSet;

    fn failed(errno: Errno) -> ProxyError {
        ProxyError::of(Kind::ConnectFailed, io::Error::from_raw_os_error(errno.raw_os_error()))
    }

    /// Two endpoints, since half of them stay in.
    fn backend() -> (BackendCell, [Arc<Endpoint>; 2]) {
        let cell = BackendCell::new(1, "ns/echo/80".into());
        let endpoints = [1, 2].map(|id| Arc::new(Endpoint::new(id, ([10, 0, 0, id as u8], 80).into())));
        cell.store(EndpointSet::new(endpoints.iter().map(Arc::clone).collect()));
        (cell, endpoints)
    }

    /// What is this proxy's own lack, or the client's own doing, puts nobody out.
    #[test]
    fn failures_of_an_endpoint_alone_put_it_out() {
        for (error, counts) in [
            (failed(Errno::CONNREFUSED), true),
            (Kind::ConnectTimeout.into(), true),
            (Kind::Closed.into(), true),
            (failed(Errno::NETUNREACH), false),
            (failed(Errno::ADDRNOTAVAIL), false),
            (failed(Errno::AFNOSUPPORT), false),
            (failed(Errno::MFILE), false),
            (failed(Errno::NOBUFS), false),
            (Kind::ReadTimeout.into(), false),
            (Kind::ClientGone.into(), false),
        ] {
            let (local, (cell, [first, _])) = (Local::for_tests(), backend());
            let most = local.limits.eject_after;
            for number in 1..=most {
                attempt_failed(&local, &cell, &first, &error);
                assert_eq!(first.health.is_out(), counts && number == most, "{error:?}, {number}");
            }
        }
    }

    /// A status that says that it works is an answer like others.
    #[test]
    fn some_statuses_that_are_tried_elsewhere_are_no_failures() {
        for status in [403, 404, 429, 500, 502, 503, 504] {
            let (local, (cell, [first, _])) = (Local::for_tests(), backend());
            let most = local.limits.eject_after;
            (1..most).for_each(|_| attempt_failed(&local, &cell, &first, &Kind::Closed.into()));
            retried_status(&local, &cell, &first, status);
            let is_answer = NO_FAILURE.contains(&status);
            assert_eq!(first.health.is_out(), !is_answer, "{status}");
            attempt_failed(&local, &cell, &first, &Kind::Closed.into());
            assert_eq!(first.health.is_out(), !is_answer, "{status}: they are counted from then on");
        }
    }
}
