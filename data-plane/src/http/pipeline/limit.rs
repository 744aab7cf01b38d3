//! Rate limits per client: request rates first, then the number of requests in progress (as in ingress-nginx).

use std::net::{IpAddr, Ipv6Addr};
use std::ops::ControlFlow::{Break, Continue};

use shared::template::{Template, Variable};

use super::variables::{self, Allowance};
use super::{Exchange, Step, basic};
use crate::http::reply::Reply;

/// Counts a request, and refuses it if it exceeds a limit. It is in progress until the end of its record: until the
/// last byte of the response or tunnel was sent, or the client disconnected.
pub(super) fn limit(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location() else {
        return Continue(());
    };
    let (Some(limits), Some(counts)) = (&location.policy.limits, location.counts()) else {
        return Continue(());
    };
    let Some(client) = Some(exchange.client()).filter(|client| limits.counts(*client)) else {
        return Continue(());
    };
    let Some(client) = limits.key.as_ref().map_or(Some(client), |key| told_apart(exchange, key)) else {
        return Continue(());
    };
    match limits.admit(counts, client, shared::clock::now()) {
        Ok(permit) => {
            *exchange.permit = permit;
            Continue(())
        }
        Err(status) => Break(Reply::page(&exchange.call.server.local, status)),
    }
}

/// The key of a client in the counters, if it is not the address; `None`: the key is empty.
fn told_apart(exchange: &Exchange<'_>, key: &Template) -> Option<IpAddr> {
    let mut text = Vec::new();
    // A truncated key is good enough.
    let _ = key.fill(&mut text, Allowance::USUAL, |variable, out| match variable {
        // As in nginx, the user name as claimed, before the password is checked.
        Variable::User => out.extend_from_slice(&basic::user(exchange.head).unwrap_or_default()),
        variable => variables::append(exchange, variable, out),
    });
    let digest = blake3::hash(&text);
    let octets = digest.as_bytes().first_chunk::<16>().copied().unwrap_or_default();
    (!text.is_empty()).then(|| Ipv6Addr::from(octets).into())
}
