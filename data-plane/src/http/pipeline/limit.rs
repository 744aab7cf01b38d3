//! How many requests a client may make: rates first, then the requests in progress (annotations.md 4, 6.10).

use std::net::{IpAddr, Ipv6Addr};
use std::ops::ControlFlow::{Break, Continue};

use shared::template::{Template, Variable};

use super::variables::{self, Allowance};
use super::{Exchange, Step, basic};
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

/// What stands for a client in the counts, where others than its address tell it apart; `None`: it shows nothing.
fn told_apart(exchange: &Exchange<'_>, key: &Template) -> Option<IpAddr> {
    let mut text = Vec::new();
    // What there is no room for makes no difference.
    let _ = key.fill(&mut text, Allowance::USUAL, |variable, out| match variable {
        // As nginx: whoever says a name has it, before anybody has looked at the password.
        Variable::User => out.extend_from_slice(&basic::user(exchange.head).unwrap_or_default()),
        variable => variables::append(exchange, variable, out),
    });
    let digest = blake3::hash(&text);
    let octets = digest.as_bytes().first_chunk::<16>().copied().unwrap_or_default();
    (!text.is_empty()).then(|| Ipv6Addr::from(octets).into())
}
