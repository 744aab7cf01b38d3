//! The time of a log line, `10/Oct/2000:13:55:36 +0000`, made once a second.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::worker::date::{MONTHS, Moment};

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
            let moment = Moment::of(time);
            let (hour, minute, second) = moment.clock();
            let (month, year) = (MONTHS[moment.month], moment.year);
            self.text.clear();
            // Writing to a String cannot fail.
            let _ =
                write!(self.text, "{:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} +0000", moment.day);
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
