//! How long an endpoint takes, as ingress-nginx reckons it: an average that forgets by time (balancing.md 5.7).
//!
//! Workers share one for each endpoint. Whoever has something to add takes it for that moment, and who finds it taken adds
//! nothing, as in the original; to read it takes nothing.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::sync::{AtomicU64, Ordering};

/// Seconds after which what was known counts for the e-th part.
const DECAY: f64 = 10.0;

/// Set in the time of the last change while somebody makes another one.
const TAKEN: u64 = 1 << 63;

/// The average of one endpoint.
#[derive(Debug, Default)]
pub struct Latency {
    /// Seconds, the bits of an `f64`.
    ewma: AtomicU64,
    /// When it was changed last; 0: nothing is known.
    touched: AtomicU64,
}

/// A time, in microseconds. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

impl Moment {
    /// The same time. All begins with the first one that anybody names.
    pub fn of(instant: Instant) -> Self {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        Self::after_origin(instant.saturating_duration_since(*ORIGIN.get_or_init(|| instant)))
    }

    /// So long after all began.
    pub fn after_origin(elapsed: Duration) -> Self {
        Self(u64::try_from(elapsed.as_micros()).map_or(TAKEN - 1, |micros| (micros + 1).min(TAKEN - 1)))
    }

    /// Microseconds since all began. Never 0.
    pub(super) fn micros(self) -> u64 {
        self.0
    }

    /// Seconds since; 0 where the clock went back.
    fn since(self, before: u64) -> f64 {
        Duration::from_micros(self.0.saturating_sub(before)).as_secs_f64()
    }
}

impl Latency {
    /// What speaks against asking it now, in seconds: the average, less for each second that nothing was heard. 0 where
    /// nothing is known.
    pub fn score(&self, now: Moment) -> f64 {
        match self.touched.load(Ordering::Acquire) & !TAKEN {
            0 => 0.0,
            touched => decay(self.average(), now.since(touched), 0.0),
        }
    }

    /// The average as it was when it was changed last; `None` where nothing is known.
    pub fn known(&self) -> Option<f64> {
        let is_known = self.touched.load(Ordering::Acquire) & !TAKEN != 0;
        is_known.then(|| self.average())
    }

    /// A request took so long.
    pub fn observe(&self, took: Duration, now: Moment) {
        let took = took.as_secs_f64();
        self.change(now, |before| match before {
            None => took,
            Some((average, elapsed)) => decay(average, elapsed, took),
        });
    }

    /// Begins with what is known of others, where nothing is known yet.
    pub fn lend(&self, average: f64, now: Moment) {
        self.change(now, |before| before.map_or(average, |(own, _)| own));
    }

    /// `make` gets the average and the seconds since it was changed.
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
