//! One object as the index knows it: its newest version, its last good version, and its stored hold.
//!
//! If the newest version is rejected or unreadable, the last good one stays in use: the one in memory or, in a process that never saw it,
//! the one in the hold. A hold that this process did not ask for is what the replicas agreed on, so it is adopted.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::version::Version;
use crate::compile::allowed::Allowed;
use crate::event::{Hold, HoldRequest};
use crate::objects::{Metadata, Object, ObjectRef};
use crate::problem::{Fault, Problem};
use crate::reference::Reference;

/// The newest version of an object.
#[derive(Debug, Default)]
pub(super) enum Present {
    /// Nothing is known about it, except perhaps a hold.
    #[default]
    Unknown,
    /// It was deleted.
    Deleted,
    /// It has no faults.
    Fine(Version),
    /// It is rejected, if it is wanted.
    Faulty(Version, Vec<Fault>),
    /// A Secret that is not wanted yet.
    Unchecked(Version),
    /// It exists and cannot be decoded.
    Broken { uid: Arc<str>, problem: Box<Problem> },
}

impl Present {
    fn judged(version: Version, allowed: &Allowed) -> Self {
        let faults = version.faults(allowed);
        if faults.is_empty() { Self::Fine(version) } else { Self::Faulty(version, faults) }
    }
}

/// A requested change of the stored hold that was not read back yet.
#[derive(Debug)]
enum Asked {
    Write(Box<Asking>),
    Erase,
}

/// A hold that is to be stored.
#[derive(Debug)]
struct Asking {
    version: Version,
    /// Why it cannot be.
    refused: Option<Arc<str>>,
}

/// One object. There is one for each, so that what few have is boxed.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) present: Present,
    /// `file:line` in a folder.
    pub(super) location: Arc<str>,
    /// The newest version without faults, if it is not the current one.
    good: Option<Version>,
    /// The stored hold, and whether its object has no faults in this build.
    record: Option<Box<(Version, bool)>>,
    asked: Option<Asked>,
    /// Its last good version stays in use when it is deleted.
    is_lasting: bool,
}

impl Slot {
    /// Of an object of which nothing is known yet.
    pub(super) fn new(is_lasting: bool) -> Self {
        Self { is_lasting, ..Self::default() }
    }

    /// Takes in a new version. Returns false if nothing changed.
    pub(super) fn apply(&mut self, object: Object, location: Arc<str>, allowed: &Allowed) -> bool {
        let known = match &self.present {
            Present::Fine(old) | Present::Faulty(old, _) | Present::Unchecked(old) => is_same(old, &object),
            Present::Unknown | Present::Deleted | Present::Broken { .. } => false,
        };
        if known && self.location == location {
            self.count(object);
            return false;
        }
        self.location = location;
        self.keep_good(&object.metadata().uid);
        let version = Version::of(object);
        self.present = match &*version {
            // A Secret is checked once it is wanted.
            Object::Secret(_) => Present::Unchecked(version),
            _ => Present::judged(version, allowed),
        };
        if matches!(self.present, Present::Fine(_)) {
            self.good = None;
        }
        true
    }

    /// The object did not change, but has another resource version.
    fn count(&mut self, object: Object) {
        if let Present::Fine(version) | Present::Faulty(version, _) | Present::Unchecked(version) =
            &mut self.present
        {
            version.object = object;
        }
    }

    /// The newest version is defined elsewhere now.
    pub(super) fn moved(&mut self, location: Arc<str>) {
        self.location = location;
    }

    /// The newest version cannot be decoded.
    pub(super) fn break_off(&mut self, uid: Arc<str>, problem: Problem) -> bool {
        self.keep_good(&uid);
        self.location = problem.location.as_str().into();
        self.present = Present::Broken { uid, problem: Box::new(problem) };
        true
    }

    /// The object was deleted, and its last good version is dropped, except what stays in use. Returns false if it did
    /// not exist.
    pub(super) fn delete(&mut self, stays: Option<Object>) -> bool {
        let was_there = !matches!(self.present, Present::Deleted);
        self.good = stays.map(Version::of);
        self.present = Present::Deleted;
        self.location = Arc::default();
        was_there
    }

    /// A hold is stored.
    pub(super) fn held(&mut self, object: Object, allowed: &Allowed) -> bool {
        let object = Version::of(object);
        let is_good = object.faults(allowed).is_empty();
        let may_act = is_good && (self.good.is_some() || self.is_gone()) && self.is_of(&object);
        match &self.asked {
            Some(Asked::Write(written)) if is_same(&written.version, &object) => self.asked = None,
            Some(Asked::Write(written)) if may_act => match compare_versions(&object, &written.version) {
                // Two replicas requested two versions. Which was written last is unknown here, but both know which is
                // newer: the replica that has it requests it again, the other one adopts it.
                Some(Ordering::Greater) => {
                    self.asked = None;
                    self.good = Some(object.clone());
                }
                Some(Ordering::Less) => self.asked = None,
                // A version from before the request, which is still under way.
                Some(Ordering::Equal) | None => {}
            },
            Some(Asked::Write(_)) => {}
            // It was written before or after the request to delete it: either way, that is requested again.
            Some(Asked::Erase) => self.asked = None,
            None if may_act => self.good = Some(object.clone()),
            None => {}
        }
        self.record = Some(Box::new((object, is_good)));
        true
    }

    /// No hold is stored any more.
    pub(super) fn released(&mut self) -> bool {
        if matches!(self.asked, Some(Asked::Erase)) {
            self.asked = None;
        }
        self.record.take().is_some()
    }

    /// The list of its kind is complete: an object of which only a hold is known was deleted. Returns false if that was
    /// known.
    pub(super) fn list_complete(&mut self) -> bool {
        let is_orphan = matches!(self.present, Present::Unknown) && self.record.is_some();
        if is_orphan {
            self.present = Present::Deleted;
            self.good = if self.is_lasting { self.last_good().cloned() } else { None };
        }
        is_orphan
    }

    fn is_gone(&self) -> bool {
        matches!(self.present, Present::Deleted)
    }

    /// Whether it is in use although it does not exist.
    pub(super) fn is_kept(&self) -> bool {
        !self.is_there() && self.version_in_use().is_some()
    }

    /// Checks a Secret, which is wanted now.
    pub(super) fn check(&mut self) {
        if let Present::Unchecked(object) = &self.present {
            self.present = Present::judged(object.clone(), &Allowed::default());
        }
        if matches!(self.present, Present::Fine(_)) {
            self.good = None;
        }
    }

    /// The restrictions changed: checks an Ingress again, as if it arrived now.
    pub(super) fn judge_again(&mut self, allowed: &Allowed) {
        self.good.take_if(|good| !good.faults(allowed).is_empty());
        if let Some((object, is_good)) = self.record.as_deref_mut() {
            *is_good = object.faults(allowed).is_empty();
        }
        self.present = match std::mem::take(&mut self.present) {
            Present::Fine(version) | Present::Faulty(version, _) => Present::judged(version, allowed),
            other => other,
        };
        if matches!(self.present, Present::Fine(_)) {
            self.good = None;
        }
    }

    /// The version in use.
    pub(super) fn in_use(&self) -> Option<&Object> {
        self.version_in_use().map(|version| &**version)
    }

    /// The version in use, with what was parsed.
    pub(super) fn version_in_use(&self) -> Option<&Version> {
        match &self.present {
            Present::Fine(version) => Some(version),
            Present::Faulty(..) | Present::Broken { .. } => self.last_good(),
            Present::Unknown | Present::Deleted if self.is_lasting => self.last_good(),
            Present::Unknown | Present::Deleted | Present::Unchecked(_) => None,
        }
    }

    /// The newest version, if it is rejected only for what ingress-nginx reads after Secrets, and those Secrets.
    pub(super) fn guarded(&self) -> Option<(&Version, BTreeSet<Reference>)> {
        let Present::Faulty(version, faults) = &self.present else { return None };
        Some((version, version.guards(faults)?))
    }

    /// The newest version, with faults or without.
    pub(super) fn newest(&self) -> Option<&Object> {
        match &self.present {
            Present::Fine(object) | Present::Faulty(object, _) | Present::Unchecked(object) => Some(object),
            Present::Unknown | Present::Deleted | Present::Broken { .. } => None,
        }
    }

    /// Why its newest version cannot be decoded; `None`: it can, or there is none.
    pub(super) fn unreadable(&self) -> Option<String> {
        let Present::Broken { problem, .. } = &self.present else { return None };
        let at = if problem.field.is_empty() { "" } else { ": " };
        Some(format!("{}{at}{}", problem.field, problem.reason))
    }

    /// Whether it is known to exist.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self.present, Present::Unknown | Present::Deleted)
    }

    /// Every version that may come into use.
    pub(super) fn versions(&self) -> impl Iterator<Item = &Object> {
        let record = self.record.as_deref().map(|(object, _)| object);
        let all = self.good.iter().chain(record).map(|version| &**version);
        self.newest().into_iter().chain(all)
    }

    /// Whether nothing is known about it any more.
    pub(super) fn is_void(&self) -> bool {
        matches!(self.present, Present::Unknown | Present::Deleted)
            && self.record.is_none()
            && self.asked.is_none()
            && self.good.is_none()
    }

    /// The change of the stored hold that is needed. `is_rejected`: its current version is rejected although it is
    /// wanted, or it is in use although it was deleted.
    pub(super) fn hold_request(&mut self, reference: &ObjectRef, is_rejected: bool) -> Option<HoldRequest> {
        if is_rejected && let Some(good) = self.last_good() {
            let is_on_record = self.record.as_deref().is_some_and(|(object, _)| is_same(object, good));
            let is_asked = matches!(&self.asked, Some(Asked::Write(it)) if is_same(&it.version, good));
            if is_on_record || is_asked {
                return None;
            }
            let asking = Asking { version: good.clone(), refused: None };
            self.asked = Some(Asked::Write(Box::new(asking)));
            return self.unanswered_request(reference);
        }
        let is_void = match &self.present {
            Present::Deleted | Present::Fine(_) => true,
            // The hold is of another object with the same name; or it was replaced by a good version that is not
            // wanted, which a process that starts now would not know: it would serve the stored one.
            Present::Faulty(..) | Present::Broken { .. } => {
                self.record.as_deref().is_some_and(|(object, _)| {
                    let is_overtaken = self.good.as_ref().is_some_and(|good| !is_same(good, object));
                    !self.is_of(object) || (!is_rejected && is_overtaken)
                })
            }
            // The object may not have been listed yet.
            Present::Unknown | Present::Unchecked(_) => false,
        };
        let is_there = match &self.asked {
            Some(Asked::Erase) => false,
            Some(Asked::Write(_)) => true,
            None => self.record.is_some(),
        };
        if self.is_gone() {
            self.good = None;
        }
        if !is_void || !is_there {
            return None;
        }
        self.asked = Some(Asked::Erase);
        self.unanswered_request(reference)
    }

    /// Whether a change of the stored hold was requested and not read back yet.
    pub(super) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// The change of the stored hold that was requested and not read back yet. Another replica may have undone it
    /// unseen, or a restored backup: it is requested until it is seen.
    pub(super) fn unanswered_request(&self, reference: &ObjectRef) -> Option<HoldRequest> {
        Some(match self.asked.as_ref()? {
            Asked::Write(it) => HoldRequest::Write(Hold { object: it.version.object.clone() }),
            Asked::Erase => HoldRequest::Erase(reference.clone()),
        })
    }

    /// The hold that was asked for is refused. Returns false if that is known, or not asked for any more.
    pub(super) fn refused(&mut self, reason: &Arc<str>) -> bool {
        let Some(Asked::Write(it)) = &mut self.asked else { return false };
        it.refused.replace(Arc::clone(reason)).is_none_or(|before| before != *reason)
    }

    /// Why its last good version, which is in use, cannot be stored.
    pub(super) fn unstored(&self) -> Option<&str> {
        match &self.asked {
            // It is asked for until the record is: it may be corrected, or gone, by now.
            Some(Asked::Write(it)) if !matches!(self.present, Present::Fine(_)) => {
                it.refused.as_deref().filter(|_| self.version_in_use().is_some())
            }
            Some(Asked::Write(_) | Asked::Erase) | None => None,
        }
    }

    fn last_good(&self) -> Option<&Version> {
        let record = || {
            let (object, is_good) = self.record.as_deref()?;
            (*is_good && self.is_of(object)).then_some(object)
        };
        self.good.as_ref().or_else(record)
    }

    /// Keeps the current version, or the last good one, as the last good one for a new version with this uid.
    fn keep_good(&mut self, uid: &str) {
        if let Present::Fine(object) = std::mem::take(&mut self.present) {
            self.good = Some(object);
        }
        self.good.take_if(|good| !is_one(uid, &good.metadata().uid));
    }

    /// The uid of the object that exists now.
    pub(super) fn uid(&self) -> Option<&str> {
        match &self.present {
            Present::Fine(now) | Present::Faulty(now, _) | Present::Unchecked(now) => {
                Some(&now.metadata().uid)
            }
            Present::Broken { uid, .. } => Some(uid),
            Present::Unknown | Present::Deleted => None,
        }
    }

    /// Whether `object` is a version of the object that exists now, or of one that may stay in use.
    fn is_of(&self, object: &Object) -> bool {
        match self.uid() {
            Some(uid) => is_one(uid, &object.metadata().uid),
            None => self.is_lasting && !matches!(self.asked, Some(Asked::Erase)),
        }
    }
}

/// In a folder there are no uids and only the name is compared; the uid of an undecodable object may be unknown.
fn is_one(a: &str, b: &str) -> bool {
    a == b || a.is_empty() || b.is_empty()
}

/// Which of two versions the API server created later; `None` if they have no resource version, as in a folder.
fn compare_versions(a: &Object, b: &Object) -> Option<Ordering> {
    let count = |object: &Object| object.metadata().resource_version.parse::<u64>().ok();
    Some(count(a)?.cmp(&count(b)?))
}

/// Whether two versions differ only in their resource version.
pub(super) fn is_same(a: &Object, b: &Object) -> bool {
    let Metadata {
        namespace,
        name,
        uid,
        creation_timestamp,
        resource_version: _,
        labels,
        annotations,
        manager: _,
    } = a.metadata();
    let other = b.metadata();
    *namespace == other.namespace
        && *name == other.name
        && *uid == other.uid
        && *creation_timestamp == other.creation_timestamp
        && *labels == other.labels
        && *annotations == other.annotations
        && match (a, b) {
            (Object::Ingress(a), Object::Ingress(b)) => a.spec == b.spec,
            (Object::IngressClass(a), Object::IngressClass(b)) => a.spec == b.spec,
            (Object::Service(a), Object::Service(b)) => a.spec == b.spec,
            (Object::EndpointSlice(a), Object::EndpointSlice(b)) => {
                a.address_type == b.address_type && a.endpoints == b.endpoints && a.ports == b.ports
            }
            (Object::Secret(a), Object::Secret(b)) => a.data == b.data,
            (Object::ConfigMap(a), Object::ConfigMap(b)) => a.data == b.data,
            (Object::Namespace(_), Object::Namespace(_)) => true,
            _ => false,
        }
}
