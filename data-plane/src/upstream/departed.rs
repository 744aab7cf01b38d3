//! Finds the endpoints that have left their backend while a worker still keeps connections to them.
//!
//! Searching a set of 100,000 endpoints for some ids would cost a worker milliseconds, so the search is done in steps.
//! It uses the set that it began with: an endpoint that has left never comes back (ids are not reused), so the result
//! is right however often the set has changed meanwhile.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::table::EndpointSet;

/// Ids of endpoints. The sets of a worker take turns: a change of endpoints costs it no allocation.
pub(super) type Ids = HashSet<u64, RandomState>;

/// A search in progress.
#[derive(Debug)]
pub(super) struct Search {
    set: Arc<EndpointSet>,
    /// Number of endpoints already looked at.
    place: usize,
    /// Ids that were not found yet.
    missing: Ids,
}

impl Search {
    /// Starts a search for these ids in a set. `spare`: an empty set of an earlier search.
    pub(super) fn new(set: Arc<EndpointSet>, ids: impl Iterator<Item = u64>, spare: Ids) -> Self {
        let mut missing = spare;
        missing.extend(ids);
        Self { set, place: 0, missing }
    }

    /// Looks at up to `budget` more endpoints, and reduces it accordingly. Returns the ids that have left, at the end.
    pub(super) fn advance(&mut self, budget: &mut usize) -> Option<Ids> {
        while *budget > 0 {
            let rest = self.set.list.rest(self.place);
            let some = rest.len().min(*budget);
            if some == 0 {
                break;
            }
            for endpoint in &rest[..some] {
                self.missing.remove(&endpoint.id);
            }
            *budget -= some;
            self.place += some;
        }
        (self.place == self.set.list.len()).then(|| std::mem::take(&mut self.missing))
    }
}
