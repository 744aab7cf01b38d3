//! Ingresses whose newest version names an object that is being read: their version in use stays until it was read.
//!
//! Otherwise an owner who adds a password to a living Ingress would shut it for as long as the API server needs to
//! return the Secret. A name that was replaced by another one waits in [`super::refs`]: the previous object stays in
//! use, and all else of the new version takes effect.
//!
//! It ends when all such objects were read, and otherwise with the first that cannot be read, or that the source says
//! is late: then the newest version counts, and what it guards is denied until its objects were read. A first version
//! is denied at once.
//!
//! **Invariant:** once nothing is awaited, the newest version counts. A version stands only for one of the same object
//! (by uid) that is ours, and only while it is itself ours, allowed, and awaits nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use shared::name::ObjectName;

use super::Index;
use super::objects::reference;
use super::refs::{Site, User};
use super::version::Version;
use crate::annotations::Parsed;
use crate::compile::referred::Referred;
use crate::objects::{Ingress, Object, ObjectKind, ObjectRef};
use crate::reference::Use;

/// The Ingresses whose newest version is not in use yet.
#[derive(Debug, Default)]
pub(super) struct Standing {
    of: HashMap<ObjectName, Stands>,
}

/// The version of an Ingress that was in use when a newer one came.
#[derive(Debug)]
struct Stands {
    version: Version,
    /// The purposes for which the newest version refers to objects.
    coming: BTreeSet<Use>,
}

impl Standing {
    /// Notes that a version was replaced: it may stay in use for a while. Of several the first counts, which is in use.
    pub(super) fn note(&mut self, name: &ObjectName, used: Version) {
        let stands = || Stands { version: used, coming: BTreeSet::new() };
        self.of.entry(name.clone()).or_insert_with(stands);
    }

    /// Whether a version of an Ingress stays in use for a while.
    pub(super) fn has(&self, name: &ObjectName) -> bool {
        self.of.contains_key(name)
    }

    /// The version of an object that stays in use for a while.
    pub(super) fn version_of(&self, object: &ObjectRef) -> Option<&Object> {
        let of = self.of.get(&object.name).filter(|_| object.kind == ObjectKind::Ingress)?;
        Some(&of.version)
    }
}

impl Index {
    /// The version of an Ingress that stays in use because the newest one waits for an object; `None`: the newest
    /// counts.
    pub(super) fn what_stands(
        &mut self,
        name: &ObjectName,
        (ingress, parsed): &(Arc<Ingress>, Arc<Parsed>),
    ) -> Option<(Arc<Ingress>, Arc<Parsed>)> {
        let stands = self.standing.of.get(name)?;
        let (Object::Ingress(used), Some(used_parsed)) = (&*stands.version, stands.version.parsed()) else {
            return None;
        };
        let used = (Arc::clone(used), Arc::clone(used_parsed));
        let claim = self.ingresses.claims.get(&reference(ObjectKind::Ingress, name))?;
        let is_serving = claim.referred.values().all(|found| *found != Referred::Awaited);
        if !is_serving || used.0.metadata.uid != ingress.metadata.uid || !self.is_ours(&used.0) {
            return None;
        }
        let may_be_read =
            parsed.refs.keys().filter(|it| it.name.is_possible() && self.out_of_reach(name, it).is_none());
        let coming: BTreeMap<Use, ObjectRef> = may_be_read.map(|it| (it.what, it.object())).collect();
        if coming.values().all(|object| self.refs.is_read(object)) {
            return None;
        }
        // The restrictions may have changed. Last, because it is the most work.
        if !stands.version.faults(&self.allowed).is_empty() {
            return None;
        }
        self.expect(name, &coming).then_some(used)
    }

    /// Requests the objects of a coming version. Returns whether it waits for one of them, with nothing to use instead.
    fn expect(&mut self, name: &ObjectName, coming: &BTreeMap<Use, ObjectRef>) -> bool {
        let site = |what| Site { user: User::Coming(name.clone()), what };
        if let Some(stands) = self.standing.of.get_mut(name) {
            let before = std::mem::replace(&mut stands.coming, coming.keys().copied().collect());
            for what in before.into_iter().filter(|what| !coming.contains_key(what)) {
                self.refer(&site(what), BTreeSet::new());
            }
        }
        let (mut is_waiting, mut is_given_up) = (false, false);
        for (what, object) in coming {
            self.refer(&site(*what), [object.clone()].into());
            let used = Site { user: User::Ingress(name.clone()), what: *what };
            if self.refs.is_read(object) || self.refs.has_one(&used) {
                continue;
            }
            match self.refs.is_expected(object) {
                true => is_waiting = true,
                false => is_given_up = true,
            }
        }
        is_waiting && !is_given_up
    }

    /// The newest version of an Ingress counts, and refers to its objects itself.
    pub(super) fn end_standing(&mut self, name: &ObjectName) {
        let coming = self.standing.of.remove(name).map(|stands| stands.coming).unwrap_or_default();
        for what in coming {
            self.refer(&Site { user: User::Coming(name.clone()), what }, BTreeSet::new());
        }
    }
}
