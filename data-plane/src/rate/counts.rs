//! What is counted of the clients of one Ingress: a table a limit, each made when it is first asked.

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
    /// Without tables, at a moment before all others that it will be asked about.
    pub fn new(now: Instant) -> Self {
        Self { since: now, second: OnceLock::new(), minute: OnceLock::new(), connections: OnceLock::new() }
    }

    /// The clock of its tables.
    pub fn clock(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Requests a second.
    pub fn second(&self) -> &RequestTable {
        self.second.get_or_init(RequestTable::default)
    }

    /// Requests a minute.
    pub fn minute(&self) -> &RequestTable {
        self.minute.get_or_init(RequestTable::default)
    }

    /// Requests in progress.
    pub fn connections(&self) -> &Arc<ConnectionTable> {
        self.connections.get_or_init(Arc::default)
    }
}
