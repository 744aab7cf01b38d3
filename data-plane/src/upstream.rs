//! Endpoints as one worker sees them: whose turn it is, and which connections to them are idle.
//!
//! **Invariant:** no connection waits for an endpoint that has left its backend, and none is handed out that has
//! something to read: it would be an answer to nobody's question.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;

use crate::table::{BackendCell, Endpoint, EndpointSet};
use crate::upstream::link::Link;
use crate::upstream::pool::{Idle, Reusable};

pub(crate) mod link;
pub(crate) mod pool;
pub(crate) mod send;

/// The backends that one worker has sent requests to.
pub(crate) struct Upstreams<C = Link> {
    backends: HashMap<u64, Backend<C>, RandomState>,
    /// Idle connections kept for each endpoint.
    kept: usize,
    /// How long they are kept.
    idle: Duration,
}

struct Backend<C> {
    /// Weak: a pool does not keep a backend alive that no table names.
    cell: Weak<BackendCell>,
    /// The set that `next` counts in, and that idle connections belong to.
    set: Arc<EndpointSet>,
    /// Place of the endpoint whose turn it is.
    next: usize,
    idle: HashMap<u64, Idle<C>, RandomState>,
}

impl<C> fmt::Debug for Upstreams<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstreams of {} backends", self.backends.len())
    }
}

impl<C: Reusable> Upstreams<C> {
    /// Without any. `kept` is the number of idle connections for each endpoint, `idle` how long they are kept.
    pub(crate) fn new(kept: usize, idle: Duration) -> Self {
        Self {
            backends: HashMap::default(),
            kept,
            idle,
        }
    }

    /// The endpoint whose turn it is, `None` when there is none (balancing.md 5.1: strict rotation from a random
    /// start, each worker for itself, from a new start when the set has changed).
    pub(crate) fn pick(&mut self, cell: &Arc<BackendCell>) -> Option<Arc<Endpoint>> {
        let backend = self.backends.entry(cell.id).or_insert_with(|| Backend {
            cell: Arc::downgrade(cell),
            set: Arc::default(),
            next: 0,
            idle: HashMap::default(),
        });
        backend.renew(cell);
        let list = &backend.set.list;
        let endpoint = list.get(backend.next).or_else(|| list.first())?;
        backend.next = (backend.next + 1) % list.len();
        Some(Arc::clone(endpoint))
    }

    /// An idle connection to an endpoint, the one used last.
    pub(crate) fn take(&mut self, cell: &BackendCell, endpoint: &Endpoint) -> Option<C> {
        self.backends
            .get_mut(&cell.id)?
            .idle
            .get_mut(&endpoint.id)?
            .take()
    }

    /// Keeps a connection for the next request, unless its endpoint has left or enough are kept.
    pub(crate) fn give(&mut self, cell: u64, endpoint: &Endpoint, connection: C, now: Instant) {
        let Some(backend) = self.backends.get_mut(&cell) else {
            return;
        };
        let Some(cell) = backend.cell.upgrade() else {
            return;
        };
        backend.renew(&cell);
        // A set is searched only when its pool has nothing for the endpoint, which is the case after it has left.
        let known = backend.idle.contains_key(&endpoint.id);
        if known || backend.set.list.iter().any(|other| other.id == endpoint.id) {
            let pool = backend.idle.entry(endpoint.id).or_default();
            pool.give(connection, now, self.kept);
        }
    }

    /// Closes the connections that nobody will use: too old, ended by the endpoint, of endpoints that left, of backends
    /// that are gone. Called on every tick.
    pub(crate) fn sweep(&mut self, now: Instant) {
        let limit = self.idle;
        self.backends.retain(|_, backend| {
            let Some(cell) = backend.cell.upgrade() else {
                return false;
            };
            backend.renew(&cell);
            for pool in backend.idle.values_mut() {
                pool.sweep(now, limit);
            }
            true
        });
    }

    /// Number of idle connections.
    #[cfg(test)]
    fn idle(&self) -> usize {
        let pools = self.backends.values().flat_map(|backend| backend.idle.values());
        pools.map(Idle::len).sum()
    }
}

impl<C> Backend<C> {
    /// Looks at the endpoints of this moment; where they have changed, lets go of those that left.
    fn renew(&mut self, cell: &BackendCell) {
        let now = cell.endpoints();
        if Arc::ptr_eq(&now, &self.set) {
            return;
        }
        self.set = Arc::clone(&now);
        self.next = match self.set.list.len() {
            0 => 0,
            len => fastrand::usize(..len),
        };
        if !self.idle.is_empty() {
            let left: std::collections::HashSet<u64, RandomState> =
                self.set.list.iter().map(|endpoint| endpoint.id).collect();
            self.idle.retain(|id, _| left.contains(id));
        }
    }
}

#[cfg(test)]
mod tests;
