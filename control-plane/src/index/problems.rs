//! Collects the problems of an object from all that was compiled from it.

use std::sync::Arc;

use shared::name::{HostName, ObjectName};
use shared::pem;

use super::Index;
use super::refs::{Site, User};
use super::slot::{Present, Slot};
use super::version::Version;
use crate::compile::claim::{Claim, ClaimedPath};
use crate::compile::material;
use crate::compile::referred::{AllReferred, Referred};
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::problem::{ANNOTATIONS, Fault, OF_LAST_GOOD, Problem, Severity, Subject, bounded};
use crate::reference::Use;

/// What follows for requests if there is no Service of the default backend, which has the error pages, too.
pub(super) const NO_DEFAULT_BACKEND: &str = "the Service of the default backend does not exist: requests that match no Ingress get 404, \
                                             and so do those with an error that custom-http-errors lists";

/// Limit of the problems of one object that are listed.
const MOST: usize = 100;

impl Index {
    /// Updates the problems of an object. Returns false if they did not change.
    pub(super) fn refresh_problems(&mut self, object: &ObjectRef) -> bool {
        self.work += 1;
        let mut problems = self.problems_of(object);
        if let Some((slot, reason)) = self.objects.get(object).and_then(|slot| Some((slot, slot.unstored()?)))
        {
            let reason = format!(
                "its last good version is in use, but a control plane that starts does not have it, because it cannot be stored: {reason}"
            );
            problems.push(problem(object, slot, Fault::new(Severity::Warning, "", reason)));
        }
        if let Some(Fault { severity, field, reason }) = self.stale_fault(object) {
            let location = String::new();
            problems.push(Problem { object: object.clone().into(), field, severity, reason, location });
        }
        problems.sort();
        problems.dedup();
        self.set_problems(object.clone().into(), problems)
    }

    /// Notes where an object is defined, which its problems show.
    pub(super) fn note_place(&mut self, object: &ObjectRef, location: &Arc<str>) {
        let Some(slot) = self.objects.get_mut(object) else {
            return;
        };
        slot.moved(Arc::clone(location));
        if self.problems.contains_key(&Subject::Object(object.clone())) {
            self.dirty.problems.insert(object.clone());
        }
    }

    /// Notes that the hold of an object cannot be stored, which its owner is told.
    pub(super) fn note_unstored(&mut self, object: &ObjectRef, reason: &Arc<str>) {
        if self.objects.get_mut(object).is_some_and(|slot| slot.refused(reason)) {
            self.dirty.problems.insert(object.clone());
        }
    }

    /// Notes the problems of a file.
    pub(super) fn note_file(&mut self, file: &Arc<str>, problems: &[Problem]) {
        let changed = self.set_problems(Subject::File(Arc::clone(file)), problems.to_vec());
        self.problems_changed |= changed;
    }

    pub(super) fn set_problems(&mut self, subject: Subject, problems: Vec<Problem>) -> bool {
        if problems.is_empty() {
            return self.problems.remove(&subject).is_some();
        }
        if self.problems.get(&subject).is_some_and(|before| **before == *problems) {
            return false;
        }
        self.problems.insert(subject, Arc::from(problems));
        true
    }

    /// Whether an object's newest version is rejected although it is wanted.
    pub(super) fn is_rejected(&self, object: &ObjectRef) -> bool {
        let Some(slot) = self.objects.get(object) else {
            return false;
        };
        let is_asked_for = |version: &Object| match version {
            Object::Ingress(ingress) => self.is_ours(ingress),
            Object::Secret(_) => self.refs.is_used(object, Use::is_certificate),
            _ => true,
        };
        match &slot.present {
            Present::Faulty(version, _) => is_asked_for(version),
            Present::Broken { .. } => slot.in_use().is_none_or(is_asked_for),
            Present::Unknown | Present::Deleted | Present::Fine(_) | Present::Unchecked(_) => false,
        }
    }

    fn problems_of(&self, object: &ObjectRef) -> Vec<Problem> {
        if let Some(reason) = self.missing_of_the_fleet(object) {
            return vec![Problem {
                object: object.clone().into(),
                field: String::new(),
                severity: Severity::Warning,
                reason: reason.into(),
                location: String::new(),
            }];
        }
        if object.kind == ObjectKind::IngressClass
            && let Some(assumed) = self.assumed_class(&object.name)
        {
            return vec![assumed];
        }
        let Some(slot) = self.objects.get(object) else {
            return Vec::new();
        };
        if let Some(kept) = self.fault_of_kept(object) {
            let of_values = self.settings_faults.iter().filter(|_| object.kind == ObjectKind::ConfigMap);
            let faults = bounded([kept].into_iter().chain(of_values.cloned()).collect(), MOST);
            return faults.into_iter().map(|fault| problem(object, slot, fault)).collect();
        }
        let foreign = match slot.newest() {
            Some(Object::Ingress(ingress)) => Some(ingress).filter(|ingress| !self.is_ours(ingress)),
            _ => None,
        };
        let mut unreadable = None;
        let faults = match &slot.present {
            Present::Broken { problem: broken, .. } => {
                unreadable = Some(Problem::clone(broken));
                let is_settings =
                    object.kind == ObjectKind::ConfigMap && object.name == self.options.configmap;
                let faults = match is_settings && slot.in_use().is_none() {
                    true => &self.settings_faults[..],
                    false => &[],
                };
                faults.iter().cloned().chain(self.faults_of_last_good(object, slot, faults)).collect()
            }
            Present::Faulty(..) if self.closed.is(object) => self.faults_in_use(object),
            Present::Faulty(version, faults) if self.is_rejected(object) => {
                let mut all: Vec<_> =
                    faults.iter().cloned().chain(self.further_faults(version, faults)).collect();
                all.extend(self.faults_of_last_good(object, slot, &all));
                all
            }
            Present::Faulty(..) | Present::Fine(_) if foreign.is_some() => {
                foreign.and_then(|ingress| self.class_fault(ingress)).into_iter().collect()
            }
            // One that is not wanted.
            Present::Faulty(..) => Vec::new(),
            Present::Unknown | Present::Deleted | Present::Unchecked(_) => Vec::new(),
            Present::Fine(_) => match object.kind {
                ObjectKind::ConfigMap if !self.is_of_fleet(object) => {
                    self.overlooked(&object.name).into_iter().collect()
                }
                _ => self.faults_in_use(object),
            },
        };
        let classless = match slot.in_use() {
            Some(Object::Ingress(ingress)) => self.classless_fault(ingress),
            _ => None,
        };
        let faults = bounded(faults, MOST).into_iter().chain(classless);
        // Only the annotations of Ingresses were translated.
        let prefix = self.options.prefix.as_ref().filter(|_| object.kind == ObjectKind::Ingress);
        let told = |fault| match prefix {
            Some(prefix) => prefix.restored(fault),
            None => fault,
        };
        unreadable.into_iter().chain(faults.map(|fault| problem(object, slot, told(fault)))).collect()
    }

    /// What is wrong with the version of an object that is in use, as compiled.
    fn faults_in_use(&self, object: &ObjectRef) -> Vec<Fault> {
        match object.kind {
            ObjectKind::Ingress => self.faults_of_ingress(object),
            ObjectKind::EndpointSlice => self.slices.faults.get(&object.name).cloned().unwrap_or_default(),
            ObjectKind::ConfigMap if object.name == self.options.configmap => self.settings_faults.clone(),
            ObjectKind::ConfigMap => self.streams.faults.get(object).cloned().unwrap_or_default(),
            ObjectKind::Secret => self.secrets.lives.fault(&object.name).into_iter().collect(),
            ObjectKind::IngressClass | ObjectKind::Service | ObjectKind::Namespace => Vec::new(),
        }
    }

    /// Whether settings, or TCP or UDP services, are compiled from a ConfigMap.
    fn is_of_fleet(&self, configmap: &ObjectRef) -> bool {
        configmap.name == self.options.configmap || self.has_streams(configmap)
    }

    /// What is wrong with the last good version of an object whose newest one is rejected: it is served, so that what was said of it is
    /// not over. `newest`: the faults of the newest version, of which none is repeated.
    fn faults_of_last_good(&self, object: &ObjectRef, slot: &Slot, newest: &[Fault]) -> Vec<Fault> {
        if slot.in_use().is_none() {
            return Vec::new();
        }
        let is_said = |fault: &Fault| {
            newest.iter().any(|other| (&other.field, &other.reason) == (&fault.field, &fault.reason))
        };
        let faults = self.faults_in_use(object).into_iter().filter(|fault| !is_said(fault));
        let told = |Fault { severity, field, reason }: Fault| {
            Fault::new(severity, field, format!("{OF_LAST_GOOD}{reason}"))
        };
        faults.map(told).collect()
    }

    /// What else is wrong with an Ingress that is only rejected for annotations that the fleet does not allow: else its
    /// owner would be told after those are gone. What depends on other objects is left out.
    fn further_faults(&self, version: &Version, rejected: &[Fault]) -> Vec<Fault> {
        let (Object::Ingress(ingress), Some(parsed)) = (&**version, version.parsed()) else {
            return Vec::new();
        };
        let is_rejected = |fault: &Fault| fault.severity == Severity::Rejected;
        // What is too large, or has other faults, is not looked at any further.
        let is_sound = !parsed.faults.iter().any(is_rejected);
        if !is_sound || !rejected.iter().all(|fault| fault.field.starts_with(ANNOTATIONS)) {
            return Vec::new();
        }
        let claim = Claim::of(ingress, Arc::clone(parsed), AllReferred::new(), self.of_fleet.clone());
        claim.all_faults().cloned().collect()
    }

    /// The effect of a missing object that only the operator's flags name, so that no Ingress reports it.
    fn missing_of_the_fleet(&self, object: &ObjectRef) -> Option<&'static str> {
        let options = &self.options;
        let (named, reason) = match object.kind {
            ObjectKind::Secret => (
                options.default_certificate.as_ref(),
                "the Secret of the default certificate does not exist: each proxy uses a certificate that it generated",
            ),
            ObjectKind::Service => (options.default_backend.as_ref(), NO_DEFAULT_BACKEND),
            ObjectKind::ConfigMap => {
                (options.expected.get(&object.name), options.effect_of_absence(&object.name))
            }
            _ => return None,
        };
        // Of a deleted ConfigMap some values may be kept.
        let is_missing = self.objects.get(object).is_none_or(|slot| !slot.is_there() && !slot.is_kept());
        (is_missing && named == Some(&object.name)).then_some(reason)
    }

    fn faults_of_ingress(&self, object: &ObjectRef) -> Vec<Fault> {
        let Some(claim) = self.ingresses.claims.get(object) else {
            return Vec::new();
        };
        let mut faults: Vec<_> = claim.all_faults().cloned().collect();
        // A Service for its error pages only is not a destination of requests.
        let leads_nowhere = claim.default_backend.is_none() && claim.hosts.values().all(Vec::is_empty);
        if leads_nowhere
            && !self.answers_itself(claim, object)
            && faults
                .iter()
                .all(|fault| !fault.field.starts_with("spec") || fault.field.starts_with("spec.tls"))
        {
            let reason = "expected a path or a default backend with a Service, got none: nothing is routed";
            faults.push(Fault::new(Severity::Warning, "spec", reason));
        }
        for host in claim.hosts() {
            let Some(state) = self.hosts.get(host) else {
                continue;
            };
            // Those of a canary are only compared with those of others.
            if !claim.is_canary() && !state.shown.has_patterns {
                faults.extend(claim.paths(host).iter().filter_map(ClaimedPath::literal_fault));
            }
            if let Some(made) = state.made_of(object) {
                faults.extend(made.faults().iter().map(|fault| fault.place(claim, host)));
                for attachment in made.attachments() {
                    self.judge_attachment(claim, attachment, &mut faults);
                }
            }
            let lost = state.claims().lost_app_root(claim);
            faults.extend(lost.map(|fault| fault.place(claim, host)));
            self.judge_names(claim, host, state, &mut faults);
            if state.shown.tls_decided_by() == Some(object) {
                self.judge_certificates(claim, host, state.shown.secrets(), &mut faults);
                let site = Site { user: User::Host(host.clone()), what: Use::Certificate };
                faults.extend(self.stale_of(&site, |secret| claim.tls.field(secret)));
            }
        }
        faults.extend(self.stale_references(claim));
        self.judge_backends(claim, &mut faults);
        self.judge_users(claim, &mut faults);
        faults.extend(self.called_fault(claim));
        for (key, field) in claim.references() {
            let Some(state) = self.backends.get(key) else {
                continue;
            };
            if claim.errors.as_ref() == Some(key) && field.starts_with(ANNOTATIONS) {
                faults.extend(state.port.fault_of_pages(key, &field));
                continue;
            }
            // An API server gives each Service an address, or says that it has none; manifests say neither.
            let is_said =
                || self.objects.service(&key.service).is_some_and(|it| !it.spec.cluster_ip.is_empty());
            let by_address = claim.parsed.backend.service_upstream == Some(true) && is_said();
            faults.extend(state.port.fault(key, &field, by_address));
            if let Some(decider) = state.decider().filter(|it| it.is_canary() && !claim.is_canary()) {
                let reason = format!(
                    "canary Ingress {} came first and names this Service port too: ingress-nginx would not serve this path",
                    decider.name
                );
                faults.push(Fault::new(Severity::Warning, field, reason));
            }
        }
        faults
    }

    /// Whether a claim without a path owns the "/" of a host, with a response of its own.
    fn answers_itself(&self, claim: &Claim, object: &ObjectRef) -> bool {
        let (location, host) = (&claim.parsed.serving.location, &claim.parsed.serving.host);
        let redirects = location.permanent_redirect.is_some() || location.temporal_redirect.is_some();
        let answers = redirects || location.shortcuts.is_some() || host.shortcuts.is_some();
        let mut made = claim.hosts().filter_map(|host| self.hosts.get(host)?.made_of(object));
        answers && made.any(|made| made.is_routed)
    }

    /// The fault of a Secret with whose users nobody can log in.
    fn judge_users(&self, claim: &Claim, faults: &mut Vec<Fault>) {
        for (reference, field) in claim.parsed.refs.iter().filter(|(it, _)| it.what.is_of_users()) {
            let used = claim.referred.get(&reference.what);
            let is_used = matches!(used, Some(Referred::Material(key)) if Some(key) == reference.what.material(&reference.name).as_ref());
            let slot = self.objects.get(&reference.object()).filter(|_| is_used);
            if let Some(Object::Secret(secret)) = slot.and_then(Slot::newest)
                && let Some(why) = material::shuts_out_all(secret, reference.what)
            {
                let reason = format!("{} {why}: nobody can log in", reference.object());
                faults.push(Fault::new(Severity::Warning, field.as_str(), reason));
            }
        }
    }

    fn judge_certificates<'a>(
        &self,
        claim: &Claim,
        host: &HostName,
        secrets: impl IntoIterator<Item = &'a ObjectName>,
        faults: &mut Vec<Fault>,
    ) {
        let field = |secret: &ObjectName| claim.tls.field(secret);
        let site = Site { user: User::Host(host.clone()), what: Use::Certificate };
        let mut is_awaited = false;
        for (secret, failing) in self.refs.awaited_by(&site) {
            is_awaited = true;
            if let Some(failing) = failing {
                let name = &secret.name;
                let reason = format!(
                    "Secret {name} could not be read and is retried; its previous certificate stays in use until then: {failing}"
                );
                faults.push(Fault::new(Severity::Warning, field(name), reason));
            }
        }
        if is_awaited {
            return;
        }
        let (mut is_covered, mut is_any, mut useless) = (false, false, Vec::new());
        for secret in secrets {
            is_any = true;
            match self.secrets.names(secret) {
                Some(names) => is_covered |= pem::covers(names, host.as_str()),
                None => useless.push(secret),
            }
        }
        // A proxy shows the first certificate that covers the host, at any position in the list.
        let shown = if is_covered { "another one of its certificates" } else { "the default certificate" };
        for secret in &useless {
            let why = match self.objects.unreadable(ObjectKind::Secret, secret) {
                Some(reason) => format!("cannot be read ({reason})"),
                None if self.is_deleted(secret) => "does not exist".to_owned(),
                None => "has no certificate that can be used".to_owned(),
            };
            let reason = format!("Secret {secret} {why}: {shown} is shown");
            faults.push(Fault::new(Severity::Warning, field(secret), reason));
        }
        // It is unknown what missing certificates would cover; no Secret at all asks for the default certificate.
        if is_any && useless.is_empty() && !is_covered {
            let reason = format!("no certificate covers host {host}: the default certificate is shown");
            faults.push(Fault::new(Severity::Warning, "spec.tls", reason));
        }
    }

    fn judge_attachment(
        &self,
        claim: &Claim,
        attachment: &crate::compile::host::Attachment,
        faults: &mut Vec<Fault>,
    ) {
        let crate::compile::host::Attachment { primary, place, alternative, .. } = attachment;
        let field = match place {
            Some((rule, path)) => format!("spec.rules[{rule}].http.paths[{path}]"),
            None => "spec.defaultBackend".to_owned(),
        };
        let first = self.backends.get(primary).and_then(|state| state.first_alternative());
        if let Some((age, first)) = first.filter(|(_, first)| *first != alternative) {
            faults.push(Fault::new(
                Severity::Overridden,
                field.clone(),
                format!(
                    "Backend {primary} has the canary {first} of Ingress {} already: only the first one acts",
                    age.name()
                ),
            ));
        }
        let Some(decider) = self.backends.get(alternative).and_then(|state| state.decider()) else {
            return;
        };
        let who = &decider.name;
        if !decider.is_canary() {
            let reason = format!(
                "Ingress {who} comes first and has {alternative} as a main backend: as a canary it takes no requests"
            );
            faults.push(Fault::new(Severity::Warning, field, reason));
        } else if decider.parsed.backend != claim.parsed.backend {
            let reason =
                format!("canary Ingress {who} comes first and decides which requests go to {alternative}");
            faults.push(Fault::new(Severity::Overridden, field, reason));
        }
    }
}

fn problem(object: &ObjectRef, slot: &Slot, fault: Fault) -> Problem {
    let Fault { severity, field, reason } = fault;
    Problem { object: object.clone().into(), field, severity, reason, location: slot.location.to_string() }
}
