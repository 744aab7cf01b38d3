//! The order in which the responses of a connection are read from their endpoints while there is no room for all of
//! them: that in which they came to wait.
//!
//! A response that is being sent joins the others after each piece. Otherwise those that the client takes steadily would
//! keep out all others, because each has its next piece in hand as soon as the last one is gone.
//!
//! **Invariant:** the first of the line is woken when there may be room for it, and when it has become the first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use shared::budget::Level;

use super::streams::Streams;
use crate::codec::body::Outlet;
use crate::local::Local;

/// Those of one connection that wait.
#[derive(Default)]
pub(super) struct Line {
    /// In the order of their places.
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    last: Cell<u64>,
    /// Whether giving way has not made room for the first one.
    is_in_vain: Cell<bool>,
}

impl Line {
    /// Number of those that wait.
    fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

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
        if waiting.is_empty() {
            self.is_in_vain.set(false);
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
            self.wake_first();
        }
    }

    /// Wakes the first one: there may be room for it.
    pub(super) fn wake_first(&self) {
        if let Some((_, first)) = self.waiting.borrow().front() {
            first.wake_by_ref();
        }
    }
}

/// A response, and its place in the line while it waits.
pub(super) struct Turn {
    streams: Rc<Streams>,
    local: Rc<Local>,
    place: Option<u64>,
    /// When it last asked for the next tick.
    asked: Option<Instant>,
}

impl Turn {
    /// It does not wait yet.
    pub(super) fn new(streams: &Rc<Streams>, local: &Rc<Local>) -> Self {
        Self { streams: Rc::clone(streams), local: Rc::clone(local), place: None, asked: None }
    }

    /// The streams of its connection.
    pub(super) fn streams(&self) -> &Rc<Streams> {
        &self.streams
    }

    /// Whether others wait that it can give way to.
    pub(super) fn is_contended(&self) -> bool {
        let line = &self.streams.line;
        line.len() > usize::from(self.place.is_some()) && !line.is_in_vain.get()
    }

    /// Those that wait get no room by this: nobody gives way to them until one of them has got some.
    pub(super) fn gave_way_in_vain(&self) {
        self.streams.line.is_in_vain.set(true);
    }
}

impl Outlet for Turn {
    fn has_room(&self) -> bool {
        self.place.is_none()
            && self.streams.line.is_first(None)
            && self.streams.has_room(self.local.quota.level())
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (line, level) = (&self.streams.line, self.local.quota.level());
        let is_first = line.is_first(self.place);
        if is_first && self.streams.has_room(level) {
            line.is_in_vain.set(false);
            // There may be room for the next one, too.
            self.leave();
            return Poll::Ready(());
        }
        self.place = Some(line.wait(self.place, cx.waker()));
        if is_first && level != Level::Calm {
            // Memory becomes plentiful without a byte being moved on this connection.
            self.local.timers.wake_at_tick(&mut self.asked, cx.waker());
        }
        Poll::Pending
    }

    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            self.streams.line.leave(place);
        }
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
        let held: Vec<_> = (0..4).map(|_| streams.untaken(16 * 1024)).collect();
        let [mut a, mut b, mut c, mut d] = [(); 4].map(|()| Waiter::new(&streams, &local));
        for waiter in [&mut a, &mut b, &mut c] {
            assert!(!waiter.turn.has_room() && !waiter.has_turn());
        }
        drop(held);
        assert!(a.is_woken() && !b.is_woken() && !c.is_woken(), "one after the other");
        assert!(!d.turn.has_room() && !d.has_turn() && !c.has_turn(), "not before the others");
        assert!(a.has_turn() && b.is_woken());
        let lying = streams.untaken(64 * 1024);
        assert!(!b.has_turn(), "the first has used it up");
        drop(b);
        assert!(c.is_woken(), "it is the first now");
        drop(lying);
        assert!(c.is_woken() && c.has_turn() && d.is_woken() && d.has_turn());
        assert!(a.turn.has_room());
    }

    #[test]
    fn way_is_given_until_it_is_in_vain() {
        let (streams, local) = (Rc::<Streams>::default(), Rc::new(Local::for_tests()));
        let lying = streams.untaken(64 * 1024);
        let [mut waits, mut flows] = [(); 2].map(|()| Waiter::new(&streams, &local));
        assert!(!flows.turn.is_contended());
        assert!(!waits.has_turn() && flows.turn.is_contended());
        assert!(!flows.has_turn() && flows.turn.is_contended() && waits.turn.is_contended());
        flows.turn.gave_way_in_vain();
        flows.turn.leave();
        assert!(!flows.turn.is_contended(), "what lies keeps the other out, whoever gives way");
        drop(lying);
        assert!(waits.has_turn());
        let _lying = streams.untaken(64 * 1024);
        assert!(!waits.has_turn() && flows.turn.is_contended());
    }
}
