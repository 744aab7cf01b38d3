//! What fails is tried again, and said once.

use std::time::Duration;

use tracing::warn;

/// Delays between retries.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The time until the next retry, given the time before this one.
pub(super) fn pause_after(pause: Option<Duration>) -> Duration {
    pause.map_or(RETRY.0, |pause| (pause * 2).min(RETRY.1))
}

/// The last complaint that was logged.
#[derive(Debug, Default)]
pub(super) struct LastWarning(Option<String>);

impl LastWarning {
    /// Logs a complaint once, and again when it changes.
    pub(super) fn warn(&mut self, what: String) {
        if self.0.as_ref() != Some(&what) {
            warn!("{what}");
            self.0 = Some(what);
        }
    }

    /// There is nothing to complain about any more. Returns whether there was.
    pub(super) fn is_over(&mut self) -> bool {
        self.0.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is full for an hour is not left alone for another one.
    #[test]
    fn retries_are_ten_seconds_apart_at_most() {
        let pauses = std::iter::successors(Some(pause_after(None)), |pause| Some(pause_after(Some(*pause))));
        assert_eq!(pauses.map(|it| it.as_secs()).take(7).collect::<Vec<_>>(), [1, 2, 4, 8, 10, 10, 10]);
    }
}
