//! Times as people read them.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use shared::clock;

/// RFC 3339 in UTC, to the second; `None` for a time that no calendar has.
pub(crate) fn utc(time: SystemTime) -> Option<String> {
    jiff::Timestamp::try_from(time).ok().map(|time| format!("{time:.0}"))
}

/// A moment by both clocks: how long ago it was, and when that was for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Since {
    /// By the clock that is never set.
    pub at: Instant,
    /// By the one that people read.
    pub wall: SystemTime,
}

impl Since {
    /// This moment, which is `now`.
    pub fn new(now: Instant) -> Self {
        Self { at: now, wall: clock::wall() }
    }

    /// An earlier one.
    pub fn earlier(at: Instant, now: Instant) -> Self {
        let wall = clock::wall().checked_sub(now.saturating_duration_since(at));
        Self { at, wall: wall.unwrap_or(SystemTime::UNIX_EPOCH) }
    }

    /// For how long.
    pub fn span(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&utc(self.wall).unwrap_or_default())
    }
}
