//! The order in which the responses of a connection go on while it has not written what it was given: that in which
//! they came to wait, each with one piece or with its head.
//!
//! **Invariant:** the first of the line is woken when there may be room for it, and when it has become the first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::streams::Streams;
use crate::codec::body::Outlet;
use crate::local::Local;

/// Those of one connection that wait.
#[derive(Default)]
pub(super) struct Line {
    /// In the order of their places.
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    last: Cell<u64>,
}

impl Line {
    /// Whether nobody is before the one in this place, or before a new one.
    fn is_first(&self, place: Option<u64>) -> bool {
        self.waiting.borrow().front().map(|(first, _)| *first) == place
    }

    /// Waits in this place, or in the last one.
    fn wait(&self, place: Option<u64>, waker: &Waker) -> u64 {
        let mut waiting = self.waiting.borrow_mut();
        if let Some(place) = place
            && let Ok(index) = waiting.binary_search_by_key(&place, |(place, _)| *place)
        {
            waiting[index].1.clone_from(waker);
            return place;
        }
        let place = self.last.get() + 1;
        self.last.set(place);
        waiting.push_back((place, waker.clone()));
        place
    }

    /// Frees a place.
    fn leave(&self, place: u64) {
        let mut waiting = self.waiting.borrow_mut();
        let Ok(index) = waiting.binary_search_by_key(&place, |(place, _)| *place) else { return };
        waiting.remove(index);
        drop(waiting);
        if index == 0 {
            self.wake(1);
        }
    }

    /// Wakes the first ones: there may be room for so many. Woken together, they are written together.
    pub(super) fn wake(&self, count: usize) {
        self.waiting.borrow().iter().take(count).for_each(|(_, waker)| waker.wake_by_ref());
    }
}

/// A response, and its place in the line while it waits.
pub(super) struct Turn {
    streams: Rc<Streams>,
    local: Rc<Local>,
    place: Option<u64>,
}

impl Turn {
    /// It does not wait yet.
    pub(super) fn new(streams: &Rc<Streams>, local: &Rc<Local>) -> Self {
        Self { streams: Rc::clone(streams), local: Rc::clone(local), place: None }
    }

    /// The streams of its connection.
    pub(super) fn streams(&self) -> &Rc<Streams> {
        &self.streams
    }

    /// Whether it waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.place.is_some()
    }
}

impl Outlet for Turn {
    fn has_room(&self) -> bool {
        self.streams.has_room() && self.streams.line.is_first(self.place)
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_room() {
            // There may be room for the next one, too.
            self.leave();
            return Poll::Ready(());
        }
        self.place = Some(self.streams.line.wait(self.place, cx.waker()));
        Poll::Pending
    }

    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            self.streams.line.leave(place);
        }
    }

    fn most(&self) -> usize {
        self.streams.most(self.local.quota.level())
    }

    fn taken(&self) -> u64 {
        self.streams.taken()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A response that waits.
    struct Waiter {
        turn: Turn,
        woken: Arc<Woken>,
    }

    impl Waiter {
        fn new(streams: &Rc<Streams>, local: &Rc<Local>) -> Self {
            Self { turn: Turn::new(streams, local), woken: Arc::default() }
        }

        fn has_turn(&mut self) -> bool {
            let waker = Waker::from(Arc::clone(&self.woken));
            self.turn.poll_room(&mut Context::from_waker(&waker)).is_ready()
        }

        /// Whether it was woken since the last call.
        fn is_woken(&self) -> bool {
            self.woken.0.swap(0, Ordering::Relaxed) > 0
        }
    }

    #[test]
    fn room_is_given_in_order_of_arrival() {
        let (streams, local) = (Rc::<Streams>::default(), Rc::new(Local::for_tests()));
        streams.took(0, true, &local.quota);
        let [mut a, mut b, mut c, mut d] = [(); 4].map(|()| Waiter::new(&streams, &local));
        for waiter in [&mut a, &mut b, &mut c] {
            assert!(!waiter.turn.has_room() && !waiter.has_turn());
        }
        streams.took(0, false, &local.quota);
        assert!([&a, &b, &c].into_iter().all(Waiter::is_woken), "there may be room for all");
        assert!(!d.turn.has_room() && !d.has_turn() && !c.has_turn(), "not before the others");
        assert!(a.has_turn() && b.is_woken());
        streams.gave(1 << 20);
        assert!(!b.has_turn(), "the first has used it up");
        drop(b);
        assert!(c.is_woken(), "it is the first now");
        streams.took(1 << 20, false, &local.quota);
        assert!(c.is_woken() && c.has_turn() && d.is_woken() && d.has_turn());
        assert!(a.turn.has_room());
    }
}
