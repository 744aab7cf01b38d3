//! How many requests a client may make: rates first, then the requests in progress (annotations.md 4, 6.10).

use std::ops::ControlFlow::{Break, Continue};

use super::{Exchange, Step};
use crate::http::reply::Reply;

/// Counts a request, and refuses one that is too many. It counts as in progress until the end of its record: until
/// the last byte of the answer, or of a tunnel, is through, or the client has gone.
pub(super) fn limit(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location.as_deref() else {
        return Continue(());
    };
    let (Some(limits), Some(counts)) = (&location.policy.limits, &location.counts) else {
        return Continue(());
    };
    match limits.admit(counts, exchange.client(), shared::clock::now()) {
        Ok(permit) => {
            *exchange.permit = permit;
            Continue(())
        }
        Err(status) => Break(Reply::page(&exchange.call.server.local, status)),
    }
}
