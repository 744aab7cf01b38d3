//! Which failures are retried at another endpoint, how often and for how long (nginx' `proxy_next_upstream`).

use std::time::Duration;

use shared::policy::LocationPolicy;

use super::PolicyError;
use crate::codec::error::Condition;

/// The retry settings of a location or the fleet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retries {
    error: bool,
    timeout: bool,
    invalid_header: bool,
    /// One bit per status of [`STATUSES`].
    statuses: u8,
    /// Also retries POST, LOCK and PATCH, whatever an endpoint has done with them.
    non_idempotent: bool,
    /// No retry begins later than this after the first attempt.
    within: Option<Duration>,
}

/// Statuses that can be retried.
const STATUSES: [u16; 7] = [500, 502, 503, 504, 403, 404, 429];

/// `error timeout`
impl Default for Retries {
    fn default() -> Self {
        Self { error: true, timeout: true, ..Self::NEVER }
    }
}

impl Retries {
    const NEVER: Self = Self {
        error: false,
        timeout: false,
        invalid_header: false,
        statuses: 0,
        non_idempotent: false,
        within: None,
    };

    pub(super) fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        let mut retries = match &configured.proxy_next_upstream {
            None => Self::default(),
            Some(words) => Self::of(&words.values)?,
        };
        retries.non_idempotent |= configured.retry_non_idempotent == Some(true);
        let seconds = configured.proxy_next_upstream_timeout.filter(|seconds| *seconds > 0);
        retries.within = seconds.map(|seconds| Duration::from_secs(seconds.into()));
        Ok(retries)
    }

    fn of(words: &[String]) -> Result<Self, PolicyError> {
        let mut retries = Self::NEVER;
        let mut off = false;
        for word in words {
            let status = word.strip_prefix("http_").and_then(|status| status.parse().ok());
            match (word.as_str(), status.and_then(bit)) {
                ("error", _) => retries.error = true,
                ("timeout", _) => retries.timeout = true,
                ("invalid_header", _) => retries.invalid_header = true,
                ("non_idempotent", _) => retries.non_idempotent = true,
                // Whatever else is listed.
                ("off", _) => off = true,
                (_, Some(bit)) => retries.statuses |= bit,
                (_, None) => {
                    return Err(PolicyError {
                        field: "proxy_next_upstream",
                        problem: format!("expected words of nginx' proxy_next_upstream, got {word:?}"),
                    });
                }
            }
        }
        Ok(if off { Self::NEVER } else { retries })
    }

    /// Whether a failed attempt may be followed by another one. `acted`: an endpoint may have processed a request that
    /// must not be processed twice.
    pub(crate) fn after(&self, condition: Condition, acted: bool) -> bool {
        let is_listed = match condition {
            Condition::Error => self.error,
            Condition::Timeout => self.timeout,
            Condition::InvalidHeader => self.invalid_header,
        };
        is_listed && (!acted || self.non_idempotent)
    }

    /// The same for a response with this status.
    pub fn after_status(&self, status: u16, acted: bool) -> bool {
        self.statuses != 0
            && bit(status).is_some_and(|bit| self.statuses & bit != 0)
            && (!acted || self.non_idempotent)
    }

    /// Whether another attempt may begin so long after the first.
    pub fn is_in_time(&self, elapsed: Duration) -> bool {
        self.within.is_none_or(|within| elapsed < within)
    }
}

fn bit(status: u16) -> Option<u8> {
    STATUSES.iter().position(|it| *it == status).map(|place| 1 << place)
}

#[cfg(test)]
mod tests {
    use shared::policy::TextList;

    use super::*;

    fn configured(words: &str) -> LocationPolicy {
        let values = words.split(' ').map(str::to_owned).collect();
        LocationPolicy { proxy_next_upstream: Some(TextList { values }), ..LocationPolicy::default() }
    }

    fn retries(words: &str) -> Retries {
        Retries::compile(&configured(words)).unwrap()
    }

    #[test]
    fn errors_and_timeouts_where_nobody_says_anything() {
        let retries = Retries::compile(&LocationPolicy::default()).unwrap();
        assert_eq!(retries, Retries::default());
        assert!(retries.after(Condition::Error, false) && retries.after(Condition::Timeout, false));
        assert!(!retries.after(Condition::InvalidHeader, false) && !retries.after(Condition::Error, true));
        assert!(!retries.after_status(503, false));
        assert!(retries.is_in_time(Duration::from_secs(1 << 40)));
    }

    #[test]
    fn each_listed_status_is_retried_and_no_other() {
        for status in STATUSES {
            let retries = retries(&format!("http_{status}"));
            for other in STATUSES {
                assert_eq!(retries.after_status(other, false), other == status);
            }
            assert!(!retries.after(Condition::Error, false) && !retries.after_status(status, true));
            assert!(!retries.after_status(200, false));
        }
        assert!(retries("invalid_header").after(Condition::InvalidHeader, false));
        assert!(!retries("timeout").after(Condition::Error, false));
        assert!(retries("error non_idempotent").after(Condition::Error, true));
    }

    #[test]
    fn off_is_nothing_whatever_stands_beside_it() {
        for words in ["off", "error timeout off", "off http_503 non_idempotent"] {
            assert_eq!(retries(words), Retries::NEVER, "{words}");
        }
    }

    #[test]
    fn the_fleet_adds_non_idempotent_to_each_list() {
        let policy = LocationPolicy { retry_non_idempotent: Some(true), ..configured("http_503") };
        let retries = Retries::compile(&policy).unwrap();
        assert!(retries.after_status(503, true) && !retries.after(Condition::Error, false));
    }

    #[test]
    fn a_window_ends_and_none_of_0_seconds_does() {
        for (seconds, in_time) in [(2, false), (3, true), (0, true)] {
            let policy = LocationPolicy { proxy_next_upstream_timeout: Some(seconds), ..configured("error") };
            let retries = Retries::compile(&policy).unwrap();
            assert_eq!(retries.is_in_time(Duration::from_secs(2)), in_time, "{seconds}");
        }
    }

    #[test]
    fn other_words_are_refused() {
        for words in ["http_418", "error,timeout", "", "http_"] {
            assert_eq!(
                Retries::compile(&configured(words)).unwrap_err().field,
                "proxy_next_upstream",
                "{words}"
            );
        }
    }
}
