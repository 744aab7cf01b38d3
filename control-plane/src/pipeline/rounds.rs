//! A barrier whose rounds come through the pipeline.

use crate::barrier::Barrier;
use crate::event::Inputs;

/// The end of a round: its number, and whether all lists could be read.
type End = (u64, bool);

/// A barrier, and how far its rounds have come.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    barrier: Barrier,
    /// What arrived last on each channel.
    arrived: [Option<End>; Inputs::WAYS],
    /// What the barrier was told last.
    told: Option<End>,
}

impl Rounds {
    /// The rounds of a barrier.
    pub(super) fn of(barrier: Barrier) -> Self {
        Self { barrier, ..Self::default() }
    }

    /// The end of a round has arrived on one channel.
    pub(super) fn arrived(&mut self, way: usize, end: End) {
        if let Some(arrived) = self.arrived.get_mut(way) {
            *arrived = Some(end);
        }
    }

    /// Whether it has arrived on all channels, and was not passed yet.
    pub(super) fn have_arrived(&self) -> bool {
        self.over().is_some()
    }

    fn over(&self) -> Option<End> {
        let [first, ..] = self.arrived;
        first.filter(|_| self.arrived.iter().all(|arrived| *arrived == first) && self.told != first)
    }

    /// Tells the barrier that the results are offered.
    pub(super) fn pass(&mut self) {
        let Some((round, is_whole)) = self.over() else { return };
        self.told = Some((round, is_whole));
        match is_whole {
            true => self.barrier.pass(round),
            false => self.barrier.pass_partly(round),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Endpoints overtake what else is waiting.
    #[test]
    fn a_round_is_over_when_its_end_came_on_both_ways_whatever_came_earlier_on_one() {
        let barrier = Barrier::default();
        let round = barrier.ask(None);
        barrier.begin_now();
        let mut rounds = Rounds::of(barrier.clone());
        rounds.arrived(0, (round, false));
        rounds.arrived(0, (round, true));
        rounds.arrived(1, (round, false));
        assert!(!rounds.have_arrived(), "what it is waiting for was not listed at that time");
        rounds.arrived(1, (round, true));
        rounds.pass();
        assert!(barrier.has_passed(round) && !rounds.have_arrived());
    }
}
