//! Consistent hashing. A request whose endpoint failed goes on along the ring, to where its key would lead without
//! that endpoint; ingress-nginx tries the same one again (ADR 010).

use std::sync::Arc;

use super::Tried;
use crate::table::{Endpoint, EndpointSet};

/// The endpoint for the key of a request.
pub(super) fn untried<'a>(set: &'a EndpointSet, hash: u32, tried: &Tried) -> Option<&'a Arc<Endpoint>> {
    let ring = set.ring();
    if tried.is_open() {
        return ring.find(hash);
    }
    // If all were tried, there is no need to walk the whole ring.
    if tried.len() >= set.list.len() && set.list.iter().all(|endpoint| tried.has(endpoint)) {
        return None;
    }
    ring.walk(hash).find(|endpoint| !tried.has(endpoint))
}

/// A random endpoint of the group for the key; of the following group if all of this one were tried.
pub(super) fn untried_of_group<'a>(
    set: &'a EndpointSet,
    hash: u32,
    size: usize,
    tried: &Tried,
) -> Option<&'a Arc<Endpoint>> {
    let (subsets, count) = (set.subsets(size), set.list.len());
    let place = |(first, size): (usize, usize)| (first + fastrand::usize(..size)) % count;
    if tried.is_open() {
        return set.list.get(place(subsets.find(hash)?));
    }
    if tried.len() >= count && set.list.iter().all(|endpoint| tried.has(endpoint)) {
        return None;
    }
    subsets.walk(hash).find_map(|group| {
        let start = place(group);
        let (first, size) = group;
        let members = (0..size.min(count)).map(|step| (first + (start + step) % size) % count);
        members.filter_map(|place| set.list.get(place)).find(|endpoint| !tried.has(endpoint))
    })
}
