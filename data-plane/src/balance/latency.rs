//! The latency of an endpoint as ingress-nginx computes it: a moving average with exponential decay over time (EWMA).
//!
//! All workers share one average per endpoint. A worker locks it briefly to add a sample, and drops the sample if it
//! is already locked, as ingress-nginx does. Reading takes no lock.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::sync::{AtomicU64, Ordering};

/// Time constant of the average in seconds: an old value counts 1/e after this time.
const DECAY: f64 = 10.0;

/// Set in `touched` while a thread makes a change.
const TAKEN: u64 = 1 << 63;

/// The average of one endpoint.
#[derive(Debug, Default)]
pub struct Latency {
    /// Seconds, as the bits of an `f64`.
    ewma: AtomicU64,
    /// Time of the last change; 0: no value yet.
    touched: AtomicU64,
}

/// A time in microseconds. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

impl Moment {
    /// Converts a time. The origin is the first time that anybody converts.
    pub fn of(instant: Instant) -> Self {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        Self::after_origin(instant.saturating_duration_since(*ORIGIN.get_or_init(|| instant)))
    }

    /// This long after the origin.
    pub fn after_origin(elapsed: Duration) -> Self {
        Self(u64::try_from(elapsed.as_micros()).map_or(TAKEN - 1, |micros| (micros + 1).min(TAKEN - 1)))
    }

    /// Microseconds since the origin. Never 0.
    pub(super) fn micros(self) -> u64 {
        self.0
    }

    /// Seconds since `before`; 0 if the clock went backwards.
    fn since(self, before: u64) -> f64 {
        Duration::from_micros(self.0.saturating_sub(before)).as_secs_f64()
    }
}

impl Latency {
    /// The score in seconds: the average, decayed by the time since the last sample. 0 if there is no value.
    pub fn score(&self, now: Moment) -> f64 {
        match self.touched.load(Ordering::Acquire) & !TAKEN {
            0 => 0.0,
            touched => decay(self.average(), now.since(touched), 0.0),
        }
    }

    /// The average at the time of its last change; `None` if there is no value.
    pub fn known(&self) -> Option<f64> {
        let is_known = self.touched.load(Ordering::Acquire) & !TAKEN != 0;
        is_known.then(|| self.average())
    }

    /// Adds a sample.
    pub fn observe(&self, took: Duration, now: Moment) {
        let took = took.as_secs_f64();
        self.change(now, |before| match before {
            None => took,
            Some((average, elapsed)) => decay(average, elapsed, took),
        });
    }

    /// Sets the initial value, if there is none yet.
    pub fn lend(&self, average: f64, now: Moment) {
        self.change(now, |before| before.map_or(average, |(own, _)| own));
    }

    /// `make` gets the average and the seconds since its last change.
    fn change(&self, now: Moment, make: impl FnOnce(Option<(f64, f64)>) -> f64) {
        let before = self.touched.load(Ordering::Relaxed);
        let taken = before | TAKEN;
        if before == taken
            || self.touched.compare_exchange(before, taken, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        let known = (before != 0).then(|| (self.average(), now.since(before)));
        self.ewma.store(make(known).to_bits(), Ordering::Relaxed);
        self.touched.store(now.0, Ordering::Release);
    }

    fn average(&self) -> f64 {
        f64::from_bits(self.ewma.load(Ordering::Relaxed))
    }
}

fn decay(average: f64, elapsed: f64, took: f64) -> f64 {
    let weight = (-elapsed / DECAY).exp();
    average * weight + took * (1.0 - weight)
}
