//! The idle connections to one endpoint, the most recently used first: the others may time out. And the order in which
//! all idle connections of a worker were returned, for when there are too many.
//!
//! **Invariant:** a connection is in its [`Idle`] exactly as long as its number is in the [`Order`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::transport::TransportKey;

/// A connection that may be reused.
pub(crate) trait Reusable {
    /// Whether the peer has neither closed it nor sent anything unexpected.
    fn is_quiet(&mut self) -> bool;

    /// The same, from the kernel, which may know of a close that the runtime has not noticed yet.
    fn is_quiet_now(&self) -> bool;

    /// Counts a request that it served; returns whether it may serve another one.
    fn lasts(&mut self, now: Instant) -> bool;
}

/// The pool that a connection belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PoolKey {
    pub(crate) backend: u64,
    pub(crate) endpoint: u64,
    /// How it is spoken on.
    pub(crate) transport_key: TransportKey,
}

/// The order in which all idle connections of a worker were returned: numbers, not the connections. A linked ring, so
/// that each can be removed as cheaply as it was added.
#[derive(Debug)]
pub(crate) struct Order {
    /// By number. The first slot is the sentinel between the newest and the oldest.
    slots: Vec<Slot>,
    /// Unused numbers.
    free: Vec<usize>,
    len: usize,
}

/// An entry and the numbers of its neighbours.
#[derive(Debug, Default)]
struct Slot {
    whose: Option<(PoolKey, Instant)>,
    older: usize,
    newer: usize,
}

impl Default for Order {
    fn default() -> Self {
        Self { slots: vec![Slot::default()], free: Vec::new(), len: 0 }
    }
}

impl Order {
    fn push(&mut self, place: PoolKey, now: Instant) -> usize {
        let newest = self.slots[0].older;
        let slot = Slot { whose: Some((place, now)), older: newest, newer: 0 };
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        (self.slots[newest].newer, self.slots[0].older) = (number, number);
        self.len += 1;
        number
    }

    fn remove(&mut self, number: usize) {
        let Slot { whose: Some(_), older, newer } = std::mem::take(&mut self.slots[number]) else {
            return;
        };
        (self.slots[older].newer, self.slots[newer].older) = (newer, older);
        self.free.push(number);
        self.len -= 1;
    }

    /// The place of the oldest connection.
    pub(crate) fn oldest(&self) -> Option<PoolKey> {
        self.first().whose.map(|(place, _)| place)
    }

    /// The places of all connections, the oldest first.
    pub(crate) fn places(&self) -> impl Iterator<Item = PoolKey> {
        let mut slot = &self.slots[0];
        std::iter::from_fn(move || {
            slot = &self.slots[slot.newer];
            slot.whose.map(|(place, _)| place)
        })
    }

    /// Removes the oldest.
    pub(crate) fn forget_oldest(&mut self) {
        if self.len > 0 {
            self.remove(self.slots[0].newer);
        }
    }

    /// The place of the oldest, if it has been idle for `limit`.
    pub(crate) fn expired(&self, now: Instant, limit: Duration) -> Option<PoolKey> {
        let (place, since) = self.first().whose?;
        (now.duration_since(since) >= limit).then_some(place)
    }

    /// Number of connections.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn first(&self) -> &Slot {
        &self.slots[self.slots[0].newer]
    }
}

/// The idle connections of a pool, with their numbers.
#[derive(Debug)]
pub(crate) struct Idle<C> {
    /// The most recently returned one is last.
    connections: VecDeque<(C, usize)>,
}

impl<C> Default for Idle<C> {
    fn default() -> Self {
        Self { connections: VecDeque::new() }
    }
}

impl<C> Idle<C> {
    /// Closes the one that was returned first.
    pub(crate) fn close_oldest(&mut self, order: &mut Order) {
        if let Some((_, number)) = self.connections.pop_front() {
            order.remove(number);
        }
    }

    /// Removes all.
    pub(crate) fn drain(&mut self, order: &mut Order) -> impl Iterator<Item = C> {
        self.connections.drain(..).map(|(connection, number)| {
            order.remove(number);
            connection
        })
    }

    /// The most recently returned one.
    pub(crate) fn take(&mut self, order: &mut Order) -> Option<C> {
        let (connection, number) = self.connections.pop_back()?;
        order.remove(number);
        Some(connection)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Number of connections.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }
}

impl<C: Reusable> Idle<C> {
    /// Adds one.
    pub(crate) fn give(&mut self, connection: C, place: PoolKey, now: Instant, order: &mut Order) {
        self.connections.push_back((connection, order.push(place, now)));
    }

    /// Moves those to `closing` that are not quiet.
    pub(crate) fn sweep(&mut self, order: &mut Order, closing: &mut VecDeque<C>) {
        // Looking costs nothing, and there is one to remove only when an endpoint has closed it.
        if self.connections.iter_mut().all(|(connection, _)| connection.is_quiet()) {
            return;
        }
        for (mut connection, number) in std::mem::take(&mut self.connections) {
            if connection.is_quiet() {
                self.connections.push_back((connection, number));
            } else {
                order.remove(number);
                closing.push_back(connection);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::table::Protocol;

    proptest! {
        /// After any operations it equals a plain list.
        #[test]
        fn it_is_the_order_in_which_they_were_given(steps in prop::collection::vec((0..4_u8, 0..8_usize), 0..60)) {
            let (mut order, mut list): (_, Vec<(PoolKey, usize)>) = (Order::default(), Vec::new());
            let mut most = 0;
            let now = shared::clock::now();
            for (count, (step, which)) in steps.into_iter().enumerate() {
                let place = PoolKey { backend: count as u64, endpoint: 0, transport_key: TransportKey::of(Protocol::Http) };
                match step {
                    0 if !list.is_empty() => order.remove(list.remove(which % list.len()).1),
                    1 => {
                        order.forget_oldest();
                        list.drain(..list.len().min(1));
                    }
                    _ => list.push((place, order.push(place, now))),
                }
                prop_assert_eq!(order.oldest(), list.first().map(|(place, _)| *place));
                prop_assert!(order.places().eq(list.iter().map(|(place, _)| *place)));
                prop_assert_eq!(order.len(), list.len());
                most = most.max(list.len());
                prop_assert_eq!(order.slots.len(), most + 1, "numbers are given again");
            }
        }
    }
}
