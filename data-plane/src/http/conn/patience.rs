//! Listening to a client for the sake of what it was answered.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use bytes::BytesMut;

use super::client_body::Unread;
use crate::codec::stream::Stream;
use crate::local::Local;
use crate::local::timer::Timer;

/// How long a client is listened to that nobody wants to hear: so long in all, and so long between two reads.
pub(super) struct Patience<'a> {
    local: &'a Local,
    timer: &'a Timer,
    since: Instant,
}

impl<'a> Patience<'a> {
    /// It begins now.
    pub(super) fn new(local: &'a Local, timer: &'a Timer) -> Self {
        Self { local, timer, since: local.timers.now() }
    }

    /// Sets the timer for the next read; false when there is to be none.
    pub(super) fn arm(&mut self) -> bool {
        let limits = &self.local.limits;
        let left = limits.discard.saturating_sub(self.local.timers.now().duration_since(self.since));
        self.timer.arm(left.min(limits.discard_pause));
        !left.is_zero()
    }
}

/// Reads the rest of a request's body away; whether it ended, so that the connection may go on.
pub(super) async fn discard<S: Stream>(
    local: &Local,
    timer: &Timer,
    (stream, input): (&mut S, &mut BytesMut),
    unread: &mut Unread,
) -> bool {
    let mut patience = Patience::new(local, timer);
    while !unread.is_over() {
        let more = patience.arm()
            && poll_fn(|cx| match unread.poll_skip(stream, input, cx) {
                Poll::Pending => timer.poll_elapsed(cx).map(|_| false),
                came => came,
            })
            .await;
        if !more {
            break;
        }
    }
    timer.disarm();
    unread.is_over()
}
