//! Lists that may not be read (any more).

use std::collections::BTreeMap;
use std::sync::Arc;

/// How far a list was read; all zeros: not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadTo {
    /// The revision of the store up to which it is known. All replicas see the same ones.
    pub revision: u64,
    /// A digest of what is in it: two that know the same may have heard of different revisions last.
    pub content: u64,
}

/// The lists that a replica may not read, each with how far it did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unread(BTreeMap<Arc<str>, ReadTo>);

impl Unread {
    pub(super) fn insert(&mut self, list: Arc<str>, read_to: ReadTo) {
        self.0.insert(list, read_to);
    }

    pub(super) fn remove(&mut self, list: &str) {
        self.0.remove(list);
    }
}
