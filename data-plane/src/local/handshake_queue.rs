//! Handshakes take turns. One costs as much as dozens of requests, and in a storm many are ready at once: computed as
//! they come, they would all be done before the worker gets back to its other connections. So per turn of its event
//! loop a worker computes a limited number of them, and the others wait in order of arrival.
//!
//! **Invariant:** without I/O and without a clock: the caller says when a turn of the event loop is over. A turn
//! granted to a connection that goes away passes to the next one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Handshake steps per turn of the worker's event loop. Polling the sockets costs a hundredth of a step, so a higher
/// number would gain nothing.
const STEPS: usize = 1;

/// The remaining steps of the turn, and the waiting handshakes.
#[derive(Debug)]
pub(crate) struct HandshakeQueue {
    left: Cell<usize>,
    waiting: RefCell<VecDeque<Rc<Slot>>>,
    /// Total steps so far.
    taken: Cell<u64>,
    /// Whether somebody waits for the end of this turn.
    is_ending: Cell<bool>,
}

#[derive(Debug, Default)]
struct Slot {
    is_given: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// The place of one handshake in the queue.
#[derive(Debug)]
pub(crate) struct QueuedHandshake {
    queue: Rc<HandshakeQueue>,
    slot: Option<Rc<Slot>>,
}

impl Default for HandshakeQueue {
    fn default() -> Self {
        Self {
            left: Cell::new(STEPS),
            waiting: RefCell::default(),
            taken: Cell::new(0),
            is_ending: Cell::new(false),
        }
    }
}

impl HandshakeQueue {
    /// For a handshake that does not wait yet.
    pub(crate) fn join(self: &Rc<Self>) -> QueuedHandshake {
        QueuedHandshake { queue: Rc::clone(self), slot: None }
    }

    /// Total steps so far.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Whether the caller has to wait for the end of this turn and call [`Self::end`]. True once per turn.
    pub(crate) fn has_to_end(&self) -> bool {
        !self.is_ending.replace(true)
    }

    /// The worker has polled its sockets.
    pub(crate) fn end(&self) {
        self.is_ending.set(false);
        self.left.set(0);
        for _ in 0..STEPS {
            self.give();
        }
    }

    /// Gives a step to the next handshake in the queue, or to the next caller.
    fn give(&self) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(slot) = waiting.pop_front() {
            // Referenced only by the queue: its handshake is gone.
            if Rc::strong_count(&slot) > 1 {
                slot.is_given.set(true);
                if let Some(waker) = slot.waker.borrow_mut().take() {
                    waker.wake();
                }
                return;
            }
        }
        self.left.set(self.left.get() + 1);
    }
}

impl QueuedHandshake {
    /// Ready when this handshake may take a step.
    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let queue = &self.queue;
        match &self.slot {
            Some(slot) if slot.is_given.get() => self.slot = None,
            Some(slot) => {
                *slot.waker.borrow_mut() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            None if queue.left.get() > 0 => queue.left.set(queue.left.get() - 1),
            None => {
                let slot = Rc::new(Slot::default());
                *slot.waker.borrow_mut() = Some(cx.waker().clone());
                queue.waiting.borrow_mut().push_back(Rc::clone(&slot));
                self.slot = Some(slot);
                return Poll::Pending;
            }
        }
        self.queue.taken.set(self.queue.taken.get() + 1);
        Poll::Ready(())
    }
}

impl Drop for QueuedHandshake {
    fn drop(&mut self) {
        if self.slot.take().is_some_and(|slot| slot.is_given.get()) {
            self.queue.give();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn handshakes_are_granted_in_order_and_a_dropped_one_passes_its_turn() {
        let queue: Rc<HandshakeQueue> = Rc::default();
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut all: Vec<_> = (0..6).map(|_| Some(queue.join())).collect();
        let ready = |all: &mut Vec<Option<QueuedHandshake>>, cx: &mut Context<'_>| {
            let mut ready = Vec::new();
            for (place, one) in all.iter_mut().enumerate() {
                if one.as_mut().is_some_and(|it| it.poll_step(cx).is_ready()) {
                    ready.push(place);
                    *one = None;
                }
            }
            ready
        };
        assert_eq!(ready(&mut all, &mut cx), [0]);
        assert!(queue.has_to_end() && !queue.has_to_end(), "it is said once");
        assert_eq!(ready(&mut all, &mut cx), [] as [usize; 0], "not before the next turn");
        all[1] = None;
        queue.end();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1, "nobody else is woken");
        assert_eq!(ready(&mut all, &mut cx), [2]);
        queue.end();
        // Given to one that goes away before it uses it.
        all[3] = None;
        assert_eq!(ready(&mut all, &mut cx), [4]);
        queue.end();
        assert_eq!(ready(&mut all, &mut cx), [5]);
        queue.end();
        queue.end();
        let mut late = [queue.join(), queue.join()];
        let late = late.each_mut().map(|it| it.poll_step(&mut cx).is_ready());
        assert_eq!(late, [true, false], "turns that nobody used are not saved up");
        assert_eq!(queue.taken(), 5);
        assert!(queue.has_to_end());
    }
}
