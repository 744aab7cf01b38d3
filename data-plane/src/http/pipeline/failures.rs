//! Why backends and auth services did not respond, as warnings: nginx writes such a line into its error log for every
//! request, and operators look for the reason of a 502 there.
//!
//! One line a minute for each backend; the access log has a line for each request.

use shared::{clock, telemetry};
use tracing::{debug, warn};

use super::Exchange;
use crate::codec::error::{Kind, ProxyError};
use crate::table::BackendCell;

/// Logs a request that no endpoint of this backend responded to.
pub(super) fn of_backend(exchange: &Exchange<'_>, cell: &BackendCell, error: &ProxyError) {
    let (kind, local) = (error.kind, &exchange.call.server.local);
    let source = error.source.as_deref().map(|source| telemetry::chain(source)).unwrap_or_default();
    let backend = &*cell.key;
    if !is_fault(kind) || !local.failures.allows(backend, clock::now()) {
        debug!(backend, kind = kind.as_str(), source, "request failed");
        return;
    }
    let ingress = exchange.owner();
    let endpoint = exchange.info.attempts.last().map(tracing::field::display);
    let (status, kind) = (kind.status(), kind.as_str());
    warn!(
        backend,
        ingress,
        endpoint,
        kind,
        source,
        "a request got {status}; this is logged once a minute for each backend"
    );
}

/// Logs that an auth service cannot be asked. `field`: the annotation that names it.
pub(super) fn of_auth(exchange: &Exchange<'_>, field: &str, error: &std::io::Error) {
    let ingress = exchange.owner();
    if exchange.call.server.local.failures.allows(ingress, clock::now()) {
        let source = telemetry::chain(error);
        warn!(ingress, field, source, "a request got 500: the auth service cannot be asked");
    }
}

/// Whether the backend, or the way to it, is at fault, and not the client or a limit of this process.
fn is_fault(kind: Kind) -> bool {
    matches!(kind.status(), 502 | 504)
}
