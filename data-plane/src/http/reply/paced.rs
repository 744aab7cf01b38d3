//! A response body that is sent no faster than its location allows.
//!
//! **Invariant:** at most one piece is held back; the backend is not read meanwhile, and both the piece and its buffer
//! are counted in the budget for what is held for clients.

use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;

use super::ReplyBody;
use crate::codec::error::{Kind, ProxyError};
use crate::local::Local;
use crate::local::quota::{Quota, Share};
use crate::local::timer::{TICK, Timer, Timers};
use crate::table::policy::pace::Pace;

/// A rate-limited body.
pub(crate) struct Paced {
    body: ReplyBody,
    pace: Pace,
    clock: Rc<Timers>,
    timer: Timer,
    /// Whether the timer is armed.
    waits: bool,
    since: Instant,
    gone: u64,
    /// A piece that was read but must not be sent yet.
    held: Bytes,
    quota: Rc<Quota>,
    /// The budget share of that piece, while it waits.
    share: Option<Share>,
}

impl fmt::Debug for Paced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced").field("body", &self.body).finish_non_exhaustive()
    }
}

impl Paced {
    /// The limit starts now.
    pub(crate) fn new(local: &Local, body: ReplyBody, pace: Pace) -> Self {
        let clock = Rc::clone(&local.timers);
        let (timer, since) = (clock.timer(), clock.now());
        let quota = Rc::clone(&local.quota);
        Self {
            body,
            pace,
            clock,
            timer,
            waits: false,
            since,
            gone: 0,
            held: Bytes::new(),
            quota,
            share: None,
        }
    }

    /// Bytes held that were not charged to the budget yet.
    pub(super) fn held(&self) -> usize {
        match self.share {
            Some(_) => 0,
            None => self.held.len() + self.body.held(),
        }
    }

    /// The underlying body.
    pub(super) fn body(&mut self) -> &mut ReplyBody {
        &mut self.body
    }

    /// What may be sent now: a piece, or `Some(None)` at the end.
    pub(super) fn buffered(&mut self) -> Result<Option<Option<Bytes>>, ProxyError> {
        if self.held.is_empty() {
            match self.body.buffered()? {
                Some(Some(piece)) => self.held = piece,
                end => return Ok(end),
            }
        }
        let room = self.room();
        if room == 0 {
            return Ok(None);
        }
        let piece = self.held.split_to(room.min(self.held.len()));
        self.gone += piece.len() as u64;
        if self.held.is_empty() {
            self.share = None;
        }
        Ok(Some(Some(piece)))
    }

    /// Ready when there is something to read. Nothing is while a piece is held.
    pub(super) fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.held.is_empty() { self.body.poll_arrived(cx) } else { Poll::Pending }
    }

    /// Waits until the held piece may be sent, else reads more.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        if self.held.is_empty() {
            return self.body.poll_more(cx);
        }
        if self.share.is_none() {
            let held = self.held();
            self.share = Some(self.quota.take(held).ok_or(Kind::NoRoom)?);
        }
        while self.room() == 0 {
            if !std::mem::replace(&mut self.waits, true) {
                self.timer.arm(TICK);
            }
            ready!(self.timer.poll_elapsed(cx));
            self.waits = false;
        }
        // Whatever the cause of the wake-up: the next wait sets the timer anew.
        self.waits = false;
        self.timer.disarm();
        Poll::Ready(Ok(()))
    }

    /// Bytes that may be sent now.
    fn room(&self) -> usize {
        let elapsed = self.clock.now().duration_since(self.since);
        let room = self.pace.allowed(elapsed).saturating_sub(self.gone);
        usize::try_from(room).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use shared::policy::LocationPolicy;

    use super::*;

    #[tokio::test]
    async fn bytes_delayed_by_limit_rate_are_charged() {
        let local = Local::for_tests();
        let policy = LocationPolicy { limit_rate: Some(1), ..LocationPolicy::default() };
        let pace = Pace::compile(&policy).unwrap();
        let mut paced = Paced::new(&local, ReplyBody::Page(Bytes::from(vec![b'x'; 3_000])), pace);
        assert_eq!(paced.buffered().unwrap().unwrap().unwrap().len(), 1_024, "a second's worth goes at once");
        assert!(paced.buffered().unwrap().is_none());
        assert_eq!((paced.held(), local.quota.held()), (1_976, 0));
        let waits = poll_fn(|cx| Poll::Ready(paced.poll_more(cx).is_pending())).await;
        assert!(waits);
        assert_eq!((paced.held(), local.quota.held()), (0, 1_976));
        local.timers.tick(local.timers.now() + Duration::from_secs(60));
        poll_fn(|cx| paced.poll_more(cx)).await.unwrap();
        assert_eq!(paced.buffered().unwrap().unwrap().unwrap().len(), 1_976);
        assert_eq!((paced.held(), local.quota.held()), (0, 0));
        assert!(paced.buffered().unwrap().unwrap().is_none(), "the end");
    }
}
