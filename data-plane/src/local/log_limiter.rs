//! Limits the log lines about failures of requests: one per Ingress or backend and minute, because a request must not
//! produce a line each time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time until the same one is logged again.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number that are logged within that time.
const MOST: usize = 256;

/// The owners that were logged recently.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter(RefCell<HashMap<Box<str>, Instant>>);

impl LogLimiter {
    /// Whether this owner was not logged recently, and may be now.
    pub(crate) fn allows(&self, owner: &str, now: Instant) -> bool {
        let mut logged = self.0.borrow_mut();
        if logged.get(owner).is_some_and(|until| now < *until) {
            return false;
        }
        if logged.len() >= MOST {
            logged.retain(|_, until| now < *until);
        }
        let has_room = logged.len() < MOST;
        if has_room {
            logged.insert(owner.into(), now + INTERVAL);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_is_logged_once_per_interval() {
        let (limiter, now) = (LogLimiter::default(), Instant::now());
        assert!(limiter.allows("a/b", now) && !limiter.allows("a/b", now));
        assert!(!limiter.allows("a/b", now + INTERVAL - Duration::from_millis(1)));
        assert!(limiter.allows("a/b", now + INTERVAL));
        let later = now + INTERVAL;
        for number in 1..MOST {
            assert!(limiter.allows(&format!("a/{number}"), later), "{number}");
        }
        assert!(!limiter.allows("c/d", later), "there is no room");
        assert!(limiter.allows("c/d", later + INTERVAL));
    }
}
