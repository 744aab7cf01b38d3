//! What searches remember of their patterns: lazily built automata, and room to search in.
//!
//! An automaton grows with the text that clients send, and a library that keeps one per pattern and thread never gives
//! them back: thousands of small patterns took gigabytes. Here a thread has one store for all patterns, with a limit
//! for all of them together.
//!
//! **Invariant:** what a store keeps is bounded, whatever the patterns and the texts are.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::LocalKey;

use foldhash::fast::FixedState;

/// Identifies a pattern, so that its cache is never used for another one. Clones of a pattern share it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Id(u64);

impl Id {
    /// An identifier that no other pattern of this process has.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Identifiers are counted here, so nobody chooses them to collide.
type ById<C> = HashMap<Id, Box<C>, FixedState>;

/// Caches of one kind; those of patterns that were not used lately are dropped.
pub(super) struct Caches<C> {
    bytes: fn(&C) -> usize,
    /// Bytes that each of the two generations may take.
    most: usize,
    recent: ById<C>,
    /// What the recent ones take.
    taken: usize,
    /// The recent ones before there were too many: one that is used again is recent again.
    earlier: ById<C>,
}

impl<C> Caches<C> {
    /// An empty store for `most` bytes, as measured by `bytes`.
    pub(super) fn new(most: usize, bytes: fn(&C) -> usize) -> Self {
        Self { bytes, most: most / 2, recent: ById::default(), taken: 0, earlier: ById::default() }
    }

    /// Bytes that it keeps.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.recent.values().chain(self.earlier.values()).map(|cache| (self.bytes)(cache)).sum()
    }

    /// Searches with the cache of a pattern.
    fn search<T>(&mut self, id: Id, create: impl FnOnce() -> C, search: impl FnOnce(&mut C) -> T) -> T {
        let mut grown = 0;
        let earlier = &mut self.earlier;
        let cache = self.recent.entry(id).or_insert_with(|| {
            let cache = earlier.remove(&id).unwrap_or_else(|| Box::new(create()));
            grown = size_of::<C>() + (self.bytes)(&cache);
            cache
        });
        let before = (self.bytes)(cache);
        let found = search(cache);
        let after = (self.bytes)(cache);
        self.taken = (self.taken + grown + after).saturating_sub(before);
        if self.taken > self.most {
            // One that alone is too large is not kept at all.
            if after > self.most {
                self.recent.remove(&id);
            }
            self.earlier = std::mem::take(&mut self.recent);
            self.taken = 0;
        }
        found
    }
}

/// Searches with the cache that this thread has of a pattern.
pub(super) fn search<C, T>(
    caches: &'static LocalKey<RefCell<Caches<C>>>,
    id: Id,
    create: impl FnOnce() -> C,
    search: impl FnOnce(&mut C) -> T,
) -> T {
    caches.with_borrow_mut(|caches| caches.search(id, create, search))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_take_what_is_allowed_together() {
        let mut caches = Caches::new(10_000, Vec::capacity);
        let ids: Vec<_> = (0..1_000).map(|_| Id::new()).collect();
        for (turn, id) in ids.iter().cycle().take(3_000).copied().enumerate() {
            let size = if turn % 100 == 99 { 50_000 } else { turn % 900 };
            caches.search(id, Vec::new, |cache| cache.resize(size, 0));
            assert!(caches.kept() <= 10_000 + 900, "{turn}: {}", caches.kept());
        }
    }

    #[test]
    fn one_that_is_in_use_is_kept() {
        let mut caches = Caches::new(10_000, Vec::capacity);
        let used = Id::new();
        caches.search(used, || vec![7_u8; 100], |_| ());
        for _ in 0..1_000 {
            caches.search(Id::new(), || vec![0; 1_000], |_| ());
            caches.search(used, || unreachable!("it is kept"), |cache| assert_eq!(cache[0], 7));
        }
        assert!(caches.recent.len() + caches.earlier.len() <= 12);
    }
}
