//! The pin: when it comes into force, and what it needs from LIVE meanwhile.
//!
//! What is compiled does not depend on it. A stored pin comes into force once what it needs was read, or cannot be read
//! for now: a rollback never waits for an unavailable API server. Until then, what the previous pin needs is kept.
//!
//! **Invariant:** LIVE has what the pin in force needs, as far as it exists.

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::name::ObjectName;

use super::Index;
use super::problems::NO_DEFAULT_BACKEND;
use super::refs::{Site, User};
use crate::event::PinChange;
use crate::objects::{ObjectKind, ObjectRef};
use crate::pin::{Needs, Pin, Unreadable};
use crate::problem::{Fault, Problem, Severity, Subject, bounded};
use crate::reference::Use;

/// Limit of the problems of the pin that are listed.
const MOST: usize = 20;
/// Limit of the missing objects that one of them names.
const NAMED: usize = 5;

/// What is known of the pin.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    /// The stored pin, as last read.
    on_record: Option<Arc<Pin>>,
    /// Revision of the stored record, whether it is readable or not.
    revision: Option<Arc<str>>,
    /// As of the last commit.
    pub(super) in_force: Option<Arc<Pin>>,
    /// Why the record cannot be read.
    unreadable: Option<Unreadable>,
    /// The pin to write again.
    mend: Option<PinChange>,
    /// What the stored pin and the one in force need: that of two equal ones once.
    followed: Vec<Arc<Needs>>,
}

impl Pinned {
    /// The revision of the stored pin; `None` if there is none.
    pub(super) fn revision(&self) -> Option<Arc<str>> {
        self.revision.clone()
    }

    /// What the stored pin, and the one in force, need.
    fn needs(&self) -> Vec<Arc<Needs>> {
        let Self { on_record, in_force, .. } = self;
        let mut needs: Vec<Arc<Needs>> = Vec::new();
        for pin in on_record.iter().chain(in_force) {
            if !needs.iter().any(|it| Arc::ptr_eq(it, &pin.needs)) {
                needs.push(Arc::clone(&pin.needs));
            }
        }
        needs
    }
}

/// The Services of the first that the others do not need.
fn beyond<'a>(these: &'a [Arc<Needs>], others: &'a [Arc<Needs>]) -> impl Iterator<Item = &'a ObjectName> {
    let is_among = |it: &Arc<Needs>| others.iter().any(|other| Arc::ptr_eq(it, other));
    let these = these.iter().filter(move |it| !is_among(it));
    let is_needed = |name: &&ObjectName| others.iter().any(|other| other.services.contains(*name));
    these.flat_map(|needs| &needs.services).filter(move |name| !is_needed(name))
}

impl Index {
    /// Notes that a pin is stored, or none any more.
    pub(super) fn note_pin(&mut self, pin: Option<Arc<Pin>>) {
        self.pinned.revision = pin.as_ref().map(|pin| Arc::clone(&pin.revision));
        self.pinned.on_record = pin;
        self.pinned.unreadable = None;
        self.pinned.mend = None;
        self.follow_pin();
    }

    /// Notes that the stored pin cannot be read. A damaged record is written again by every replica that has its pin,
    /// which stays in force until then, as a hold does. A record that only a newer build understands is left to that.
    /// Any other error changes nothing.
    pub(super) fn note_unreadable_pin(&mut self, why: Unreadable, revision: Arc<str>) {
        let mended = self.pinned.on_record.clone().filter(|_| why.may_be_mended());
        self.pinned.mend = mended.map(|pin| PinChange::Mend { pin, replaces: Arc::clone(&revision) });
        self.pinned.revision = Some(revision);
        if matches!(why, Unreadable::Unfinished | Unreadable::Elsewhere) {
            self.pinned.on_record = None;
        }
        self.pinned.unreadable = Some(why).filter(|why| *why != Unreadable::Unfinished);
        self.follow_pin();
    }

    /// The record to write again; returned once.
    pub(super) fn take_mend(&mut self) -> Option<PinChange> {
        self.pinned.mend.take()
    }

    /// Puts the stored pin into force, or ends the previous one. Returns false if nothing changed, or something that it
    /// needs is still being read.
    pub(super) fn settle_pin(&mut self) -> bool {
        let Pinned { on_record, in_force, .. } = &self.pinned;
        let is_same = match (on_record, in_force) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        if is_same || (on_record.is_some() && self.is_pin_awaiting()) {
            return false;
        }
        self.pinned.in_force.clone_from(&self.pinned.on_record);
        self.follow_pin();
        true
    }

    fn is_pin_awaiting(&self) -> bool {
        Use::of_secrets()
            .any(|what| self.refs.awaited_by(&pin_site(what)).any(|(_, failing)| failing.is_none()))
    }

    /// References what the stored pin, and the one in force, need. Between a pin that is stored and the same one in force,
    /// or the end of its record and of itself, nothing changes.
    fn follow_pin(&mut self) {
        self.dirty.pin = true;
        let needs = self.pinned.needs();
        let before = std::mem::replace(&mut self.pinned.followed, needs.clone());
        if before.iter().map(Arc::as_ptr).eq(needs.iter().map(Arc::as_ptr)) {
            return;
        }
        self.work += before.iter().chain(&needs).map(|it| it.services.len()).sum::<usize>();
        for service in beyond(&before, &needs) {
            self.pin_service(service, false);
        }
        for service in beyond(&needs, &before) {
            self.pin_service(service, true);
        }
        for what in Use::of_secrets() {
            let needed = needs.iter().flat_map(|needs| needs.secrets.iter()).filter(|it| it.what == what);
            // The pin may be older than the restriction to one namespace.
            let needed = needed.filter(|it| self.outside_of(it).is_none());
            let needed: BTreeSet<_> = needed.map(|reference| reference.object()).collect();
            self.refer(&pin_site(what), needed);
        }
    }

    /// Sets whether the pin needs the endpoints of a Service.
    fn pin_service(&mut self, name: &ObjectName, is_pinned: bool) {
        let service = self.services.entry(name.clone()).or_default();
        let was_in_use = service.is_in_use();
        service.is_pinned = is_pinned;
        if was_in_use != service.is_in_use() {
            self.dirty.turned.entry(name.clone()).or_insert(was_in_use);
            self.dirty.slices.extend(service.slices.keys().cloned());
        }
        self.forget_service_if_void(name);
    }

    /// Notes an event of an object that the pin may need.
    pub(super) fn tell_pin(&mut self, object: &ObjectRef) {
        let is_needed = self.refs.sites_of(object).any(|site| site.user == User::Pin);
        let is_service = |needs: &Arc<Needs>| needs.services.contains(&object.name);
        self.dirty.pin |= is_needed || self.pinned.followed.iter().any(is_service);
    }

    /// Updates the problems of the pin.
    pub(super) fn refresh_pin_problems(&mut self) -> bool {
        let problem = |Fault { severity, field, reason }| Problem {
            object: Subject::Pin,
            field,
            severity,
            reason,
            location: String::new(),
        };
        let faults = bounded(self.faults_of_pin(), MOST);
        self.set_problems(Subject::Pin, faults.into_iter().map(problem).collect())
    }

    fn faults_of_pin(&self) -> Vec<Fault> {
        let Pinned { on_record, in_force, unreadable, .. } = &self.pinned;
        let mut faults = Vec::new();
        let mut warn = |reason: String| faults.push(Fault::new(Severity::Warning, "", reason));
        if let Some(pin) = in_force {
            warn(format!("{pin}: changes of objects are compiled, and not released until it ends"));
        }
        if let Some(pin) = on_record.as_ref().filter(|_| self.is_pin_awaiting()) {
            warn(format!("{pin}: not in force before the Secrets that it needs were read"));
        }
        if let Some(pin) = in_force.as_ref().filter(|pin| pin.is_of_later_build()) {
            let unknown = pin.needs.unknown;
            warn(format!(
                "it was stored by a newer build: {unknown} of its resources are unknown to this one, which does not send the endpoints and Secrets that they need"
            ));
        }
        if let Some(pin) = in_force {
            let is_gone = |name: &&ObjectName| self.objects.service(name).is_none();
            let of_fleet = pin.needs.default_backend.as_ref();
            if let Some(service) = of_fleet.filter(is_gone) {
                warn(format!("{NO_DEFAULT_BACKEND} ({service} in the pinned version)"));
            }
            let mut missing = Vec::new();
            for service in pin.needs.services.iter().filter(is_gone).filter(|it| Some(*it) != of_fleet) {
                match self.objects.unreadable(ObjectKind::Service, service) {
                    Some(why) => warn(format!(
                        "it leads to Service {service}, which cannot be read ({why}): {UNREACHED}"
                    )),
                    None => missing.push(service),
                }
            }
            if let Some(those) = missing_ones("Service", &missing) {
                warn(format!("it leads to {those}: {UNREACHED}"));
            }
            let missing: Vec<_> = pin.needs.secrets.iter().filter(|it| self.is_deleted(&it.name)).collect();
            for (are_certificates, then) in [
                (true, "the default certificate is shown"),
                (false, "the paths that are protected by it answer 503"),
            ] {
                let those = missing.iter().filter(|it| it.what.is_certificate() == are_certificates);
                // One Secret may have several uses.
                let those: BTreeSet<_> = those.map(|it| &it.name).collect();
                let those: Vec<_> = those.into_iter().collect();
                if let Some(those) = missing_ones("Secret", &those) {
                    warn(format!("it needs {those}: {then}"));
                }
            }
        }
        for what in Use::of_secrets() {
            faults.extend(self.stale_of(&pin_site(what), |_| String::new()).into_iter().take(MOST));
        }
        if let Some(why) = unreadable {
            let reason = format!("the record of a pin cannot be read: {why}");
            faults.push(Fault::new(Severity::Rejected, "", reason));
        }
        faults
    }
}

/// What requests get whose Service is gone.
const UNREACHED: &str = "paths that lead there answer 503, or what custom-http-errors puts in its place";

/// `Secret a/b, which does not exist`, `5 Secrets that do not exist: a/b, ..` in one phrase; `None`: there are none.
fn missing_ones(kind: &str, names: &[&ObjectName]) -> Option<String> {
    let listed = names.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        1 => Some(format!("{kind} {listed}, which does not exist")),
        count if count > NAMED => Some(format!("{count} {kind}s that do not exist, {listed} and others")),
        count => Some(format!("{count} {kind}s that do not exist, {listed}")),
    }
}

fn pin_site(what: Use) -> Site {
    Site { user: User::Pin, what }
}
