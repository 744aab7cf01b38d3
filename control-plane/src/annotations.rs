//! The annotations of an Ingress, parsed once, on arrival, into policies.
//!
//! Each annotation is a [`row::Row`] in the file of its feature; the row defines everything about it. To add one, add a
//! row, a field of a policy, and the behaviour in the data plane (CONTRIBUTING.md).
//!
//! An annotation that is not honoured yet is reported on its object. If ignoring it could do harm (access rules, TLS to a
//! backend, requests sent to another place), whatever depends on it answers 503.
//!
//! **Invariant:** nothing is dropped silently, except values that ask for what happens anyway.

pub(crate) mod access;
mod affinity;
pub(crate) mod auth;
pub(crate) mod balancing;
pub(crate) mod buffering;
mod canary;
mod ciphers;
mod client_certs;
pub(crate) mod client_tls;
pub(crate) mod clients;
pub(crate) mod compression;
mod cors;
mod dead;
pub mod draft;
pub(crate) mod errors;
mod fastcgi;
pub(crate) mod forwarding;
mod headers;
pub(crate) mod hosts;
pub(crate) mod limits;
pub(crate) mod log;
mod mirror;
pub(crate) mod redirect;
pub(crate) mod response_headers;
pub(crate) mod response_rewrite;
pub(crate) mod retries;
mod rewrite;
pub mod row;
pub(crate) mod snippets;
pub(crate) mod streams;
pub mod table;
pub(crate) mod timeouts;
pub(crate) mod tracing;
mod unknown;
pub(crate) mod upstream_keepalive;
mod upstream_tls;
pub mod value;
pub(crate) mod waf;

use std::collections::{BTreeMap, BTreeSet};

use shared::name::ObjectName;
use shared::policy::{BackendPolicy, HostPolicy, LocationPolicy};
use shared::resource::Denial;

use self::draft::Draft;
use self::row::{Apply, Bad, Empty, Row, Status};
use crate::objects::Texts;
use crate::problem::{Fault, Severity, bounded, shown};
use crate::reference::Reference;

pub(crate) use self::snippets::limits::fill_in as fill_in_limits;
pub(crate) use self::snippets::substitutions;
pub use self::snippets::{OfHosts, Zones};
#[cfg(test)]
pub(crate) use self::tests::companions;
#[cfg(test)]
pub(crate) use self::unknown::KEYS;
pub(crate) use self::unknown::nearest;

/// Prefix of ingress-nginx' annotations.
pub const PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// Limit of the faults that are kept for one object's annotations.
const MOST_FAULTS: usize = 64;

/// The path of an annotation's field, as problems name it.
pub fn field(name: &str) -> String {
    format!("metadata.annotations[{PREFIX}{}]", shown_name(name))
}

/// An annotation's name as it was written, without quotes.
pub(crate) fn shown_name(name: &str) -> String {
    let shown = shown(name);
    shown[1..shown.len() - 1].to_owned()
}

/// The parsed annotations of one Ingress.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Parsed {
    /// What hosts and their routes are compiled from.
    pub serving: Serving,
    /// Policy of the backends that this Ingress decides on.
    pub backend: BackendPolicy,
    /// The affinity mode, in effect if this or another Ingress enables session affinity (ingress-nginx).
    pub affinity_mode: Option<i32>,
    /// The objects that the annotations refer to, with the field that refers to each.
    pub refs: BTreeMap<Reference, String>,
    /// Fields of snippets that take effect only if the fleet allows snippets.
    pub snippets: Vec<String>,
    /// Problems to report to the owner. A [`Severity::Rejected`] one takes the whole Ingress out of service.
    pub faults: Vec<Fault>,
    /// The fields of rejecting ones that are read after a Secret, with the annotation that names it.
    pub behind: BTreeMap<String, &'static str>,
}

/// What hosts and their routes are compiled from.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Serving {
    /// A canary adds its backends to those of other Ingresses; it has no paths of its own.
    pub is_canary: bool,
    /// Policy of its paths.
    pub location: LocationPolicy,
    /// Policy of its hosts, unless an earlier Ingress sets the same.
    pub host: HostPolicy,
    /// What its server-snippet sets for all locations of its hosts.
    pub of_hosts: Option<OfHosts>,
    /// The name for TLS to the backends of its paths that its snippet says beside a Secret; empty: none.
    pub tls_name: String,
    /// The `Host` of requests to the backends of its paths that its snippet says; empty: none.
    pub vhost: String,
    /// Why its paths answer 503, if they do.
    pub denied: Option<Denial>,
    /// Why all paths of its hosts answer 503, if they do.
    pub hosts_denied: Option<Denial>,
}

/// Parses the annotations of the Ingress `object`.
pub fn read(object: &ObjectName, annotations: &Texts) -> Parsed {
    let mut faults = Vec::new();
    let mut known = Vec::new();
    for (key, text) in annotations {
        match key.strip_prefix(PREFIX) {
            Some(name) => match table::find(name) {
                Some(row) => known.push(Annotation { row, written: name, text }),
                None => faults.push(Fault::new(Severity::Warning, field(name), unknown(name))),
            },
            None => faults.extend(unknown::foreign(key).map(|reason| {
                Fault::new(Severity::Warning, format!("metadata.annotations[{}]", shown_name(key)), reason)
            })),
        }
    }
    let mut draft = Draft::new(object, &known);
    draft.faults = faults;
    let effects = understood(&mut draft, &known);
    let dropped: BTreeSet<_> =
        effects.iter().filter(|(_, apply)| apply.is_none()).map(|(it, _)| it.row.group).collect();
    for (it, apply) in effects {
        if let Some(apply) = apply.filter(|_| it.row.group.is_empty() || !dropped.contains(it.row.group)) {
            draft.turn_to(it.row, it.written);
            apply(&mut draft);
        }
    }
    draft.finish()
}

/// Parses a fleet-wide default value, by the row of the annotation that it is the default of.
pub fn default(row: &'static Row, written: &str, text: &str) -> Parsed {
    // There is no object, hence no namespace that references could be in.
    let object = ObjectName::new("", "");
    let mut draft = Draft::new(&object, &[]);
    draft.turn_to(row, written);
    match row.value.read(text) {
        Some(apply) => apply(&mut draft),
        None => draft.bad(text),
    }
    draft.finish()
}

/// An annotation of an object, as written.
#[derive(Clone, Copy)]
struct Annotation<'a> {
    row: &'static Row,
    written: &'a str,
    text: &'a str,
}

/// Decides what to do with each value; `None`: the value drops its group. All else is reported.
fn understood<'a>(
    draft: &mut Draft<'a>,
    annotations: &[Annotation<'a>],
) -> Vec<(Annotation<'a>, Option<Apply>)> {
    let is_canary = draft.is_on("canary");
    let mut effects = Vec::new();
    for it in annotations {
        let Annotation { row, written, text } = *it;
        draft.turn_to(row, written);
        let is_empty = text.trim().is_empty();
        let is_alias = row.alias == Some(written);
        if is_alias && draft.is_written(row.name) {
            draft.fault(Severity::Warning, format!("has no effect beside {}", row.name));
        } else if row.value.status() == Status::Dead && row.bad != Bad::Reject {
            draft.dead();
        } else if has_control_characters(row, text) {
            draft.bad_lines(text);
        } else if (is_canary || row.checked_alone)
            && row.bad == Bad::Reject
            && !is_empty
            && row.value.read(text).is_none()
        {
            // ingress-nginx parses every annotation before it knows which ones a canary ignores.
            draft.bad(text);
        } else if is_canary && !row.on_canary {
            draft.fault(Severity::Warning, "has no effect on a canary: the main Ingress decides");
        } else if let Some(needed) = row.needs.filter(|needed| !draft.is_on(needed)) {
            draft.fault(Severity::Warning, format!("has no effect without the annotation {needed}"));
        } else if text.is_empty() && !is_alias && row.alias.is_some_and(|alias| draft.is_written(alias)) {
            // The alias is read instead.
        } else if is_empty && row.empty == Empty::DropsGroup {
            let mut others =
                annotations.iter().filter(|it| it.row.group == row.group && it.row.name != row.name);
            if others.any(|other| !other.text.trim().is_empty())
                && row.unread_beside.is_none_or(|other| !draft.is_written(other))
            {
                let what =
                    format!("is empty: all annotations of {} are ignored, as in ingress-nginx", row.group);
                draft.fault(Severity::Warning, what);
                effects.push((*it, None));
            }
        } else if is_empty && (row.empty == Empty::NotSaid || is_alias) {
        } else if let Some(apply) = row.value.read(text).filter(|_| !is_empty || row.empty == Empty::Read) {
            effects.push((*it, Some(apply)));
        } else {
            draft.bad(text);
            if row.bad == Bad::DropGroup {
                effects.push((*it, None));
            }
        }
    }
    effects
}

/// Snippets and long lists of addresses have several lines. A trailing line break is harmless: YAML blocks end with
/// one.
fn has_control_characters(row: &Row, text: &str) -> bool {
    let text = text.strip_suffix('\n').unwrap_or(text);
    row.value.status() != Status::Snippet
        && row.name != "modsecurity-snippet"
        && text.chars().any(|c| c.is_control() && !(row.lines && c == '\n'))
}

fn unknown(name: &str) -> String {
    match unknown::hint(name) {
        Some(hint) => format!("unknown annotation, it has no effect: {hint}"),
        None => "unknown annotation, it has no effect".into(),
    }
}

#[cfg(test)]
mod tests;
