//! The compiled version of each resource, and the changes that are not committed yet.
//!
//! **Invariant:** a commit puts or removes each key at most once, and only if that differs from what was committed
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

/// The latest compiled versions, and how they differ from what was committed. The store keeps the bytes.
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
    /// Whether a resource is published.
    pub(super) fn has(&self, kind: Kind, key: &str) -> bool {
        self.versions.contains_key(&ResourceKey::new(kind, key))
    }

    /// Publishes a resource. Returns false if its bytes did not change.
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

    /// Removes a resource. Returns false if there is none.
    pub(super) fn remove(&mut self, kind: Kind, key: impl Into<Arc<str>>, gone: bool) -> bool {
        let key = ResourceKey::new(kind, key);
        let before = self.versions.remove(&key);
        match before {
            Some(_) => self.change(key, before, Now::Removed { gone }),
            // Unused first, then the object itself was deleted.
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

    /// Returns the changes of CONFIG and LIVE by key, and the number of resources compiled for them.
    pub(super) fn take(&mut self) -> (Delta, Delta, usize) {
        (
            delta(std::mem::take(&mut self.config)),
            delta(std::mem::take(&mut self.live)),
            std::mem::take(&mut self.compiled),
        )
    }

    /// Returns the changes of these keys only. All others stay for a later commit.
    pub(super) fn take_only(&mut self, kind: Kind, keys: impl IntoIterator<Item = String>) -> Delta {
        let lane = self.lane(kind);
        let keys = keys.into_iter().map(|key| ResourceKey::new(kind, key));
        delta(keys.filter_map(|key| lane.remove_entry(&key)).collect())
    }

    /// Returns and resets the number of compiled resources.
    pub(super) fn take_compiled(&mut self) -> usize {
        std::mem::take(&mut self.compiled)
    }

    /// Adds to the count that the next [`Self::take`] returns.
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
