//! Who gets in (ingress-nginx behaviour, annotations.md 4 and 6.9).

use std::ops::ControlFlow::{Break, Continue};

use super::{Exchange, Step};
use crate::http::reply::Reply;
use crate::table::policy::access::Listed;

/// Answers 403 where the client's address may not get in. Whatever redirects, and a backend without endpoints, came
/// first.
pub(super) fn access(exchange: &Exchange<'_>) -> Step {
    let Some(location) = exchange.location.as_deref() else {
        return Continue(());
    };
    match location.policy.addresses.say(exchange.client()) {
        Listed::Denied => Break(Reply::page(&exchange.call.server.local, 403)),
        Listed::Allowed | Listed::Unsaid => Continue(()),
    }
}
