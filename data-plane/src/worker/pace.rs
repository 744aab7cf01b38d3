//! How many connections a listener accepts before existing ones get their turn.
//!
//! Connections in the kernel's queue cost nothing yet. If all were accepted at once, an overloaded worker would start
//! on everybody's request and finish none before the clients give up. nginx accepts one per turn of its event loop;
//! here it is as many as a short turn allows.
//!
//! **Invariant:** without I/O and without a clock.

use std::time::Duration;

/// Maximum duration of a turn of the event loop while connections wait in the queue.
const TURN: Duration = Duration::from_millis(5);

/// Maximum number of connections per turn.
const MOST: u32 = 64;

/// How many connections may be accepted per turn, and how many were.
#[derive(Debug)]
pub(super) struct Pace {
    allowed: u32,
    taken: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { allowed: MOST, taken: 0 }
    }
}

impl Pace {
    /// Counts an accepted connection. Returns whether the others should get their turn now.
    pub(super) fn take(&mut self) -> bool {
        self.taken += 1;
        self.taken >= self.allowed
    }

    /// The others have had their turn, which took this long. Returns whether that was too long: more comes than can be
    /// served.
    pub(super) fn turned(&mut self, took: Duration) -> bool {
        let is_long = took > TURN;
        self.taken = 0;
        self.allowed = if is_long { (self.allowed / 2).max(1) } else { (self.allowed * 2).min(MOST) };
        is_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_millis(50);

    /// Number of connections that are accepted before the others get their turn.
    fn taken(pace: &mut Pace) -> u32 {
        (1..).find(|_| pace.take()).unwrap_or_default()
    }

    #[test]
    fn as_many_are_taken_as_a_short_turn_has_time_for() {
        let mut pace = Pace::default();
        assert_eq!(taken(&mut pace), MOST, "a burst is taken at once");
        let long = [32, 16, 8, 4, 2, 1, 1].map(|_| {
            assert!(pace.turned(LONG));
            taken(&mut pace)
        });
        assert_eq!(long, [32, 16, 8, 4, 2, 1, 1], "one in a turn is never refused");
        let short = [(); 8].map(|()| {
            assert!(!pace.turned(SHORT));
            taken(&mut pace)
        });
        assert_eq!(short, [2, 4, 8, 16, 32, 64, 64, 64]);
        assert!(!pace.turned(TURN));
        assert_eq!(taken(&mut pace), MOST);
    }
}
