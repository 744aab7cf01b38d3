//! Whether an endpoint can be reached, as observed by all workers together (docs/adr/024-who-cannot-be-reached.md).
//!
//! An endpoint that failed too often is ejected: it gets no requests, except one from time to time as a probe. The
//! first response brings it back.
//!
//! **Invariant:** each time a probe is due, exactly one of the requests that could make it does.

use std::time::Duration;

use super::Moment;
use super::sync::{AtomicU64, Ordering};

/// Initial duration of an ejection. Doubled each time that a probe fails.
const FIRST: Duration = Duration::from_secs(1);

/// Maximum number of doublings: 32 s.
const DOUBLINGS: u64 = 5;

/// The health of one endpoint. If nothing ever failed it is only read, never written.
#[derive(Debug, Default)]
pub struct Health {
    /// Number of consecutive failures.
    failures: AtomicU64,
    /// When a request may probe it, in microseconds as in [`Moment`]; 0: it is not ejected.
    due: AtomicU64,
    /// Number of failed probes since it was ejected.
    again: AtomicU64,
}

impl Health {
    /// Whether it is ejected, due for a probe or not.
    pub fn is_out(&self) -> bool {
        self.due.load(Ordering::Relaxed) != 0
    }

    /// Whether it should be avoided now.
    pub fn is_avoided(&self, now: Moment) -> bool {
        self.due.load(Ordering::Relaxed) > now.micros()
    }

    /// Whether a request may use it now: it is not ejected, or this request is the probe.
    pub fn claim(&self, now: Moment) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        if due == 0 {
            return true;
        }
        let again = self.again.load(Ordering::Relaxed) + 1;
        let next = now.micros() + wait(again);
        let is_mine = due <= now.micros()
            && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_mine {
            self.again.store(again, Ordering::Relaxed);
        }
        is_mine
    }

    /// Records a failure. Returns the number of consecutive ones.
    pub fn failed(&self) -> u64 {
        self.failures.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ejects it. Returns whether it was not ejected before.
    pub fn eject(&self, now: Moment) -> bool {
        let due = now.micros() + wait(0);
        let was_in = self.due.compare_exchange(0, due, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if was_in {
            self.again.store(0, Ordering::Relaxed);
        }
        was_in
    }

    /// Records a response. Returns whether it was ejected.
    pub fn answered(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        self.is_out() && self.due.swap(0, Ordering::Relaxed) != 0
    }
}

/// How long it is avoided, in microseconds.
fn wait(again: u64) -> u64 {
    let first = u64::try_from(FIRST.as_micros()).unwrap_or(u64::MAX);
    first << again.min(DOUBLINGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::after_origin(Duration::from_millis(millis))
    }

    #[test]
    fn ejected_endpoint_is_probed_by_one_request_at_growing_intervals() {
        let health = Health::default();
        assert!(health.claim(at(0)) && !health.is_out() && !health.is_avoided(at(0)));
        assert!(health.eject(at(0)) && !health.eject(at(0)));
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let begun = now;
            while health.is_avoided(at(now)) {
                assert!(!health.claim(at(now)));
                now += 500;
            }
            waits.push(now - begun);
            assert!(health.claim(at(now)), "one finds out");
            assert!(!health.claim(at(now)) && health.is_avoided(at(now)), "and no other");
        }
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 32_000, 32_000]);
        assert!(
            !health.eject(at(now)) && health.is_avoided(at(now + 30_000)),
            "who fails again stays out as long"
        );
        assert!(health.answered() && !health.answered());
        assert!(!health.is_out() && health.claim(at(now)));
        assert!(
            health.eject(at(now)) && health.is_avoided(at(now + 999)) && !health.is_avoided(at(now + 1_000))
        );
        assert!(health.claim(at(now + 1_000)), "and from then on it is as at first");
        assert!(health.is_avoided(at(now + 2_999)) && !health.is_avoided(at(now + 3_000)));
    }

    #[test]
    fn who_is_out_is_avoided_to_the_last_moment() {
        let micros = |micros| Moment::after_origin(Duration::from_micros(micros));
        let health = Health::default();
        assert!(health.eject(micros(0)));
        assert!(health.is_avoided(micros(999_999)) && !health.is_avoided(micros(1_000_000)));
    }

    #[test]
    fn failures_count_in_a_row() {
        let health = Health::default();
        assert_eq!((health.failed(), health.failed()), (1, 2));
        assert!(!health.answered());
        assert_eq!(health.failed(), 1);
    }
}
