//! The idle connections to one endpoint, the one used last first: the others may grow old and go. And the order in
//! which all of a worker's were given, for the day when there are too many.
//!
//! **Invariant:** a connection stands in its [`Idle`] exactly as long as its number stands in the [`Order`].

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::manner::Manner;

/// A connection that may serve another request.
pub(crate) trait Reusable {
    /// Whether the peer has neither closed it nor said anything unasked.
    fn is_quiet(&mut self) -> bool;

    /// The same, from the kernel, which may know of a close that the runtime was not told of yet.
    fn is_quiet_now(&self) -> bool;

    /// Counts a request that it served; whether it may serve another one.
    fn lasts(&mut self, now: Instant) -> bool;
}

/// Whose a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) backend: u64,
    pub(crate) endpoint: u64,
    /// How it is spoken on.
    pub(crate) manner: Manner,
}

/// All idle connections of a worker by the order in which they were given: numbers, not the connections.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: u64,
    since: BTreeMap<u64, (Place, Instant)>,
}

impl Order {
    fn push(&mut self, place: Place, now: Instant) -> u64 {
        self.last += 1;
        self.since.insert(self.last, (place, now));
        self.last
    }

    /// Whose the oldest is.
    pub(crate) fn oldest(&self) -> Option<Place> {
        self.since.first_key_value().map(|(_, (place, _))| *place)
    }

    /// Strikes the oldest out.
    pub(crate) fn forget_oldest(&mut self) {
        self.since.pop_first();
    }

    /// Whose the oldest is, if it has been idle for `limit`.
    pub(crate) fn expired(&self, now: Instant, limit: Duration) -> Option<Place> {
        let (_, (place, since)) = self.since.first_key_value()?;
        (now.duration_since(*since) >= limit).then_some(*place)
    }

    /// Number of connections.
    pub(crate) fn len(&self) -> usize {
        self.since.len()
    }
}

/// Idle connections with their numbers.
#[derive(Debug)]
pub(crate) struct Idle<C> {
    /// The last one given stands last.
    connections: VecDeque<(C, u64)>,
}

impl<C> Default for Idle<C> {
    fn default() -> Self {
        Self { connections: VecDeque::new() }
    }
}

impl<C> Idle<C> {
    /// Closes the one that was given first.
    pub(crate) fn close_oldest(&mut self, order: &mut Order) {
        if let Some((_, number)) = self.connections.pop_front() {
            order.since.remove(&number);
        }
    }

    /// Takes all out.
    pub(crate) fn drain(&mut self, order: &mut Order) -> impl Iterator<Item = C> {
        self.connections.drain(..).map(|(connection, number)| {
            order.since.remove(&number);
            connection
        })
    }

    /// The one that was given last.
    pub(crate) fn take(&mut self, order: &mut Order) -> Option<C> {
        let (connection, number) = self.connections.pop_back()?;
        order.since.remove(&number);
        Some(connection)
    }

    /// Number of connections.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }
}

impl<C: Reusable> Idle<C> {
    /// Keeps one more.
    pub(crate) fn give(&mut self, connection: C, place: Place, now: Instant, order: &mut Order) {
        self.connections.push_back((connection, order.push(place, now)));
    }

    /// Puts those aside that are not quiet.
    pub(crate) fn sweep(&mut self, order: &mut Order, closing: &mut VecDeque<C>) {
        // A look costs nothing, and there is one to put aside only when an endpoint has closed.
        if self.connections.iter_mut().all(|(connection, _)| connection.is_quiet()) {
            return;
        }
        for (mut connection, number) in std::mem::take(&mut self.connections) {
            if connection.is_quiet() {
                self.connections.push_back((connection, number));
            } else {
                order.since.remove(&number);
                closing.push_back(connection);
            }
        }
    }
}
