//! How long clients may keep responses (nginx' `expires`, as snippets have it).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::PolicyError;

const DAY: u64 = 86_400;

/// The time up to which a response is fresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expires {
    /// Never was.
    Epoch,
    /// As good as forever.
    Max,
    /// So many seconds from now; it was, if they are negative.
    After(i64),
    /// The next time that it is this second of the day. In UTC: that is the time of containers.
    At(u64),
}

impl Expires {
    /// Compiles the value of a header change; `None`: it is switched off.
    pub(super) fn compile(field: &'static str, text: &str) -> Result<Option<Self>, PolicyError> {
        let parsed = match text {
            "off" => return Ok(None),
            "epoch" => Some(Self::Epoch),
            "max" => Some(Self::Max),
            text => match text.strip_prefix('@') {
                Some(second) => second.parse().ok().filter(|second| *second <= DAY).map(Self::At),
                None => text.parse().ok().map(Self::After),
            },
        };
        let problem = || format!("expected a time for which responses are kept, got {text:?}");
        parsed.map(Some).ok_or_else(|| PolicyError { field, problem: problem() })
    }

    /// The values of `Expires` and `Cache-Control`.
    pub fn headers(self, now: SystemTime) -> (String, String) {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let age = match self {
            Self::Epoch => return ("Thu, 01 Jan 1970 00:00:01 GMT".into(), "no-cache".into()),
            Self::Max => return ("Thu, 31 Dec 2037 23:55:55 GMT".into(), "max-age=315360000".into()),
            Self::After(seconds) => seconds,
            Self::At(second) => {
                let gone = now % DAY;
                let wait = if second > gone { second - gone } else { second + DAY - gone };
                i64::try_from(wait).unwrap_or_default()
            }
        };
        let control = if age < 0 { "no-cache".into() } else { format!("max-age={age}") };
        // Times that cannot be written are none that somebody configures.
        let at = Duration::from_secs(now.saturating_add_signed(age).min(253_402_300_799));
        (httpdate::HttpDate::from(UNIX_EPOCH + at).to_string(), control)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What nginx 1.22 sends at that time.
    #[test]
    fn headers_are_nginx_s() {
        // Fri, 27 Nov 2026 00:59:18 GMT
        let now = UNIX_EPOCH + Duration::from_secs(1_795_741_158);
        for (text, expires, control) in [
            ("3600", "Fri, 27 Nov 2026 01:59:18 GMT", "max-age=3600"),
            ("0", "Fri, 27 Nov 2026 00:59:18 GMT", "max-age=0"),
            ("-1", "Fri, 27 Nov 2026 00:59:17 GMT", "no-cache"),
            ("@55800", "Fri, 27 Nov 2026 15:30:00 GMT", "max-age=52242"),
            ("@3558", "Sat, 28 Nov 2026 00:59:18 GMT", "max-age=86400"),
            ("@0", "Sat, 28 Nov 2026 00:00:00 GMT", "max-age=82842"),
            ("max", "Thu, 31 Dec 2037 23:55:55 GMT", "max-age=315360000"),
            ("epoch", "Thu, 01 Jan 1970 00:00:01 GMT", "no-cache"),
        ] {
            let made = Expires::compile("", text).unwrap().unwrap().headers(now);
            assert_eq!(made, (expires.to_owned(), control.to_owned()), "{text}");
        }
        assert_eq!(Expires::compile("", "off"), Ok(None));
        for text in ["", "1h", "@86401", "@-1", "always"] {
            assert!(Expires::compile("", text).is_err(), "{text}");
        }
        let (expires, _) = Expires::After(i64::MAX).headers(now);
        assert_eq!(expires, "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
