//! Log lines about what requests run into: one for each Ingress or backend in a while, because a request must not produce
//! a line each time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time until the same one is logged again.
const AGAIN: Duration = Duration::from_secs(60);
/// Maximum number that are logged within that time.
const TOLD: usize = 256;

/// Who was logged recently.
#[derive(Debug, Default)]
pub(crate) struct Told(RefCell<HashMap<Box<str>, Instant>>);

impl Told {
    /// Whether this one was not logged recently, and should be now.
    pub(crate) fn is_news(&self, owner: &str, now: Instant) -> bool {
        let mut told = self.0.borrow_mut();
        if told.get(owner).is_some_and(|until| now < *until) {
            return false;
        }
        if told.len() >= TOLD {
            told.retain(|_, until| now < *until);
        }
        let has_room = told.len() < TOLD;
        if has_room {
            told.insert(owner.into(), now + AGAIN);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_a_while() {
        let (told, now) = (Told::default(), Instant::now());
        assert!(told.is_news("a/b", now) && !told.is_news("a/b", now));
        assert!(!told.is_news("a/b", now + AGAIN - Duration::from_millis(1)));
        assert!(told.is_news("a/b", now + AGAIN));
        let later = now + AGAIN;
        for number in 1..TOLD {
            assert!(told.is_news(&format!("a/{number}"), later), "{number}");
        }
        assert!(!told.is_news("c/d", later), "there is no room");
        assert!(told.is_news("c/d", later + AGAIN));
    }
}
