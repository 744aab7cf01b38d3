//! Strict round robin (as in ingress-nginx): independent in each worker, from a random start, and from a new one when
//! the set has changed.

use std::sync::Arc;

use super::Tried;
use crate::table::{Endpoint, EndpointSet};

/// The next endpoint in rotation that was not tried. Each step skips one that was tried, so there are few steps,
/// however many endpoints there are.
pub(super) fn untried<'a>(
    set: &'a EndpointSet,
    next: &mut usize,
    tried: &Tried,
) -> Option<&'a Arc<Endpoint>> {
    let count = set.list.len();
    let first = *next % count;
    let mut places = (first..first + count).map(|place| place % count);
    let place = places.find(|place| !tried.has(&set.list[*place]))?;
    *next = (place + 1) % count;
    set.list.get(place)
}
