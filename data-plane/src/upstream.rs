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
use crate::upstream::pool::{Idle, Order, Place, Reusable};

pub(crate) mod link;
pub(crate) mod pool;
pub(crate) mod send;

/// A tick sweeps one part of the backends out of so many: 100,000 of them are not walked ten times a second.
const PARTS: usize = 16;

/// The backends that one worker has sent requests to.
pub(crate) struct Upstreams<C = Link> {
    /// By id, in the part of its last digits.
    backends: [Backends<C>; PARTS],
    /// The part that the next sweep is for.
    part: usize,
    /// All idle connections.
    order: Order,
    /// How many of them are kept, whosever they are.
    kept: usize,
    /// How long they are kept.
    idle: Duration,
}

type Backends<C> = HashMap<u64, Backend<C>, RandomState>;

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
        let backends: usize = self.backends.iter().map(HashMap::len).sum();
        write!(f, "Upstreams of {backends} backends")
    }
}

impl<C: Reusable> Upstreams<C> {
    /// Without any. `kept` is the number of idle connections to all endpoints together, `idle` how long they are kept.
    pub(crate) fn new(kept: usize, idle: Duration) -> Self {
        Self {
            backends: std::array::from_fn(|_| HashMap::default()),
            part: 0,
            order: Order::default(),
            kept,
            idle,
        }
    }

    /// The endpoint whose turn it is, `None` when there is none (balancing.md 5.1: strict rotation from a random
    /// start, each worker for itself, from a new start when the set has changed).
    pub(crate) fn pick(&mut self, cell: &Arc<BackendCell>) -> Option<Arc<Endpoint>> {
        let backends = &mut self.backends[part_of(cell.id)];
        let backend = backends.entry(cell.id).or_insert_with(|| Backend {
            cell: Arc::downgrade(cell),
            set: Arc::default(),
            next: 0,
            idle: HashMap::default(),
        });
        backend.renew(cell, &mut self.order);
        let list = &backend.set.list;
        let endpoint = list.get(backend.next).or_else(|| list.first())?;
        backend.next = (backend.next + 1) % list.len();
        Some(Arc::clone(endpoint))
    }

    /// An idle connection to an endpoint, the one used last.
    pub(crate) fn take(&mut self, cell: &BackendCell, endpoint: &Endpoint) -> Option<C> {
        self.backends[part_of(cell.id)].get_mut(&cell.id)?.idle.get_mut(&endpoint.id)?.take(&mut self.order)
    }

    /// Keeps a connection that has served a request for the next one, unless its endpoint has left or it is worn out.
    /// Where enough are kept, the one that was idle longest makes room.
    pub(crate) fn give(&mut self, cell: u64, endpoint: &Endpoint, mut connection: C, now: Instant) {
        if self.kept == 0 || !connection.lasts(now) || !connection.is_quiet() {
            return;
        }
        let Some(backend) = self.backends[part_of(cell)].get_mut(&cell) else {
            return;
        };
        let Some(held) = backend.cell.upgrade() else {
            return;
        };
        backend.renew(&held, &mut self.order);
        // A set is searched only when its pool has nothing for the endpoint, which is the case after it has left.
        let known = backend.idle.contains_key(&endpoint.id);
        if known || backend.set.list.iter().any(|other| other.id == endpoint.id) {
            let pool = backend.idle.entry(endpoint.id).or_default();
            let place = Place { backend: cell, endpoint: endpoint.id };
            pool.give(connection, place, now, &mut self.order);
            self.close_down_to(self.kept);
        }
    }

    /// Closes the connections that nobody will use. Called on every tick: those that are too old go at once; those that
    /// were ended by the endpoint, whose endpoint left or whose backend is gone, when the turn comes to their part.
    pub(crate) fn sweep(&mut self, now: Instant) {
        while let Some(place) = self.order.expired(now, self.idle) {
            self.close_oldest(place);
        }
        let order = &mut self.order;
        self.backends[self.part].retain(|_, backend| {
            let Some(cell) = backend.cell.upgrade() else {
                backend.idle.values_mut().for_each(|pool| pool.close(order));
                return false;
            };
            backend.renew(&cell, order);
            for pool in backend.idle.values_mut() {
                pool.sweep(order);
            }
            true
        });
        self.part = (self.part + 1) % PARTS;
    }

    /// Closes the older half of the idle connections, where files are short. Whether there was one.
    pub(crate) fn shed(&mut self) -> bool {
        let before = self.order.len();
        self.close_down_to(before / 2);
        before > 0
    }

    fn close_down_to(&mut self, kept: usize) {
        while self.order.len() > kept
            && let Some(place) = self.order.oldest()
        {
            self.close_oldest(place);
        }
    }

    /// Closes the oldest connection of all, which is at this place: in its pool it is the oldest, too.
    fn close_oldest(&mut self, place: Place) {
        let backend = self.backends[part_of(place.backend)].get_mut(&place.backend);
        let pool = backend.and_then(|backend| backend.idle.get_mut(&place.endpoint));
        match pool {
            Some(pool) => pool.close_oldest(&mut self.order),
            None => self.order.forget_oldest(),
        }
    }

    /// Number of idle connections.
    #[cfg(test)]
    fn idle(&self) -> usize {
        let backends = self.backends.iter().flat_map(HashMap::values);
        let held = backends.flat_map(|backend| backend.idle.values()).map(Idle::len).sum();
        assert_eq!(self.order.len(), held);
        held
    }
}

/// Ids are given one after the other, which spreads them evenly.
fn part_of(backend: u64) -> usize {
    (backend % PARTS as u64) as usize
}

impl<C> Backend<C> {
    /// Looks at the endpoints of this moment; where they have changed, lets go of those that left.
    fn renew(&mut self, cell: &BackendCell, order: &mut Order) {
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
            self.idle.retain(|id, pool| {
                let stays = left.contains(id);
                if !stays {
                    pool.close(order);
                }
                stays
            });
        }
    }
}

#[cfg(test)]
mod tests;
