//! Referenced objects that were read once and cannot be read again: what was read stays in use, and a renewed
//! certificate or a revoked password does not take effect. Their owners and users are told.
//!
//! **Invariant:** nothing that is served depends on it.

use std::sync::Arc;

use shared::name::ObjectName;

use super::Index;
use super::refs::{Site, User};
use crate::compile::claim::Claim;
use crate::objects::{ObjectKind, ObjectRef};
use crate::problem::{Fault, Severity};
use crate::reference::Use;

impl Index {
    /// Marks an object, and those who use it, whose problems say whether it can be read again.
    pub(super) fn tell_of_stale(&mut self, object: &ObjectRef) {
        for Site { user, what } in self.refs.sites_of(object).cloned() {
            match user {
                User::Host(host) if what == Use::Certificate => {
                    let shown = self.hosts.get(&host).map(|host| &host.shown);
                    self.dirty.problems.extend(shown.and_then(|it| it.tls_decided_by().cloned()));
                }
                User::Host(_) => {}
                User::Ingress(name) | User::Coming(name) | User::Rejected(name) => {
                    self.dirty.problems.insert(ObjectRef { kind: ObjectKind::Ingress, name });
                }
                User::Fleet => self.dirty.settings = true,
                User::Pin => self.dirty.pin = true,
            }
        }
        self.mark_for_report(object);
        self.dirty.problems.insert(object.clone());
    }

    /// What the owner of such an object is told.
    pub(super) fn stale_fault(&self, object: &ObjectRef) -> Option<Fault> {
        let why = self.refs.stale(object)?;
        let reason = format!(
            "its newest version could not be read and is retried; what was read before stays in use until then: {why}"
        );
        Some(Fault::new(Severity::Warning, "", reason))
    }

    /// What the owner of an Ingress is told of the objects that its annotations name.
    pub(super) fn stale_references(&self, claim: &Claim) -> Vec<Fault> {
        let user = || User::Ingress(claim.name.clone());
        let refs = claim.parsed.refs.iter();
        refs.flat_map(|(reference, field)| {
            self.stale_of(&Site { user: user(), what: reference.what }, |_| field.clone())
        })
        .collect()
    }

    /// What those are told who use the objects of a site.
    pub(super) fn stale_of(&self, site: &Site, field: impl Fn(&ObjectName) -> String) -> Vec<Fault> {
        let told = |(object, why): (&ObjectRef, &Arc<str>)| {
            let reason = format!(
                "the newest version of {object} could not be read and is retried; what was read before stays in use until then: {why}"
            );
            Fault::new(Severity::Warning, field(&object.name), reason)
        };
        self.refs.stale_of(site).map(told).collect()
    }
}
