//! Ingresses whose newest version is rejected only for what ingress-nginx would not have read. It reads a realm, and what belongs to
//! clients' certificates, after the Secret: where that cannot be used, it denies access and reads no further. The last good version
//! may be open, so that it must not stay.
//!
//! **Invariant:** a rejected version counts only while each of those Secrets is known to be unusable. Which version counts depends
//! on the objects and the stored hold alone, never on the order in which they came.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use shared::name::ObjectName;

use super::Index;
use super::objects::reference;
use super::refs::{Site, User};
use super::slot::Slot;
use crate::annotations::Parsed;
use crate::objects::{Ingress, Object, ObjectKind, ObjectRef};
use crate::reference::{Reference, Use};

/// The Ingresses that are rejected only for what is read after Secrets.
#[derive(Debug, Default)]
pub(super) struct Closed {
    of: HashMap<ObjectName, Guarded>,
}

#[derive(Debug, Default)]
struct Guarded {
    /// The purposes of the Secrets.
    uses: BTreeSet<Use>,
    /// Whether the newest version counts.
    is_closed: bool,
}

impl Closed {
    /// The Ingresses that are rejected only for what is read after Secrets.
    pub(super) fn guarded(&self) -> impl Iterator<Item = &ObjectName> {
        self.of.keys()
    }

    /// Whether an object is an Ingress whose newest version counts although it is rejected.
    pub(super) fn is(&self, object: &ObjectRef) -> bool {
        object.kind == ObjectKind::Ingress && self.of.get(&object.name).is_some_and(|it| it.is_closed)
    }
}

impl Index {
    /// The newest version of an Ingress, if it counts although it is rejected.
    pub(super) fn what_is_closed(&mut self, name: &ObjectName) -> Option<(Arc<Ingress>, Arc<Parsed>)> {
        let slot = self.objects.get(&reference(ObjectKind::Ingress, name));
        let guarded = slot.and_then(Slot::guarded).and_then(|(version, guards)| match &version.object {
            Object::Ingress(ingress) if self.is_ours(ingress) => {
                Some((Arc::clone(ingress), version.closed()?, guards))
            }
            _ => None,
        });
        let guards = guarded.as_ref().map(|(.., guards)| guards);
        let is_closed = self.follow_guards(name, guards);
        guarded.filter(|_| is_closed).map(|(ingress, parsed, _)| (ingress, parsed))
    }

    /// Requests those Secrets. Returns whether there are any, and none of them can be used.
    fn follow_guards(&mut self, name: &ObjectName, guards: Option<&BTreeSet<Reference>>) -> bool {
        let site = |what| Site { user: User::Rejected(name.clone()), what };
        let uses: BTreeSet<Use> = guards.into_iter().flatten().map(|it| it.what).collect();
        let before = self.closed.of.remove(name).unwrap_or_default().uses;
        for what in before.difference(&uses) {
            self.refer(&site(*what), BTreeSet::new());
        }
        let mut is_closed = !uses.is_empty();
        for it in guards.into_iter().flatten() {
            is_closed &= self.follow(name, &site(it.what), it).is_unusable();
        }
        if !uses.is_empty() {
            self.closed.of.insert(name.clone(), Guarded { uses, is_closed });
        }
        is_closed
    }
}
