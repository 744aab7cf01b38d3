//! When a stream counts as silent.
//!
//! A resource is one message, however large, and on a slow link it takes longer than the control plane may be silent. So bytes
//! of the connection count, too, and the control plane is told that they arrive: it sees nothing else of that.

use std::time::Duration;

use tokio::time::Instant;

/// Bytes within a third of the limit that are the beginning of a message. Replies to probes of the connection are fewer.
const TRICKLE: u64 = 1024;

/// The state of a stream.
#[derive(Debug)]
pub(super) struct Patience {
    limit: Duration,
    /// When it is silent.
    end: Instant,
    /// When to look whether something arrives.
    look: Instant,
}

/// What follows from what has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Not much, but there is still time.
    Wait,
    /// The rest of a message is on its way.
    Arrives,
    /// Nothing has arrived within the limit.
    Silent,
}

impl Patience {
    /// A message was received, or the stream was opened. `limit` is how long the control plane may be silent.
    pub(super) fn from(now: Instant, limit: Duration) -> Self {
        Self { limit, end: now + limit, look: now + limit / 3 }
    }

    /// When to ask for a verdict.
    pub(super) fn due(&self) -> Instant {
        self.look.min(self.end)
    }

    /// The limit.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// The verdict when it is due; `bytes` have arrived since the previous one.
    pub(super) fn judge(&mut self, now: Instant, bytes: u64) -> Verdict {
        if bytes >= TRICKLE {
            *self = Self::from(now, self.limit);
            return Verdict::Arrives;
        }
        self.look = now + self.limit / 3;
        if now < self.end { Verdict::Wait } else { Verdict::Silent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(15);

    /// The verdicts while so many bytes arrive in each third of the limit.
    fn verdicts(bytes: u64) -> Vec<Verdict> {
        let mut patience = Patience::from(Instant::now(), LIMIT);
        (0..4)
            .map(|_| {
                let due = patience.due();
                patience.judge(due, bytes)
            })
            .collect()
    }

    #[test]
    fn a_message_may_take_any_time_while_its_bytes_arrive() {
        assert_eq!(verdicts(TRICKLE), [Verdict::Arrives; 4]);
    }

    #[test]
    fn replies_to_probes_are_silence() {
        let silent = Verdict::Silent;
        assert_eq!(verdicts(TRICKLE - 1), [Verdict::Wait, Verdict::Wait, silent, silent]);
    }

    #[test]
    fn what_stops_in_the_middle_is_silent_after_the_limit() {
        let start = Instant::now();
        let mut patience = Patience::from(start, LIMIT);
        assert_eq!(patience.judge(start + LIMIT / 3, TRICKLE), Verdict::Arrives);
        assert_eq!(patience.judge(start + LIMIT, 0), Verdict::Wait);
        assert_eq!(patience.judge(start + LIMIT / 3 + LIMIT, 0), Verdict::Silent);
    }
}
