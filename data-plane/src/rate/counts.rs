//! The counters of the clients of one Ingress: one table per limit, created on first use.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{ConnectionTable, RequestTable};

/// The tables of one Ingress.
#[derive(Debug)]
pub struct Counts {
    since: Instant,
    second: OnceLock<RequestTable>,
    minute: OnceLock<RequestTable>,
    connections: OnceLock<Arc<ConnectionTable>>,
}

impl Counts {
    /// Without tables. `now` must precede all later times.
    pub fn new(now: Instant) -> Self {
        Self { since: now, second: OnceLock::new(), minute: OnceLock::new(), connections: OnceLock::new() }
    }

    /// The clock of its tables.
    pub fn clock(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Requests per second.
    pub fn second(&self) -> &RequestTable {
        self.second.get_or_init(RequestTable::default)
    }

    /// Requests per minute.
    pub fn minute(&self) -> &RequestTable {
        self.minute.get_or_init(RequestTable::default)
    }

    /// Requests in progress.
    pub fn connections(&self) -> &Arc<ConnectionTable> {
        self.connections.get_or_init(Arc::default)
    }
}
