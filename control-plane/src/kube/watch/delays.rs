//! When a failed request to an API server is retried.
//!
//! **Invariant:** pure; however long an outage lasts, recovery is noticed soon.

use std::time::{Duration, Instant};

use shared::backoff::Backoff;

/// A list that was permitted before is taken for forbidden only after this time: an API server that has just started does
/// not know the permissions yet.
pub(super) const FORBIDDEN: Duration = Duration::from_secs(30);
/// Bounds of retry delays; that of a forbidden list is the longest one. Changes arrive within 5 s after the API server
/// responds again, or permits (`docs/adr/035-who-is-back-is-found-soon.md`). An error response does not ask for longer delays.
pub(super) const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// The delays of one watch.
#[derive(Debug)]
pub(super) struct Delays {
    again: Backoff,
    /// Since when it has been forbidden after it was permitted.
    forbidden: Option<Instant>,
}

impl Default for Delays {
    fn default() -> Self {
        Self { again: Backoff::new(AGAIN.0, AGAIN.1), forbidden: None }
    }
}

impl Delays {
    /// The delay after a request without a response, or an error.
    pub(super) fn again(&mut self) -> Duration {
        self.again.next_delay()
    }

    /// A permitted request was forbidden. Returns whether to trust that.
    pub(super) fn is_forbidden(&mut self, now: Instant) -> bool {
        now >= *self.forbidden.get_or_insert(now) + FORBIDDEN
    }

    /// The request is permitted.
    pub(super) fn allowed(&mut self) {
        self.forbidden = None;
    }

    /// The watch works.
    pub(super) fn reset(&mut self) {
        self.again.reset();
        self.forbidden = None;
    }
}
