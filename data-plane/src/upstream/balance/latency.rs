//! The faster of two (ingress-nginx' `ewma`): of two endpoints that the request has not tried, the one with the lower
//! latency.

use std::sync::Arc;

use super::Tried;
use crate::balance::Moment;
use crate::table::{Endpoint, EndpointSet};

/// Of two random endpoints the one with the lower score; the first one if they are equal.
pub(super) fn untried<'a>(set: &'a EndpointSet, tried: &Tried) -> Option<&'a Arc<Endpoint>> {
    let is_open = |endpoint: &Arc<Endpoint>| tried.is_open() || !tried.has(endpoint);
    let first = set.list.get(set.list.draw(is_open)?)?;
    let other = set.list.draw(|endpoint| endpoint.id != first.id && is_open(endpoint));
    let Some(second) = other.and_then(|place| set.list.get(place)) else {
        return Some(first);
    };
    let now = Moment::of(shared::clock::now());
    Some(if second.latency.score(now) < first.latency.score(now) { second } else { first })
}
