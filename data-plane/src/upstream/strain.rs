//! Whether a shared connection to an endpoint should be given more calls (ADR 037): what has passed over it goes in, a
//! verdict comes out, no I/O.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::codec::h2::Counts;

/// Streams that we may reset per period; after that the connection accepts no more calls. Netty closes a connection
/// for more than 200 in 30 s, and as many calls as were reset may still be on it.
const RESETS: usize = 100;
const PERIOD: Duration = Duration::from_secs(30);

/// A connection with less window than one frame, without a window update for this long, is used up by a call that the
/// endpoint does not read.
const FRAME: usize = 16 * 1024;
const STUCK: Duration = Duration::from_millis(200);

/// What is remembered of a connection.
#[derive(Debug, Default)]
pub(super) struct Strain {
    /// What had passed at the last look.
    counts: Counts,
    /// Times of recent resets.
    resets: VecDeque<Instant>,
    is_worn: bool,
    /// When the window last changed while it was used up.
    used_up: Option<Instant>,
}

impl Strain {
    /// Looks at what has passed so far, and at how much the endpoint takes on all streams together.
    pub(super) fn follow(&mut self, counts: Counts, window: usize, now: Instant) {
        for _ in self.counts.resets..counts.resets {
            self.resets.push_back(now);
            if self.resets.len() >= RESETS {
                let first = self.resets.pop_front().unwrap_or(now);
                self.is_worn |= now.duration_since(first) < PERIOD;
            }
        }
        let is_opened = counts.openings != self.counts.openings;
        match window < FRAME {
            true if is_opened || self.used_up.is_none() => self.used_up = Some(now),
            true => {}
            false => self.used_up = None,
        }
        self.counts = counts;
    }

    /// Whether so many streams were reset that the endpoint may soon close the connection.
    pub(super) fn is_worn(&self) -> bool {
        self.is_worn
    }

    /// Whether a body would have to wait for others that are not read.
    pub(super) fn is_used_up(&self, now: Instant) -> bool {
        self.used_up.is_some_and(|since| now.duration_since(since) >= STUCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than a window that is not used up.
    const MUCH: usize = FRAME;

    #[test]
    fn a_connection_is_worn_by_a_hundred_resets_in_thirty_seconds() {
        let start = shared::clock::now();
        let (mut strain, mut counts) = (Strain::default(), Counts::default());
        let mut at = |time| {
            counts.resets += 1;
            strain.follow(counts, MUCH, start + time);
            strain.is_worn()
        };
        let slowly = PERIOD / RESETS as u32;
        assert!((0..300).all(|number| !at(slowly * number * 11 / 10)));
        let later = slowly * 600;
        assert_eq!((0..).take_while(|number| !at(later + slowly / 2 * *number)).count(), RESETS - 1);
        assert!(at(later + 10 * PERIOD), "for good");
        // Several between two looks.
        let mut strain = Strain::default();
        strain.follow(Counts { resets: RESETS as u64 - 1, ..Counts::default() }, MUCH, start);
        assert!(!strain.is_worn());
        strain.follow(Counts { resets: RESETS as u64, ..Counts::default() }, MUCH, start);
        assert!(strain.is_worn());
    }

    #[test]
    fn bodies_that_are_not_read_use_a_connection_up() {
        let start = shared::clock::now();
        let (mut strain, mut counts) = (Strain::default(), Counts::default());
        strain.follow(counts, FRAME, start);
        assert!(!strain.is_used_up(start + 9 * STUCK), "there is room for a frame");
        strain.follow(counts, FRAME - 1, start);
        assert!(!strain.is_used_up(start + STUCK / 2), "that may be for a moment");
        assert!(strain.is_used_up(start + STUCK));
        strain.follow(counts, FRAME - 1, start + STUCK);
        assert!(strain.is_used_up(start + STUCK), "nothing has happened");
        counts.openings += 1;
        strain.follow(counts, 1, start + STUCK);
        assert!(!strain.is_used_up(start + STUCK), "it goes on");
        strain.follow(counts, FRAME, start + STUCK);
        assert!(!strain.is_used_up(start + 9 * STUCK));
    }
}
