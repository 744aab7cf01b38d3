//! The annotations of an Ingress, read once into types. Written by no one else, read by compile alone.
//!
//! What is not honoured yet is reported on its object. Where it restricts access the paths that it would guard are
//! denied, so that nothing protected is served by accident (section 4 of the design).
//!
//! **Invariant:** nothing is dropped in silence but a value that asks for what happens anyway.

mod canary;
pub mod table;
pub mod value;

use std::collections::BTreeMap;

use shared::name::ObjectName;
use shared::resource::{Canary, Denial};

use self::table::{READ_ON_CANARIES, Restriction, Status};
use crate::problem::{Fault, Severity};

/// What the names of ingress-nginx' annotations begin with.
pub const PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// Path of an annotation's field, for problems.
pub fn field(name: &str) -> String {
    format!("metadata.annotations[{PREFIX}{name}]")
}

/// What the annotations of one Ingress ask for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Read {
    /// Set on a canary: which requests it takes.
    pub canary: Option<Canary>,
    /// `ssl-redirect`, where it is said.
    pub ssl_redirect: Option<bool>,
    /// `force-ssl-redirect`, where it is said.
    pub force_ssl_redirect: Option<bool>,
    /// `enable-global-auth`, where it is said.
    pub global_auth: Option<bool>,
    /// Why the paths of this Ingress answer 503, if they do.
    pub denied: Option<Denial>,
    /// Why all paths of its hosts answer 503, if they do.
    pub hosts_denied: Option<Denial>,
    /// What its owner should know.
    pub faults: Vec<Fault>,
}

/// Reads the annotations of the Ingress `name`.
pub fn read(name: &ObjectName, annotations: &BTreeMap<String, String>) -> Read {
    let mut read = Read::default();
    let ours =
        || annotations.iter().filter_map(|(key, text)| Some((key.strip_prefix(PREFIX)?, text.as_str())));
    if read.boolean(ours(), "canary") == Some(true) {
        read.canary = Some(canary::read(annotations, &mut read.faults));
    } else {
        read.ssl_redirect = read.boolean(ours(), "ssl-redirect");
        read.force_ssl_redirect = read.boolean(ours(), "force-ssl-redirect");
        read.global_auth = read.boolean(ours(), "enable-global-auth");
    }
    for (key, text) in ours() {
        read.judge(name, key, text);
    }
    read
}

impl Read {
    fn fault(&mut self, severity: Severity, key: &str, reason: impl Into<String>) {
        self.faults.push(Fault::new(severity, field(key), reason));
    }

    /// A value that is no boolean counts as not said (outcome F of annotations.md 1.4).
    fn boolean<'a>(&mut self, mut all: impl Iterator<Item = (&'a str, &'a str)>, name: &str) -> Option<bool> {
        let (_, text) = all.find(|(key, _)| *key == name)?;
        let read = value::boolean(text);
        if read.is_none() {
            self.fault(Severity::Warning, name, format!("expected true or false, got {text:?}: not used"));
        }
        read
    }

    fn judge(&mut self, name: &ObjectName, key: &str, text: &str) {
        let Some(status) = Status::of(key) else {
            return self.fault(Severity::Warning, key, "unknown annotation, it has no effect");
        };
        let canary = self.canary.is_some();
        match status {
            Status::Dead => {
                self.fault(Severity::Warning, key, "has no effect, in ingress-nginx neither: remove it")
            }
            Status::Honoured => match (is_canarys(key), canary) {
                (true, false) if key != "canary" => self.fault(
                    Severity::Warning,
                    key,
                    "has no effect without the annotation canary: \"true\"",
                ),
                (false, true) => self.ignored_on_a_canary(key),
                _ => {}
            },
            Status::Unsupported { default } if asks_for(text, default) => {}
            Status::Unsupported { .. } if canary && !READ_ON_CANARIES.contains(&key) => {
                self.ignored_on_a_canary(key);
            }
            Status::Unsupported { .. } => {
                self.fault(Severity::Unsupported, key, "not honoured yet, served without it");
            }
            Status::Snippet => self.fault(
                Severity::Unsupported,
                key,
                "raw nginx configuration is never honoured, served without it",
            ),
            Status::Restricts(_) if canary => self.ignored_on_a_canary(key),
            Status::Restricts(restriction) if restriction.applies(text) => self.deny(name, key, restriction),
            Status::Restricts(_) => {}
        }
    }

    fn ignored_on_a_canary(&mut self, key: &str) {
        self.fault(Severity::Warning, key, "has no effect on a canary: the main Ingress decides");
    }

    /// The first restriction gives the reason; annotations are in ascending order.
    fn deny(&mut self, name: &ObjectName, key: &str, restriction: Restriction) {
        let (slot, what) = match restriction {
            Restriction::Host => (&mut self.hosts_denied, "all paths of its hosts answer 503"),
            _ => (&mut self.denied, "all paths of this Ingress answer 503"),
        };
        slot.get_or_insert_with(|| Denial {
            reason: format!("Ingress {name}: {PREFIX}{key} is not enforced yet"),
        });
        self.fault(Severity::Unsupported, key, format!("not enforced yet: until it is, {what}"));
    }
}

fn is_canarys(key: &str) -> bool {
    key == "canary" || key.starts_with("canary-")
}

/// Whether a value asks for what happens anyway.
fn asks_for(text: &str, default: &str) -> bool {
    text.trim().is_empty()
        || text == default
        || value::boolean(text).is_some_and(|said| value::boolean(default) == Some(said) && default.len() > 1)
}

#[cfg(test)]
mod tests;
