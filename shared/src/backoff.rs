//! Retry delays: exponential with full jitter, so that a thousand proxies do not reconnect at the same moment.

use std::time::Duration;

/// Delays between retries. Sans-I/O: it returns a delay, the caller waits.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    ceiling: Duration,
}

impl Backoff {
    /// Delays below `min`, 2 `min`, 4 `min` and so on up to `max`.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, ceiling: min }
    }

    /// The next delay: uniform between zero and the ceiling, which doubles.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.ceiling.mul_f64(fastrand::f64());
        self.ceiling = (self.ceiling * 2).min(self.max);
        delay
    }

    /// Resets after a success.
    pub fn reset(&mut self) {
        self.ceiling = self.min;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::Backoff;

    proptest! {
        #[test]
        fn delays_stay_below_a_ceiling_that_doubles(min in 1..1000_u64, factor in 1..1000_u64, tries in 1..20_u32) {
            let (min, max) = (Duration::from_millis(min), Duration::from_millis(min * factor));
            let mut backoff = Backoff::new(min, max);
            for round in 0..2 {
                for attempt in 0..tries {
                    let ceiling = (min * 2_u32.pow(attempt)).min(max);
                    let delay = backoff.next_delay();
                    prop_assert!(delay <= ceiling, "round {round}: {delay:?} above {ceiling:?}");
                }
                backoff.reset();
            }
        }
    }

    #[test]
    fn a_thousand_do_not_come_back_together() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
        let mut early = 0;
        for _ in 0..1000 {
            early += u32::from(backoff.clone().next_delay() < Duration::from_millis(500));
        }
        assert!((350..650).contains(&early), "{early} of 1,000 in the first half");
    }
}
