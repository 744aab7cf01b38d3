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
pub(crate) mod answers;
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
mod hosts;
pub(crate) mod kept;
pub(crate) mod limits;
pub(crate) mod log;
mod mirror;
pub(crate) mod redirect;
pub(crate) mod retries;
pub(crate) mod returned;
mod rewrite;
pub mod row;
pub(crate) mod snippets;
pub(crate) mod streams;
pub mod table;
pub(crate) mod timeouts;
pub(crate) mod tracing;
mod unknown;
mod upstream_tls;
pub mod value;
pub(crate) mod waf;

use std::collections::{BTreeMap, BTreeSet};

use shared::name::ObjectName;
use shared::policy::{BackendPolicy, HostPolicy, LocationPolicy};
use shared::resource::Denial;

use self::draft::Draft;
use self::row::{Bad, Empty, Row, Saying, Status};
use crate::problem::{Fault, Severity, bounded, shown};
use crate::reference::Reference;

pub use self::snippets::OfHosts;
#[cfg(test)]
pub(crate) use self::unknown::KEYS;

/// What the names of ingress-nginx' annotations begin with.
pub const PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// How many faults of annotations are kept: an owner who sees so many has seen enough.
const MOST_FAULTS: usize = 64;

/// Path of an annotation's field, for problems.
pub fn field(name: &str) -> String {
    format!("metadata.annotations[{PREFIX}{}]", shown_name(name))
}

/// A name as it was written, without quotes.
pub(crate) fn shown_name(name: &str) -> String {
    let shown = shown(name);
    shown[1..shown.len() - 1].to_owned()
}

/// What the annotations of one Ingress ask for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Parsed {
    /// What hosts and their routes are compiled from.
    pub serving: Serving,
    /// What the backends are compiled from that it decides on.
    pub backend: BackendPolicy,
    /// How clients stay with an endpoint, where this Ingress or another one asks that they do (annotations.md 2.5).
    pub affinity_mode: Option<i32>,
    /// The objects that it refers to, and the field that does.
    pub refs: BTreeMap<Reference, String>,
    /// Fields of snippets that act where the fleet allows them.
    pub snippets: Vec<String>,
    /// What its owner should know. One that is [`Severity::Rejected`] takes the Ingress out of service as a whole.
    pub faults: Vec<Fault>,
}

/// What hosts and their routes are compiled from.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Serving {
    /// Its backends stand beside those of others, it has no paths.
    pub is_canary: bool,
    /// Of its paths.
    pub location: LocationPolicy,
    /// Of its hosts, where nobody before it says as much.
    pub host: HostPolicy,
    /// What its server-snippet says of the answers of its hosts.
    pub of_hosts: Option<OfHosts>,
    /// Why its paths answer 503, if they do.
    pub denied: Option<Denial>,
    /// Why all paths of its hosts answer 503, if they do.
    pub hosts_denied: Option<Denial>,
}

/// Reads the annotations of the Ingress `object`.
pub fn read(object: &ObjectName, annotations: &BTreeMap<String, String>) -> Parsed {
    let mut faults = Vec::new();
    let mut said = Vec::new();
    for (key, text) in annotations {
        match key.strip_prefix(PREFIX) {
            Some(name) => match table::find(name) {
                Some(row) => said.push(Said { row, written: name, text }),
                None => faults.push(Fault::new(Severity::Warning, field(name), unknown(name))),
            },
            None => faults.extend(unknown::foreign(key).map(|reason| {
                Fault::new(Severity::Warning, format!("metadata.annotations[{}]", shown_name(key)), reason)
            })),
        }
    }
    let mut draft = Draft::new(object, &said);
    draft.faults = faults;
    let sayings = understood(&mut draft, &said);
    let dropped: BTreeSet<_> =
        sayings.iter().filter(|(_, saying)| saying.is_none()).map(|(it, _)| it.row.group).collect();
    for (it, saying) in sayings {
        if let Some(saying) = saying.filter(|_| it.row.group.is_empty() || !dropped.contains(it.row.group)) {
            draft.turn_to(it.row, it.written);
            saying(&mut draft);
        }
    }
    draft.finish()
}

/// Reads a value that is said for the whole fleet, by the row of the annotation of which it is the default.
pub fn default(row: &'static Row, written: &str, text: &str) -> Parsed {
    // No object of its own: what it may refer to is in no namespace.
    let object = ObjectName::new("", "");
    let mut draft = Draft::new(&object, &[]);
    draft.turn_to(row, written);
    match row.value.read(text) {
        Some(saying) => saying(&mut draft),
        None => draft.bad(text),
    }
    draft.finish()
}

/// An annotation as it stands on its object.
#[derive(Clone, Copy)]
struct Said<'a> {
    row: &'static Row,
    written: &'a str,
    text: &'a str,
}

/// What is to be done with each value; `None`: it drops its group. The rest is reported.
fn understood<'a>(draft: &mut Draft<'a>, said: &[Said<'a>]) -> Vec<(Said<'a>, Option<Saying>)> {
    let is_canary = draft.is_on("canary");
    let mut sayings = Vec::new();
    for it in said {
        let Said { row, written, text } = *it;
        draft.turn_to(row, written);
        let is_empty = text.trim().is_empty();
        let is_alias = row.alias == Some(written);
        if is_alias && draft.is_written(row.name) {
            draft.fault(Severity::Warning, format!("has no effect beside {}", row.name));
        } else if row.value.status() == Status::Dead && row.bad != Bad::Reject {
            draft.dead();
        } else if has_control_characters(row, text) {
            draft.fault(Severity::Rejected, format!("expected a single line, got {}", shown(text)));
        } else if is_canary && row.bad == Bad::Reject && !is_empty && row.value.read(text).is_none() {
            // Every annotation is read before the original knows what a canary leaves out.
            draft.bad(text);
        } else if is_canary && !row.on_canary {
            draft.fault(Severity::Warning, "has no effect on a canary: the main Ingress decides");
        } else if let Some(needed) = row.needs.filter(|needed| !draft.is_on(needed)) {
            draft.fault(Severity::Warning, format!("has no effect without the annotation {needed}"));
        } else if text.is_empty() && !is_alias && row.alias.is_some_and(|alias| draft.is_written(alias)) {
            // The other name is read in its place.
        } else if is_empty && (row.empty == Empty::NotSaid || is_alias) {
        } else if let Some(saying) = row.value.read(text).filter(|_| !is_empty) {
            sayings.push((*it, Some(saying)));
        } else {
            draft.bad(text);
            if row.bad == Bad::DropGroup {
                sayings.push((*it, None));
            }
        }
    }
    sayings
}

/// Text of several lines is what snippets are made of, and long lists of addresses. The line break that a YAML block ends
/// with is no attack.
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
