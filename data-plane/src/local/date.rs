//! The `Date` header of our own responses, formatted once per second.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::codec::head::{Known, Lines};

/// The line of `Date` (RFC 9110 section 5.6.7).
#[derive(Debug, Default)]
pub(crate) struct HttpDate {
    second: Option<u64>,
    line: Lines,
}

impl HttpDate {
    /// Sets the time. A clock before 1970 is treated as 1970.
    pub(crate) fn update(&mut self, time: SystemTime) {
        let time = time.max(UNIX_EPOCH);
        let second = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.second != Some(second) {
            self.second = Some(second);
            self.line = Lines::of([(Known::Date, httpdate::HttpDate::from(time).to_string())]);
        }
    }

    /// The line, for all answers of a second.
    pub(crate) fn line(&self) -> &Lines {
        &self.line
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::codec::head::Fields;

    fn date_line(date: &HttpDate) -> String {
        let mut fields = Fields::default();
        fields.put(date.line());
        String::from_utf8(fields.get(Known::Date).unwrap_or_default().to_vec()).unwrap()
    }

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
            assert_eq!(date_line(&date), text);
        }
        date.update(UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(date_line(&date), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
