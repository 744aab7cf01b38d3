//! The limits on mirrored requests, for all workers together: low enough that no request lacks anything because of
//! them.

use shared::budget::{Budget, Held};

/// Maximum number of concurrent copies, however many descriptors there are.
const MOST: usize = 1024;

/// The divisor for the part of the budgets that copies may use.
const PART: usize = 16;

/// Bytes that bodies of copies may use on disk.
const DISK: usize = 64 << 20;

/// The budgets of mirrored requests.
#[derive(Clone, Debug)]
pub struct MirrorBudget {
    number: Budget,
    memory: Budget,
    disk: Budget,
}

/// The share of one copy, until dropped.
#[derive(Debug)]
pub(crate) struct MirrorPermit {
    _number: Held,
    _memory: Held,
    _disk: Held,
}

impl MirrorBudget {
    /// With a part of this many bytes.
    pub fn of_memory(bytes: usize) -> Self {
        Self { number: Budget::new(MOST), memory: Budget::new(bytes / PART), disk: Budget::new(DISK) }
    }

    /// With a part of this many descriptors.
    #[must_use]
    pub fn with_descriptors(self, descriptors: usize) -> Self {
        Self { number: Budget::new((descriptors / PART).clamp(1, MOST)), ..self }
    }

    /// Reserves room for a copy with these bytes of memory and disk, if there is any.
    pub(crate) fn take(&self, memory: usize, disk: usize) -> Option<MirrorPermit> {
        let (number, memory) = (self.number.take(1)?, self.memory.take(memory)?);
        Some(MirrorPermit { _number: number, _memory: memory, _disk: self.disk.take(disk)? })
    }

    /// Number of copies in progress.
    pub fn used(&self) -> usize {
        self.number.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_three_ends_it_and_all_is_given_back() {
        let copies = MirrorBudget::of_memory(PART * 100).with_descriptors(PART * 3);
        let places = [copies.take(60, 0), copies.take(40, DISK)];
        assert!(places.iter().all(Option::is_some));
        assert!(copies.take(1, 0).is_none() && copies.take(0, 1).is_none(), "no memory, no disk");
        assert_eq!(copies.used(), 2);
        let third = copies.take(0, 0);
        assert!(third.is_some() && copies.take(0, 0).is_none(), "no fourth one");
        drop((places, third));
        assert_eq!((copies.used(), copies.memory.used(), copies.disk.used()), (0, 0, 0));
        assert!(copies.take(100, DISK).is_some());
    }

    #[test]
    fn there_is_one_however_few_descriptors_there_are() {
        for (descriptors, copies) in [(1, 1), (1024, 64), (1 << 20, MOST)] {
            assert_eq!(MirrorBudget::of_memory(0).with_descriptors(descriptors).number.limit(), copies);
        }
    }
}
