//! An answer's body that goes to its client no faster than its location says.
//!
//! **Invariant:** what may not go yet is one piece; the backend is not read on while it waits.

use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;

use super::ReplyBody;
use crate::codec::error::ProxyError;
use crate::local::Local;
use crate::local::timer::{TICK, Timer, Timers};
use crate::table::policy::pace::Pace;

/// A body that waits for its time.
pub(crate) struct Paced {
    body: ReplyBody,
    pace: Pace,
    clock: Rc<Timers>,
    timer: Timer,
    /// Whether the timer runs.
    waits: bool,
    since: Instant,
    gone: u64,
    /// What was read and may not go yet.
    held: Bytes,
}

impl fmt::Debug for Paced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced").field("body", &self.body).finish_non_exhaustive()
    }
}

impl Paced {
    /// From now on.
    pub(crate) fn new(local: &Local, body: ReplyBody, pace: Pace) -> Self {
        let clock = Rc::clone(&local.timers);
        let (timer, since) = (clock.timer(), clock.now());
        Self { body, pace, clock, timer, waits: false, since, gone: 0, held: Bytes::new() }
    }

    /// The body itself.
    pub(super) fn body(&mut self) -> &mut ReplyBody {
        &mut self.body
    }

    /// What may go now: a piece, or `Some(None)` at the end.
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
        Ok(Some(Some(piece)))
    }

    /// Waits for the time of what is held, else reads more.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        if self.held.is_empty() {
            return self.body.poll_more(cx);
        }
        while self.room() == 0 {
            if !std::mem::replace(&mut self.waits, true) {
                self.timer.arm(TICK);
            }
            ready!(self.timer.poll_elapsed(cx));
            self.waits = false;
        }
        // Whatever woke us: the next wait sets the timer anew.
        self.waits = false;
        self.timer.disarm();
        Poll::Ready(Ok(()))
    }

    /// Bytes that may go now.
    fn room(&self) -> usize {
        let elapsed = self.clock.now().duration_since(self.since);
        let room = self.pace.allowed(elapsed).saturating_sub(self.gone);
        usize::try_from(room).unwrap_or(usize::MAX)
    }
}
