//! Whether a peer that seems to take nothing of what it is sent takes some of it.
//!
//! The kernel reports room only when a third of a socket's buffer is free, which it lets grow to 4 MiB, and later still
//! when it is short of memory. A peer that reads steadily may take minutes for that. So before it is given up, the kernel
//! is asked how much the peer has not acknowledged.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::timer::{TICK, Timer};

/// How often the kernel is asked within a timeout.
const LOOKS: u32 = 3;

/// Waits for a peer to take something.
#[derive(Debug)]
pub(crate) struct Stall {
    limit: Duration,
    /// When the peer took something for the last time, as far as is known.
    since: Option<Instant>,
    /// Bytes that it had not acknowledged when the kernel was asked.
    unacknowledged: Option<usize>,
}

impl Stall {
    /// Waits for nobody yet.
    pub(crate) fn new() -> Self {
        Self { limit: Duration::ZERO, since: None, unacknowledged: None }
    }

    /// The peer has this long from now on. Sets the timer. `unacknowledged`: how many bytes it has not acknowledged now;
    /// without that, what it takes before the kernel is asked for the first time is not noticed.
    pub(crate) fn begin(&mut self, timer: &Timer, limit: Duration, unacknowledged: Option<usize>) {
        // The clock may be a tick behind, and nobody is given up early.
        *self = Self { limit: limit.saturating_add(TICK), since: Some(timer.now()), unacknowledged };
        timer.arm(limit / LOOKS);
    }

    /// When the peer took something for the last time, as far as is known.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Ready when the peer has taken nothing for too long; sets the timer again until then.
    pub(crate) fn poll_over(
        &mut self,
        timer: &Timer,
        cx: &mut Context<'_>,
        mut unacknowledged: impl FnMut() -> Option<usize>,
    ) -> Poll<()> {
        loop {
            ready!(timer.poll_elapsed(cx));
            let Some(since) = self.since.filter(|_| !timer.has_to_end()) else { return Poll::Ready(()) };
            let before = std::mem::replace(&mut self.unacknowledged, unacknowledged());
            // Data that the kernel has accepted from TLS meanwhile is a change as well.
            let took = before.is_some() && before != self.unacknowledged;
            let waited = if took { Duration::ZERO } else { timer.now().duration_since(since) };
            if took {
                self.since = Some(timer.now());
            }
            if waited >= self.limit {
                return Poll::Ready(());
            }
            timer.arm((self.limit / LOOKS).min(self.limit - waited));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::local::timer::Timers;

    /// The second at which a peer is given up that has not acknowledged so many bytes at each second.
    fn given_up(at_first: Option<usize>, unacknowledged: impl Fn(u64) -> Option<usize>) -> Option<u64> {
        let start = shared::clock::now();
        let timers = Timers::new(start);
        let (timer, mut stall) = (timers.timer(), Stall::new());
        stall.begin(&timer, Duration::from_secs(60), at_first);
        (0..600).find(|second| {
            timers.tick(start + Duration::from_secs(*second));
            let mut cx = Context::from_waker(Waker::noop());
            stall.poll_over(&timer, &mut cx, || unacknowledged(*second)).is_ready()
        })
    }

    #[test]
    fn a_peer_is_given_up_that_takes_nothing() {
        // A deadline is never early, and may be a tick late.
        assert_eq!(given_up(Some(9), |_| Some(9)), Some(61));
        assert_eq!(given_up(None, |_| Some(9)), Some(61));
        assert_eq!(given_up(None, |_| None), Some(61), "nor does one that nobody can say it of");
    }

    #[test]
    fn a_peer_is_waited_for_as_long_as_it_takes_something() {
        let slowly = |second: u64| Some(1_000 - usize::try_from(second / 50).unwrap());
        assert_eq!(given_up(Some(1_001), slowly), None);
        assert_eq!(given_up(None, slowly), None);
        let until = |second: u64| slowly(second.min(100));
        assert!(given_up(Some(1_001), until).is_some_and(|second| (160..=185).contains(&second)));
    }

    #[test]
    fn who_waits_for_nobody_is_over_at_once() {
        let timers = Timers::new(shared::clock::now());
        let (timer, mut stall) = (timers.timer(), Stall::new());
        timer.arm(Duration::from_secs(1));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(stall.poll_over(&timer, &mut cx, || Some(1)).is_pending());
        timers.tick(shared::clock::now() + Duration::from_secs(2));
        assert!(stall.poll_over(&timer, &mut cx, || Some(1)).is_ready());
    }
}
