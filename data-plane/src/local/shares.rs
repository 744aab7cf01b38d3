//! Limited slots that many owners share, so that none of them takes the last one from the others.
//!
//! Each owner may have at most twice what is free, and all owners of one namespace together at most four times. So a
//! single owner gets two thirds, and a third stays free for later ones. Slots that were taken are not revoked.
//!
//! **Invariant:** never more slots are taken than there are, however many owners there are.

use std::collections::HashMap;

/// Multiple of the free slots that one owner may have.
const OF_OWNER: usize = 2;
/// Multiple of the free slots that all owners of its namespace may have.
const OF_NAMESPACE: usize = 4;

/// How many slots are taken, and by whom.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    free: usize,
    /// By owner, and by namespace.
    held: HashMap<Box<str>, usize>,
}

impl Shares {
    /// With this many slots.
    pub(crate) fn new(places: usize) -> Self {
        Self { free: places, held: HashMap::new() }
    }

    /// Takes a slot for an owner (`namespace/..`); `false`: it has its share, or none is free.
    pub(crate) fn take(&mut self, owner: &str) -> bool {
        let has_room =
            self.held(owner) < OF_OWNER * self.free && self.held(namespace(owner)) < OF_NAMESPACE * self.free;
        if has_room {
            self.free -= 1;
            for name in names(owner) {
                match self.held.get_mut(name) {
                    Some(held) => *held += 1,
                    None => drop(self.held.insert(name.into(), 1)),
                }
            }
        }
        has_room
    }

    /// Returns an owner's slot.
    pub(crate) fn give(&mut self, owner: &str) {
        self.free += 1;
        for name in names(owner) {
            let Some(held) = self.held.get_mut(name) else { continue };
            *held -= 1;
            if *held == 0 {
                self.held.remove(name);
            }
        }
    }

    fn held(&self, name: &str) -> usize {
        self.held.get(name).copied().unwrap_or_default()
    }
}

/// The part of an owner's name that is its namespace.
pub(crate) fn namespace(owner: &str) -> &str {
    owner.split_once('/').map_or(owner, |(namespace, _)| namespace)
}

/// The names under which a slot is counted.
fn names(owner: &str) -> impl Iterator<Item = &str> {
    let namespace = namespace(owner);
    std::iter::once(owner).chain((namespace != owner).then_some(namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(shares: &mut Shares, owner: &str) -> usize {
        (0..10_000).take_while(|_| shares.take(owner)).count()
    }

    #[test]
    fn no_owner_can_take_every_slot() {
        let mut shares = Shares::new(1024);
        assert_eq!(fill(&mut shares, "a/users"), 683);
        assert!(shares.take("a/others"), "of the same namespace");
        for owner in ["a/others", "b/users", "c/users", "d/users"] {
            assert!(fill(&mut shares, owner) > 5, "{owner}");
        }
        for _ in 0..683 {
            shares.give("a/users");
        }
        assert!(fill(&mut shares, "a/users") > 300);
    }

    #[test]
    fn a_namespace_with_many_owners_leaves_some_to_others() {
        let mut shares = Shares::new(64);
        let taken: usize = (0..1000).map(|owner| fill(&mut shares, &format!("a/{owner}"))).sum();
        assert_eq!(taken, 52, "four fifths");
        assert!(fill(&mut shares, "b/users") > 5);
    }

    #[test]
    fn there_are_no_more_than_there_are_and_all_come_back() {
        for places in [0, 1, 2, 16] {
            let mut shares = Shares::new(places);
            let owners: Vec<_> = (0..100).map(|owner| format!("{owner}/x")).collect();
            let took: Vec<_> = owners.iter().filter(|owner| shares.take(owner)).collect();
            assert_eq!(took.len(), places);
            took.into_iter().for_each(|owner| shares.give(owner));
            assert_eq!((shares.free, shares.held.len()), (places, 0));
        }
    }
}
