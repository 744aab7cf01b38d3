//! Statistics of the journal, for metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Written only by the journal's thread.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Bytes of the journal.
    pub(crate) bytes: AtomicU64,
    /// Number of steps in it.
    pub(crate) records: AtomicU64,
    /// Time of the last write, in seconds since 1970; 0 for never.
    pub(crate) written: AtomicU64,
    /// Number of states written.
    pub(crate) states: AtomicU64,
    /// Number of states that could not be written.
    pub(crate) errors: AtomicU64,
    /// Number of times that secrets could not be written.
    pub(crate) key_errors: AtomicU64,
    /// The newest state is not on disk, and writing is being retried.
    pub(crate) failing: AtomicBool,
}

impl Stats {
    /// Records an existing journal.
    pub(super) fn found(&self, bytes: u64, records: u64, written: SystemTime) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.records.store(records, Ordering::Relaxed);
        let written = written.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.written.store(written.as_secs(), Ordering::Relaxed);
    }

    pub(super) fn wrote(&self, bytes: u64, records: u64, now: SystemTime) {
        self.found(bytes, records, now);
        self.states.fetch_add(1, Ordering::Relaxed);
        self.failing.store(false, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        self.failing.store(true, Ordering::Relaxed);
    }
}
