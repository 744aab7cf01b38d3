//! Limits how often the log says that there is no control plane: at once, then rarely.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tracing::warn;

const AGAIN: Duration = Duration::from_secs(30);

/// Time of the last log message.
#[derive(Debug, Default)]
pub(super) struct LogThrottle {
    last: Option<Instant>,
}

impl LogThrottle {
    /// Logs a failed attempt, unless one was logged recently.
    pub(super) fn say(&mut self, control_plane: impl Display, reason: impl Display, now: Instant) {
        if self.due(now) {
            warn!(%control_plane, %reason, "no connection to the control plane; retrying");
        }
    }

    /// The connection works again: the next failure is logged at once.
    pub(super) fn over(&mut self) {
        self.last = None;
    }

    fn due(&mut self, now: Instant) -> bool {
        let due = self.last.is_none_or(|last| now.saturating_duration_since(last) >= AGAIN);
        if due {
            self.last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_then_rarely() {
        let start = Instant::now();
        let mut throttle = LogThrottle::default();
        let seconds = [0, 1, 29, 31, 45, 62];
        let due = seconds.map(|second| throttle.due(start + Duration::from_secs(second)));
        assert_eq!(due, [true, false, false, true, false, true]);
        throttle.over();
        assert!(throttle.due(start + Duration::from_secs(63)));
    }
}
