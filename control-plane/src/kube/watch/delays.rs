//! When a failed request to an API server is retried.
//!
//! **Invariant:** pure; however long an outage lasts, recovery is noticed soon.

use std::time::{Duration, Instant};

use shared::backoff::Backoff;

/// A list that is forbidden is asked for again this often: an operator has to act. One that was allowed before is taken
/// for forbidden after this time: an API server that has just begun does not know yet who may do what.
pub(super) const FORBIDDEN: Duration = Duration::from_secs(30);
/// Delays while nobody does what is asked, below these: changes are there within 5 s of the moment from which somebody does
/// (`docs/adr/035-who-is-back-is-found-soon.md`). A server that refuses has told nobody to stay away for longer.
pub(super) const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// The delays of one watch.
#[derive(Debug)]
pub(super) struct Delays {
    again: Backoff,
    /// Since when it has been forbidden, and was allowed before.
    forbidden: Option<Instant>,
}

impl Default for Delays {
    fn default() -> Self {
        Self { again: Backoff::new(AGAIN.0, AGAIN.1), forbidden: None }
    }
}

impl Delays {
    /// After a question without an answer, or one that was refused.
    pub(super) fn again(&mut self) -> Duration {
        self.again.next_delay()
    }

    /// Something was forbidden that was allowed before. Whether that is to be believed.
    pub(super) fn is_forbidden(&mut self, now: Instant) -> bool {
        now >= *self.forbidden.get_or_insert(now) + FORBIDDEN
    }

    /// It is allowed.
    pub(super) fn allowed(&mut self) {
        self.forbidden = None;
    }

    /// A watch speaks: all is well.
    pub(super) fn reset(&mut self) {
        self.again.reset();
        self.forbidden = None;
    }
}
