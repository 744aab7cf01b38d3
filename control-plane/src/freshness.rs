//! How fresh the data of a source is: counters per kind, what may not be read or cannot be, and whether it answers at
//! all, written by the source, read by metrics and readiness.
//!
//! **Invariant:** counters are plain atomics, and nobody holds the lock of the rest for longer than it takes to copy:
//! neither readers nor the source ever wait.

mod failing;
mod unheard;
mod unread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shared::clock;

use crate::objects::ObjectKind;
pub use failing::Failing;
pub use unheard::Unheard;
pub use unread::{ReadTo, Unread};

/// Health of a source, per kind. Clones share the same counters.
#[derive(Clone, Debug, Default)]
pub struct Freshness {
    kinds: Arc<[Cell; ObjectKind::ALL.len()]>,
    heard: Arc<AtomicU64>,
    forbidden: Arc<Mutex<BTreeSet<Forbidden>>>,
    unread: Arc<Mutex<Unread>>,
    failing: Arc<Mutex<BTreeMap<Arc<str>, Failing>>>,
    unheard: Arc<Mutex<Option<Unheard>>>,
}

/// Objects that may not be read, and in whose absence something is missing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Forbidden {
    /// Their kind.
    pub kind: ObjectKind,
    /// What the API server says: which resource, what may not be done with it, where, and by whom.
    pub reason: Arc<str>,
}

#[derive(Debug, Default)]
struct Cell {
    synced: AtomicBool,
    heard: AtomicU64,
    relists: AtomicU64,
    broken: AtomicU64,
}

/// The counters of one kind at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// The first list is complete.
    pub synced: bool,
    /// When the last event or bookmark arrived; `None` before the first.
    pub heard: Option<SystemTime>,
    /// Complete lists, the first one included.
    pub relists: u64,
    /// Objects that could not be decoded.
    pub broken: u64,
}

impl Freshness {
    /// The counters of one kind.
    pub fn of(&self, kind: ObjectKind) -> Figures {
        let cell = self.cell(kind);
        let heard = cell.heard.load(Ordering::Relaxed);
        Figures {
            synced: cell.synced.load(Ordering::Relaxed),
            heard: (heard > 0).then(|| UNIX_EPOCH + Duration::from_millis(heard)),
            relists: cell.relists.load(Ordering::Relaxed),
            broken: cell.broken.load(Ordering::Relaxed),
        }
    }

    /// What may not be read.
    pub fn forbidden(&self) -> Vec<Forbidden> {
        self.forbidden.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub(crate) fn note_forbidden(&self, forbidden: Forbidden) {
        self.forbidden.lock().unwrap_or_else(PoisonError::into_inner).insert(forbidden);
    }

    pub(crate) fn note_allowed(&self, again: &Forbidden) {
        self.forbidden.lock().unwrap_or_else(PoisonError::into_inner).remove(again);
    }

    /// The lists that may not be read, those included in whose absence all goes on.
    pub fn unread(&self) -> Unread {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A list may not be read, and was read so far.
    pub(crate) fn note_unread(&self, list: Arc<str>, read_to: ReadTo) {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).insert(list, read_to);
    }

    /// A list was read.
    pub(crate) fn note_read(&self, list: &str) {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).remove(list);
    }

    /// The lists that cannot be read or watched, by name.
    pub fn failing(&self) -> Vec<Failing> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn note_failing(&self, failing: Failing) {
        let list = Arc::clone(&failing.list);
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).insert(list, failing);
    }

    /// A list and its watch work.
    pub(crate) fn note_working(&self, list: &str) {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).remove(list);
    }

    /// Whether the source does not answer; `None`: it does, or it is a folder.
    pub fn unheard(&self) -> Option<Unheard> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note_unheard(&self, unheard: Option<Unheard>) {
        *self.unheard.lock().unwrap_or_else(PoisonError::into_inner) = unheard;
    }

    /// Whether the first lists of all kinds are complete.
    #[cfg(test)]
    pub fn synced(&self) -> bool {
        ObjectKind::ALL.iter().all(|kind| self.of(*kind).synced)
    }

    pub(crate) fn note_synced(&self, kind: ObjectKind) {
        self.cell(kind).synced.store(true, Ordering::Relaxed);
    }

    pub(crate) fn note_heard(&self, kind: ObjectKind) {
        let now = clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.cell(kind).heard.store(millis, Ordering::Relaxed);
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// How often anything was heard, of whichever kind.
    pub(crate) fn times_heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    pub(crate) fn note_relist(&self, kind: ObjectKind) {
        self.cell(kind).relists.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_broken(&self, kind: ObjectKind) {
        self.cell(kind).broken.fetch_add(1, Ordering::Relaxed);
    }

    fn cell(&self, kind: ObjectKind) -> &Cell {
        // `ALL` is in the order of declaration, so a kind's discriminant is its index.
        &self.kinds[kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_per_kind_and_shared_by_clones() {
        let fresh = Freshness::default();
        let seen = fresh.clone();
        for (at, kind) in ObjectKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{kind:?} has its own cell");
            assert!(!seen.synced());
            fresh.note_synced(kind);
        }
        fresh.note_broken(ObjectKind::Ingress);
        fresh.note_heard(ObjectKind::Secret);
        assert!(seen.synced());
        assert_eq!(seen.of(ObjectKind::Ingress).broken, 1);
        assert_eq!(seen.of(ObjectKind::Service).broken, 0);
        assert!(seen.of(ObjectKind::Secret).heard.is_some() && seen.of(ObjectKind::Ingress).heard.is_none());
    }
}
