//! What the next commit must look at again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use shared::name::{HostName, ObjectName};

use crate::compile::claim::BackendKey;
use crate::objects::{Object, ObjectRef};

/// Sets of what is to be compiled again. Ordered, so that commits do not depend on hashing.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    pub(super) ingresses: BTreeSet<ObjectName>,
    pub(super) hosts: BTreeSet<HostName>,
    pub(super) backends: BTreeSet<BackendKey>,
    pub(super) slices: BTreeSet<ObjectName>,
    pub(super) secrets: BTreeSet<ObjectName>,
    pub(super) settings: bool,
    pub(super) problems: BTreeSet<ObjectRef>,
    pub(super) holds: BTreeSet<ObjectRef>,
}

/// The objects of which something was heard since the last commit, with the versions before.
#[derive(Debug, Default)]
pub(super) struct Touched {
    before: HashMap<ObjectRef, (usize, Option<Object>)>,
    /// Those of them that turned out to matter.
    relevant: BTreeMap<usize, ObjectRef>,
}

impl Touched {
    /// Remembers the version from before the first of several changes.
    pub(super) fn note(&mut self, reference: &ObjectRef, before: Option<&Object>) {
        let order = self.before.len();
        self.before
            .entry(reference.clone())
            .or_insert_with(|| (order, before.cloned()));
    }

    /// All, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &ObjectRef> {
        self.before.keys()
    }

    /// Something is different because of this object.
    pub(super) fn mark(&mut self, reference: ObjectRef) {
        if let Some((order, _)) = self.before.get(&reference) {
            self.relevant.insert(*order, reference);
        }
    }

    /// The version from before.
    pub(super) fn before(&self, reference: &ObjectRef) -> Option<&Object> {
        self.before.get(reference)?.1.as_ref()
    }

    /// Those that matter, in order of arrival.
    pub(super) fn relevant(&self) -> impl ExactSizeIterator<Item = &ObjectRef> {
        self.relevant.values()
    }
}
