//! What the streams of one HTTP/2 connection hold together (docs/adr/003-budgets.md): request heads without a response
//! yet, and responses that the client does not read.
//!
//! A head that refers to an earlier one costs its sender one byte (the HPACK bomb), and a response behind a closed
//! window costs it nothing. Both are bounded. Exceeding the bound is not a client error: a request that does not fit
//! waits for an earlier one to finish, and a response is read from its endpoint no further than its client takes it.
//!
//! Responses whose windows are closed do not keep others out. A connection that does not write what it was given does:
//! nobody else could get anything either.
//!
//! **Invariant:** a connection without requests in progress may start any request.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use shared::budget::Level;

use super::line::Line;
use crate::http::pipeline::log::REQUEST;
use crate::local::quota::{Quota, Share};

/// Bytes of heads that are allowed in addition to what the connection has sent.
const HEADS: u64 = 16 * 1024;
/// Bytes of heads that are allowed per byte that the connection has sent.
const HEADS_A_BYTE: u64 = 10;
/// A head up to this size is ordinary, and included in the price of a request.
const ORDINARY: u64 = 1024;
/// The rest exists this many times: as stored, as sent on, and while one is built from the other.
const COPIES: u64 = 3;
/// Bytes of queued heads that are allowed in addition to what the connection has sent; requests beyond that are
/// refused, and can be retried.
const QUEUED: u64 = 128 * 1024;
/// Bytes of responses in hand that the client of a connection has not taken yet, beyond which no more is read of any
/// than its window takes.
const UNTAKEN: usize = 64 * 1024;
/// The client must have taken this many bytes for each further byte.
const TAKEN_A_BYTE: u64 = 2;
/// Limit of these further bytes.
const PAUSED: usize = 256 * 1024;
/// Bytes that are read all the same at a time: a head, or a response that may have ended.
const AHEAD: usize = 512;
/// Bytes given to the connection that it has not written yet, beyond which it is given no more and no response is read.
const GIVEN: usize = 64 * 1024;
/// Bytes that the head of a response counts for.
pub(super) const HEAD: usize = 4 * 1024;
/// Bytes that a queued request takes beside its text, its fields and their places.
const WAITING: usize = 2 * 1024;

/// The streams of a connection.
#[derive(Default)]
pub(super) struct Streams {
    count: Cell<usize>,
    /// What their heads are charged.
    heads: Cell<u64>,
    /// Bytes of responses that are held.
    untaken: Cell<usize>,
    /// The connection's waker, while requests are queued.
    connection: RefCell<Option<Waker>>,
    /// Bytes that the connection has taken.
    taken: Cell<u64>,
    /// How often the client has taken some when its connection took none.
    slowly: Cell<u64>,
    /// Whether it takes none now.
    stuck: Cell<bool>,
    /// Bytes that it was given since it last had written everything.
    given: Cell<usize>,
    /// The budget for these, while it takes none.
    share: RefCell<Option<Share>>,
    /// How often it has.
    rounds: Cell<u64>,
    /// Streams that wait until it has.
    held_up: RefCell<Vec<Waker>>,
    /// Those that wait until it may be given more.
    pub(super) line: Line,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} streams, heads at {}", self.count.get(), self.heads.get())
    }
}

impl Streams {
    /// Number of streams.
    pub(super) fn count(&self) -> usize {
        self.count.get()
    }

    /// Whether a request with a head of this size may start on a connection that has sent `received` bytes. When
    /// memory is short, there is no advance.
    pub(super) fn fits(&self, size: u64, received: u64, level: Level) -> bool {
        let ahead = if level == Level::Calm { HEADS } else { 0 };
        let allowed = ahead.saturating_add(HEADS_A_BYTE.saturating_mul(received));
        self.count.get() == 0 || weight(size) == 0 || self.heads.get() + weight(size) <= allowed
    }

    /// Starts a stream, if the process budget allows it.
    pub(super) fn begin(self: &Rc<Self>, size: u64, quota: &Rc<Quota>) -> Option<Counted> {
        // For the head as stored and as sent on, and its task.
        let share = quota.open(2 * usize::try_from(size).unwrap_or(usize::MAX / 4) + REQUEST)?;
        self.count.set(self.count.get() + 1);
        self.heads.set(self.heads.get() + weight(size));
        let (weight, received, left) = (Cell::new(weight(size)), Cell::new(0), Cell::new(false));
        Some(Counted { streams: Rc::clone(self), weight, received, left, _share: share })
    }

    /// Queues a request with a head of this size beside others with heads of `beside` bytes, if that is allowed.
    pub(super) fn wait(size: u64, beside: u64, received: u64, quota: &Rc<Quota>) -> Option<Share> {
        let fits =
            beside.saturating_add(size) <= QUEUED.saturating_add(HEADS_A_BYTE.saturating_mul(received));
        if fits {
            quota.open(WAITING.saturating_add(usize::try_from(size).unwrap_or(usize::MAX / 4)))
        } else {
            None
        }
    }

    /// Has the connection woken when a request may start.
    pub(super) fn wakes(&self, cx: &Context<'_>) {
        *self.connection.borrow_mut() = Some(cx.waker().clone());
    }

    /// Records how many bytes the connection has taken so far, and whether it takes none now. If it does, all that it
    /// was given is written: that is no more than windows allow.
    pub(super) fn took(&self, taken: u64, stuck: bool, quota: &Rc<Quota>) {
        self.taken.set(taken);
        self.stuck.set(stuck);
        if stuck {
            // There is no taking it back: it is charged as soon as there is room.
            let _ = quota.cover(&mut self.share.borrow_mut(), self.given.get());
            return;
        }
        self.share.take();
        self.given.set(0);
        self.rounds.set(self.rounds.get() + 1);
        self.held_up.take().into_iter().for_each(Waker::wake);
        self.line.wake(GIVEN / HEAD);
    }

    /// Records that the connection was given a part of a response. Returns the round in which that is written.
    pub(super) fn gave(&self, bytes: usize) -> u64 {
        self.given.set(self.given.get() + bytes);
        self.rounds.get() + 1
    }

    /// The client has taken some of what its connection had taken long ago.
    pub(super) fn took_some(&self) {
        self.slowly.set(self.slowly.get() + 1);
    }

    /// How much the client has taken so far, as far as is known. Only its changes mean anything.
    pub(super) fn taken(&self) -> u64 {
        self.taken.get() + self.slowly.get()
    }

    /// Whether the connection may be given more.
    pub(super) fn has_room(&self) -> bool {
        !self.stuck.get() && self.given.get() < GIVEN
    }

    /// Maximum number of bytes of a response to read at a time, while it is not known how much its window takes. When
    /// memory is short, a single byte in hand is enough.
    pub(super) fn most(&self, level: Level) -> usize {
        let allowed = match level {
            Level::Calm => {
                let paid = usize::try_from(self.taken.get() / TAKEN_A_BYTE).unwrap_or(usize::MAX);
                UNTAKEN + paid.min(PAUSED)
            }
            Level::Tight | Level::Full => 1,
        };
        if self.untaken.get() + self.given.get() < allowed { usize::MAX } else { AHEAD }
    }

    /// Ready when the connection takes bytes.
    pub(super) fn poll_flowing(&self, cx: &Context<'_>) -> Poll<()> {
        if self.stuck.get() { self.pause(cx) } else { Poll::Ready(()) }
    }

    /// Ready when the connection has written what it was given for this round.
    pub(super) fn poll_written(&self, round: u64, cx: &Context<'_>) -> Poll<()> {
        if self.rounds.get() < round { self.pause(cx) } else { Poll::Ready(()) }
    }

    /// Waits until the connection has written everything.
    fn pause(&self, cx: &Context<'_>) -> Poll<()> {
        let mut held_up = self.held_up.borrow_mut();
        if !held_up.iter().any(|waker| waker.will_wake(cx.waker())) {
            held_up.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Charges bytes of a response until the result is dropped.
    pub(super) fn untaken(self: &Rc<Self>, bytes: usize) -> Untaken {
        self.untaken.set(self.untaken.get() + bytes);
        Untaken { streams: Rc::clone(self), bytes }
    }

    fn give_back(&self, bytes: usize) {
        self.untaken.set(self.untaken.get() - bytes);
    }

    fn release(&self, weight: u64) {
        self.heads.set(self.heads.get() - weight);
        if let Some(waker) = self.connection.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// What a head is charged.
fn weight(size: u64) -> u64 {
    COPIES * size.saturating_sub(ORDINARY)
}

/// One stream, while it lives.
#[derive(Debug)]
pub(super) struct Counted {
    streams: Rc<Streams>,
    weight: Cell<u64>,
    /// Bytes of its request body so far.
    received: Cell<u64>,
    /// Whether the rest of its request body is not wanted.
    left: Cell<bool>,
    _share: Share,
}

impl Counted {
    /// The streams of its connection.
    pub(super) fn streams(&self) -> &Rc<Streams> {
        &self.streams
    }

    /// Counts received bytes of its request body.
    pub(super) fn receive(&self, bytes: usize) {
        self.received.set(self.received.get() + bytes as u64);
    }

    /// Bytes of its request body so far.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Called when its request body is not read on. `left`: before its end.
    pub(super) fn leave(&self, left: bool) {
        self.left.set(left);
    }

    /// Whether its request body was not read to the end.
    pub(super) fn has_left(&self) -> bool {
        self.left.get()
    }

    /// Called when its head is no longer held.
    pub(super) fn forget_head(&self) {
        self.streams.release(self.weight.take());
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.streams.count.set(self.streams.count.get() - 1);
        self.forget_head();
    }
}

/// A part of a response that its client has not read.
#[derive(Debug)]
pub(super) struct Untaken {
    streams: Rc<Streams>,
    bytes: usize,
}

impl Untaken {
    /// Returns everything beyond this amount.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let more = self.bytes.saturating_sub(bytes);
        if more > 0 {
            self.bytes -= more;
            self.streams.give_back(more);
        }
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        self.streams.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests;
