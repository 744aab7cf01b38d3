//! The interface between a session and the store of its resources: the tables of a real proxy, or the bare resources
//! in load tests.

use std::sync::Arc;

use shared::delta::Removal;
use shared::entry::Entry;
use shared::kind::{Lane, ResourceKey};
use shared::snapshot::Snapshot;
use shared::version::Root;

use crate::table::Writer;
use crate::table::apply::{Candidate, Refused};

/// The resources of a proxy. A change is prepared first, and applied only if its root is the announced one.
pub(crate) trait Holdings {
    /// A prepared change.
    type Change;

    /// All resources of a lane.
    fn has(&self, lane: Lane) -> &Snapshot;

    /// Its resources that cannot be served, by kind and key.
    fn refused(&self, lane: Lane) -> impl Iterator<Item = (&ResourceKey, &Refused)>;

    /// Replaces CONFIG by exactly these resources.
    fn config_of(&self, up: Vec<Arc<Entry>>) -> Self::Change;

    /// Replaces CONFIG by this set with a change applied.
    fn config_from(&self, set: Snapshot, up: Vec<Arc<Entry>>, removed: Vec<Removal>) -> Self::Change;

    /// A change of CONFIG.
    fn config_after(&self, up: Vec<Arc<Entry>>, removed: Vec<Removal>) -> Self::Change;

    /// The end of a full sync of LIVE.
    fn live_of(&self, up: Vec<Arc<Entry>>, brought: impl Fn(&ResourceKey) -> bool) -> Self::Change;

    /// A difference of LIVE computed from an inventory.
    fn live_differing(&self, up: Vec<Arc<Entry>>, removed: &[Removal]) -> Self::Change;

    /// A change of LIVE.
    fn live_after(&self, up: Vec<Arc<Entry>>, removed: &[Removal]) -> Self::Change;

    /// The root after a change.
    fn leads_to(change: &Self::Change) -> Root;

    /// Applies a change.
    fn apply(&mut self, change: Self::Change);

    /// Called when the CONFIG that belongs to the last full sync of LIVE is applied.
    fn settle(&mut self);

    /// Counts what left LIVE because nothing referred to it.
    fn mark(&self) -> u64;

    /// Ends the use of what left LIVE up to this mark: the CONFIG that goes with that is applied.
    fn leave(&mut self, mark: u64);

    /// The Merkle root of a lane.
    fn root(&self, lane: Lane) -> Root {
        self.has(lane).root()
    }
}

impl Holdings for Writer {
    type Change = Candidate;

    fn has(&self, lane: Lane) -> &Snapshot {
        Self::has(self, lane)
    }

    fn refused(&self, lane: Lane) -> impl Iterator<Item = (&ResourceKey, &Refused)> {
        Self::refused(self, lane)
    }

    fn config_of(&self, up: Vec<Arc<Entry>>) -> Candidate {
        Self::config_of(self, up)
    }

    fn config_from(&self, set: Snapshot, up: Vec<Arc<Entry>>, removed: Vec<Removal>) -> Candidate {
        Self::config_from(self, set, up, removed)
    }

    fn config_after(&self, up: Vec<Arc<Entry>>, removed: Vec<Removal>) -> Candidate {
        Self::config_after(self, up, removed)
    }

    fn live_of(&self, up: Vec<Arc<Entry>>, brought: impl Fn(&ResourceKey) -> bool) -> Candidate {
        Self::live_of(self, up, brought)
    }

    fn live_differing(&self, up: Vec<Arc<Entry>>, removed: &[Removal]) -> Candidate {
        Self::live_differing(self, up, removed)
    }

    fn live_after(&self, up: Vec<Arc<Entry>>, removed: &[Removal]) -> Candidate {
        Self::live_after(self, up, removed)
    }

    fn leads_to(change: &Candidate) -> Root {
        change.root()
    }

    fn apply(&mut self, change: Candidate) {
        Self::apply(self, change);
    }

    fn settle(&mut self) {
        Self::settle(self);
    }

    fn mark(&self) -> u64 {
        Self::mark(self)
    }

    fn leave(&mut self, mark: u64) {
        Self::leave(self, mark);
    }
}
