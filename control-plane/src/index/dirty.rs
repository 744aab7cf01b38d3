//! What the next commit must look at again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use shared::name::{HostName, ObjectName};

use super::secrets::Chains;
use crate::compile::claim::BackendKey;
use crate::objects::{Object, ObjectKind, ObjectRef};

/// Names whose Ingresses are to be read again, and after which Ingress the walk along those goes on.
type Walks = BTreeMap<Arc<str>, Option<ObjectName>>;

/// Sets of what is to be looked at again. Ordered, so that commits do not depend on hashing.
///
/// An object is taken out of its set before it is looked at, and whatever that touches is put into the others: so a
/// compile may stop after any piece and go on later, and what happens meanwhile is one piece more.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    /// Objects of which something was heard.
    pub(super) objects: BTreeSet<ObjectRef>,
    pub(super) ingresses: BTreeSet<ObjectName>,
    /// By class.
    pub(super) classes: Walks,
    pub(super) namespaces: Walks,
    /// Ingresses on hosts.
    pub(super) parts: BTreeSet<(HostName, ObjectRef)>,
    /// What is a host's as a whole.
    pub(super) hosts: BTreeSet<HostName>,
    /// Backends whose referrers may have something new to know.
    pub(super) referred: BTreeSet<BackendKey>,
    pub(super) backends: BTreeSet<BackendKey>,
    pub(super) slices: BTreeSet<ObjectName>,
    pub(super) secrets: BTreeSet<ObjectName>,
    pub(super) chains: Chains,
    pub(super) settings: bool,
    /// TCP and UDP services.
    pub(super) streams: bool,
    /// What is to be known of the pin.
    pub(super) pin: bool,
    pub(super) problems: BTreeSet<ObjectRef>,
    /// Looked at by a commit alone, once all else is settled.
    pub(super) holds: BTreeSet<ObjectRef>,
    /// Objects of which a commit has something new to say.
    pub(super) told: BTreeSet<ObjectRef>,
    /// Slices that changed themselves and whose change is not committed yet.
    pub(super) heard: BTreeSet<ObjectName>,
    /// Services that came into use or went out of it, and whether the committed configuration uses them.
    pub(super) turned: BTreeMap<ObjectName, bool>,
}

/// Goes on with the first of some walks, to the Ingress that is the next one after another. False where there is no walk.
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

/// The objects of which something was heard since the last commit, with the versions before.
#[derive(Debug, Default)]
pub(super) struct Touched {
    before: HashMap<ObjectRef, (usize, Option<Object>)>,
    /// Those of them that turned out to matter.
    relevant: BTreeMap<(Weight, usize), ObjectRef>,
    count: usize,
}

/// Which of several objects says most about a commit: the least.
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

    /// The same of one whose change began earlier: that version counts.
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

    /// Something is different because of this object.
    pub(super) fn mark(&mut self, reference: ObjectRef) {
        if let Some((order, _)) = self.before.get(&reference) {
            let place = (Weight::of(reference.kind), *order);
            self.relevant.insert(place, reference);
        }
    }

    /// Takes some out, as if nothing had been heard of them. All of these matter.
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

    /// The version from before.
    pub(super) fn before(&self, reference: &ObjectRef) -> Option<&Object> {
        self.before.get(reference)?.1.as_ref()
    }

    /// Those that matter: Ingresses first, endpoints last, else in order of arrival.
    pub(super) fn relevant(&self) -> impl ExactSizeIterator<Item = &ObjectRef> {
        self.relevant.values()
    }
}
