//! Listening to a client for the sake of what it was answered.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use bytes::BytesMut;

use crate::codec::stream::{Stream, make_room, poll_fill};
use crate::local::Local;
use crate::local::timer::Timer;

/// How long a client is listened to that nobody wants to hear: so long in all, and so long between two reads.
pub(crate) struct Patience<'a> {
    local: &'a Local,
    timer: &'a Timer,
    since: Instant,
}

impl<'a> Patience<'a> {
    /// It begins now.
    pub(crate) fn new(local: &'a Local, timer: &'a Timer) -> Self {
        Self { local, timer, since: local.timers.now() }
    }

    /// Sets the timer for the next read; false when there is to be none.
    pub(crate) fn arm(&mut self) -> bool {
        let limits = &self.local.limits;
        let left = limits.discard.saturating_sub(self.local.timers.now().duration_since(self.since));
        self.timer.arm(left.min(limits.discard_pause));
        !left.is_zero()
    }
}

/// Reads away what a client still says that was told the end: a closed socket that hears something resets the connection, and
/// what the client has not read of its answer is lost with it.
pub(crate) async fn hear_out<S: Stream>(
    local: &Local,
    timer: &Timer,
    (stream, input): (&mut S, &mut BytesMut),
) {
    let mut patience = Patience::new(local, timer);
    while patience.arm() {
        input.clear();
        make_room(input);
        let more = poll_fn(|cx| match poll_fill(stream, input, cx) {
            Poll::Ready(outcome) => Poll::Ready(matches!(outcome, Ok(count) if count > 0)),
            Poll::Pending => timer.poll_elapsed(cx).map(|_| false),
        });
        if !more.await {
            break;
        }
    }
    timer.disarm();
}
