//! The endpoints of one backend that has many: a change of one slice costs that slice, and one step for each other
//! slice.
//!
//! **Invariant:** its set equals the result of joining all slices anew, including the identity of unchanged endpoints.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::table::endpoints::{Endpoint, List, Run};

/// The addresses of one backend's slices.
#[derive(Debug, Default)]
pub(super) struct Large {
    /// The addresses of each slice, without duplicates.
    by_slice: HashMap<Arc<str>, Box<[SocketAddr]>>,
    members: HashMap<SocketAddr, Member>,
    /// The endpoints of each slice that no earlier slice has.
    runs: BTreeMap<Arc<str>, Run>,
}

#[derive(Debug)]
struct Member {
    endpoint: Arc<Endpoint>,
    /// The slices that contain it, by key; it is in the run of the first.
    slices: Vec<Arc<str>>,
}

impl Large {
    /// Built from slices and the existing endpoints.
    pub(super) fn new(
        slices: Vec<(Arc<str>, Vec<SocketAddr>)>,
        known: &List,
        new: impl FnMut(SocketAddr) -> Arc<Endpoint>,
    ) -> Self {
        let member =
            |it: &Arc<Endpoint>| (it.address, Member { endpoint: Arc::clone(it), slices: Vec::new() });
        let mut large = Self { members: known.iter().map(member).collect(), ..Self::default() };
        large.change(slices, new);
        large.members.retain(|_, member| !member.slices.is_empty());
        large
    }

    /// Updates these slices; a removed one is empty. Returns the number of addresses processed, and whether the set
    /// changed.
    pub(super) fn change(
        &mut self,
        slices: Vec<(Arc<str>, Vec<SocketAddr>)>,
        mut new: impl FnMut(SocketAddr) -> Arc<Endpoint>,
    ) -> (usize, bool) {
        let mut seen = HashSet::new();
        let mut runs = BTreeSet::new();
        let mut left = Vec::new();
        let mut looked = 0;
        // Additions before removals, so that an endpoint that moves between slices keeps its object.
        for (key, mut addresses) in slices {
            seen.clear();
            addresses.retain(|address| seen.insert(*address));
            let before = match addresses.is_empty() {
                true => self.by_slice.remove(&key),
                false => self.by_slice.insert(Arc::clone(&key), addresses.clone().into()),
            }
            .unwrap_or_default();
            looked += addresses.len() + before.len();
            let gone = before.iter().filter(|address| !seen.contains(*address)).copied();
            left.push((Arc::clone(&key), gone.collect::<Vec<_>>()));
            for address in addresses {
                self.add(&key, address, &mut runs, &mut new);
            }
            runs.insert(key);
        }
        for (key, addresses) in left {
            for address in addresses {
                self.take(&key, address, &mut runs);
            }
        }
        let mut changed = false;
        for key in runs {
            looked += self.by_slice.get(&key).map_or(0, |by_slice| by_slice.len());
            changed |= self.run(key);
        }
        (looked, changed)
    }

    /// All endpoints.
    pub(super) fn list(&self) -> List {
        List::of_runs(self.runs.values().cloned())
    }

    /// Number of endpoints.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    fn add(
        &mut self,
        key: &Arc<str>,
        address: SocketAddr,
        runs: &mut BTreeSet<Arc<str>>,
        new: &mut impl FnMut(SocketAddr) -> Arc<Endpoint>,
    ) {
        let member = || Member { endpoint: new(address), slices: Vec::new() };
        let member = self.members.entry(address).or_insert_with(member);
        if let Err(place) = member.slices.binary_search(key) {
            if place == 0 {
                // It was in another slice's run.
                runs.extend(member.slices.first().cloned());
            }
            member.slices.insert(place, Arc::clone(key));
        }
    }

    fn take(&mut self, key: &Arc<str>, address: SocketAddr, runs: &mut BTreeSet<Arc<str>>) {
        let Some(member) = self.members.get_mut(&address) else { return };
        if let Ok(place) = member.slices.binary_search(key) {
            member.slices.remove(place);
            if place == 0 {
                runs.extend(member.slices.first().cloned());
            }
        }
        if member.slices.is_empty() {
            self.members.remove(&address);
        }
    }

    /// Rebuilds the run of a slice. Returns whether it changed.
    fn run(&mut self, key: Arc<str>) -> bool {
        let by_slice = self.by_slice.get(&key).map(|by_slice| &**by_slice).unwrap_or_default();
        let own = |address| {
            let member = self.members.get(address)?;
            member.slices.first().is_some_and(|first| *first == key).then(|| Arc::clone(&member.endpoint))
        };
        let run: Vec<Arc<Endpoint>> = by_slice.iter().filter_map(own).collect();
        let before = self.runs.get(&key).map(|run| &**run).unwrap_or_default();
        let same = run.len() == before.len() && run.iter().zip(before).all(|(a, b)| Arc::ptr_eq(a, b));
        if same {
            return false;
        }
        match run.is_empty() {
            true => self.runs.remove(&key),
            false => self.runs.insert(key, run.into()),
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Slice by slice, each address once.
    fn slow(slices: &BTreeMap<u8, Vec<u16>>) -> Vec<u16> {
        let mut list = Vec::new();
        for port in slices.values().flatten() {
            if !list.contains(port) {
                list.push(*port);
            }
        }
        list
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// After any sequence of slice changes, some of them simultaneous, the list equals a full join, and endpoints
        /// that stay keep their objects.
        #[test]
        fn as_if_joined_anew(
            changes in prop::collection::vec(
                prop::collection::btree_map(0..5_u8, prop::collection::vec(0..12_u16, 0..6), 1..3), 1..12,
            ),
        ) {
            let mut last = 0;
            let mut new = |address| {
                last += 1;
                Arc::new(Endpoint::new(last, address))
            };
            let address = |port: &u16| SocketAddr::from(([10, 0, 0, 1], *port));
            let mut large = Large::default();
            let mut slices: BTreeMap<u8, Vec<u16>> = BTreeMap::new();
            for (turn, change) in changes.into_iter().enumerate() {
                let before = large.list();
                slices.extend(change.clone());
                let by_slice = |key: &u8, ports: &[u16]| (key.to_string().into(), ports.iter().map(address).collect());
                let changed = match turn % 4 {
                    3 => {
                        let all = slices.iter().map(|(key, ports)| by_slice(key, ports)).collect();
                        large = Large::new(all, &before, &mut new);
                        true
                    }
                    _ => large.change(change.iter().map(|(key, ports)| by_slice(key, ports)).collect(), &mut new).1,
                };
                let (list, expected) = (large.list(), slow(&slices));
                prop_assert_eq!(list.iter().map(|it| it.address.port()).collect::<Vec<_>>(), expected);
                prop_assert_eq!(list.len(), large.len());
                for endpoint in list.iter() {
                    let same = before.iter().find(|old| old.address == endpoint.address);
                    prop_assert!(same.is_none_or(|old| Arc::ptr_eq(old, endpoint)));
                }
                let ids = |list: &List| list.iter().map(|it| it.id).collect::<Vec<_>>();
                prop_assert!(changed || ids(&before) == ids(&list));
            }
        }
    }
}
