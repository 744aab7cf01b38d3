//! How much a shared connection to an endpoint was given and has not written. What is given cannot be taken back, so calls
//! wait while that is much, or while the socket accepts nothing.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// Bytes that a connection may be given before it has written them.
const GIVEN: usize = 64 * 1024;

/// The state of a connection that its calls share.
#[derive(Debug, Default)]
pub(super) struct Flow {
    is_stuck: Cell<bool>,
    given: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
}

impl Flow {
    /// Ready when the connection may be given data.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.is_stuck.get() && self.given.get() < GIVEN {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// It was given so much.
    pub(super) fn gave(&self, bytes: usize) {
        self.given.set(self.given.get() + bytes);
    }

    /// It has written everything, or the socket accepts nothing.
    pub(super) fn wrote(&self, is_stuck: bool) {
        self.is_stuck.set(is_stuck);
        if !is_stuck {
            self.given.set(0);
            let mut waiting = self.waiting.take();
            // Whoever is woken first may take all there is and be the first to wait again.
            let first = 1.min(waiting.len());
            waiting.rotate_left(first);
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    use tokio::task::JoinSet;

    use super::*;

    type Log = Arc<Mutex<Vec<char>>>;

    /// A task that notes when it is woken.
    struct Task(char, Log);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    /// As a task of the runtime sees it: whether a clone of a [`Waker`] is known again depends on where the compiler puts
    /// its table, and of the wakers of the standard library (`Waker::noop` is one) it may put down two.
    #[tokio::test]
    async fn a_connection_that_is_stuck_or_has_much_is_given_nothing() {
        fn look(cx: &Context<'_>) {
            let flow = Flow::default();
            flow.gave(GIVEN - 1);
            assert!(flow.poll(cx).is_ready());
            flow.gave(1);
            assert!(flow.poll(cx).is_pending() && flow.poll(cx).is_pending());
            assert_eq!(flow.waiting.borrow().len(), 1, "each waits once");
            flow.wrote(true);
            assert!(flow.poll(cx).is_pending());
            flow.wrote(false);
            assert!(flow.poll(cx).is_ready() && flow.waiting.borrow().is_empty());
        }
        let mut task = JoinSet::new();
        task.spawn(poll_fn(|cx| {
            look(cx);
            Poll::Ready(())
        }));
        task.join_next().await.unwrap().unwrap();
    }

    #[test]
    fn who_takes_all_there_is_does_not_come_first_again() {
        let (flow, log) = (Flow::default(), Log::default());
        let tasks = ['a', 'b', 'c'].map(|name| Waker::from(Arc::new(Task(name, Arc::clone(&log)))));
        flow.gave(GIVEN);
        let mut first = Vec::new();
        for _ in 0..6 {
            // All wait, in the order in which they were woken.
            let order: Vec<char> = std::mem::take(&mut *log.lock().unwrap());
            let order = if order.is_empty() { vec!['a', 'b', 'c'] } else { order };
            first.push(order[0]);
            for name in order {
                let cx = &Context::from_waker(&tasks[name as usize - 'a' as usize]);
                if flow.poll(cx).is_ready() {
                    flow.gave(GIVEN);
                    assert!(flow.poll(cx).is_pending());
                }
            }
            flow.wrote(false);
        }
        assert_eq!(first, ['a', 'b', 'c', 'a', 'b', 'c']);
    }
}
