//! From objects to resources: pure functions, one for each thing that is compiled.
//!
//! An Ingress becomes a [`claim::Claim`] on its own; who wins is settled host by host ([`host`]); what a Service port,
//! a slice, a Secret or the ConfigMap gives is compiled where it is needed. The index says what is needed and when.
//!
//! **Invariant:** the same input gives the same bytes. No clock, randomness, file, lock or memory of earlier input.
//! What is wrong with an object is a value ([`Fault`]), never an error of ours.

pub mod backend;
pub mod certificate;
pub mod claim;
pub mod endpoints;
pub mod host;
pub mod rejection;
pub mod settings;

use crate::problem::Severity;

/// What is wrong with a field of an object: a [`Problem`](crate::problem::Problem) without the object.
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
