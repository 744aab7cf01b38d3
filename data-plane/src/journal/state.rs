//! What is kept: everything that the proxy has, where it is on each lane, and whose state that is.

use std::sync::Arc;

use shared::kind::Lane;
use shared::snapshot::Snapshot;
use shared::version::{Lineage, Seq, Source};

/// Whose state it is: what a proxy knows of a control plane before it has heard of it, and what it hears.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Binding {
    /// What the control plane reads; `None` where it does not say, or has not been heard.
    pub(crate) source: Option<Source>,
    /// The fleet.
    pub(crate) group: String,
    /// Digests of what the control plane is known by: its authority's roots, or its address where it has none.
    pub(crate) known: Vec<[u8; 32]>,
}

/// A lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// What the proxy has.
    pub(crate) has: Snapshot,
    /// Place in the log of a control plane.
    pub(crate) position: Option<(Lineage, Seq)>,
}

/// Everything, at one moment. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) binding: Arc<Binding>,
    pub(crate) config: Kept,
    pub(crate) live: Kept,
}

impl State {
    /// Of a lane.
    pub(crate) fn lane(&self, lane: Lane) -> &Kept {
        match lane {
            Lane::Config => &self.config,
            Lane::Live => &self.live,
        }
    }

    pub(super) fn lane_mut(&mut self, lane: Lane) -> &mut Kept {
        match lane {
            Lane::Config => &mut self.config,
            Lane::Live => &mut self.live,
        }
    }
}

impl Binding {
    /// Whether what was written under `self` may be served by who knows this much: of the same fleet, from a control
    /// plane that is known by the same.
    pub(super) fn is_of(&self, here: &Self) -> bool {
        self.group == here.group && self.known.iter().any(|known| here.known.contains(known))
    }

    /// Whether the other one is known to read something else.
    pub(super) fn differs(&self, other: &Self) -> bool {
        self.group != other.group || self.source.zip(other.source).is_some_and(|(one, other)| one != other)
    }
}
