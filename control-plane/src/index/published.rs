//! The head: which version of each resource there is, and the changes to it that are not committed yet.
//!
//! **Invariant:** a commit puts or removes each key at most once, and only where that differs from what was committed
//! before, whatever happened in between.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::btree_map::Entry as Place;
use std::sync::Arc;

use shared::delta::{Delta, Removal};
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::resource::Resource;
use shared::version::Version;

/// The versions that were compiled last, and how they differ from what was committed. The bytes are the store's to keep.
#[derive(Debug, Default)]
pub(super) struct Published {
    versions: HashMap<ResourceKey, Version>,
    config: BTreeMap<ResourceKey, Pending>,
    live: BTreeMap<ResourceKey, Pending>,
    compiled: usize,
}

/// A key that differs from what was committed.
#[derive(Debug)]
struct Pending {
    committed: Option<Version>,
    now: Now,
}

#[derive(Debug)]
enum Now {
    Up(Arc<Entry>),
    Removed { gone: bool },
}

impl Published {
    /// Whether a resource is there.
    pub(super) fn has(&self, kind: Kind, key: &str) -> bool {
        self.versions.contains_key(&ResourceKey::new(kind, key))
    }

    /// Puts a resource there. False where its bytes are the same as before.
    pub(super) fn put(&mut self, key: impl Into<Arc<str>>, resource: &Resource) -> bool {
        self.compiled += 1;
        let entry = Entry::encode(key, resource);
        let before = self.versions.insert(entry.key.clone(), entry.version);
        let is_new = before != Some(entry.version);
        if is_new {
            self.change(entry.key.clone(), before, Now::Up(Arc::new(entry)));
        }
        is_new
    }

    /// Takes a resource back. False where there is none.
    pub(super) fn remove(&mut self, kind: Kind, key: impl Into<Arc<str>>, gone: bool) -> bool {
        let key = ResourceKey::new(kind, key);
        let before = self.versions.remove(&key);
        match before {
            Some(_) => self.change(key, before, Now::Removed { gone }),
            // First nobody referred to it any longer, then the object itself went.
            None => {
                if let Some(pending) = self.lane(kind).get_mut(&key)
                    && let Now::Removed { gone: before } = &mut pending.now
                {
                    *before |= gone;
                }
            }
        }
        before.is_some()
    }

    /// The changes of CONFIG and of LIVE by key, and how many resources were compiled for them.
    pub(super) fn take(&mut self) -> (Delta, Delta, usize) {
        (
            delta(std::mem::take(&mut self.config)),
            delta(std::mem::take(&mut self.live)),
            std::mem::take(&mut self.compiled),
        )
    }

    /// The changes of these keys alone, by key. Nothing else is committed by that.
    pub(super) fn take_only(&mut self, kind: Kind, keys: impl IntoIterator<Item = String>) -> Delta {
        let lane = self.lane(kind);
        let keys = keys.into_iter().map(|key| ResourceKey::new(kind, key));
        delta(keys.filter_map(|key| lane.remove_entry(&key)).collect())
    }

    /// How many resources were compiled since this was asked for, or all was taken.
    pub(super) fn take_compiled(&mut self) -> usize {
        std::mem::take(&mut self.compiled)
    }

    /// Adds to what the next [`Self::take`] says of it.
    pub(super) fn add_compiled(&mut self, compiled: usize) {
        self.compiled += compiled;
    }

    fn change(&mut self, key: ResourceKey, before: Option<Version>, now: Now) {
        match self.lane(key.kind).entry(key) {
            Place::Vacant(place) => {
                place.insert(Pending { committed: before, now });
            }
            Place::Occupied(mut place) => {
                let version = match &now {
                    Now::Up(entry) => Some(entry.version),
                    Now::Removed { .. } => None,
                };
                if place.get().committed == version {
                    place.remove();
                } else {
                    place.get_mut().now = now;
                }
            }
        }
    }

    fn lane(&mut self, kind: Kind) -> &mut BTreeMap<ResourceKey, Pending> {
        match kind.lane() {
            Lane::Config => &mut self.config,
            Lane::Live => &mut self.live,
        }
    }
}

fn delta(pending: BTreeMap<ResourceKey, Pending>) -> Delta {
    let mut delta = Delta::default();
    for (key, Pending { now, .. }) in pending {
        match now {
            Now::Up(entry) => delta.up.push(entry),
            Now::Removed { gone } => delta.removed.push(Removal { key, gone }),
        }
    }
    delta
}
