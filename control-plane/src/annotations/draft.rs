//! The policies of one object under construction, while its annotations are applied one by one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use shared::name::ObjectName;
use shared::policy::{BackendTls, Header, Shortcuts, ToldWithin};
use shared::resource::Denial;

use super::row::{Bad, Reach, Row};
use super::{
    Annotation, BackendPolicy, Fault, HostPolicy, LocationPolicy, MOST_FAULTS, OfHosts, PREFIX, Parsed,
    Serving, Severity, bounded, field, shown, value,
};
use crate::reference::{Reference, Use};

/// What setters write to: the policies, and the problems to report.
pub struct Draft<'a> {
    /// Policy of the paths.
    pub location: LocationPolicy,
    /// Policy of the hosts.
    pub host: HostPolicy,
    /// Policy of the backends.
    pub backend: BackendPolicy,
    /// The affinity mode, whichever Ingress enables affinity.
    pub(super) affinity_mode: Option<i32>,
    refs: BTreeMap<Reference, String>,
    /// The object that the annotations belong to; references are relative to its namespace.
    pub object: &'a ObjectName,
    annotations: &'a [Annotation<'a>],
    /// The row whose value is being applied, and the name under which it was written.
    now: Option<(&'static Row, &'a str)>,
    denied: Option<Denial>,
    hosts_denied: Option<Denial>,
    pub(super) faults: Vec<Fault>,
    /// The fields of faults that are read after a Secret, with the annotation that names it.
    behind: BTreeMap<String, &'static str>,
    /// What behaves differently from ingress-nginx if the paths are served.
    differences: Vec<(String, Cow<'static, str>)>,
    /// What a server-snippet sets for responses of the hosts.
    pub(super) of_hosts: Option<OfHosts>,
    /// Request headers to the authentication service that a snippet sets.
    pub(super) auth_headers: Vec<Header>,
    /// Answers in place of the authentication service that a snippet says.
    pub(super) auth_answers: Option<Shortcuts>,
    /// Request headers to the backend whose values come from the authentication response.
    pub(super) auth_told: Vec<Header>,
    /// And with such a value between other text.
    pub(super) auth_told_within: Vec<ToldWithin>,
    /// TLS settings towards backends that a snippet says.
    pub(super) tls_of_snippet: Option<BackendTls>,
    /// The name for TLS to backends that a snippet says beside a Secret; may be empty.
    pub(super) tls_name: String,
    /// The `Host` of requests that a snippet says; may be empty.
    pub(super) vhost: String,
    /// Fields of snippets that take effect if the fleet allows snippets.
    snippets: Vec<String>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(object: &'a ObjectName, annotations: &'a [Annotation<'a>]) -> Self {
        Self {
            location: LocationPolicy::default(),
            host: HostPolicy::default(),
            backend: BackendPolicy::default(),
            affinity_mode: None,
            refs: BTreeMap::new(),
            behind: BTreeMap::new(),
            object,
            annotations,
            now: None,
            denied: None,
            hosts_denied: None,
            faults: Vec::new(),
            differences: Vec::new(),
            of_hosts: None,
            auth_headers: Vec::new(),
            auth_told: Vec::new(),
            auth_told_within: Vec::new(),
            auth_answers: None,
            tls_of_snippet: None,
            tls_name: String::new(),
            vhost: String::new(),
            snippets: Vec::new(),
        }
    }

    /// Sets the annotation that following calls are about.
    pub(super) fn turn_to(&mut self, row: &'static Row, written: &'a str) {
        self.now = Some((row, written));
    }

    /// The text of another annotation of the object, by the name of its row; `None` if it is absent or empty.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        let mut texts = self.annotations.iter().filter(|it| it.row.name == name).map(|it| it.text);
        texts.find(|text| !text.trim().is_empty())
    }

    /// Whether an annotation of exactly this name is set, and not empty.
    pub(super) fn is_written(&self, name: &str) -> bool {
        self.annotations.iter().any(|it| it.written == name && !it.text.trim().is_empty())
    }

    /// Whether an annotation of exactly this name is there, perhaps empty.
    fn has(&self, name: &str) -> bool {
        self.annotations.iter().any(|it| it.written == name)
    }

    /// Whether another annotation is set and requests something.
    pub(super) fn is_on(&self, name: &str) -> bool {
        let Some(it) = self.annotations.iter().find(|it| it.row.name == name && !it.text.trim().is_empty())
        else {
            return false;
        };
        it.row.value.read(it.text).is_some() && value::boolean(it.text) != Some(false)
    }

    /// Reports a problem of the current annotation.
    pub fn fault(&mut self, severity: Severity, reason: impl Into<String>) {
        let field = self.field();
        self.faults.push(Fault::new(severity, field, reason));
    }

    /// Reports items of the current value that are not what is expected of each, and do not count.
    pub fn leave_out(&mut self, expected: &str, items: impl IntoIterator<Item = String>) {
        for item in items {
            let item = shown(&item);
            self.fault(Severity::Warning, format!("expected {expected}, got {item}: left out"));
        }
    }

    fn field(&self) -> String {
        field(self.now.map_or("", |(_, written)| written))
    }

    /// Adds a reference from the current annotation to an object: `name`, or `namespace/name`. The object is fetched,
    /// waited for and followed: see [`crate::reference`]. Returns false for one of another namespace, unless its use
    /// allows any namespace, and for an invalid name.
    pub fn refer(&mut self, what: Use, text: &str) -> bool {
        let text = text.trim();
        let name = ObjectName::parse(text)
            .unwrap_or_else(|| ObjectName::new(Arc::clone(&self.object.namespace), text));
        let is_ours = name.namespace == self.object.namespace || what.crosses_namespaces();
        let is_ours = is_ours && !name.namespace.is_empty() && !name.name.is_empty();
        if is_ours {
            let field = self.field();
            self.refs.insert(Reference::new(what, name), field);
        }
        is_ours
    }

    /// As [`Self::refer`], for any namespace: one of another namespace takes effect only if the fleet allows it
    /// (`allow-cross-namespace-resources`). Returns the object's name.
    pub fn refer_anywhere(&mut self, what: Use, text: &str) -> ObjectName {
        let text = text.trim();
        let name = ObjectName::parse(text)
            .unwrap_or_else(|| ObjectName::new(Arc::clone(&self.object.namespace), text));
        let field = self.field();
        self.refs.insert(Reference::new(what, name.clone()), field);
        name
    }

    /// Denies access because of the current annotation. The first reason is kept; annotations come in ascending order.
    pub fn deny(&mut self, reach: Reach, why: &str) {
        let slot = match reach {
            Reach::Paths => &mut self.denied,
            Reach::Hosts => &mut self.hosts_denied,
        };
        let (object, written) = (self.object, self.now.map_or("", |(_, written)| written));
        slot.get_or_insert_with(|| Denial { reason: format!("Ingress {object}: {PREFIX}{written} {why}") });
    }

    /// Denies access because the current annotation is not supported yet.
    pub fn not_enforced(&mut self, reach: Reach) {
        self.deny(reach, "is not enforced yet");
        let what = reach.as_str();
        self.fault(Severity::Unsupported, format!("not enforced yet; until then {what}"));
    }

    /// Denies access if a variable of the current annotation has no value here: requests would go elsewhere.
    pub fn needs_variables(&mut self, text: &str) {
        if let Some(variable) = value::unset_but(text, |name| self.is_set(name)) {
            let variable = shown(&variable);
            self.deny(Reach::Paths, "has a variable without a value");
            let what = Reach::Paths.as_str();
            self.fault(Severity::Unsupported, format!("{variable} has no value here: {what}"));
        }
    }

    /// Whether a snippet of the object, which was applied before, gives a variable a value.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.location.variables.iter().flat_map(|it| &it.variables).any(|it| it.name == name)
    }

    /// Reports a variable of the current annotation that has no value here.
    pub fn tells_of_variables(&mut self, text: &str) {
        if let Some(variable) = value::unset(text) {
            self.fault(Severity::Unsupported, format!("{} has no value here: it is empty", shown(&variable)));
        }
    }

    /// Reports that the current annotation has no effect, and what that changes if the paths are served.
    pub fn differs(&mut self, without: impl Into<Cow<'static, str>>) {
        self.differences.push((self.field(), without.into()));
    }

    /// The current annotation takes effect if the fleet allows snippets.
    pub(super) fn needs_snippets(&mut self) {
        let field = self.field();
        self.snippets.push(field);
    }

    pub(super) fn unnoticed(&mut self, why: &str) {
        self.fault(Severity::Unsupported, format!("ignored, without any visible effect: {why}"));
    }

    pub(super) fn dead(&mut self) {
        let row = self.now.map(|(row, _)| row);
        let is_replaced = row.and_then(|row| row.unread_beside).is_some_and(|other| self.is_written(other));
        let doc = row.map_or("", |row| row.doc);
        let advice = if doc.is_empty() || is_replaced { "remove it" } else { doc };
        self.fault(Severity::Warning, format!("has no effect, as in ingress-nginx: {advice}"));
    }

    /// The value of the current annotation is invalid.
    pub(super) fn bad(&mut self, text: &str) {
        let Some((Row { value, bad, .. }, _)) = self.now else {
            return;
        };
        self.bad_for(format!("expected {}, got {}", value.words(), shown(text)), *bad);
    }

    /// The same of a value of several lines, which always rejects.
    pub(super) fn bad_lines(&mut self, text: &str) {
        self.bad_for(format!("expected a single line, got {}", shown(text)), Bad::Reject);
    }

    fn bad_for(&mut self, what: String, bad: Bad) {
        let Some((Row { default, group, unread_beside, behind, .. }, _)) = self.now else {
            return;
        };
        // An empty one ends the reading, too.
        if let Some(other) = unread_beside.filter(|other| self.has(other)) {
            self.fault(Severity::Warning, format!("{what}: it has no effect beside {other}"));
            return;
        }
        if let Some((other, is_name)) = behind {
            if !self.text(other).is_some_and(is_name) {
                self.fault(
                    Severity::Warning,
                    format!("{what}: it is not read, because {other} names no Secret"),
                );
                return;
            }
            self.behind.insert(self.field(), other);
        }
        match bad {
            Bad::Reject => self.fault(Severity::Rejected, what),
            Bad::Deny(reach) => {
                self.deny(reach, "is not understood");
                self.fault(Severity::Unsupported, format!("{what}: {}", reach.as_str()));
            }
            Bad::DropGroup => {
                self.fault(Severity::Warning, format!("{what}: all annotations of {group} are ignored"))
            }
            Bad::Fallback if default.is_empty() => self.fault(Severity::Warning, format!("{what}: ignored")),
            Bad::Fallback => self.fault(Severity::Warning, format!("{what}: {default} is used")),
        }
    }

    /// Returns the result. Differences are reported only if the paths are served.
    pub(super) fn finish(self) -> Parsed {
        let Self { mut location, host, backend, refs, denied, hosts_denied, mut faults, differences, .. } =
            self;
        if let Some(external) = &mut location.external_auth {
            external.proxy_set_headers.extend(self.auth_headers);
            external.told_headers.extend(self.auth_told);
            external.told_within.extend(self.auth_told_within);
            external.answers = self.auth_answers;
        } else if !(self.auth_told.is_empty() && self.auth_told_within.is_empty()) {
            // The client must not be able to set these headers.
            let within = self.auth_told_within.into_iter().map(|it| it.name);
            let names = self.auth_told.into_iter().map(|it| it.name).chain(within);
            let cleared = names.map(|name| Header { name, value: String::new() });
            location.request_headers.get_or_insert_default().headers.extend(cleared);
        }
        if !refs.keys().any(|reference| reference.what == Use::BackendTls) {
            // Without a Secret the annotations have no effect; an invalid Secret name denies access.
            location.backend_tls = self.tls_of_snippet;
        }
        let is_served = denied.is_none() && hosts_denied.is_none();
        for (field, without) in differences {
            let is_told = is_served && !without.is_empty();
            let reason =
                if is_told { format!("not honoured yet: {without}") } else { "not honoured yet".into() };
            faults.push(Fault::new(Severity::Unsupported, field, reason));
        }
        let is_canary = backend.canary.is_some();
        let (of_hosts, tls_name, vhost) = (self.of_hosts, self.tls_name, self.vhost);
        let serving = Serving { is_canary, location, host, of_hosts, tls_name, vhost, denied, hosts_denied };
        let faults = bounded(faults, MOST_FAULTS);
        let affinity_mode = self.affinity_mode;
        Parsed { serving, backend, affinity_mode, refs, snippets: self.snippets, faults, behind: self.behind }
    }
}
