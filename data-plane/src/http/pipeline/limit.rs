//! Rate limits per client: request rates first, then the number of requests in progress (as in ingress-nginx). Those of
//! annotations, then those of snippets.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::ControlFlow::{Break, Continue};
use std::task::Poll;
use std::time::Duration;

use shared::template::{Template, Variable};

use super::variables::{self, Allowance};
use super::{Exchange, Step, basic};
use crate::codec::body::RequestBody;
use crate::codec::error::Kind;
use crate::codec::head::Framing;
use crate::http::reply::Reply;
use crate::table::policy::zones::ZoneLimits;

/// Counts a request, and refuses it if it exceeds a limit. It is in progress until the end of its record: until the
/// last byte of the response or tunnel was sent, or the client disconnected.
pub(super) async fn limit<B: RequestBody>(exchange: &mut Exchange<'_>, body: &mut B) -> Step {
    // As in nginx, only the first limits count where a request is redirected internally.
    if exchange.is_counted {
        return Continue(());
    }
    by_annotations(exchange)?;
    match exchange.location().and_then(|location| location.policy.zones.as_deref()) {
        None => Continue(()),
        Some(zones) => by_zones(exchange, body, zones).await,
    }
}

async fn by_zones<B: RequestBody>(exchange: &mut Exchange<'_>, body: &mut B, zones: &ZoneLimits) -> Step {
    let (refuse, now) =
        (|status| Break(Reply::of_status(&exchange.call.server.local, status)), shared::clock::now());
    exchange.is_counted = true;
    let mut wait = Duration::ZERO;
    for (at, it) in zones.rates.iter().enumerate() {
        let Some(client) = told_apart(exchange, &it.key) else { continue };
        let Some(more) = it.limit.admit(&it.counts, client, now) else {
            // As in nginx, a request that one of the rates refuses is counted by none.
            for before in &zones.rates[..at] {
                let client = told_apart(exchange, &before.key);
                client.iter().for_each(|client| before.counts.second().take_back(*client, before.limit.rate));
            }
            return refuse(zones.too_fast);
        };
        wait = wait.max(more);
    }
    if !wait.is_zero() {
        // Behind a body that is not read yet nobody sees it.
        let is_watched = exchange.head.framing == Framing::None;
        let gone = poll_fn(|cx| if is_watched { body.poll_gone(cx) } else { Poll::Pending });
        if exchange.call.timer.limit(wait, gone).await.is_ok() {
            return Break(Reply::failure(&exchange.call.server.local, &Kind::ClientGone.into()));
        }
    }
    for it in &zones.in_progress {
        let Some(client) = told_apart(exchange, &it.key) else { continue };
        match it.counts.connections().begin(client, it.limit) {
            Some(permit) => exchange.permits.push(permit),
            None => return refuse(zones.too_many),
        }
    }
    Continue(())
}

fn by_annotations(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location() else {
        return Continue(());
    };
    let (Some(limits), Some(counts)) = (&location.policy.limits, location.counts()) else {
        return Continue(());
    };
    exchange.is_counted = true;
    let Some(client) = Some(exchange.client()).filter(|client| limits.counts(*client)) else {
        return Continue(());
    };
    let Some(client) = limits.key.as_ref().map_or(Some(client), |key| told_apart(exchange, key)) else {
        return Continue(());
    };
    match limits.admit(counts, client, shared::clock::now()) {
        Ok(permit) => {
            exchange.permits.extend(permit);
            Continue(())
        }
        Err(status) => Break(Reply::of_status(&exchange.call.server.local, status)),
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
