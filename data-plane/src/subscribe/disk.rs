//! The subscription's use of the journal: the state it starts from, and the state it hands over to be stored.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use shared::kind::Lane;

use super::View;
use super::session::{Places, Session};
use crate::journal::{Binding, Journal, Loaded, Missing, StoredLane, StoredState};
use crate::table::Writer;

/// How often the identity of the control plane is looked up again: its authority may be replaced.
const LOOK: Duration = Duration::from_secs(60);
/// How long a proxy without some of its keys waits for the control plane before it serves what it has.
const WITHOUT_KEYS: Duration = Duration::from_secs(3);

/// A state that was on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FromDisk {
    /// When it was written.
    pub(crate) written: SystemTime,
    /// What is missing in it.
    pub(crate) missing: Missing,
}

/// When a starting proxy begins to accept connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// Immediately: everything was on disk.
    Now,
    /// After a delay: something is missing, but no other proxy is on this node.
    After(Duration),
    /// With the control plane: there is nothing to serve, or another process on this node has more.
    WhenComplete,
}

/// What was handed to the journal last: the positions, what was served besides, and whose it is.
#[derive(PartialEq, Debug)]
struct Kept {
    places: Places,
    /// Number of resources that the proxy served and did not have any more: it decreases at the same positions.
    lingering: usize,
    binding: Arc<Binding>,
}

/// The journal, if there is one, and the state it began with.
#[derive(Debug, Default)]
pub(super) struct Disk {
    journal: Option<Journal>,
    start: Option<Arc<FromDisk>>,
    alone: bool,
    binding: Option<(Arc<Binding>, Instant)>,
    kept: Option<Kept>,
}

impl Disk {
    /// With a journal, and what was loaded from it apart from the tables.
    pub(super) fn new(journal: Journal, loaded: Option<&Loaded>) -> Self {
        let start = loaded
            .map(|loaded| Arc::new(FromDisk { written: loaded.written, missing: loaded.missing.clone() }));
        let alone = loaded.is_some_and(|loaded| loaded.alone);
        Self { journal: Some(journal), start, alone, ..Self::default() }
    }

    /// The loaded state.
    pub(super) fn start(&self) -> Option<&Arc<FromDisk>> {
        self.start.as_ref()
    }

    /// When to accept connections.
    pub(super) fn opening(&self) -> Opening {
        match &self.start {
            Some(start) if start.missing.is_nothing() => Opening::Now,
            Some(_) if self.alone => Opening::After(WITHOUT_KEYS),
            _ => Opening::WhenComplete,
        }
    }

    /// Hands the current state to the journal, if a proxy can start from it and it has changed.
    pub(super) fn keep(
        &mut self,
        session: &Session,
        writer: &Writer,
        now: Instant,
        known: impl FnOnce() -> Binding,
    ) {
        let (Some(journal), Some(places)) = (&self.journal, session.places()) else { return };
        if !session.is_welcome() {
            return;
        }
        let binding = match &self.binding {
            Some((binding, since)) if now < *since + LOOK && binding.source == session.source() => {
                Arc::clone(binding)
            }
            _ => {
                let binding = Arc::new(Binding { source: session.source(), ..known() });
                self.binding = Some((Arc::clone(&binding), now));
                binding
            }
        };
        let kept = Kept { places, lingering: writer.lingering().len(), binding: Arc::clone(&binding) };
        if self.kept.as_ref() == Some(&kept) {
            return;
        }
        journal.keep(StoredState {
            binding,
            config: StoredLane::of(writer, Lane::Config, places.config),
            live: StoredLane::of(writer, Lane::Live, places.live),
        });
        self.kept = Some(kept);
    }
}

impl View {
    /// The state from disk, as long as that is what is served.
    pub(crate) fn remembered(&self) -> Option<&FromDisk> {
        self.kept.as_deref()
    }
}

#[cfg(test)]
mod tests;
