//! The times of recent commits, from which a position in the log tells how long a proxy has been behind.
//!
//! **Invariant:** bounded, and in the order of both lanes' logs.

use std::cmp::Ordering;
use std::time::Instant;

use imbl::Vector;
use shared::version::Seq;

/// Limit of remembered commits. A proxy that is further behind has been so at least since the oldest of them.
const COMMITS: usize = 1_024;

#[derive(Clone, Copy, Debug)]
struct Commit {
    config: Seq,
    live: Seq,
    at: Instant,
}

/// The last commits. A clone is cheap and shares everything.
#[derive(Clone, Debug, Default)]
pub struct Commits(Vector<Commit>);

impl Commits {
    /// Adds a commit, with both lanes' positions after it.
    pub(super) fn push(&mut self, config: Seq, live: Seq, at: Instant) {
        if self.0.len() == COMMITS {
            self.0.pop_front();
        }
        self.0.push_back(Commit { config, live, at });
    }

    /// The time of the first commit beyond these positions; `None`: there is none.
    pub fn beyond(&self, config: Seq, live: Seq) -> Option<Instant> {
        let is_beyond = |commit: &Commit| commit.config > config || commit.live > live;
        let first = self.0.binary_search_by(|commit| match is_beyond(commit) {
            true => Ordering::Greater,
            false => Ordering::Less,
        });
        // No entry is equal: the result is the index of the first one beyond.
        let (Ok(first) | Err(first)) = first;
        self.0.get(first).map(|commit| commit.at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_commit_beyond_a_place_says_since_when_somebody_is_behind() {
        let start = shared::clock::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let mut commits = Commits::default();
        assert_eq!(commits.beyond(Seq(0), Seq(0)), None);
        for (config, live, second) in [(1, 1, 0), (1, 2, 1), (2, 2, 2), (2, 3, 3)] {
            commits.push(Seq(config), Seq(live), at(second));
        }
        for (config, live, beyond) in [
            (0, 0, Some(0)),
            (1, 1, Some(1)),
            (1, 2, Some(2)),
            (1, 9, Some(2)),
            (2, 1, Some(1)),
            (2, 3, None),
        ] {
            assert_eq!(commits.beyond(Seq(config), Seq(live)), beyond.map(at), "{config} {live}");
        }
        for second in 4..2_000 {
            commits.push(Seq(second), Seq(3), at(second));
        }
        assert_eq!(commits.0.len(), COMMITS);
        assert_eq!(commits.beyond(Seq(1), Seq(1)), Some(at(2_000 - COMMITS as u64)), "at least so long");
    }
}
