//! The state that this proxy would have after a change, to be compared with the announced root before any of it is
//! served.
//!
//! **Invariant:** creating one changes nothing that is stored or served; dropping it leaves no trace.

use std::sync::Arc;

use shared::delta::{Delta, Removal};
use shared::entry::Entry;
use shared::kind::{Lane, ResourceKey};
use shared::snapshot::Snapshot;
use shared::version::Root;

use super::{Leave, Writer};

/// A change that is not applied yet, and the resulting state.
#[derive(Debug)]
pub struct Candidate {
    pub(super) has: Snapshot,
    pub(super) change: Change,
}

/// The steps of applying it.
#[derive(Debug)]
pub(super) enum Change {
    Config { up: Vec<Arc<Entry>>, removed: Vec<Removal> },
    Live { up: Vec<Arc<Entry>>, removed: Vec<(ResourceKey, Leave)> },
}

impl Candidate {
    /// The Merkle root of everything that the proxy would have, computed from the received bytes.
    pub fn root(&self) -> Root {
        self.has.root()
    }
}

impl Writer {
    /// A change of CONFIG.
    pub fn config_after(&self, up: Vec<Arc<Entry>>, removed: Vec<Removal>) -> Candidate {
        let keys = removed.iter().map(|removal| removal.key.clone());
        let has = self.changed(Lane::Config, &up, keys);
        Candidate { has, change: Change::Config { up, removed } }
    }

    /// Replaces CONFIG by exactly these resources.
    pub fn config_of(&self, up: Vec<Arc<Entry>>) -> Candidate {
        self.config_from(Snapshot::default(), up, Vec::new())
    }

    /// Replaces CONFIG by this set with a change applied.
    pub fn config_from(&self, mut has: Snapshot, up: Vec<Arc<Entry>>, removed: Vec<Removal>) -> Candidate {
        has.change(up, removed.into_iter().map(|removal| removal.key));
        let Delta { up, removed } = Delta::between(self.has(Lane::Config), &has);
        Candidate { has, change: Change::Config { up, removed } }
    }

    /// Fills an empty lane with a set that was assembled and hashed elsewhere.
    pub fn first(&self, lane: Lane, has: Snapshot) -> Candidate {
        debug_assert!(self.has(lane).is_empty(), "nothing is taken out of what there is");
        let up = has.iter().cloned().collect();
        let change = match lane {
            Lane::Config => Change::Config { up, removed: Vec::new() },
            Lane::Live => Change::Live { up, removed: Vec::new() },
        };
        Candidate { has, change }
    }

    /// A change of LIVE: resources, and explicit removals.
    pub fn live_after(&self, up: Vec<Arc<Entry>>, removed: &[Removal]) -> Candidate {
        let leave = |removal: &Removal| match removal.gone {
            true => Leave::Gone,
            false => Leave::Unreferred,
        };
        let removed = removed.iter().map(|it| (it.key.clone(), leave(it))).collect();
        self.live(up, removed)
    }

    /// A difference of LIVE computed from an inventory: what it removes may be what a full sync lacks, see
    /// [`Self::live_of`].
    pub fn live_differing(&self, up: Vec<Arc<Entry>>, removed: &[Removal]) -> Candidate {
        let leave = |removal: &Removal| match removal.gone {
            true => Leave::Gone,
            false => Leave::Absent,
        };
        let removed = removed.iter().map(|it| (it.key.clone(), leave(it))).collect();
        self.live(up, removed)
    }

    /// The end of a full sync of LIVE: resources that the sync did not contain are removed from the stored state, but
    /// stay in use until [`Writer::settle`].
    pub fn live_of(&self, up: Vec<Arc<Entry>>, brought: impl Fn(&ResourceKey) -> bool) -> Candidate {
        let lacks = self.has(Lane::Live).iter().map(|entry| &entry.key).filter(|key| !brought(key));
        let removed = lacks.map(|key| (key.clone(), Leave::Absent)).collect();
        self.live(up, removed)
    }

    fn live(&self, up: Vec<Arc<Entry>>, removed: Vec<(ResourceKey, Leave)>) -> Candidate {
        let has = self.changed(Lane::Live, &up, removed.iter().map(|(key, _)| key.clone()));
        Candidate { has, change: Change::Live { up, removed } }
    }

    fn changed(&self, lane: Lane, up: &[Arc<Entry>], removed: impl Iterator<Item = ResourceKey>) -> Snapshot {
        let mut has = self.has(lane).clone();
        has.change(up.iter().cloned(), removed);
        has
    }
}
