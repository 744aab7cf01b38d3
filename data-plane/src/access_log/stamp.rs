//! The time of a log line, made once a second.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// The texts of the last second that was asked for. In UTC.
#[derive(Debug, Default)]
pub(super) struct Stamp {
    /// Since 1970, of the present line.
    now: Duration,
    second: Option<u64>,
    local: String,
    iso: String,
}

impl Stamp {
    /// A line is of this time.
    pub(super) fn set(&mut self, time: SystemTime) {
        self.now = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = self.now.as_secs();
        if self.second != Some(second) {
            self.second = Some(second);
            let time = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
            let time = time.unwrap_or_default();
            for (text, format) in
                [(&mut self.local, "%d/%b/%Y:%H:%M:%S +0000"), (&mut self.iso, "%Y-%m-%dT%H:%M:%S+00:00")]
            {
                text.clear();
                // Writing to a String cannot fail.
                let _ = write!(text, "{}", time.strftime(format));
            }
        }
    }

    /// Appends `10/Oct/2000:13:55:36 +0000`.
    pub(super) fn local(&self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(self.local.as_bytes());
        true
    }

    /// Appends `2000-10-10T13:55:36+00:00`.
    pub(super) fn iso(&self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(self.iso.as_bytes());
        true
    }

    /// Appends the seconds since 1970, with three digits.
    pub(super) fn seconds(&self, out: &mut Vec<u8>) -> bool {
        let _ = write!(out, "{}.{:03}", self.now.as_secs(), self.now.subsec_millis());
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
