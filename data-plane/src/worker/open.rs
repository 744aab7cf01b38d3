//! Open connections, and their slots among all.

use std::rc::Rc;
use std::time::Duration;

use shared::budget::Held;

use super::parked::ParkedEntry;
use super::{SHED, Worker, attend};
use crate::http::conn::Parked;
use crate::local::Budgets;
use crate::local::quota::Price;

/// Memory of a connection on which nothing happens, in bytes. What it holds beyond that is charged when it does.
const CONNECTION: usize = 1024;

/// The permit of a connection: one of the connections, one of the descriptors, and its memory.
pub(super) type ConnectionPermit = (Held, Held, Price<CONNECTION>);

/// Counts a connection as open until dropped.
pub(super) struct Open {
    worker: Rc<Worker>,
    /// `None` if it was accepted in advance for another one that is closing.
    place: Option<ConnectionPermit>,
    /// The connection continues without this, and keeps its slot.
    is_parked: bool,
}

impl Open {
    /// A further connection, if there is a slot or one can be freed: the connections that have been idle for longest
    /// are closed, some at a time, because finding them means looking at all.
    pub(super) fn new(worker: &Rc<Worker>) -> Option<Self> {
        let Budgets { connections, descriptors, .. } = &worker.budgets;
        let quota = &worker.server.local.quota;
        let place = connections.take(1).and_then(|it| Some((it, descriptors.take(1)?, quota.price()?)));
        if place.is_none() {
            if worker.owed.get() >= worker.ending.get() {
                let shed = worker.server.local.timers.shed(SHED, Duration::ZERO);
                worker.server.local.metrics.shed.add(shed as u64);
                worker.ending.set(worker.ending.get() + shed);
            }
            if worker.owed.get() >= worker.ending.get() {
                return None;
            }
            worker.owed.set(worker.owed.get() + 1);
        }
        worker.count(1);
        Some(Self { worker: Rc::clone(worker), place, is_parked: false })
    }

    /// Parks the idle connection without a task. It stays open.
    pub(super) fn park(mut self, parked: Parked) {
        self.is_parked = true;
        let entry = (parked, self.place.take());
        if let Err(entry) = self.worker.parked_set.park(entry) {
            self.worker.wake(entry, false);
        }
        self.worker.count_parked();
    }

    /// Its task was ended by a panic.
    pub(super) fn panicked(self) {
        self.worker.server.local.metrics.panics.add(1);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.is_parked {
            return;
        }
        let Worker { ending, owed, paid, .. } = &*self.worker;
        ending.set(ending.get().saturating_sub(1));
        match self.place.take() {
            Some(place) if owed.get() > 0 => {
                owed.set(owed.get() - 1);
                paid.borrow_mut().push(place);
            }
            Some(_) => {}
            None if paid.borrow_mut().pop().is_some() => {}
            None => owed.set(owed.get().saturating_sub(1)),
        }
        self.worker.count(-1);
    }
}

impl Worker {
    /// Gives a parked connection a task again.
    pub(super) fn wake(self: &Rc<Self>, (parked, place): ParkedEntry, saw_end: bool) {
        self.count_parked();
        let open = Open { worker: Rc::clone(self), place, is_parked: false };
        attend(open, parked.serve(Rc::clone(&self.server), saw_end));
    }
}
