//! The receive window of a connection.
//!
//! Bodies that their endpoints do not read stay within the windows of their streams, but also take from the window that
//! all streams of the connection share. Backpressure is ordinary for gRPC, whose clients use one connection for
//! everything: a few stalled calls must not stop the uploads of all others. So the shared window grows by what the
//! stalled streams hold, as long as the memory budget allows it.
//!
//! **Invariant:** everything beyond [`SIZE`] is charged to the budget.

use std::rc::Rc;

use shared::budget::Level;

use crate::local::quota::{Quota, Share};

/// Bytes of request bodies that a client may send ahead on all streams together, in addition to what is charged.
pub(super) const SIZE: u32 = 512 * 1024;

/// Step size in bytes: a connection whose streams are read never gets to one.
const STEP: u32 = 64 * 1024;

/// The size of the window.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Bytes that it has been enlarged by.
    extra: u32,
    /// Bytes that the connection had sent when this was last computed.
    received: u64,
    /// The budget for `extra`.
    share: Option<Share>,
    /// It was not enlarged for lack of memory.
    is_short: bool,
}

impl Window {
    /// The new size, if it changes. `received`: bytes that the connection has sent; `unread`: those of bodies that
    /// nobody has read.
    pub(super) fn follow(
        &mut self,
        received: u64,
        unread: impl FnOnce() -> usize,
        quota: &Rc<Quota>,
    ) -> Option<u32> {
        if self.extra == 0 && !self.is_short && received - self.received < u64::from(STEP) {
            return None;
        }
        self.received = received;
        let wanted = u32::try_from(unread()).unwrap_or(u32::MAX - SIZE) / STEP * STEP;
        self.is_short = wanted > self.extra && !self.reserve(wanted, quota);
        if wanted == self.extra || self.is_short {
            return None;
        }
        if wanted < self.extra {
            self.share = self.share.take().filter(|_| wanted > 0);
            self.share.iter_mut().for_each(|share| share.shrink(wanted as usize));
        }
        self.extra = wanted;
        Some(SIZE + wanted)
    }

    /// Whether it would be larger with more memory: the client may have nothing left to send that would lead to another
    /// look.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Charges an enlargement. Other connections have precedence when memory is short.
    fn reserve(&mut self, wanted: u32, quota: &Rc<Quota>) -> bool {
        if quota.level() != Level::Calm {
            return false;
        }
        if let Some(share) = &mut self.share {
            return share.grow((wanted - self.extra) as usize);
        }
        self.share = quota.open(wanted as usize);
        self.share.is_some()
    }
}

#[cfg(test)]
mod tests {
    use shared::budget::Budget;

    use super::*;

    #[test]
    fn upload_window_grows_with_unread_bytes_and_shrinks_again() {
        let quota = Quota::new(Budget::new(1 << 30));
        let mut window = Window::default();
        assert_eq!(window.follow(u64::from(STEP) - 1, || panic!("little has come"), &quota), None);
        assert_eq!(window.follow(100_000, || STEP as usize - 1, &quota), None, "it is about to be read");
        assert_eq!(window.follow(300_000, || 200_000, &quota), Some(SIZE + 3 * STEP));
        assert_eq!(window.follow(300_001, || 200_001, &quota), None);
        assert_eq!(quota.held(), 3 * STEP as usize);
        assert_eq!(window.follow(700_000, || 600_000, &quota), Some(SIZE + 9 * STEP));
        assert_eq!(quota.held(), 9 * STEP as usize);
        assert_eq!(window.follow(700_000, || 70_000, &quota), Some(SIZE + STEP));
        assert_eq!(quota.held(), STEP as usize);
        assert_eq!(window.follow(700_000, || 0, &quota), Some(SIZE));
        assert_eq!(quota.held(), 0);
    }

    #[test]
    fn upload_window_does_not_grow_without_memory() {
        let quota = Quota::new(Budget::new(4 << 20));
        let mut window = Window::default();
        assert_eq!(window.follow(1 << 20, || 1 << 20, &quota), Some(SIZE + (1 << 20)));
        let others = quota.take(5 << 19).unwrap();
        assert_eq!(window.follow(2 << 20, || 2 << 20, &quota), None);
        assert!(window.is_short());
        assert_eq!(window.follow(2 << 20, || 1 << 19, &quota), Some(SIZE + (1 << 19)), "it always shrinks");
        assert!(!window.is_short());
        assert_eq!(window.follow(2 << 20, || 0, &quota), Some(SIZE));
        let more = quota.take(1 << 19).unwrap();
        assert_eq!(window.follow(3 << 20, || SIZE as usize, &quota), None);
        drop((others, more));
        assert_eq!(window.follow(3 << 20, || SIZE as usize, &quota), Some(2 * SIZE), "no more can come");
        assert!(!window.is_short());
    }
}
