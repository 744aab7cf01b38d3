//! Decides whether the certificate may be the reason that no stream succeeds, and when to request another one.
//!
//! A control plane that is down, starting or overloaded says nothing about certificates. If that counted as a reason,
//! a proxy would request a certificate before each attempt, and each request makes the control plane check a token
//! with the API server: a fleet that lost its control plane for a minute would bring the next one down.
//!
//! **Invariant:** sans-I/O; requests of several proxies are spread out, and repeated failures make them less and less
//! frequent.

use std::time::Duration;

use shared::backoff::Backoff;
use tokio::time::Instant;

use super::End;

/// Number of streams refused because of certificates after which this one is doubted.
const DOUBT: u32 = 2;
/// Delay before another one is requested: the first time, and at most.
const ASK: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// The evidence against the certificate.
#[derive(Debug)]
pub(super) struct Doubts {
    failures: u32,
    /// No request before this time.
    ask: Option<Instant>,
    backoff: Backoff,
}

impl Default for Doubts {
    fn default() -> Self {
        Self { failures: 0, ask: None, backoff: Backoff::new(ASK.0, ASK.1) }
    }
}

impl Doubts {
    /// Records that a stream ended.
    pub(super) fn note(&mut self, end: End, now: Instant) {
        match end {
            End::Welcome => *self = Self::default(),
            End::Unheard => {}
            End::Unwelcome => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= DOUBT {
                    self.ask.get_or_insert_with(|| now + self.backoff.next_delay());
                }
            }
        }
    }

    /// Whether to request another certificate now, which is then considered done. `is_early`: this one is not valid
    /// yet, whatever the control plane said.
    pub(super) fn is_due(&mut self, is_early: bool, now: Instant) -> bool {
        let is_doubtful = is_early || self.failures >= DOUBT;
        if !is_doubtful || self.ask.is_some_and(|ask| now < ask) {
            return false;
        }
        self.ask = Some(now + self.backoff.next_delay());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of requests in an hour of connecting every second, and the time of the first one.
    fn asked(end: End, is_early: bool) -> (usize, Option<u64>) {
        let (mut doubts, start) = (Doubts::default(), Instant::now());
        let (mut count, mut first) = (0, None);
        for second in 0..3600 {
            let now = start + Duration::from_secs(second);
            if doubts.is_due(is_early, now) {
                count += 1;
                first.get_or_insert(second);
            }
            doubts.note(end, now);
        }
        (count, first)
    }

    #[test]
    fn unanswered_stream_does_not_renew_the_certificate() {
        assert_eq!(asked(End::Unheard, false), (0, None));
        assert_eq!(asked(End::Welcome, false), (0, None));
    }

    #[test]
    fn rejected_certificate_is_renewed_at_growing_intervals() {
        let (count, _) = asked(End::Unwelcome, false);
        assert!((4..60).contains(&count), "{count}");
        let (early, first) = asked(End::Unheard, true);
        assert!((4..60).contains(&early) && first == Some(0), "{early}, {first:?}");
    }

    #[test]
    fn a_fleet_does_not_ask_together() {
        let mut by_second = [0_u32; 16];
        for _ in 0..1000 {
            let (_, first) = asked(End::Unwelcome, false);
            by_second[first.unwrap() as usize] += 1;
        }
        assert!(by_second.iter().all(|count| *count < 250), "{by_second:?}");
    }

    #[test]
    fn a_stream_that_is_welcome_ends_all_doubt() {
        let (mut doubts, now) = (Doubts::default(), Instant::now());
        for _ in 0..3 {
            doubts.note(End::Unwelcome, now);
        }
        assert!(doubts.is_due(false, now + ASK.1));
        doubts.note(End::Welcome, now);
        doubts.note(End::Unwelcome, now);
        assert!(!doubts.is_due(false, now + 2 * ASK.1), "once is chance");
    }
}
