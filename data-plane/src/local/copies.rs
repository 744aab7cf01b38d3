//! How much copies of requests may hold, all workers together: so little that no request lacks anything for them.

use shared::budget::{Budget, Held};

/// Copies that are under way at most, however many descriptors there are.
const MOST: usize = 1024;

/// Copies have this part of what there is, and requests the rest.
const PART: usize = 16;

/// Bytes that bodies of copies have on disk.
const DISK: usize = 64 << 20;

/// What copies of requests may hold.
#[derive(Clone, Debug)]
pub struct Copies {
    number: Budget,
    memory: Budget,
    disk: Budget,
}

/// What one copy holds, until dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _number: Held,
    _memory: Held,
    _disk: Held,
}

impl Copies {
    /// A part of so many bytes.
    pub fn of_memory(bytes: usize) -> Self {
        Self { number: Budget::new(MOST), memory: Budget::new(bytes / PART), disk: Budget::new(DISK) }
    }

    /// A part of so many descriptors.
    #[must_use]
    pub fn with_descriptors(self, descriptors: usize) -> Self {
        Self { number: Budget::new((descriptors / PART).clamp(1, MOST)), ..self }
    }

    /// Room for a copy with so many bytes of memory and of disk, where there is some.
    pub(crate) fn take(&self, memory: usize, disk: usize) -> Option<Place> {
        let (number, memory) = (self.number.take(1)?, self.memory.take(memory)?);
        Some(Place { _number: number, _memory: memory, _disk: self.disk.take(disk)? })
    }

    /// Copies under way.
    pub fn used(&self) -> usize {
        self.number.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_three_ends_it_and_all_is_given_back() {
        let copies = Copies::of_memory(PART * 100).with_descriptors(PART * 3);
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
            assert_eq!(Copies::of_memory(0).with_descriptors(descriptors).number.limit(), copies);
        }
    }
}
