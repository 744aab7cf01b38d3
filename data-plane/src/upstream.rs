//! Endpoints as one worker sees them: the balancing state, and the idle connections to them.
//!
//! A changed endpoint set costs a request one pointer: endpoints that have left are looked for on ticks, some at a
//! time, and their idle connections are closed there, a few at a time.
//!
//! **Invariant:** no connection is handed out to an endpoint that has left its backend, and none that has something to
//! read: it would be a response without a request. Nor is one handed out for another transport than its own: what has
//! to go over TLS never goes in plain text, nor over TLS with other settings.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;

use crate::balance::Moment;
use crate::table::{BackendCell, Endpoint, EndpointSet};
use crate::upstream::departed::{Ids, Search};
use crate::upstream::link::Link;
use crate::upstream::multiplexed::{Multiplexed, Room, STREAMS};
use crate::upstream::pool::{Idle, Order, PoolKey, Reusable};
use crate::upstream::retry_budget::RetryBudget;
use crate::upstream::transport::{TlsSettings, TransportKey};

mod balance;
pub(crate) mod call;
mod departed;
pub(crate) mod dial;
pub(crate) mod ejection;
mod flow;
pub(crate) mod link;
mod liveness;
pub(crate) mod multiplexed;
pub(crate) mod observation;
pub(crate) mod payload;
pub(crate) mod pool;
mod retry_budget;
pub(crate) mod send;
mod strain;
pub(crate) mod transport;
pub(crate) mod wire;

pub(crate) use balance::{Tried, Turn};

/// Each tick sweeps one of this many parts of the backends: walking 100,000 of them ten times a second would be too
/// much.
const PARTS: usize = 16;

/// Connections that one tick closes: each costs some microseconds in the kernel, during which no request is served.
const CLOSED_A_TICK: usize = 32;

/// Dead connections that a request closes while looking for a live one. More than a request leaves behind, so that
/// they do not accumulate; the rest is left to the ticks.
const CLOSED_A_TAKE: usize = 2;

/// Endpoints of changed sets that one tick looks at.
const SEARCHED_A_TICK: usize = 16 * 1024;

/// The backends that one worker has sent requests to.
pub(crate) struct Upstreams<C = Box<Link>> {
    /// By id, in the part given by its last digits.
    backends: [Backends<C>; PARTS],
    /// The part for the next sweep.
    part: usize,
    /// All idle connections.
    order: Order,
    /// Connections that will not be used again and wait for a tick to close them.
    closing: VecDeque<C>,
    /// Maximum number of idle connections to all endpoints.
    kept: usize,
    /// Their idle timeout.
    idle: Duration,
    /// Retries per hundred requests.
    again: u32,
    /// Number of connections that calls shared so far.
    begun: u64,
    /// For the next search.
    spare: Ids,
    /// The TLS settings that connections were made with.
    pub(crate) tls_settings: TlsSettings,
}

type Backends<C> = HashMap<u64, Backend<C>, RandomState>;

struct Backend<C> {
    /// Weak: a pool does not keep a backend alive that no table names.
    cell: Weak<BackendCell>,
    /// The set that `next` refers to, and that idle connections belong to.
    set: Arc<EndpointSet>,
    /// The index of the next endpoint in rotation.
    next: usize,
    idle: HashMap<(u64, TransportKey), Idle<C>, RandomState>,
    /// The remaining retries.
    retry_budget: RetryBudget,
    /// Connections that carry many calls, idle or not.
    shared: HashMap<(u64, TransportKey), Vec<Rc<Multiplexed>>, RandomState>,
    /// Whether the set has changed since the last search began.
    changed: bool,
    /// The search for endpoints that have left.
    search: Option<Search>,
}

impl<C> fmt::Debug for Upstreams<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backends: usize = self.backends.iter().map(HashMap::len).sum();
        write!(f, "Upstreams of {backends} backends")
    }
}

impl<C: Reusable> Upstreams<C> {
    /// Without backends. `kept`: maximum number of idle connections to all endpoints; `idle`: their idle timeout.
    pub(crate) fn new(kept: usize, idle: Duration) -> Self {
        Self {
            backends: std::array::from_fn(|_| HashMap::default()),
            part: 0,
            order: Order::default(),
            closing: VecDeque::new(),
            kept,
            idle,
            again: u32::MAX,
            begun: 0,
            spare: Ids::default(),
            tls_settings: TlsSettings::default(),
        }
    }

    /// With this many retries per hundred requests.
    pub(crate) fn with_retry_budget(self, percent: u32) -> Self {
        Self { again: percent, ..self }
    }

    /// Changes the limits. Excess connections are closed by the ticks.
    pub(crate) fn keep(&mut self, kept: usize, idle: Duration) {
        (self.kept, self.idle) = (kept, idle);
    }

    /// The endpoint for the next attempt of a request, `None` if there is none at all.
    pub(crate) fn pick(
        &mut self,
        cell: &Arc<BackendCell>,
        turn: Turn,
        tried: &mut Tried,
    ) -> Option<Arc<Endpoint>> {
        let Backend { set, next, .. } = self.asked(cell, tried);
        turn.pick(set, next, tried)
    }

    /// The endpoint that `choose` selects in the current set.
    pub(crate) fn pick_by(
        &mut self,
        cell: &Arc<BackendCell>,
        tried: &mut Tried,
        mut choose: impl FnMut(&EndpointSet, &Tried) -> Option<Arc<Endpoint>>,
    ) -> Option<Arc<Endpoint>> {
        let set = &self.asked(cell, tried).set;
        tried.choose(|tried| choose(set, tried))
    }

    /// The backend for an attempt of a request: a first attempt adds to the retry budget, and ejected endpoints are
    /// noted in `tried`.
    fn asked(&mut self, cell: &Arc<BackendCell>, tried: &mut Tried) -> &mut Backend<C> {
        let percent = self.again;
        let backend = self.backend(cell);
        if tried.is_empty() {
            backend.retry_budget.deposit(percent);
        }
        tried.avoid(avoided(cell));
        backend
    }

    /// Whether a request that an endpoint received may be retried on another one.
    pub(crate) fn may_ask_again(&mut self, cell: &Arc<BackendCell>, now: Instant) -> bool {
        self.backend(cell).retry_budget.withdraw(now)
    }

    /// This worker's state of a backend, with the current endpoints.
    fn backend(&mut self, cell: &Arc<BackendCell>) -> &mut Backend<C> {
        let backends = &mut self.backends[part_of(cell.id)];
        let backend = backends.entry(cell.id).or_insert_with(|| Backend::new(cell));
        backend.renew(cell);
        backend
    }

    /// An idle connection to an endpoint, the most recently used one. With `sure` the kernel is asked whether it is
    /// still open.
    pub(crate) fn take(
        &mut self,
        cell: &BackendCell,
        endpoint: &Endpoint,
        transport_key: TransportKey,
        sure: bool,
    ) -> Option<C> {
        let backend = self.backends[part_of(cell.id)].get_mut(&cell.id)?;
        // Created here, for an endpoint that has just been chosen: so only endpoints have pools that have not left, or
        // that the next search will find.
        let pool = backend.idle.entry((endpoint.id, transport_key)).or_default();
        let mut closed = 0;
        while let Some(mut connection) = pool.take(&mut self.order) {
            if connection.is_quiet() && (!sure || connection.is_quiet_now()) {
                return Some(connection);
            }
            closed += 1;
            if closed > CLOSED_A_TAKE {
                self.closing.push_back(connection);
            }
        }
        None
    }

    /// A connection to an endpoint that has room for one more call, with or without a body, or will soon know and is
    /// not awaited by as many as it will carry; the fullest one, so that others become idle and are closed. `after`:
    /// only one with a greater number.
    pub(crate) fn join(
        &mut self,
        cell: u64,
        endpoint: &Endpoint,
        transport_key: TransportKey,
        has_body: bool,
        after: Option<u64>,
        now: Instant,
    ) -> Option<(Rc<Multiplexed>, Room)> {
        let backend = self.backends[part_of(cell)].get_mut(&cell)?;
        let shared = backend.shared.get_mut(&(endpoint.id, transport_key))?;
        shared.retain(|it| {
            let lasts = it.room(has_body, now) != Room::Never;
            if !lasts {
                it.end();
            }
            lasts
        });
        let with =
            |room| move |it: &&Rc<Multiplexed>| after < Some(it.number()) && it.room(has_body, now) == room;
        if let Some(it) = shared.iter().find(with(Room::Now)) {
            return Some((Rc::clone(it), Room::Now));
        }
        let most = shared.iter().filter_map(|it| it.most()).min().unwrap_or(STREAMS);
        let mut opening = shared.iter().filter(with(Room::Soon));
        opening.find(|it| it.may_be_awaited(most)).map(|it| (Rc::clone(it), Room::Soon))
    }

    /// Lets other calls share a connection once it is open. Returns whether it is kept for them.
    pub(crate) fn share(
        &mut self,
        cell: u64,
        endpoint: &Endpoint,
        transport_key: TransportKey,
        shared: &Rc<Multiplexed>,
    ) -> bool {
        let Some(backend) = self.backends[part_of(cell)].get_mut(&cell).filter(|_| self.kept > 0) else {
            return false;
        };
        self.begun += 1;
        shared.count_as(self.begun);
        let all = backend.shared.entry((endpoint.id, transport_key)).or_default();
        if let Some(other) = all.first() {
            shared.is_beside(other);
        }
        all.push(Rc::clone(shared));
        true
    }

    /// How many connections that calls share were begun so far: the number of the newest.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// Keeps a connection that has served a request for reuse, unless it has reached its limits. If there are too
    /// many, the one that was idle longest is closed.
    pub(crate) fn give(
        &mut self,
        cell: u64,
        endpoint: &Endpoint,
        transport_key: TransportKey,
        mut connection: C,
        now: Instant,
    ) {
        if self.kept == 0 || !connection.lasts(now) || !connection.is_quiet() {
            return;
        }
        let Some(backend) = self.backends[part_of(cell)].get_mut(&cell) else {
            return;
        };
        // Without a pool the endpoint has left.
        let Some(pool) = backend.idle.get_mut(&(endpoint.id, transport_key)) else {
            return;
        };
        let place = PoolKey { backend: cell, endpoint: endpoint.id, transport_key };
        pool.give(connection, place, now, &mut self.order);
        // One for each that is returned. If the limit was lowered, the ticks close the rest.
        if self.order.len() > self.kept
            && let Some(place) = self.order.oldest()
        {
            self.close_oldest(place);
        }
    }

    /// Collects connections that will not be used again, and closes some of them. Called on every tick; each tick
    /// sweeps one part of the backends.
    pub(crate) fn sweep(&mut self, now: Instant) {
        let Self { order, closing, idle, tls_settings, spare, .. } = self;
        tls_settings.sweep();
        let mut look = SEARCHED_A_TICK;
        self.backends[self.part].retain(|_, backend| {
            let Some(cell) = backend.cell.upgrade() else {
                backend.idle.values_mut().for_each(|pool| closing.extend(pool.drain(order)));
                backend.close_shared(|_| true);
                return false;
            };
            backend.renew(&cell);
            backend.search(&mut look, spare, |pool| closing.extend(pool.drain(order)));
            for pool in backend.idle.values_mut() {
                pool.sweep(order, closing);
            }
            backend.close_shared(|it| it.is_done(now, *idle));
            backend.part_with(
                |transport_key| tls_settings.has(transport_key),
                |pool| closing.extend(pool.drain(order)),
            );
            true
        });
        self.part = (self.part + 1) % PARTS;
        let mut left = CLOSED_A_TICK.max(self.closing.len().saturating_sub(self.kept));
        while left > 0 && self.closing.pop_front().is_some() {
            left -= 1;
        }
        while left > 0
            && let Some(place) = match self.order.len() > self.kept {
                true => self.order.oldest(),
                false => self.order.expired(now, self.idle),
            }
        {
            self.close_oldest(place);
            left -= 1;
        }
    }

    /// Closes unused connections and the older half of the idle ones, when descriptors are short. Returns whether
    /// there were any.
    pub(crate) fn shed(&mut self) -> bool {
        let before = self.order.len() + self.closing.len();
        self.closing.clear();
        self.close_down_to(self.order.len() / 2);
        let mut shared = false;
        for backend in self.backends.iter_mut().flat_map(HashMap::values_mut) {
            shared |= backend.close_shared(|it| it.is_idle());
        }
        before > 0 || shared
    }

    /// Closes an idle connection of a backend that has its share of all. Returns whether there was one.
    pub(crate) fn shed_one(&mut self, cell: u64) -> bool {
        let backend = self.backends[part_of(cell)].get_mut(&cell);
        let pool = backend.and_then(|backend| backend.idle.values_mut().find(|pool| !pool.is_empty()));
        let Some(pool) = pool else { return false };
        pool.close_oldest(&mut self.order);
        true
    }

    /// Closes the connection that is idle longest of those of a backend's namespace, which has its share of all. Returns
    /// whether there was one.
    pub(crate) fn shed_beside(&mut self, cell: &BackendCell) -> bool {
        let is_beside = |place: &PoolKey| {
            let backend = self.backends[part_of(place.backend)].get(&place.backend);
            let other = backend.and_then(|backend| backend.cell.upgrade());
            other.is_some_and(|other| other.namespace_links.is(&cell.namespace_links))
        };
        let place = self.order.places().find(is_beside);
        place.map(|place| self.close_oldest(place)).is_some()
    }

    fn close_down_to(&mut self, kept: usize) {
        while self.order.len() > kept
            && let Some(place) = self.order.oldest()
        {
            self.close_oldest(place);
        }
    }

    /// Closes the oldest connection of a pool, which is there if it is the oldest of all.
    fn close_oldest(&mut self, place: PoolKey) {
        let backend = self.backends[part_of(place.backend)].get_mut(&place.backend);
        let pool = backend.and_then(|backend| backend.idle.get_mut(&(place.endpoint, place.transport_key)));
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

/// The time for avoiding the ejected endpoints of a backend, if they are to be avoided.
fn avoided(cell: &BackendCell) -> Option<Moment> {
    cell.avoids().then(|| Moment::of(shared::clock::now()))
}

/// Ids are sequential, which spreads them evenly.
fn part_of(backend: u64) -> usize {
    (backend % PARTS as u64) as usize
}

impl<C> Backend<C> {
    fn new(cell: &Arc<BackendCell>) -> Self {
        Self {
            cell: Arc::downgrade(cell),
            set: Arc::default(),
            next: 0,
            idle: HashMap::default(),
            retry_budget: RetryBudget::default(),
            shared: HashMap::default(),
            changed: false,
            search: None,
        }
    }

    /// Loads the current endpoints.
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
        self.changed = true;
    }

    /// Continues the search for endpoints that have left, looking at `look` endpoints at most, and drops their pools.
    fn search(&mut self, look: &mut usize, spare: &mut Ids, close: impl FnMut(&mut Idle<C>)) {
        if self.search.is_none() && std::mem::take(&mut self.changed) {
            let pools = self.idle.keys().chain(self.shared.keys()).map(|(endpoint, _)| *endpoint);
            self.search = Some(Search::new(Arc::clone(&self.set), pools, std::mem::take(spare)));
        }
        let Some(mut departed) = self.search.as_mut().and_then(|search| search.advance(look)) else {
            return;
        };
        self.search = None;
        if !departed.is_empty() {
            self.part_with_endpoints(&departed, close);
            departed.clear();
        }
        *spare = departed;
    }

    /// Drops connections to endpoints that have left. Calls on them continue.
    fn part_with_endpoints(&mut self, departed: &Ids, mut close: impl FnMut(&mut Idle<C>)) {
        self.idle.retain(|(endpoint, _), pool| {
            let stays = !departed.contains(endpoint);
            if !stays {
                close(pool);
            }
            stays
        });
        self.shared.retain(|(endpoint, _), all| {
            let stays = !departed.contains(endpoint);
            if !stays {
                all.iter().for_each(|it| it.end());
            }
            stays
        });
    }

    /// Drops connections with TLS settings that are no longer in use. Calls on them continue.
    fn part_with(&mut self, stays: impl Fn(TransportKey) -> bool, mut close: impl FnMut(&mut Idle<C>)) {
        self.idle.retain(|(_, transport_key), pool| {
            let stays = stays(*transport_key);
            if !stays {
                close(pool);
            }
            stays
        });
        self.shared.retain(|(_, transport_key), all| {
            let stays = stays(*transport_key);
            if !stays {
                all.iter().for_each(|it| it.end());
            }
            stays
        });
    }

    /// Closes shared connections once their calls have ended. Returns whether there were any.
    fn close_shared(&mut self, which: impl Fn(&Multiplexed) -> bool) -> bool {
        let mut found = false;
        self.shared.retain(|_, all| {
            all.retain(|it| {
                let closes = which(it);
                if closes {
                    it.end();
                }
                found |= closes;
                !closes
            });
            !all.is_empty()
        });
        found
    }
}

#[cfg(test)]
mod tests;
