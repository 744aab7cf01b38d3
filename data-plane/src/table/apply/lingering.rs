//! What of LIVE is still served although this proxy has it no more: it was told that nothing refers to it, while the
//! CONFIG that says so is on its way, or workers use older tables.
//!
//! **Invariant:** with this and what it has, a process that starts serves what this one serves.

use std::collections::BTreeMap;
use std::collections::btree_map::Values;
use std::sync::Arc;

use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};
use shared::snapshot::Snapshot;

use super::{Leave, Writer};

/// By key, as it was last had.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    entries: BTreeMap<ResourceKey, Arc<Entry>>,
}

impl Lingering {
    /// Notes a change of LIVE. `has`: the state before it. What a full sync lacks is not noted: until its CONFIG is
    /// applied, nothing is stored.
    pub(super) fn note(&mut self, has: &Snapshot, up: &[Arc<Entry>], removed: &[(ResourceKey, Leave)]) {
        for (key, leave) in removed {
            self.entries.remove(key);
            if *leave == Leave::Unreferred {
                self.entries.extend(has.get(key).map(|entry| (key.clone(), Arc::clone(entry))));
            }
        }
        if !self.entries.is_empty() {
            up.iter().for_each(|entry| _ = self.entries.remove(&entry.key));
        }
    }
}

impl Writer {
    /// What of LIVE is served and not in [`Self::has`] any more.
    pub fn lingering(&self) -> Values<'_, ResourceKey, Arc<Entry>> {
        self.lingering.entries.values()
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
