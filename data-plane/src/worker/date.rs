//! Calendar texts of a worker: `Date` of its own answers, made once a second.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The epoch was a Thursday.
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// A second in UTC, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    /// Seconds since the epoch.
    pub(crate) second: u64,
    pub(crate) year: u64,
    /// From 0.
    pub(crate) month: usize,
    /// From 1.
    pub(crate) day: u64,
}

impl Moment {
    /// The second of a time. A clock before 1970 is no worse a lie than any other of its times.
    pub(crate) fn of(time: SystemTime) -> Self {
        let second = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (year, month, day) = date(second / 86_400);
        Self { second, year, month, day }
    }

    /// Hour, minute and second of the day.
    pub(crate) fn clock(self) -> (u64, u64, u64) {
        (self.second / 3600 % 24, self.second / 60 % 60, self.second % 60)
    }
}

/// Year, month from 0, and day from 1 of a day after 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> (u64, usize, u64) {
    // Years are counted from 1st March, so that the leap day is the last one of its year.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    (year, month as usize, day)
}

/// The value of `Date` (RFC 9110 section 5.6.7).
#[derive(Debug, Default)]
pub(crate) struct HttpDate {
    second: Option<u64>,
    text: String,
}

impl HttpDate {
    /// Moves to a time.
    pub(crate) fn update(&mut self, time: SystemTime) {
        let second = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.second == Some(second) {
            return;
        }
        self.second = Some(second);
        let moment = Moment::of(time);
        let (hour, minute, second) = moment.clock();
        let weekday = DAYS[(moment.second / 86_400 % 7) as usize];
        let month = MONTHS[moment.month];
        self.text.clear();
        // Writing to a String cannot fail.
        let _ = write!(
            self.text,
            "{weekday}, {:02} {month} {} {hour:02}:{minute:02}:{second:02} GMT",
            moment.day, moment.year
        );
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn known_dates() {
        let mut date = HttpDate::default();
        for (second, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            date.update(UNIX_EPOCH + Duration::from_secs(second));
            assert_eq!(date.as_str(), text);
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = date(0);
        for day in 1..200_000 {
            let next = date(day);
            let fits = next == (last.0, last.1, last.2 + 1)
                || next == (last.0, last.1 + 1, 1)
                || (next == (last.0 + 1, 0, 1) && last.1 == 11);
            assert!(fits, "{last:?} {next:?}");
            last = next;
        }
    }
}
