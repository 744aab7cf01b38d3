//! The two clocks. Core logic takes the time as an argument; only I/O code calls these.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Monotonic time, for deadlines and durations.
pub fn now() -> Instant {
    Instant::now()
}

/// Wall-clock time, to be shown to people. Never for deadlines: it jumps.
#[allow(clippy::disallowed_methods, reason = "the one place that asks the wall clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// Waits until a point in time; forever without one.
pub async fn sleep_until(at: Option<impl Into<tokio::time::Instant>>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Seconds since 1970, as stored in records; 0 for earlier times.
pub fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
