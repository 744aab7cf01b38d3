//! A batch in flight.

use std::sync::Arc;
use std::time::Instant;

use shared::version::{Root, Seq};

use crate::store::{Chunks, Frame, LaneState};

/// Kinds of batches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// One commit, from the frames that all streams share.
    Commit,
    /// Several commits merged, each key at its newest version.
    Coalesced,
    /// The differences that an inventory showed.
    Inventory,
    /// Everything.
    Full,
}

impl Mode {
    /// Label of the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Coalesced => "coalesced",
            Self::Inventory => "inventory",
            Self::Full => "full",
        }
    }
}

/// The source of a batch's chunks.
#[derive(Debug)]
pub(super) enum Source {
    /// Encoded once for all streams.
    Shared(Arc<[Frame]>),
    /// Encoded as they are sent.
    Lazy(Box<Chunks>),
}

/// A batch in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) to: Seq,
    pub(super) root: Root,
    /// Number of resources in the state that it leads to.
    pub(super) count: usize,
    pub(super) mode: Mode,
    pub(super) committed: Instant,
    pub(super) source: Source,
    pub(super) sent: usize,
    pub(super) answered: usize,
    pub(super) complete: bool,
}

impl Flight {
    /// A batch that leads to `state`.
    pub(super) fn new(state: &LaneState, mode: Mode, source: Source) -> Self {
        Self {
            to: state.seq,
            root: state.root,
            count: state.snapshot.len(),
            mode,
            committed: state.committed,
            source,
            sent: 0,
            answered: 0,
            complete: false,
        }
    }

    /// The next chunk; afterwards `complete` says whether it was the last.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let frame = match &mut self.source {
            Source::Shared(frames) => frames.get(self.sent).cloned(),
            Source::Lazy(chunks) => chunks.next(),
        }?;
        self.sent += 1;
        self.complete = match &self.source {
            Source::Shared(frames) => self.sent == frames.len(),
            Source::Lazy(chunks) => chunks.is_over(),
        };
        Some(frame)
    }
}
