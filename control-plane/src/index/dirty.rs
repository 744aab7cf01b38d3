//! The work that is left for the next commit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use shared::name::{HostName, ObjectName};

use super::secrets::Chains;
use crate::compile::claim::BackendKey;
use crate::objects::{Object, ObjectKind, ObjectRef};

/// Names whose Ingresses must be read again, each with the Ingress after which the walk continues.
type Walks = BTreeMap<Arc<str>, Option<ObjectName>>;

/// Sets of what must be compiled again. Ordered, so that commits do not depend on hashing.
///
/// An item is removed from its set before it is compiled, and whatever that touches is added to the others: so a
/// compile may stop after any piece and continue later, and changes in between are just more pieces.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    /// Objects with events.
    pub(super) objects: BTreeSet<ObjectRef>,
    pub(super) ingresses: BTreeSet<ObjectName>,
    /// By class.
    pub(super) classes: Walks,
    pub(super) namespaces: Walks,
    /// Hosts on which other Ingresses may be affected by changed ones.
    pub(super) dependents: BTreeSet<HostName>,
    /// Parts of Ingresses on hosts.
    pub(super) parts: BTreeSet<(HostName, ObjectRef)>,
    /// Hosts as a whole.
    pub(super) hosts: BTreeSet<HostName>,
    /// Backends for which the problems of referrers may have changed.
    pub(super) referred: BTreeSet<BackendKey>,
    pub(super) backends: BTreeSet<BackendKey>,
    pub(super) slices: BTreeSet<ObjectName>,
    pub(super) secrets: BTreeSet<ObjectName>,
    pub(super) chains: Chains,
    pub(super) settings: bool,
    /// TCP and UDP services.
    pub(super) streams: bool,
    /// Problems of the pin.
    pub(super) pin: bool,
    pub(super) problems: BTreeSet<ObjectRef>,
    /// Handled in the commit, once all else is settled.
    pub(super) holds: BTreeSet<ObjectRef>,
    /// Objects whose hold was requested, and is not among those that were listed since.
    pub(super) unanswered: BTreeSet<ObjectRef>,
    /// Objects with news for the commit.
    pub(super) to_report: BTreeSet<ObjectRef>,
    /// Slices whose own change is not committed yet.
    pub(super) heard: BTreeSet<ObjectName>,
    /// Services that came into use or went out of use, and whether the committed configuration uses them.
    pub(super) turned: BTreeMap<ObjectName, bool>,
}

/// Continues the first walk with the Ingress that follows the last one. Returns false if there is no walk.
pub(super) fn follow<'a>(
    walks: &mut Walks,
    ingresses: &mut BTreeSet<ObjectName>,
    next: impl FnOnce(&Arc<str>, Option<&ObjectName>) -> Option<&'a ObjectName>,
) -> bool {
    let Some(mut walk) = walks.first_entry() else {
        return false;
    };
    match next(walk.key(), walk.get().as_ref()) {
        Some(name) => {
            ingresses.insert(name.clone());
            walk.insert(Some(name.clone()));
        }
        None => {
            walk.remove();
        }
    }
    true
}

/// The objects with events since the last commit, with their previous versions.
#[derive(Debug, Default)]
pub(super) struct Touched {
    before: HashMap<ObjectRef, (usize, Option<Object>)>,
    /// Those that caused a change.
    relevant: BTreeMap<(Weight, usize), ObjectRef>,
    count: usize,
}

/// How much an object says about a commit: the least value says most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Weight {
    Ingress,
    Other,
    Endpoints,
}

impl Weight {
    fn of(kind: ObjectKind) -> Self {
        match kind {
            ObjectKind::Ingress => Self::Ingress,
            ObjectKind::EndpointSlice => Self::Endpoints,
            ObjectKind::IngressClass
            | ObjectKind::Service
            | ObjectKind::Secret
            | ObjectKind::ConfigMap
            | ObjectKind::Namespace => Self::Other,
        }
    }
}

impl Touched {
    /// Remembers the version from before the first of several changes.
    pub(super) fn note(&mut self, reference: &ObjectRef, before: Option<&Object>) {
        let order = self.count;
        self.before.entry(reference.clone()).or_insert_with(|| {
            self.count += 1;
            (order, before.cloned())
        });
    }

    /// The same for an object whose change began earlier: that version is kept.
    pub(super) fn recall(&mut self, reference: &ObjectRef, before: Option<Object>) {
        self.note(reference, None);
        if let Some((_, known)) = self.before.get_mut(reference) {
            *known = before;
        }
    }

    /// All, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &ObjectRef> {
        self.before.keys()
    }

    /// Marks the object as the cause of a change.
    pub(super) fn mark(&mut self, reference: ObjectRef) {
        if let Some((order, _)) = self.before.get(&reference) {
            let place = (Weight::of(reference.kind), *order);
            self.relevant.insert(place, reference);
        }
    }

    /// Removes and returns some objects, as if they had had no events. All of these are marked.
    pub(super) fn split_off(&mut self, references: impl IntoIterator<Item = ObjectRef>) -> Self {
        let mut apart = Self::default();
        for reference in references {
            if let Some((order, before)) = self.before.remove(&reference) {
                let place = (Weight::of(reference.kind), order);
                self.relevant.remove(&place);
                apart.relevant.insert(place, reference.clone());
                apart.before.insert(reference, (order, before));
            }
        }
        apart
    }

    /// The previous version.
    pub(super) fn before(&self, reference: &ObjectRef) -> Option<&Object> {
        self.before.get(reference)?.1.as_ref()
    }

    /// The marked objects: Ingresses first, endpoints last, else in order of arrival.
    pub(super) fn relevant(&self) -> impl ExactSizeIterator<Item = &ObjectRef> {
        self.relevant.values()
    }
}
