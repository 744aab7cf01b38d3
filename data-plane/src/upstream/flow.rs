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
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_stuck_or_has_much_is_given_nothing() {
        let (flow, cx) = (Flow::default(), Context::from_waker(Waker::noop()));
        flow.gave(GIVEN - 1);
        assert!(flow.poll(&cx).is_ready());
        flow.gave(1);
        assert!(flow.poll(&cx).is_pending() && flow.poll(&cx).is_pending());
        assert_eq!(flow.waiting.borrow().len(), 1, "each waits once");
        flow.wrote(true);
        assert!(flow.poll(&cx).is_pending());
        flow.wrote(false);
        assert!(flow.poll(&cx).is_ready() && flow.waiting.borrow().is_empty());
    }
}
