//! What only the long run has: operators, who pin versions, and proxies that keep their state; and that none of them goes
//! back in time.

use super::pins::Told;
use super::*;

/// How many versions back an operator rolls back at most.
const BACK: usize = 4;

impl World {
    pub(super) fn whole(seed: u64) -> Self {
        let mut world = Self { is_whole: true, ..Self::with_fleet(seed) };
        world.lives = 0;
        world.nodes = (0..NODES).map(|_| world.begin()).collect();
        world
    }

    pub(super) fn step_of_whole(&mut self, at: usize, who: usize) {
        match self.rng.u8(..20) {
            0..=2 => self.edit(),
            3..=9 => self.members[who].store(),
            10..=13 => self.members[who].restart_from_disk(&mut self.nodes, self.now),
            14..=17 => self.operate(at),
            _ => {
                // Up to the part, the manifest, or the end of what is written.
                for _ in 0..self.rng.u8(1..4) {
                    self.nodes[at].store_pin(&mut self.cluster);
                }
            }
        }
    }

    /// An operator decides something at a replica.
    fn operate(&mut self, at: usize) {
        let number = self.cluster.count();
        let node = &mut self.nodes[at];
        let told = match self.rng.u8(..4) {
            0 => node.replica.pin(0, number).map(|record| Told::Pin(Box::new(record))),
            1 => {
                let back = self.rng.usize(1..=BACK);
                node.replica.pin(back, number).map(|record| Told::Pin(Box::new(record)))
            }
            _ => node.replica.pin_on_record().map(Told::Unpin),
        };
        told.into_iter().for_each(|told| node.tell(told));
    }

    /// Once all is settled, all offer the pinned version.
    pub(super) fn check_pin(&self) {
        let version = self.nodes.last().and_then(|node| node.replica.pinned());
        assert_eq!(version.is_some(), self.cluster.pin_revision().is_some(), "what is pinned is in force");
        for node in &self.nodes {
            assert_eq!(node.replica.pinned(), version, "all have the same pin");
            let offered = node.replica.offers(Lane::Config).1.root();
            assert_eq!(offered, version.unwrap_or_else(|| node.replica.compiled()), "and offer its version");
        }
    }

    /// The pin ends, and what was compiled meanwhile is offered.
    pub(super) fn end_pin(&mut self) {
        self.check_pin();
        let Some(revision) = self.cluster.pin_revision() else { return };
        let compiled = self.compiled();
        self.nodes[0].tell(Told::Unpin(revision.into()));
        self.settle();
        self.check_pin();
        assert_eq!(self.config(), compiled, "it has ended");
    }
}
