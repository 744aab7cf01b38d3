//! Ingresses whose change takes effect only after an object that they refer to has been read.
//!
//! A new host waits for its certificates, and an object that an annotation names is used once it has been read. The last event is then
//! that of the object, but nobody changed the object: the cause of the commit is the Ingress, and is reported as such.
//!
//! **Invariant:** only Ingresses that wait for something are remembered.

use std::collections::HashMap;

use shared::name::HostName;

use super::Index;
use super::dirty::Touched;
use super::refs::{Site, User};
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::reference::Use;

/// The waiting Ingresses, each with its version from before.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    ingresses: HashMap<ObjectRef, Option<Object>>,
}

impl Index {
    /// Updates the waiting Ingresses after a commit.
    pub(super) fn note_waiting(&mut self, touched: &Touched) {
        for object in touched.all().filter(|object| object.kind == ObjectKind::Ingress) {
            if self.awaits_something(object) {
                let before = || touched.before(object).cloned();
                self.waiting.ingresses.entry(object.clone()).or_insert_with(before);
            } else {
                self.waiting.ingresses.remove(object);
            }
        }
    }

    fn awaits_something(&self, object: &ObjectRef) -> bool {
        if self.standing.has(&object.name) {
            return true;
        }
        let Some(claim) = self.ingresses.claims.get(object) else {
            return false;
        };
        let certificates = claim.hosts.keys().map(|host| (User::Host(host.clone()), Use::Certificate));
        let user = || User::Ingress(object.name.clone());
        let others = claim.parsed.refs.keys().map(|reference| (user(), reference.what));
        certificates
            .chain(others)
            .any(|(user, what)| self.refs.awaited_by(&Site { user, what }).next().is_some())
    }

    /// Marks an Ingress whose change takes effect, perhaps only now, as part of the cause.
    pub(super) fn mark_ingress(&mut self, object: ObjectRef) {
        if let Some(before) = self.waiting.ingresses.remove(&object) {
            self.touched.recall(&object, before);
        }
        self.touched.mark(object);
    }

    /// The same for all Ingresses of a host.
    pub(super) fn mark_members(&mut self, host: &HostName) {
        let members: Vec<_> = self.hosts.get(host).into_iter().flat_map(|state| state.members()).collect();
        for object in members {
            self.mark_ingress(object);
        }
    }
}
