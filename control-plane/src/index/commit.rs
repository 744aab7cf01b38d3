//! The contents of a commit of the index.

use std::sync::Arc;

use shared::delta::Delta;

use crate::event::{HoldRequest, PinChange};
use crate::objects::ObjectRef;
use crate::origin::Origin;
use crate::pin::Pin;
use crate::placement::Report;

/// What the events since the last commit changed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Commit {
    /// Changes of the CONFIG lane, by key.
    pub config: Delta,
    /// Changes of the LIVE lane, by key.
    pub live: Delta,
    /// One line for people: `Ingress default/web: canary-weight 10 -> 50`. Empty if neither lane changed.
    pub cause: String,
    /// The object that it names first.
    pub origin: Origin,
    /// Report for the placement of objects, by object.
    pub reports: Vec<(ObjectRef, Report)>,
    /// The pin that is in force.
    pub pin: Option<Arc<Pin>>,
    /// The revision of the stored pin, whether it is readable and in force or not.
    pub on_record: Option<Arc<str>>,
    /// A damaged pin record to write again. Reported once.
    pub mend: Option<PinChange>,
    /// Holds to be stored or deleted. Each is reported once: see [`Event::Held`].
    pub holds: Vec<HoldRequest>,
    /// Whether [`Index::problems`] changed.
    pub problems_changed: bool,
    /// Whether [`Index::wants`] changed.
    pub wants_changed: bool,
    /// Resources that were compiled, changed or not: the cost of the commit.
    pub compiled: usize,
    /// Rules, paths, claims and endpoints that were examined for it.
    pub looked_at: usize,
}
