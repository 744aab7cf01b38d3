//! Access to the tables: one [`Tables`] per process, one [`TableReader`] per worker.

use std::sync::PoisonError;

use super::HostTable;
use super::sync::{Arc, ArcSwap, AtomicU64, Cache, Mutex, Ordering};

/// Marks a dropped reader.
const GONE: u64 = u64::MAX;

/// Holds the current host table. Cheap to share.
#[derive(Debug, Default)]
pub struct Tables {
    hosts: Arc<ArcSwap<HostTable>>,
    // Locked by the writer and when a reader is added, never on the request path.
    readers: Mutex<Vec<Arc<AtomicU64>>>,
}

impl Tables {
    /// Starts with an empty table.
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

    /// The current table, for admin pages and handshakes. Requests use a [`TableReader`].
    pub fn current(&self) -> Arc<HostTable> {
        self.hosts.load_full()
    }

    /// Publishes a table and returns the previous one.
    pub(super) fn publish(&self, table: HostTable) -> Arc<HostTable> {
        self.hosts.swap(Arc::new(table))
    }

    /// The oldest generation that a reader may still use.
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

/// A worker's view of the tables: one pointer comparison per request.
#[derive(Debug)]
pub struct TableReader {
    // Declared before `seen` and therefore dropped before it: a reader that is seen as gone has released its table.
    cache: Cache<Arc<ArcSwap<HostTable>>, Arc<HostTable>>,
    seen: Seen,
    last: u64,
}

/// The generation that a reader reports.
#[derive(Debug)]
struct Seen(Arc<AtomicU64>);

impl TableReader {
    /// The newest table. A worker without requests calls this on its tick, so that old tables can be freed.
    pub fn load(&mut self) -> &Arc<HostTable> {
        let table = self.cache.load();
        if table.generation != self.last {
            self.last = table.generation;
            // Release ordering: whoever reads this number knows that the cache has released the previous table.
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
