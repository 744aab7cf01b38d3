//! Rate-limits a repeated message.

use std::time::{Duration, Instant};

/// Says when the message is due, and how often it was suppressed.
#[derive(Debug)]
pub struct Seldom {
    gap: Duration,
    last: Option<Instant>,
    missed: u64,
}

impl Seldom {
    /// At most once in `gap`.
    pub fn new(gap: Duration) -> Self {
        Self { gap, last: None, missed: 0 }
    }

    /// Whether to log it now: if so, returns how often it was suppressed since the last time.
    pub fn now(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < self.gap) {
            self.missed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.missed))
    }

    /// What the message is about is over: the next one is due at once.
    pub fn reset(&mut self) {
        (self.last, self.missed) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Seldom;

    #[test]
    fn once_in_a_while_with_what_was_missed() {
        let mut seldom = Seldom::new(Duration::from_secs(1));
        let begun = crate::clock::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let said: Vec<_> = [0, 1, 999, 1_000, 1_001, 5_000].map(|millis| seldom.now(at(millis))).into();
        assert_eq!(said, [Some(0), None, None, Some(2), None, Some(1)]);
        assert_eq!(seldom.now(at(5_001)), None);
        seldom.reset();
        assert_eq!(seldom.now(at(5_002)), Some(0), "another time of trouble");
    }
}
