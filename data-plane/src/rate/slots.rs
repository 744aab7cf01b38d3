//! Finds a client's slot: pages of groups, each page allocated on first use.

use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::sync::OnceLock;

use foldhash::quality::RandomState;

/// Slots that a client may use: to have a client forgotten early, this many others must share its group.
pub(super) const GROUP: usize = 8;
/// Number of groups per page.
const GROUPS: usize = 64;

type Page<S> = [[S; GROUP]; GROUPS];

/// A table of slots.
#[derive(Debug)]
pub(super) struct Slots<S> {
    pages: Box<[OnceLock<Box<Page<S>>>]>,
    /// Seeded for each table, so that nobody can choose who shares a group.
    hasher: RandomState,
}

impl<S: Default> Slots<S> {
    /// With room for at least `clients`.
    pub(super) fn new(clients: usize) -> Self {
        let pages = clients.div_ceil(GROUP * GROUPS).max(1);
        Self { pages: (0..pages).map(|_| OnceLock::new()).collect(), hasher: RandomState::default() }
    }

    /// The group of a client, and the client's mark in it, which is never 0.
    pub(super) fn group(&self, client: IpAddr) -> (&[S; GROUP], u64) {
        self.group_at(client, ())
    }

    /// The same for a client in one of several places, each with its own slots.
    pub(super) fn group_at(&self, client: IpAddr, place: impl Hash) -> (&[S; GROUP], u64) {
        let hash = self.hasher.hash_one((client.to_canonical(), place));
        let low = usize::try_from(hash & u64::from(u32::MAX)).unwrap_or(0);
        let page = self.pages[low % self.pages.len()]
            .get_or_init(|| Box::new(std::array::from_fn(|_| Default::default())));
        let group = usize::try_from(hash >> 58).unwrap_or(0) % GROUPS;
        (&page[group], hash | 1)
    }

    /// Number of pages that were allocated.
    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        self.pages.iter().filter(|page| page.get().is_some()).count()
    }
}
