//! When to reconnect after a stream has ended.
//!
//! **Invariant:** only a stream that lasted resets the backoff. A control plane that accepts streams and then fails is
//! not called by a thousand proxies twenty times a second, with a full sync each time.

use std::time::Duration;

use shared::backoff::Backoff;

/// Minimum and maximum delay between connection attempts. However long there was no control plane, changes arrive
/// within 5 s of the moment that one responds (`docs/adr/035-who-is-back-is-found-soon.md`).
const FAILED: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(3));
/// The same after a wrong state: a full sync follows, which is expensive.
const WRONG: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Maximum delay that a control plane can ask for.
const ASKED: Duration = Duration::from_secs(60);
/// A stream that was welcomed for this long has lasted.
const HELD: Duration = Duration::from_secs(10);

/// How a stream ended, as far as the next one is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It could not be opened, or broke.
    Failed,
    /// Its contents were wrong.
    Wrong,
    /// The control plane asked to reconnect after this delay.
    Asked(Duration),
}

/// The delays of one proxy.
#[derive(Debug)]
pub(super) struct Retry {
    failed: Backoff,
    wrong: Backoff,
}

impl Default for Retry {
    fn default() -> Self {
        Self { failed: Backoff::new(2 * FAILED.0, FAILED.1), wrong: Backoff::new(2 * WRONG.0, WRONG.1) }
    }
}

impl Retry {
    /// The delay after a stream that was welcomed for `held`, if it was.
    pub(super) fn after(&mut self, end: End, held: Option<Duration>) -> Duration {
        if held.is_some_and(|held| held >= HELD) {
            self.failed.reset();
            if end != End::Wrong {
                self.wrong.reset();
            }
        }
        match end {
            End::Failed => self.failed.next_delay().max(FAILED.0),
            End::Wrong => self.wrong.next_delay().max(WRONG.0),
            End::Asked(delay) => delay.min(ASKED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRIEFLY: Option<Duration> = Some(Duration::from_millis(9_999));

    /// The sum of ten delays.
    fn ten(end: End, held: Option<Duration>) -> Duration {
        let mut retry = Retry::default();
        (0..10).map(|_| retry.after(end, held)).sum()
    }

    #[test]
    fn replica_that_fails_after_welcome_is_retried_at_growing_intervals() {
        // Delays of up to 100 ms, 200 ms, .. 3 s: ten of them take at least 10 x 50 ms and on average about 9 s.
        let sums: Vec<_> = (0..50).map(|_| ten(End::Failed, BRIEFLY)).collect();
        let mean = sums.iter().sum::<Duration>() / 50;
        assert!(mean > Duration::from_secs(6), "{mean:?}");
        assert!(sums.iter().all(|sum| *sum <= Duration::from_secs(20)), "{sums:?}");
    }

    #[test]
    fn a_stream_that_held_begins_the_delays_anew() {
        for _ in 0..50 {
            let sum = ten(End::Failed, Some(HELD));
            assert!((Duration::from_millis(500)..=Duration::from_secs(1)).contains(&sum), "{sum:?}");
        }
    }

    #[test]
    fn no_delay_is_shorter_or_longer_than_documented() {
        let mut retry = Retry::default();
        for _ in 0..1_000 {
            let delay = retry.after(End::Failed, None);
            assert!((Duration::from_millis(50)..=Duration::from_secs(3)).contains(&delay), "{delay:?}");
        }
    }

    #[test]
    fn wrong_state_backs_off_and_a_requested_delay_is_capped() {
        let mut retry = Retry::default();
        assert!(retry.after(End::Wrong, Some(HELD)) >= Duration::from_secs(1));
        let long: Duration = (0..20).map(|_| retry.after(End::Wrong, Some(HELD))).sum();
        assert!(long > Duration::from_secs(60), "one wrong state after another: {long:?}");
        assert_eq!(retry.after(End::Asked(Duration::from_millis(7)), BRIEFLY), Duration::from_millis(7));
        assert_eq!(retry.after(End::Asked(Duration::from_secs(3_600)), BRIEFLY), ASKED);
    }
}
