//! What is wrong with objects, as values: bad configuration of a user is never an error of ours.

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;

use crate::objects::ObjectRef;

/// How bad a problem is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// This version of the object is not served; its last good one stays, if there is one.
    Rejected,
    /// Something that it asks for is not honoured by this build.
    Unsupported,
    /// Another object was there first.
    Overridden,
    /// Served, but probably not as meant.
    Warning,
}

impl Severity {
    /// Lower-case name, also the label of the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Unsupported => "unsupported",
            Self::Overridden => "overridden",
            Self::Warning => "warning",
        }
    }
}

/// What is wrong with a field of an object: a [`Problem`] without the object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fault {
    /// How bad it is.
    pub severity: Severity,
    /// Path of the field. Empty: the object as a whole.
    pub field: String,
    /// One sentence: lower case, no full stop, what was expected and what came. Never a secret value.
    pub reason: String,
}

impl Fault {
    /// A fault of a field.
    pub fn new(severity: Severity, field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { severity, field: field.into(), reason: reason.into() }
    }
}

/// What a problem is about.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// An object.
    Object(ObjectRef),
    /// A file of a folder, by its path in there, of which nobody can tell what objects it should have.
    File(Arc<str>),
}

impl From<ObjectRef> for Subject {
    fn from(object: ObjectRef) -> Self {
        Self::Object(object)
    }
}

/// `Ingress default/web`, `file web.yaml`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => object.fmt(f),
            Self::File(path) => write!(f, "file {}", path.escape_debug()),
        }
    }
}

/// One thing that the owner of an object should know.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// What it is about.
    pub object: Subject,
    /// Path of the field: `metadata.annotations[nginx.ingress.kubernetes.io/auth-url]`. Empty: the object as a whole.
    pub field: String,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence: lower case, no full stop, what was expected and what came. Never a secret value.
    pub reason: String,
    /// `file:line` in a folder of manifests, else empty.
    pub location: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, severity, reason, location } = self;
        write!(f, "{object}")?;
        if !field.is_empty() {
            write!(f, ", {field}")?;
        }
        write!(f, ": {} ({})", reason, severity.as_str())?;
        if location.is_empty() { Ok(()) } else { write!(f, " [{location}]") }
    }
}

/// What is wrong with objects. A clone is cheap.
pub type Problems = OrdMap<Subject, Arc<[Problem]>>;

/// How many characters of a tenant's text are shown.
const SHOWN: usize = 120;

/// A tenant's text in quotes: on one line, and short whatever it holds.
pub fn shown(text: &str) -> String {
    let end = text.char_indices().nth(SHOWN).map(|(end, _)| end);
    match end {
        None => format!("{text:?}"),
        Some(end) => format!("{:?}.. ({} bytes)", &text[..end], text.len()),
    }
}

/// At most so many faults, the worst ones; how many are left out is said.
pub fn bounded(mut faults: Vec<Fault>, most: usize) -> Vec<Fault> {
    if faults.len() > most {
        faults.sort_by_key(|fault| fault.severity);
        let kept = most.saturating_sub(1);
        let reason = format!("{} more like these are not listed", faults.len() - kept);
        let severity = faults[kept].severity;
        faults.truncate(kept);
        faults.push(Fault::new(severity, "", reason));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_text_is_short_and_on_one_line() {
        assert_eq!(shown("a\nb\u{1b}[31m\u{202e}"), r#""a\nb\u{1b}[31m\u{202e}""#);
        let long = "\n".repeat(1 << 20);
        assert!(shown(&long).len() < 300);
        assert!(shown(&long).ends_with(".. (1048576 bytes)"));
        assert!(shown(&"\u{202e}".repeat(1 << 10)).len() < 1200);
    }

    #[test]
    fn the_worst_faults_are_kept() {
        let fault = |i: usize| {
            let severity = if i == 99 { Severity::Rejected } else { Severity::Warning };
            Fault::new(severity, i.to_string(), "")
        };
        let faults = bounded((0..100).map(fault).collect(), 10);
        assert_eq!(faults.len(), 10);
        assert_eq!(faults[0].field, "99");
        assert_eq!(faults[9].reason, "91 more like these are not listed");
        assert_eq!(bounded((0..10).map(fault).collect(), 10).len(), 10);
    }
}
