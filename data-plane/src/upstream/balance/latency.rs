//! The quicker one of two (balancing.md 5.7): whom a request is given has answered sooner than another one of those that it
//! has not tried.

use std::sync::Arc;

use super::Tried;
use crate::balance::Moment;
use crate::table::{Endpoint, EndpointSet};

/// Of two that are drawn the one that speaks less against; the first one where they are equal.
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
