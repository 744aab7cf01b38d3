//! Endpoints as one worker sees them: whose turn it is, and which connections to them are idle.
//!
//! A set that changes costs a request one pointer: who has left it is looked for on ticks, some endpoints at a time, and
//! the connections that nobody will use are closed there, a few at a time.
//!
//! **Invariant:** no connection is handed out to an endpoint that has left its backend, and none that has something to
//! read: it would be an answer to nobody's question. None is handed out for another manner than its own: what is to go
//! over TLS never goes in plain, nor over TLS that asked for something else.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;

use crate::balance::Moment;
use crate::table::{BackendCell, Endpoint, EndpointSet};
use crate::upstream::allowance::Allowance;
use crate::upstream::departed::Search;
use crate::upstream::link::Link;
use crate::upstream::manner::{Manner, Ways};
use crate::upstream::multiplexed::{Multiplexed, Room};
use crate::upstream::pool::{Idle, Order, Place, Reusable};

mod allowance;
mod balance;
pub(crate) mod call;
mod departed;
pub(crate) mod dial;
mod flow;
pub(crate) mod inbound;
pub(crate) mod incoming;
pub(crate) mod link;
pub(crate) mod manner;
pub(crate) mod multiplexed;
pub(crate) mod observation;
pub(crate) mod payload;
pub(crate) mod pool;
mod pulse;
pub(crate) mod send;
pub(crate) mod standing;
mod tally;
pub(crate) mod wire;

pub(crate) use balance::{Tried, Turn};

/// A tick sweeps one part of the backends out of so many: 100,000 of them are not walked ten times a second.
const PARTS: usize = 16;

/// Connections that one tick closes: each costs the kernel some microseconds, in which no request goes on.
const CLOSED_A_TICK: usize = 32;

/// Dead connections that a request closes on its way to a live one. More than a request leaves behind, so that they do
/// not pile up; the rest is left to the ticks.
const CLOSED_A_TAKE: usize = 2;

/// Endpoints of changed sets that one tick looks at.
const SEARCHED_A_TICK: usize = 16 * 1024;

/// The backends that one worker has sent requests to.
pub(crate) struct Upstreams<C = Box<Link>> {
    /// By id, in the part of its last digits.
    backends: [Backends<C>; PARTS],
    /// The part that the next sweep is for.
    part: usize,
    /// All idle connections.
    order: Order,
    /// Those that nobody will use; they wait for a tick to close them.
    closing: VecDeque<C>,
    /// How many of them are kept, whosever they are.
    kept: usize,
    /// How long they are kept.
    idle: Duration,
    /// Tries that a hundred requests add to those of before.
    again: u32,
    /// The ways to speak TLS in which connections were made.
    pub(crate) ways: Ways,
}

type Backends<C> = HashMap<u64, Backend<C>, RandomState>;

struct Backend<C> {
    /// Weak: a pool does not keep a backend alive that no table names.
    cell: Weak<BackendCell>,
    /// The set that `next` counts in, and that idle connections belong to.
    set: Arc<EndpointSet>,
    /// Place of the endpoint whose turn it is.
    next: usize,
    idle: HashMap<(u64, Manner), Idle<C>, RandomState>,
    /// Tries that may yet follow others.
    allowance: Allowance,
    /// Connections that carry many calls, idle or not.
    shared: HashMap<(u64, Manner), Vec<Rc<Multiplexed>>, RandomState>,
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
    /// Without any. `kept` is the number of idle connections to all endpoints together, `idle` how long they are kept.
    pub(crate) fn new(kept: usize, idle: Duration) -> Self {
        Self {
            backends: std::array::from_fn(|_| HashMap::default()),
            part: 0,
            order: Order::default(),
            closing: VecDeque::new(),
            kept,
            idle,
            again: u32::MAX,
            ways: Ways::default(),
        }
    }

    /// With so many further tries for a hundred requests.
    pub(crate) fn trying_again(self, percent: u32) -> Self {
        Self { again: percent, ..self }
    }

    /// Keeps so many from now on, and so long. What is too much goes with the ticks.
    pub(crate) fn keep(&mut self, kept: usize, idle: Duration) {
        (self.kept, self.idle) = (kept, idle);
    }

    /// The endpoint for the next try of a request, `None` when there is none at all.
    pub(crate) fn pick(
        &mut self,
        cell: &Arc<BackendCell>,
        turn: Turn,
        tried: &mut Tried,
    ) -> Option<Arc<Endpoint>> {
        let Backend { set, next, .. } = self.asked(cell, tried);
        turn.pick(set, next, tried)
    }

    /// The endpoint that `choose` finds in the set of this moment.
    pub(crate) fn pick_by(
        &mut self,
        cell: &Arc<BackendCell>,
        tried: &mut Tried,
        mut choose: impl FnMut(&EndpointSet, &Tried) -> Option<Arc<Endpoint>>,
    ) -> Option<Arc<Endpoint>> {
        let set = &self.asked(cell, tried).set;
        tried.choose(|tried| choose(set, tried))
    }

    /// A backend that a request is about to try, or to try again: its first try allows others theirs, and whom to leave alone is known.
    fn asked(&mut self, cell: &Arc<BackendCell>, tried: &mut Tried) -> &mut Backend<C> {
        let percent = self.again;
        let backend = self.backend(cell);
        if tried.is_empty() {
            backend.allowance.asked(percent);
        }
        tried.avoid(avoided(cell));
        backend
    }

    /// Whether a request that an endpoint was given may be given to another one.
    pub(crate) fn may_ask_again(&mut self, cell: &Arc<BackendCell>, now: Instant) -> bool {
        self.backend(cell).allowance.spend(now)
    }

    /// What this worker knows of a backend, with its endpoints of this moment.
    fn backend(&mut self, cell: &Arc<BackendCell>) -> &mut Backend<C> {
        let backends = &mut self.backends[part_of(cell.id)];
        let backend = backends.entry(cell.id).or_insert_with(|| Backend::new(cell));
        backend.renew(cell);
        backend
    }

    /// An idle connection to an endpoint, the one used last. With `sure` the kernel is asked whether it is still open.
    pub(crate) fn take(
        &mut self,
        cell: &BackendCell,
        endpoint: &Endpoint,
        manner: Manner,
        sure: bool,
    ) -> Option<C> {
        let backend = self.backends[part_of(cell.id)].get_mut(&cell.id)?;
        // Made here, for an endpoint that has just been picked: so only those have pools that have not left, or that the
        // next search will find.
        let pool = backend.idle.entry((endpoint.id, manner)).or_default();
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

    /// A connection to an endpoint that takes one more call, with a body or without one, or will soon say whether it does; the fullest one, so that
    /// others grow idle and go.
    pub(crate) fn join(
        &mut self,
        cell: u64,
        endpoint: &Endpoint,
        manner: Manner,
        has_body: bool,
        now: Instant,
    ) -> Option<(Rc<Multiplexed>, Room)> {
        let backend = self.backends[part_of(cell)].get_mut(&cell)?;
        let shared = backend.shared.get_mut(&(endpoint.id, manner))?;
        shared.retain(|it| {
            let lasts = it.room(has_body, now) != Room::Never;
            if !lasts {
                it.end();
            }
            lasts
        });
        let rooms = || shared.iter().map(|it| (it, it.room(has_body, now)));
        let found = rooms()
            .find(|(_, room)| *room == Room::Now)
            .or_else(|| rooms().find(|(_, room)| *room == Room::Soon));
        found.map(|(it, room)| (Rc::clone(it), room))
    }

    /// Lets other calls join a connection, from when it is open on. Whether it is kept for them.
    pub(crate) fn share(
        &mut self,
        cell: u64,
        endpoint: &Endpoint,
        manner: Manner,
        shared: &Rc<Multiplexed>,
    ) -> bool {
        let Some(backend) = self.backends[part_of(cell)].get_mut(&cell).filter(|_| self.kept > 0) else {
            return false;
        };
        backend.shared.entry((endpoint.id, manner)).or_default().push(Rc::clone(shared));
        true
    }

    /// Keeps a connection that has served a request for the next one, unless it is worn out. Where enough are kept, the
    /// one that was idle longest makes room.
    pub(crate) fn give(
        &mut self,
        cell: u64,
        endpoint: &Endpoint,
        manner: Manner,
        mut connection: C,
        now: Instant,
    ) {
        if self.kept == 0 || !connection.lasts(now) || !connection.is_quiet() {
            return;
        }
        let Some(backend) = self.backends[part_of(cell)].get_mut(&cell) else {
            return;
        };
        // Without a pool its endpoint has left.
        let Some(pool) = backend.idle.get_mut(&(endpoint.id, manner)) else {
            return;
        };
        let place = Place { backend: cell, endpoint: endpoint.id, manner };
        pool.give(connection, place, now, &mut self.order);
        // One for each that is given. Where fewer may be kept than before, the ticks close the rest.
        if self.order.len() > self.kept
            && let Some(place) = self.order.oldest()
        {
            self.close_oldest(place);
        }
    }

    /// Puts aside what nobody will use, and closes some of it. Called on every tick: the turn of a backend comes with its
    /// part.
    pub(crate) fn sweep(&mut self, now: Instant) {
        let Self { order, closing, idle, ways, .. } = self;
        ways.sweep();
        let mut look = SEARCHED_A_TICK;
        self.backends[self.part].retain(|_, backend| {
            let Some(cell) = backend.cell.upgrade() else {
                backend.idle.values_mut().for_each(|pool| closing.extend(pool.drain(order)));
                backend.close_shared(|_| true);
                return false;
            };
            backend.renew(&cell);
            backend.search(&mut look, |pool| closing.extend(pool.drain(order)));
            for pool in backend.idle.values_mut() {
                pool.sweep(order, closing);
            }
            backend.close_shared(|it| it.is_done(now, *idle));
            backend.part_with(|manner| ways.has(manner), |pool| closing.extend(pool.drain(order)));
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

    /// Closes what nobody will use and the older half of the idle connections, where files are short. Whether there was
    /// one.
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
        let pool = backend.and_then(|backend| backend.idle.get_mut(&(place.endpoint, place.manner)));
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

/// The moment at which endpoints of a backend that are out are left alone, if they are.
fn avoided(cell: &BackendCell) -> Option<Moment> {
    cell.avoids().then(|| Moment::of(shared::clock::now()))
}

/// Ids are given one after the other, which spreads them evenly.
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
            allowance: Allowance::default(),
            shared: HashMap::default(),
            changed: false,
            search: None,
        }
    }

    /// Looks at the endpoints of this moment.
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

    /// Goes on with the search for endpoints that have left, past `look` endpoints at most, and lets go of their pools.
    fn search(&mut self, look: &mut usize, mut close: impl FnMut(&mut Idle<C>)) {
        if self.search.is_none() && std::mem::take(&mut self.changed) {
            let pools = self.idle.keys().chain(self.shared.keys()).map(|(endpoint, _)| *endpoint);
            self.search = Some(Search::new(Arc::clone(&self.set), pools));
        }
        let Some(departed) = self.search.as_mut().and_then(|search| search.advance(look)) else {
            return;
        };
        self.search = None;
        if departed.is_empty() {
            return;
        }
        self.idle.retain(|(endpoint, _), pool| {
            let stays = !departed.contains(endpoint);
            if !stays {
                close(pool);
            }
            stays
        });
        // Calls that are on them go on.
        self.shared.retain(|(endpoint, _), all| {
            let stays = !departed.contains(endpoint);
            if !stays {
                all.iter().for_each(|it| it.end());
            }
            stays
        });
    }

    /// Lets go of connections that were made in a way in which nobody speaks any more. Calls that are on them go on.
    fn part_with(&mut self, stays: impl Fn(Manner) -> bool, mut close: impl FnMut(&mut Idle<C>)) {
        self.idle.retain(|(_, manner), pool| {
            let stays = stays(*manner);
            if !stays {
                close(pool);
            }
            stays
        });
        self.shared.retain(|(_, manner), all| {
            let stays = stays(*manner);
            if !stays {
                all.iter().for_each(|it| it.end());
            }
            stays
        });
    }

    /// Closes connections that carry many calls, once these have ended. Whether there was one.
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
