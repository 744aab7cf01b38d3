//! The head: which version of each resource is published, and the changes to it that a commit collects.
//!
//! **Invariant:** a commit puts or removes each key at most once.

use std::collections::HashMap;
use std::sync::Arc;

use shared::delta::{Delta, Removal};
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::resource::Resource;
use shared::version::Version;

/// The published versions and what changed since [`Published::take`]. The bytes are the store's to keep.
#[derive(Debug, Default)]
pub(super) struct Published {
    versions: HashMap<ResourceKey, Version>,
    config: Delta,
    live: Delta,
    compiled: usize,
}

impl Published {
    /// Whether a resource is published.
    pub(super) fn has(&self, kind: Kind, key: &str) -> bool {
        self.versions.contains_key(&ResourceKey::new(kind, key))
    }

    /// Publishes a resource. False where its bytes are the same as before.
    pub(super) fn put(&mut self, key: impl Into<Arc<str>>, resource: &Resource) -> bool {
        self.compiled += 1;
        let entry = Entry::encode(key, resource);
        let is_new = self.versions.insert(entry.key.clone(), entry.version) != Some(entry.version);
        if is_new {
            self.delta(entry.kind()).up.push(Arc::new(entry));
        }
        is_new
    }

    /// Takes a resource back. False where it is not published.
    pub(super) fn remove(&mut self, kind: Kind, key: impl Into<Arc<str>>, gone: bool) -> bool {
        let key = ResourceKey::new(kind, key);
        let was_there = self.versions.remove(&key).is_some();
        if was_there {
            self.delta(kind).removed.push(Removal { key, gone });
        }
        was_there
    }

    /// The changes of CONFIG and of LIVE by key, and how many resources were compiled for them.
    pub(super) fn take(&mut self) -> (Delta, Delta, usize) {
        for delta in [&mut self.config, &mut self.live] {
            delta.up.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            delta.removed.sort_unstable();
        }
        (
            std::mem::take(&mut self.config),
            std::mem::take(&mut self.live),
            std::mem::take(&mut self.compiled),
        )
    }

    fn delta(&mut self, kind: Kind) -> &mut Delta {
        match kind.lane() {
            Lane::Config => &mut self.config,
            Lane::Live => &mut self.live,
        }
    }
}
