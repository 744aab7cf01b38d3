//! The two clocks. Cores take the time as an argument; only edges ask these.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Monotonic time, for deadlines and durations.
pub fn now() -> Instant {
    Instant::now()
}

/// Wall-clock time, for what people read. Never for deadlines: it jumps.
#[allow(clippy::disallowed_methods, reason = "the one place that asks the wall clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// Seconds since 1970, as records have them; 0 for what was before.
pub fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
