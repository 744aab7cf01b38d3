//! The two clocks. Cores take the time as an argument; only edges ask these.

use std::time::{Instant, SystemTime};

/// Monotonic time, for deadlines and durations.
pub fn now() -> Instant {
    Instant::now()
}

/// Wall-clock time, for what people read. Never for deadlines: it jumps.
#[allow(clippy::disallowed_methods, reason = "the one place that asks the wall clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}
