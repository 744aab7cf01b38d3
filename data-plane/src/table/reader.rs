//! The way to the tables: one [`Tables`] a process, one [`TableReader`] a worker.

use std::sync::PoisonError;

use super::HostTable;
use super::sync::{Arc, ArcSwap, AtomicU64, Cache, Mutex, Ordering};

/// Marks a reader that is gone.
const GONE: u64 = u64::MAX;

/// Where the host table of the moment is. Cheap to share.
#[derive(Debug, Default)]
pub struct Tables {
    hosts: Arc<ArcSwap<HostTable>>,
    // Taken when a reader comes and by the writer, never on the way of a request.
    readers: Mutex<Vec<Arc<AtomicU64>>>,
}

impl Tables {
    /// With an empty table.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A reader, one for each worker.
    pub fn reader(&self) -> TableReader {
        // Zero holds back every table until the cache is loaded for the first time.
        let seen = Arc::new(AtomicU64::new(0));
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&seen));
        let cache = Cache::new(Arc::clone(&self.hosts));
        TableReader { cache, seen: Seen(seen), last: 0 }
    }

    /// The table now, for admin pages and handshakes. Requests use a [`TableReader`].
    pub fn current(&self) -> Arc<HostTable> {
        self.hosts.load_full()
    }

    /// Puts a table in place; gives the one that was there.
    pub(super) fn publish(&self, table: HostTable) -> Arc<HostTable> {
        self.hosts.swap(Arc::new(table))
    }

    /// The oldest generation that a reader may still look at.
    pub(super) fn oldest_seen(&self) -> u64 {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut oldest = GONE;
        readers.retain(|seen| {
            let seen = seen.load(Ordering::Acquire);
            oldest = oldest.min(seen);
            seen != GONE
        });
        oldest
    }
}

/// A worker's view of the tables: one pointer compare a request.
#[derive(Debug)]
pub struct TableReader {
    // Before `seen`, and so dropped before it: who sees that a reader is gone sees that it let go of its table.
    cache: Cache<Arc<ArcSwap<HostTable>>, Arc<HostTable>>,
    seen: Seen,
    last: u64,
}

/// What a reader has said about itself.
#[derive(Debug)]
struct Seen(Arc<AtomicU64>);

impl TableReader {
    /// The newest table. A worker without requests calls it on its tick, so that old tables can go.
    pub fn load(&mut self) -> &Arc<HostTable> {
        let table = self.cache.load();
        if table.generation != self.last {
            self.last = table.generation;
            // Released: who sees the number sees that this cache let go of the table before.
            self.seen.0.store(self.last, Ordering::Release);
        }
        table
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.0.store(GONE, Ordering::Release);
    }
}
