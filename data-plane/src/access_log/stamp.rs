//! The timestamp of log lines, formatted once per second.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use super::line::seconds;

/// The formatted times of the most recent second, in UTC.
#[derive(Debug, Default)]
pub(super) struct Stamp {
    /// The time of the current line, since 1970.
    now: Duration,
    second: Option<u64>,
    local: Vec<u8>,
    iso: Vec<u8>,
}

/// The time formats of nginx' variables, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// `$time_local`: `10/Oct/2000:13:55:36 +0000`.
    Local,
    /// `$time_iso8601`: `2000-10-10T13:55:36+00:00`.
    Iso8601,
    /// `$msec`: seconds since 1970 with three decimals.
    Msec,
}

impl Time {
    /// Appends a time.
    pub fn write(self, time: SystemTime, out: &mut Vec<u8>) {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let format = match self {
            Self::Local => "%d/%b/%Y:%H:%M:%S +0000",
            Self::Iso8601 => "%Y-%m-%dT%H:%M:%S+00:00",
            Self::Msec => return seconds(since, out),
        };
        let second = i64::try_from(since.as_secs()).ok();
        let time = second.and_then(|second| Timestamp::from_second(second).ok()).unwrap_or_default();
        // Writing to memory never fails.
        let _ = write!(out, "{}", time.strftime(format));
    }
}

impl Stamp {
    /// Sets the time of the next line.
    pub(super) fn set(&mut self, time: SystemTime) {
        self.now = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = self.now.as_secs();
        if self.second != Some(second) {
            self.second = Some(second);
            for (text, format) in [(&mut self.local, Time::Local), (&mut self.iso, Time::Iso8601)] {
                text.clear();
                format.write(time, text);
            }
        }
    }

    /// Appends `10/Oct/2000:13:55:36 +0000`.
    pub(super) fn local(&self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&self.local);
        true
    }

    /// Appends `2000-10-10T13:55:36+00:00`.
    pub(super) fn iso(&self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&self.iso);
        true
    }

    /// Appends the seconds since 1970 with three decimals.
    pub(super) fn seconds(&self, out: &mut Vec<u8>) -> bool {
        seconds(self.now, out);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        let mut stamp = Stamp::default();
        for (millis, local, iso, seconds) in [
            (0, "01/Jan/1970:00:00:00 +0000", "1970-01-01T00:00:00+00:00", "0.000"),
            (951_782_399_007, "28/Feb/2000:23:59:59 +0000", "2000-02-28T23:59:59+00:00", "951782399.007"),
            (1_767_225_599_999, "31/Dec/2025:23:59:59 +0000", "2025-12-31T23:59:59+00:00", "1767225599.999"),
        ] {
            stamp.set(UNIX_EPOCH + Duration::from_millis(millis));
            let mut text = Vec::new();
            stamp.local(&mut text);
            assert_eq!(text, local.as_bytes());
            text.clear();
            stamp.iso(&mut text);
            assert_eq!(text, iso.as_bytes());
            text.clear();
            stamp.seconds(&mut text);
            assert_eq!(text, seconds.as_bytes());
        }
    }
}
