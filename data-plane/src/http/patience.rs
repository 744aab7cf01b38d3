//! Lingering close: after a response, keeps reading from the client for a limited time, so that a TCP reset does not
//! destroy the response.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::codec::stream::Stream;
use crate::http::peer::Peer;
use crate::local::Local;
use crate::local::timer::Timer;

/// How long a client is read from after its response: a total limit, and one between two reads.
pub(crate) struct Patience<'a> {
    local: &'a Local,
    timer: &'a Timer,
    since: Instant,
}

impl<'a> Patience<'a> {
    /// Starts now.
    pub(crate) fn new(local: &'a Local, timer: &'a Timer) -> Self {
        Self { local, timer, since: local.timers.now() }
    }

    /// Reads more, using `poll`; false at the end, or on timeout.
    pub(crate) async fn hears(&self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<bool>) -> bool {
        self.arm()
            && poll_fn(|cx| match poll(cx) {
                Poll::Pending => self.timer.poll_elapsed(cx).map(|_| false),
                came => came,
            })
            .await
    }

    /// Sets the timer for the next read; false if the time is up.
    fn arm(&self) -> bool {
        let limits = &self.local.limits;
        let left = limits.discard.saturating_sub(self.local.timers.now().duration_since(self.since));
        self.timer.arm(left.min(limits.discard_pause));
        !left.is_zero()
    }
}

/// Reads and discards what a client still sends after the end of its response: a closed socket that receives data
/// resets the connection, and the part of the response that the client has not read is lost.
///
/// **Invariant:** it holds no memory for what comes, so that any number of clients may be waited for. What TLS holds of a
/// record is charged.
pub(crate) async fn hear_out<S: Stream>(local: &Local, (timer, peer): (&Timer, &Peer), stream: &mut S) {
    let patience = Patience::new(local, timer);
    let mut reads = |cx: &mut Context<'_>| match local.buffers.poll_unwanted(stream, cx) {
        Poll::Pending if peer.charge(stream.incomplete()) => Poll::Pending,
        Poll::Ready(Ok(count)) if count > 0 => Poll::Ready(true),
        _ => Poll::Ready(false),
    };
    while patience.hears(&mut reads).await {}
    timer.disarm();
}
