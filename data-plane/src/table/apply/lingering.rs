//! What of LIVE is still served although this proxy has it no more: it was told that nothing refers to it, while the
//! CONFIG that says so is on its way, or workers use older tables.
//!
//! **Invariant:** with this and what it has, a process that starts serves what this one serves.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::snapshot::Snapshot;

use super::{Leave, Refused, Writer};

/// By key, as it was last had, and its place in the order in which it left.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    entries: BTreeMap<ResourceKey, (u64, Arc<Entry>)>,
    count: u64,
}

impl Lingering {
    /// Notes a change of LIVE. `has`: the state before it. What a full sync lacks is not noted: until its CONFIG is
    /// applied, nothing is stored.
    pub(super) fn note(&mut self, has: &Snapshot, up: &[Arc<Entry>], removed: &[(ResourceKey, Leave)]) {
        for (key, leave) in removed {
            self.entries.remove(key);
            if *leave == Leave::Unreferred {
                self.count += 1;
                self.entries.extend(has.get(key).map(|entry| (key.clone(), (self.count, Arc::clone(entry)))));
            }
        }
        if !self.entries.is_empty() {
            up.iter().for_each(|entry| _ = self.entries.remove(&entry.key));
        }
    }
}

impl Writer {
    /// What of LIVE is served and not in [`Self::has`] any more.
    pub fn lingering(&self) -> impl ExactSizeIterator<Item = &Arc<Entry>> {
        self.lingering.entries.values().map(|(_, entry)| entry)
    }

    /// Counts what left LIVE because nothing referred to it.
    pub fn mark(&self) -> u64 {
        self.lingering.count
    }

    /// Ends the use of slices that left LIVE up to this mark, but for those of a Service that only older tables name: if the
    /// newest one names it, they were deleted before CONFIG named it again.
    pub fn leave(&mut self, mark: u64) {
        let Self { lingering, cells, refused, .. } = self;
        // That may be what the last good version of a refused resource names.
        let is_in_doubt =
            |(key, it): (&ResourceKey, &Refused)| key.kind.lane() == Lane::Config && it.serving_last_good;
        if lingering.entries.is_empty() || refused.iter().any(is_in_doubt) {
            return;
        }
        // Those that stay in use are still noted: a later CONFIG may name their Service again.
        for (key, (number, _)) in &lingering.entries {
            if key.kind == Kind::Endpoints && *number <= mark {
                cells.remove(&key.key, Leave::Absent);
            }
        }
        cells.settle();
        self.sweep_lingering();
    }

    /// Forgets what went out of use.
    pub(super) fn sweep_lingering(&mut self) {
        let Self { lingering, cells, secrets, materials, .. } = self;
        lingering.entries.retain(|key, _| match key.kind {
            Kind::Endpoints => cells.lingers(&key.key),
            Kind::Certificate => secrets.lingers(&key.key),
            Kind::Chain => secrets.lingers_with(&key.key),
            Kind::Material => materials.lingers(&key.key),
            _ => false,
        });
    }
}
