//! When to try again: exponential with full jitter, so that a thousand proxies do not come back at the same moment.

use std::time::Duration;

/// Delays between tries. Sans-I/O: it says how long, the caller waits.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    ceiling: Duration,
}

impl Backoff {
    /// Delays below `min`, 2 `min`, 4 `min` and so on up to `max`.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            ceiling: min,
        }
    }

    /// The next delay: uniform between zero and the ceiling, which doubles.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.ceiling.mul_f64(fastrand::f64());
        self.ceiling = (self.ceiling * 2).min(self.max);
        delay
    }

    /// Begins anew after something worked.
    pub fn reset(&mut self) {
        self.ceiling = self.min;
    }
}
