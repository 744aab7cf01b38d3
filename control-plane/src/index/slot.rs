//! One object as the index knows it: its newest version, its last good version, and its stored hold.
//!
//! If the newest version is rejected or unreadable, the last good one stays in use: the one in memory or, in a process that never saw it,
//! the one in the hold. A hold that this process did not ask for is what the replicas agreed on, so it is adopted.

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use shared::policy::LocationPolicy;

use crate::annotations::{self, Parsed};
use crate::compile::allowed::Allowed;
use crate::compile::{certificate, endpoints, rejection, size};
use crate::event::{Hold, HoldRequest};
use crate::objects::{Metadata, Object, ObjectRef};
use crate::problem::{Fault, Problem, Severity};

/// What the annotations of most Ingresses come to. It takes 3 kB, and is there once.
static NOTHING: LazyLock<Arc<Parsed>> = LazyLock::new(Arc::default);

/// A version of an object, and what was read of it when it arrived.
#[derive(Clone, Debug)]
pub(super) struct Version {
    object: Object,
    /// What the annotations of an Ingress come to.
    parsed: Option<Arc<Parsed>>,
}

impl Version {
    /// Reads one.
    pub(super) fn of(object: Object) -> Self {
        let parsed = match &object {
            Object::Ingress(ingress) => {
                let metadata = &ingress.metadata;
                let parsed = annotations::read(&metadata.object_name(), &metadata.annotations);
                Some(if parsed == **NOTHING { Arc::clone(&NOTHING) } else { Arc::new(parsed) })
            }
            _ => None,
        };
        Self { object, parsed }
    }

    /// What the annotations of an Ingress come to.
    pub(super) fn parsed(&self) -> Option<&Arc<Parsed>> {
        self.parsed.as_ref()
    }

    /// Why it is not served, whatever other objects there are but the ConfigMap that says what is allowed.
    pub(super) fn faults(&self, allowed: &Allowed) -> Vec<Fault> {
        let rejected = |fault: &&Fault| fault.severity == Severity::Rejected;
        let said = self.parsed.iter().flat_map(|parsed| &parsed.faults).filter(rejected).cloned();
        match &self.object {
            Object::Ingress(ingress) => {
                let nothing = LocationPolicy::default();
                let location = self.parsed.as_ref().map_or(&nothing, |parsed| &parsed.serving.location);
                let forbidden = allowed.faults(&ingress.metadata.annotations);
                let faults = rejection::faults(ingress, location).into_iter().chain(said);
                let faults: Vec<_> = faults.chain(forbidden).collect();
                match &self.parsed {
                    // Nothing that is rejected anyhow is worth being measured.
                    Some(parsed) if faults.is_empty() => {
                        size::of_ingress(ingress, parsed).into_iter().collect()
                    }
                    _ => faults,
                }
            }
            Object::Secret(secret) => {
                let certificate = || certificate::compile(secret).err();
                size::of_data(&secret.data).or_else(certificate).into_iter().collect()
            }
            Object::Service(service) => size::of_service(service).into_iter().collect(),
            Object::EndpointSlice(slice) => match size::of_slice(slice) {
                Some(fault) => vec![fault],
                None => endpoints::rejection(slice),
            },
            Object::ConfigMap(map) => size::of_data(&map.data).into_iter().collect(),
            Object::IngressClass(_) | Object::Namespace(_) => Vec::new(),
        }
    }

    fn checked(self, allowed: &Allowed) -> Present {
        let faults = self.faults(allowed);
        if faults.is_empty() { Present::Fine(self) } else { Present::Faulty(self, faults) }
    }
}

impl std::ops::Deref for Version {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

/// The newest version of an object.
#[derive(Debug, Default)]
pub(super) enum Present {
    /// Nothing was ever heard of it but, perhaps, a hold.
    #[default]
    Unknown,
    /// It is no more.
    Deleted,
    /// Nothing is wrong with it.
    Fine(Version),
    /// It is rejected, if anybody asks for it.
    Faulty(Version, Vec<Fault>),
    /// A Secret that nobody asked for yet.
    Unchecked(Version),
    /// It exists and cannot be read.
    Broken { uid: Arc<str>, problem: Problem },
}

/// What was asked of the record and is not read back yet.
#[derive(Debug)]
enum Asked {
    Write(Version),
    Erase,
}

/// One object.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) present: Present,
    /// `file:line` in a folder.
    pub(super) location: Arc<str>,
    /// The newest version that nothing was wrong with, where that is not the present one.
    good: Option<Version>,
    /// The hold on record, and whether this build finds its object good.
    record: Option<(Version, bool)>,
    asked: Option<Asked>,
}

impl Slot {
    /// Takes in a new version. False where it says nothing new.
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
            // What a Secret is good for is known once somebody asks for it.
            Object::Secret(_) => Present::Unchecked(version),
            _ => version.checked(allowed),
        };
        if matches!(self.present, Present::Fine(_)) {
            self.good = None;
        }
        true
    }

    /// The newest version is what it was, and the API server counts another one.
    fn count(&mut self, object: Object) {
        if let Present::Fine(version) | Present::Faulty(version, _) | Present::Unchecked(version) =
            &mut self.present
        {
            version.object = object;
        }
    }

    /// The newest version stands elsewhere now.
    pub(super) fn moved(&mut self, location: Arc<str>) {
        self.location = location;
    }

    /// The newest version cannot be read.
    pub(super) fn break_off(&mut self, uid: Arc<str>, problem: Problem) -> bool {
        self.keep_good(&uid);
        self.location = problem.location.as_str().into();
        self.present = Present::Broken { uid, problem };
        true
    }

    /// The object is no more, and with it what was good of it. False where it was not there.
    pub(super) fn delete(&mut self) -> bool {
        let was_there = !matches!(self.present, Present::Deleted);
        self.good = None;
        self.present = Present::Deleted;
        was_there
    }

    /// A hold is on record.
    pub(super) fn held(&mut self, object: Object, allowed: &Allowed) -> bool {
        let object = Version::of(object);
        let is_good = object.faults(allowed).is_empty();
        let may_act = is_good && self.good.is_some() && self.is_of(&object);
        match &self.asked {
            Some(Asked::Write(written)) if is_same(written, &object) => self.asked = None,
            Some(Asked::Write(written)) if may_act => match compare_versions(&object, written) {
                // Two replicas asked for two versions. Which was written last is not known here, but both know which is
                // newer: the one with that asks for it again, the other one takes it over.
                Some(Ordering::Greater) => {
                    self.asked = None;
                    self.good = Some(object.clone());
                }
                Some(Ordering::Less) => self.asked = None,
                // A version from before what was asked; that is still on its way.
                Some(Ordering::Equal) | None => {}
            },
            Some(Asked::Write(_)) => {}
            // Somebody wrote it before what was asked, or after: then it is to be asked again.
            Some(Asked::Erase) => self.asked = None,
            None if may_act => self.good = Some(object.clone()),
            None => {}
        }
        self.record = Some((object, is_good));
        true
    }

    /// No hold is on record any more.
    pub(super) fn released(&mut self) -> bool {
        if matches!(self.asked, Some(Asked::Erase)) {
            self.asked = None;
        }
        self.record.take().is_some()
    }

    /// All objects of its kind are known: what has nothing but a hold is no more. False where that is nothing new.
    pub(super) fn list_complete(&mut self) -> bool {
        let is_orphan = matches!(self.present, Present::Unknown) && self.record.is_some();
        if is_orphan {
            self.present = Present::Deleted;
        }
        is_orphan
    }

    /// Decides what a Secret is good for, now that somebody asks for it.
    pub(super) fn check(&mut self) {
        if let Present::Unchecked(object) = &self.present {
            self.present = object.clone().checked(&Allowed::default());
        }
        if matches!(self.present, Present::Fine(_)) {
            self.good = None;
        }
    }

    /// Something else is allowed than before: what is known of an Ingress is judged again, as if it came now.
    pub(super) fn judge_again(&mut self, allowed: &Allowed) {
        self.good.take_if(|good| !good.faults(allowed).is_empty());
        if let Some((object, is_good)) = &mut self.record {
            *is_good = object.faults(allowed).is_empty();
        }
        self.present = match std::mem::take(&mut self.present) {
            Present::Fine(version) | Present::Faulty(version, _) => version.checked(allowed),
            other => other,
        };
        if matches!(self.present, Present::Fine(_)) {
            self.good = None;
        }
    }

    /// The version that is in use.
    pub(super) fn in_use(&self) -> Option<&Object> {
        self.version_in_use().map(|version| &**version)
    }

    /// The version that is in use, with what was read of it.
    pub(super) fn version_in_use(&self) -> Option<&Version> {
        match &self.present {
            Present::Fine(version) => Some(version),
            Present::Faulty(..) | Present::Broken { .. } => self.last_good(),
            Present::Unknown | Present::Deleted | Present::Unchecked(_) => None,
        }
    }

    /// The newest version, good or not.
    pub(super) fn newest(&self) -> Option<&Object> {
        match &self.present {
            Present::Fine(object) | Present::Faulty(object, _) | Present::Unchecked(object) => Some(object),
            Present::Unknown | Present::Deleted | Present::Broken { .. } => None,
        }
    }

    /// Why its newest version cannot be read; `None`: it can, or there is none.
    pub(super) fn unreadable(&self) -> Option<String> {
        let Present::Broken { problem, .. } = &self.present else { return None };
        let at = if problem.field.is_empty() { "" } else { ": " };
        Some(format!("{}{at}{}", problem.field, problem.reason))
    }

    /// Whether it exists, as far as anybody knows.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self.present, Present::Unknown | Present::Deleted)
    }

    /// Every version that may come into use.
    pub(super) fn versions(&self) -> impl Iterator<Item = &Object> {
        let record = self.record.as_ref().map(|(object, _)| object);
        let all = self.good.iter().chain(record).map(|version| &**version);
        self.newest().into_iter().chain(all)
    }

    /// Whether nothing is left to know of it.
    pub(super) fn is_void(&self) -> bool {
        matches!(self.present, Present::Unknown | Present::Deleted)
            && self.record.is_none()
            && self.asked.is_none()
    }

    /// What the record of decisions must learn. `is_rejected`: its present version is not served though somebody asks
    /// for it.
    pub(super) fn hold_request(&mut self, reference: &ObjectRef, is_rejected: bool) -> Option<HoldRequest> {
        if is_rejected && let Some(good) = self.last_good() {
            let is_on_record = self.record.as_ref().is_some_and(|(object, _)| is_same(object, good));
            let is_asked = matches!(&self.asked, Some(Asked::Write(object)) if is_same(object, good));
            if is_on_record || is_asked {
                return None;
            }
            let good = good.clone();
            self.asked = Some(Asked::Write(good.clone()));
            return Some(HoldRequest::Write(Hold { object: good.object }));
        }
        let is_void = match &self.present {
            Present::Deleted | Present::Fine(_) => true,
            // Of an object that had the same name; or overtaken by a good version that nobody asks for, which a process
            // that starts now would not know of: it would serve what is on record.
            Present::Faulty(..) | Present::Broken { .. } => {
                self.record.as_ref().is_some_and(|(object, _)| {
                    let is_overtaken = self.good.as_ref().is_some_and(|good| !is_same(good, object));
                    !self.is_of(object) || (!is_rejected && is_overtaken)
                })
            }
            // The object may be on its way.
            Present::Unknown | Present::Unchecked(_) => false,
        };
        let is_there = match &self.asked {
            Some(Asked::Erase) => false,
            Some(Asked::Write(_)) => true,
            None => self.record.is_some(),
        };
        if !is_void || !is_there {
            return None;
        }
        self.asked = Some(Asked::Erase);
        Some(HoldRequest::Erase(reference.clone()))
    }

    fn last_good(&self) -> Option<&Version> {
        let record = || {
            let (object, is_good) = self.record.as_ref()?;
            (*is_good && self.is_of(object)).then_some(object)
        };
        self.good.as_ref().or_else(record)
    }

    /// Makes the present version, or the last good one, the last good one of a coming version with this uid.
    fn keep_good(&mut self, uid: &str) {
        if let Present::Fine(object) = std::mem::take(&mut self.present) {
            self.good = Some(object);
        }
        self.good.take_if(|good| !is_one(uid, &good.metadata().uid));
    }

    /// Whether `object` is a version of the object that is there now.
    fn is_of(&self, object: &Object) -> bool {
        let uid = match &self.present {
            Present::Fine(now) | Present::Faulty(now, _) | Present::Unchecked(now) => &now.metadata().uid,
            Present::Broken { uid, .. } => uid,
            Present::Unknown | Present::Deleted => return false,
        };
        is_one(uid, &object.metadata().uid)
    }
}

/// In a folder there are no uids and the name alone counts; of what cannot be read the uid may be unknown.
fn is_one(a: &str, b: &str) -> bool {
    a == b || a.is_empty() || b.is_empty()
}

/// Which of two versions of an object the API server made later; `None` where it did not count them, as in a folder.
fn compare_versions(a: &Object, b: &Object) -> Option<Ordering> {
    let count = |object: &Object| object.metadata().resource_version.parse::<u64>().ok();
    Some(count(a)?.cmp(&count(b)?))
}

/// Whether two versions differ in nothing but the API server's count of them.
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
