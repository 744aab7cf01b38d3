//! The freshness barrier: a replica that may be behind what a proxy has finds out, before it sends that proxy anything.
//!
//! Replicas read the same objects, each at its own pace. A proxy that comes from another one may have what this one has not
//! heard of yet, and sending it what is here would take it back. So who has something else than is offered here waits for a
//! round: all objects are listed anew, by lists that were begun after it came, and what they show is offered. A root that is
//! in this replica's own history proves nothing: states recur.
//!
//! A round is shared by all who wait when it begins; who comes later waits for the next one, and there is one at a time.
//!
//! **Invariant:** a round passes when what its lists showed is offered, never by time and never by an error.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shared::clock;
use tokio::sync::watch;

/// The least time between the end of a round and the next one.
const GAP: Duration = Duration::from_secs(1);
/// Lists of a large cluster are work for its API server: rounds take one part in so many of the time at most.
const SHARE: u32 = 4;

/// Rounds of one replica. A clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Barrier(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rounds: watch::Sender<Rounds>,
    /// When the round under way began, or the next one may.
    times: Mutex<Times>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    began: Option<Instant>,
    next: Option<Instant>,
}

/// The newest that somebody waits for, that was begun, and that has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Rounds {
    asked: u64,
    begun: u64,
    passed: u64,
}

impl Rounds {
    /// Whether somebody waits for one that may begin.
    fn is_due(&self) -> bool {
        self.asked > self.begun && self.passed == self.begun
    }
}

impl Barrier {
    /// The round to wait for: the next one that begins.
    pub fn ask(&self) -> u64 {
        let mut round = 0;
        self.0.rounds.send_modify(|rounds| {
            rounds.asked = rounds.begun + 1;
            round = rounds.asked;
        });
        round
    }

    /// Returns when a round has passed.
    pub async fn passed(&self, round: u64) {
        let mut rounds = self.0.rounds.subscribe();
        // The sender is here.
        let _ = rounds.wait_for(|rounds| rounds.passed >= round).await;
    }

    /// Whether a round has passed.
    #[cfg(any(test, feature = "sim"))]
    pub fn has_passed(&self, round: u64) -> bool {
        self.0.rounds.borrow().passed >= round
    }

    /// Begins a round, once somebody waits for one and the one before is over. Whoever calls this lists everything, and says so
    /// to the pipeline behind what the lists showed.
    pub async fn begin(&self) -> u64 {
        let mut rounds = self.0.rounds.subscribe();
        let _ = rounds.wait_for(Rounds::is_due).await;
        let next = self.times().next;
        if let Some(next) = next {
            tokio::time::sleep_until(next.into()).await;
        }
        self.begin_now().unwrap_or_default()
    }

    /// The same at once, where it is due.
    pub fn begin_now(&self) -> Option<u64> {
        let mut round = None;
        self.0.rounds.send_if_modified(|rounds| {
            if rounds.is_due() {
                rounds.begun = rounds.asked;
                round = Some(rounds.begun);
            }
            round.is_some()
        });
        if round.is_some() {
            self.times().began = Some(clock::now());
        }
        round
    }

    /// What the lists of a round showed is offered.
    pub fn pass(&self, round: u64) {
        let now = clock::now();
        let mut times = self.times();
        let took = times.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        times.next = Some(now + GAP.max(SHARE * took));
        drop(times);
        self.0.rounds.send_if_modified(|rounds| {
            let is_news = round > rounds.passed;
            rounds.passed = rounds.passed.max(round);
            is_news
        });
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_comes_before_a_round_begins_shares_it_and_who_comes_later_waits_for_the_next() {
        let barrier = Barrier::default();
        let mut source = Box::pin(barrier.begin());
        assert!(poll!(&mut source).is_pending(), "nobody waits");
        let (first, second) = (barrier.ask(), barrier.ask());
        assert_eq!(first, second);
        assert_eq!(source.await, first);
        let late = barrier.ask();
        assert_ne!(late, first, "its lists were begun before");
        let mut waits = pin!(barrier.passed(first));
        assert!(poll!(&mut waits).is_pending());
        assert_eq!(barrier.begin_now(), None, "one at a time");
        barrier.pass(first);
        waits.await;
        assert!(barrier.has_passed(first) && !barrier.has_passed(late));
        assert_eq!(barrier.begin().await, late);
    }

    #[tokio::test(start_paused = true)]
    async fn between_rounds_there_is_time() {
        let barrier = Barrier::default();
        barrier.ask();
        let begun = tokio::time::Instant::now();
        barrier.pass(barrier.begin().await);
        assert_eq!(begun.elapsed(), Duration::ZERO, "the first one is not delayed");
        barrier.ask();
        barrier.begin().await;
        assert!(begun.elapsed() >= GAP / 2, "{:?}", begun.elapsed());
    }
}
