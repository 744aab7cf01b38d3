//! A response that has arrived and is not read, because its client has no room for it.
//!
//! **Invariant:** the time that a response is held back is its client's. No endpoint is blamed for it, and none is
//! asked again.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::{Sending, State};
use crate::codec::body::RequestBody;
use crate::codec::error::Kind;
use crate::local::timer::Timer;
use crate::upstream::link::Link;
use crate::upstream::observation::Observation;
use crate::upstream::payload::Payload;

/// Whether the response of a request is held back.
pub(super) struct Hold {
    /// Timeout for a client that takes nothing.
    limit: Duration,
    is_on: bool,
    /// Whether it ever was.
    was_on: bool,
    /// What had moved when the client's time began.
    mark: (u64, u64),
}

impl Hold {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, is_on: false, was_on: false, mark: (0, 0) }
    }

    /// Ready when the response may be read, or has not arrived. What has been read of it is read to its end.
    pub(super) fn poll<B: RequestBody>(
        &mut self,
        (sending, timer): (&mut Sending<'_>, &Timer),
        link: &mut Link,
        payload: &mut Payload<'_, B>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let Some(outlet) = payload.outlet() else { return Poll::Ready(()) };
        // One that has not arrived needs no room, and keeps no other out.
        let is_on = !outlet.has_room()
            && link.input.is_empty()
            && link.stream.poll_arrived(cx).is_ready()
            && outlet.poll_room(cx).is_pending();
        if !is_on {
            outlet.leave();
        }
        if std::mem::replace(&mut self.is_on, is_on) != is_on && sending.is_over() {
            self.mark = (outlet.taken(), sending.written());
            match is_on {
                true => timer.arm(self.limit),
                false => sending.stall.begin(timer, sending.timeouts.read, None),
            }
        }
        self.was_on |= is_on;
        if is_on { Poll::Pending } else { Poll::Ready(()) }
    }

    /// The request has ended. Returns whether the response was held back at any time.
    pub(super) fn end<B: RequestBody>(&self, link: &mut Link, payload: &mut Payload<'_, B>) -> bool {
        if self.is_on
            && let Some(outlet) = payload.outlet()
        {
            outlet.leave();
        }
        if self.was_on {
            // The time until the response says nothing about its endpoint.
            Observation::forget(&mut link.observed);
        }
        self.was_on
    }

    /// Ready when the side that is waited for has been silent for too long.
    pub(super) fn poll_late<B: RequestBody>(
        &mut self,
        (sending, timer): (&mut Sending<'_>, &Timer),
        link: &Link,
        payload: &mut Payload<'_, B>,
        cx: &mut Context<'_>,
    ) -> Poll<Kind> {
        if !self.is_on {
            ready!(sending.poll_over(timer, link, cx));
            return Poll::Ready(sending.waits_for());
        }
        ready!(timer.poll_elapsed(cx));
        let taken = payload.outlet().map_or(0, |outlet| outlet.taken());
        let mark = (taken, sending.written());
        // A client that takes something will have room. So may one whose endpoint has taken a part of the request.
        if std::mem::replace(&mut self.mark, mark) != mark && !sending.starved {
            timer.arm(self.limit);
            ready!(timer.poll_elapsed(cx));
        }
        Poll::Ready(Kind::ClientTimeout)
    }
}

impl Sending<'_> {
    /// Whether nothing more can be sent, so that only the response is waited for.
    fn is_over(&self) -> bool {
        matches!(self.state, State::Sent | State::Broken)
    }
}
