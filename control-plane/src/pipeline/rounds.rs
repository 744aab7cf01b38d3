//! A barrier whose rounds come through the pipeline.

use crate::barrier::Barrier;
use crate::event::Inputs;

/// A barrier, and how far its newest round has come.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    barrier: Barrier,
    newest: u64,
    /// On how many channels its end has arrived; those of earlier rounds do not count.
    ways: usize,
}

impl Rounds {
    /// The rounds of a barrier.
    pub(super) fn of(barrier: Barrier) -> Self {
        Self { barrier, ..Self::default() }
    }

    /// The end of a round has arrived on one channel.
    pub(super) fn arrived(&mut self, round: u64) {
        self.ways = if self.newest == round { self.ways + 1 } else { 1 };
        self.newest = round;
    }

    /// Whether it has arrived on all channels, and was not passed yet.
    pub(super) fn have_arrived(&self) -> bool {
        self.ways == Inputs::WAYS
    }

    /// Tells the barrier that the results are offered.
    pub(super) fn pass(&mut self) {
        self.barrier.pass(self.newest);
        self.ways = 0;
    }
}
