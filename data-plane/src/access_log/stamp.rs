//! The time of a log line, `10/Oct/2000:13:55:36 +0000`, made once a second.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// The text of the last second that was asked for.
#[derive(Debug, Default)]
pub(super) struct Stamp {
    second: Option<u64>,
    text: String,
}

impl Stamp {
    /// The text of a time, in UTC.
    pub(super) fn at(&mut self, time: SystemTime) -> &str {
        let second = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.second != Some(second) {
            self.second = Some(second);
            self.text.clear();
            let time = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
            // Writing to a String cannot fail.
            let _ = write!(self.text, "{}", time.unwrap_or_default().strftime("%d/%b/%Y:%H:%M:%S +0000"));
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn known_times() {
        let mut stamp = Stamp::default();
        for (seconds, text) in [
            (0, "01/Jan/1970:00:00:00 +0000"),
            (951_782_399, "28/Feb/2000:23:59:59 +0000"),
            (1_767_225_599, "31/Dec/2025:23:59:59 +0000"),
        ] {
            assert_eq!(stamp.at(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
