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

/// One thing that the owner of an object should know.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// Which object.
    pub object: ObjectRef,
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
pub type Problems = OrdMap<ObjectRef, Arc<[Problem]>>;
