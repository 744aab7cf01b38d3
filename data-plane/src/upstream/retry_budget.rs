//! Limits how often requests of one backend may be retried after an endpoint received them
//! (docs/adr/024-who-cannot-be-reached.md): when most of them fail, trying each three times is what keeps the
//! endpoints down.
//!
//! Pure: whether a request may be retried by the rules of its location is decided elsewhere.

use std::time::Instant;

/// Retries that are available initially, and the most that are saved up. Backends with few requests depend on them.
const RESERVE: u64 = 100;

/// Retries added per second, however few requests there are.
const A_SECOND: u64 = 10;

/// One retry, in the units that requests and milliseconds add.
const TRY: u64 = 100_000;

/// The retry budget of a backend on one worker.
#[derive(Debug)]
pub(super) struct RetryBudget {
    /// In fractions of a retry.
    left: u64,
    /// Up to when milliseconds were added.
    since: Option<Instant>,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { left: RESERVE * TRY, since: None }
    }
}

impl RetryBudget {
    /// Counts a first attempt, which adds this percentage of a retry.
    pub(super) fn deposit(&mut self, percent: u32) {
        self.add(u64::from(percent) * (TRY / 100));
    }

    /// Takes a retry, if one is left.
    pub(super) fn withdraw(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(*self.since.get_or_insert(now)).as_millis();
        self.since = Some(now);
        self.add(u64::try_from(elapsed).unwrap_or(u64::MAX).saturating_mul(A_SECOND * TRY / 1_000));
        let is_left = self.left >= TRY;
        if is_left {
            self.left -= TRY;
        }
        is_left
    }

    fn add(&mut self, parts: u64) {
        self.left = self.left.saturating_add(parts).min(RESERVE * TRY);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// With this many requests per second that would all be retried: how many are.
    fn retries_granted(percent: u32, a_second: u64, seconds: u64) -> u64 {
        let (mut budget, start) = (RetryBudget::default(), shared::clock::now());
        let mut count = 0;
        for number in 0..a_second * seconds {
            budget.deposit(percent);
            let now = start + Duration::from_millis(number * 1_000 / a_second);
            count += u64::from(budget.withdraw(now));
        }
        count
    }

    #[test]
    fn retries_of_few_requests_are_all_allowed() {
        assert_eq!(retries_granted(20, 10, 600), 6_000);
        assert_eq!(retries_granted(0, 10, 600), 6_000);
    }

    #[test]
    fn retries_are_limited_to_a_percentage_of_many_requests() {
        let count = retries_granted(20, 2_000, 600);
        let share = 1_200_000 / 5;
        let (reserve, by_time) = (RESERVE, A_SECOND * 600);
        assert!(count >= share && count <= share + reserve + by_time, "{count}");
        assert_eq!(retries_granted(100, 2_000, 60), 120_000);
    }

    #[test]
    fn unused_retries_are_saved_up_to_a_limit() {
        let (mut budget, start) = (RetryBudget::default(), shared::clock::now());
        assert!(budget.withdraw(start));
        (0..1_000_000).for_each(|_| budget.deposit(100));
        let later = start + Duration::from_secs(3_600);
        let at_once = (0..).take_while(|_| budget.withdraw(later)).count();
        assert_eq!(at_once as u64, RESERVE);
    }
}
