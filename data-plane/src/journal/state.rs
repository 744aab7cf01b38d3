//! The stored state: all resources of the proxy, its position on each lane, and which proxy it belongs to.

use std::sync::Arc;

use shared::kind::Lane;
use shared::snapshot::Snapshot;
use shared::version::{Lineage, Seq, Source};

use crate::table::Writer;

/// Identifies the owner of a state: what a proxy knows about a control plane before it connects, and what it learns
/// from it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Binding {
    /// The source that the control plane reads; `None` if unknown.
    pub(crate) source: Option<Source>,
    /// The fleet.
    pub(crate) group: String,
    /// Digests of what identifies the control plane: its authority's roots, or its address if it has none.
    pub(crate) known: Vec<[u8; 32]>,
}

/// One lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredLane {
    /// The resources.
    pub(crate) has: Snapshot,
    /// Position in the log of a control plane.
    pub(crate) position: Option<(Lineage, Seq)>,
}

/// The complete state at one moment. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredState {
    pub(crate) binding: Arc<Binding>,
    pub(crate) config: StoredLane,
    pub(crate) live: StoredLane,
}

impl StoredLane {
    /// What a process needs of a lane to serve what this one serves, which is at this position of a log.
    ///
    /// What LIVE has lost belongs to it as long as it is served: the CONFIG that does not refer to it any more may never
    /// come. With it, LIVE is no state of a log, and a process that starts asks for the difference.
    pub(crate) fn of(writer: &Writer, lane: Lane, position: (Lineage, Seq)) -> Self {
        let mut stored = Self { has: writer.has(lane).clone(), position: Some(position) };
        if lane == Lane::Live && writer.lingering().len() > 0 {
            stored.has.extend(writer.lingering().cloned());
            stored.position = None;
        }
        stored
    }
}

impl StoredState {
    /// The state of a lane.
    pub(crate) fn lane(&self, lane: Lane) -> &StoredLane {
        match lane {
            Lane::Config => &self.config,
            Lane::Live => &self.live,
        }
    }

    pub(super) fn lane_mut(&mut self, lane: Lane) -> &mut StoredLane {
        match lane {
            Lane::Config => &mut self.config,
            Lane::Live => &mut self.live,
        }
    }
}

impl Binding {
    /// Whether a state written under `self` may be served by a proxy with the binding `here`: of the same fleet, from
    /// a control plane with a common identity.
    pub(super) fn is_of(&self, here: &Self) -> bool {
        self.group == here.group && self.known.iter().any(|known| here.known.contains(known))
    }

    /// Whether the other one is known to have another source.
    pub(super) fn differs(&self, other: &Self) -> bool {
        self.group != other.group || self.source.zip(other.source).is_some_and(|(one, other)| one != other)
    }
}
