//! Deltas: the difference between two sets of resources.
//!
//! **Invariant:** `a.apply(diff(a, b))` is `b`, and applying `squash(d, e)` equals applying `d`, then `e`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::entry::Entry;
use crate::kind::ResourceKey;
use crate::snapshot::Snapshot;

/// A resource that is removed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Removal {
    /// Kind and key.
    pub key: ResourceKey,
    /// True: its object was deleted, so endpoints are removed at once. False: nothing refers to it any more.
    pub gone: bool,
}

/// Changes of one lane. It contains each key once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Delta {
    /// New and changed resources.
    pub up: Vec<Arc<Entry>>,
    /// Removed resources.
    pub removed: Vec<Removal>,
}

impl Delta {
    /// The difference from `from` to `to`. Compares the buckets' digests first, so its cost is that of what differs.
    /// Whether objects were deleted is unknown, so removals are not `gone`.
    pub fn between(from: &Snapshot, to: &Snapshot) -> Self {
        let mut delta = Self::default();
        for bucket in
            (0..crate::snapshot::BUCKETS as u16).filter(|b| from.bucket_digest(*b) != to.bucket_digest(*b))
        {
            for entry in to.bucket(bucket) {
                if from.version(&entry.key) != Some(entry.version) {
                    delta.up.push(Arc::clone(entry));
                }
            }
            for entry in from.bucket(bucket) {
                if to.get(&entry.key).is_none() {
                    delta.removed.push(Removal { key: entry.key.clone(), gone: false });
                }
            }
        }
        delta
    }

    /// Bytes of its resources on the wire, removals not counted.
    pub fn wire_size(&self) -> usize {
        self.up.iter().map(|entry| entry.wire_size()).sum()
    }

    /// Applies it to `snapshot`.
    pub fn apply(&self, snapshot: &mut Snapshot) {
        snapshot.change(self.up.iter().cloned(), self.removed.iter().map(|removal| removal.key.clone()));
    }

    /// Merges two deltas, this one first.
    #[must_use]
    pub fn squash(self, later: Self) -> Self {
        let mut last: BTreeMap<ResourceKey, Result<Arc<Entry>, Removal>> = BTreeMap::new();
        for delta in [self, later] {
            last.extend(delta.removed.into_iter().map(|removal| (removal.key.clone(), Err(removal))));
            last.extend(delta.up.into_iter().map(|entry| (entry.key.clone(), Ok(entry))));
        }
        let mut squashed = Self::default();
        for change in last.into_values() {
            match change {
                Ok(entry) => squashed.up.push(entry),
                Err(removal) => squashed.removed.push(removal),
            }
        }
        squashed
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.up.is_empty() && self.removed.is_empty()
    }

    /// Number of resources that it changes.
    pub fn len(&self) -> usize {
        self.up.len() + self.removed.len()
    }
}
