//! Times as people read them.

use std::time::SystemTime;

/// RFC 3339 in UTC, to the second; `None` for a time that no calendar has.
pub(crate) fn utc(time: SystemTime) -> Option<String> {
    jiff::Timestamp::try_from(time).ok().map(|time| format!("{time:.0}"))
}
