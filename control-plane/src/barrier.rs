//! The freshness barrier: before a replica sends a proxy anything, it makes sure that it is not behind that proxy.
//!
//! Replicas read the same objects, each at its own pace. A proxy that comes from another replica may have a newer state than this
//! one, and sending it ours would take it back in time. So a proxy that does not come back to our own log waits for a round:
//! all kinds are listed again, by lists that began after the proxy came, and the result is offered. That the proxy's root is in our
//! own history, or equals what is offered, proves nothing: states recur.
//!
//! All proxies that wait when a round begins share it. Later ones wait for the next round, and there is one round at a time. A proxy
//! with the same state as one of those, from the same position in the same log, needs no round of its own: a replica that ends
//! leaves its proxies at a few positions, and they come one after another.
//!
//! A kind that may not be listed may have been read further by another replica. Then the round has ended only partly, and
//! whoever knows the other replicas decides whether it passes (`docs/adr/042-rights-that-are-lost.md`).
//!
//! **Invariant:** a round ends when the result of its lists is offered, never because of a timeout or an error.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shared::clock;
use shared::version::{Lineage, Root, Seq};
use tokio::sync::watch;

/// Minimum average interval of rounds: lists are work for the API server.
const GAP: Duration = Duration::from_secs(1);
/// Number of rounds that may follow one another at once after a quiet time.
const BURST: u32 = 8;
/// Lists of a large cluster are expensive: rounds take at most one part in this many of the time.
const SHARE: u32 = 4;
/// A round that takes longer waits for something else than its lists, an API server that is down or a right; its time is
/// not counted as work.
const WORK: Duration = Duration::from_secs(5);
/// How much of the free time that is owed may be postponed.
const OWED: Duration = Duration::from_secs(1);
/// Limit of the positions that are remembered, the newest. A replica that is killed amid changes leaves its proxies at
/// three or four.
const PLACES: usize = 64;

/// A proxy's position: its lineage and seq, and the root that it has; CONFIG, then LIVE.
pub type Whence = [(Lineage, Seq, Root); 2];

/// The rounds of one replica. Clones share state.
#[derive(Clone, Debug, Default)]
pub struct Barrier(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rounds: watch::Sender<Rounds>,
    /// When the round under way began, and when the next one may.
    pace: Mutex<Pace>,
    /// Positions of proxies that came, and the round that each was assigned; the newest last.
    places: Mutex<VecDeque<(Whence, u64)>>,
    /// Rounds are limited by the time that they take alone.
    is_cheap: bool,
}

/// Limits the rate of rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    began: Option<Instant>,
    /// Until when the rounds so far use up the limit by number.
    by_number: Option<Instant>,
    /// Until when they use up the limit by time.
    by_time: Option<Instant>,
}

impl Pace {
    /// Records that a round has ended. `gap`: the minimum average interval.
    fn over(&mut self, now: Instant, gap: Duration) {
        let took = self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        let further = |until: Option<Instant>, more| Some(until.map_or(now, |until| until.max(now)) + more);
        self.by_number = further(self.by_number, gap);
        self.by_time = further(self.by_time, SHARE * took.min(WORK));
    }

    /// When the next one may begin; `None`: it may.
    fn next(&self) -> Option<Instant> {
        let by_number = self.by_number.and_then(|until| until.checked_sub((BURST - 1) * GAP));
        let by_time = self.by_time.and_then(|until| until.checked_sub(OWED));
        by_number.max(by_time)
    }
}

/// Numbers of the newest round that is waited for, of the newest that began, of the newest that has ended except for what
/// may not be listed, and of the newest that has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Rounds {
    asked: u64,
    begun: u64,
    partly: u64,
    passed: u64,
}

impl Rounds {
    /// Whether a round is waited for and may begin: the previous one has ended.
    fn is_due(&self) -> bool {
        self.asked > self.begun && self.passed == self.begun
    }
}

impl Barrier {
    /// For rounds that cost next to nothing when nothing has changed.
    pub fn of_cheap_rounds() -> Self {
        Self(Arc::new(Inner { is_cheap: true, ..Inner::default() }))
    }

    /// The round to wait for: the next one that begins, or the one assigned to an earlier proxy with the same position.
    /// The state of this proxy existed before the lists of that round began, because the earlier proxy already had it.
    pub fn ask(&self, whence: Option<Whence>) -> u64 {
        let mut places = unpoisoned(&self.0.places);
        let known = places.iter().find(|(place, _)| Some(*place) == whence);
        if let Some((_, round)) = known {
            return *round;
        }
        let mut round = 0;
        self.0.rounds.send_modify(|rounds| {
            rounds.asked = rounds.begun + 1;
            round = rounds.asked;
        });
        if let Some(whence) = whence {
            places.push_back((whence, round));
            if places.len() > PLACES {
                places.pop_front();
            }
        }
        round
    }

    /// Returns once the round has ended.
    pub async fn passed(&self, round: u64) {
        let mut rounds = self.0.rounds.subscribe();
        // The sender is owned by `self`, so this cannot fail.
        let _ = rounds.wait_for(|rounds| rounds.passed >= round).await;
    }

    /// Whether a round has ended.
    #[cfg(any(test, feature = "sim"))]
    pub fn has_passed(&self, round: u64) -> bool {
        self.0.rounds.borrow().passed >= round
    }

    /// Begins a round, once one is waited for and the previous one has ended. The caller lists everything, and tells
    /// the pipeline so after the results of the lists.
    pub async fn begin(&self) -> u64 {
        let mut rounds = self.0.rounds.subscribe();
        let _ = rounds.wait_for(Rounds::is_due).await;
        let next = self.pace().next();
        if let Some(next) = next {
            tokio::time::sleep_until(next.into()).await;
        }
        self.begin_now().unwrap_or_default()
    }

    /// Whether a round may begin at once if none is under way.
    pub fn has_time(&self) -> bool {
        self.pace().next().is_none_or(|next| next <= clock::now())
    }

    /// Begins a round without waiting, if one is due.
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
            self.pace().began = Some(clock::now());
        }
        round
    }

    /// Records that the results of a round's lists are offered.
    pub fn pass(&self, round: u64) {
        if round <= self.0.rounds.borrow().passed {
            return;
        }
        let gap = if self.0.is_cheap { Duration::ZERO } else { GAP };
        self.pace().over(clock::now(), gap);
        self.0.rounds.send_modify(|rounds| rounds.passed = rounds.passed.max(round));
    }

    /// Records that the results of a round's lists are offered, except for what may not be listed.
    pub fn pass_partly(&self, round: u64) {
        self.0.rounds.send_modify(|rounds| rounds.partly = rounds.partly.max(round));
    }

    /// The round under way, if it has ended except for what may not be listed.
    pub fn partly_passed(&self) -> Option<u64> {
        let rounds = *self.0.rounds.borrow();
        Some(rounds.partly).filter(|partly| *partly > rounds.passed)
    }

    /// Waits until a round has ended except for what may not be listed.
    pub async fn partly(&self) -> u64 {
        let mut rounds = self.0.rounds.subscribe();
        // The sender is owned by `self`, so this cannot fail.
        let _ = rounds.wait_for(|rounds| rounds.partly > rounds.passed).await;
        self.partly_passed().unwrap_or_default()
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        unpoisoned(&self.0.pace)
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (first, second) = (barrier.ask(None), barrier.ask(None));
        assert_eq!(first, second);
        assert_eq!(source.await, first);
        let late = barrier.ask(None);
        assert_ne!(late, first, "its lists were begun before");
        let mut waits = pin!(barrier.passed(first));
        assert!(poll!(&mut waits).is_pending());
        assert_eq!(barrier.begin_now(), None, "one at a time");
        barrier.pass(first);
        waits.await;
        assert!(barrier.has_passed(first) && !barrier.has_passed(late));
        assert_eq!(barrier.begin().await, late);
        barrier.pass(late);
        barrier.pass(first);
        assert!(barrier.has_passed(late), "an old one that is said again takes nothing back");
    }

    fn whence(seq: u64) -> Option<Whence> {
        Some([(Lineage([1; 16]), Seq(1), Root([2; 16])), (Lineage([1; 16]), Seq(seq), Root([seq as u8; 16]))])
    }

    /// The proxies of a replica that was killed amid changes come one after the other, from a few places.
    #[test]
    fn who_comes_from_where_others_came_from_waits_for_their_round() {
        let barrier = Barrier::default();
        let first = barrier.ask(whence(7));
        assert_eq!(barrier.begin_now(), Some(first));
        assert_eq!(barrier.ask(whence(7)), first, "it was there when the lists were begun");
        let other = barrier.ask(whence(8));
        assert_eq!((other, barrier.ask(None)), (first + 1, first + 1), "of those nobody knows that");
        barrier.pass(first);
        assert!(barrier.has_passed(barrier.ask(whence(7))), "nothing is listed for it again");
        assert_eq!(barrier.begin_now(), Some(other));
        barrier.pass(other);
        for seq in [7, 8, 7, 8] {
            assert!(barrier.has_passed(barrier.ask(whence(seq))));
        }
        assert_eq!(barrier.begin_now(), None);
        for change in 0..2 {
            let mut place = whence(7).unwrap();
            match change {
                0 => place[0].0 = Lineage([9; 16]),
                _ => place[1].2 = Root([9; 16]),
            }
            assert!(!barrier.has_passed(barrier.ask(Some(place))), "states recur, places do not");
        }
        for seq in 100..100 + PLACES as u64 {
            barrier.ask(whence(seq));
        }
        assert!(!barrier.has_passed(barrier.ask(whence(7))), "it is forgotten");
        assert_eq!(unpoisoned(&barrier.0.places).len(), PLACES);
    }

    /// Rounds of this duration, one after the other as soon as permitted: when each begins, relative to the first.
    fn begins(took: Duration, rounds: usize) -> Vec<Duration> {
        let begun = clock::now();
        let (mut now, mut pace) = (begun, Pace::default());
        let mut times = Vec::new();
        for _ in 0..rounds {
            now = pace.next().map_or(now, |next| next.max(now));
            times.push(now - begun);
            pace.began = Some(now);
            now += took;
            pace.over(now, GAP);
        }
        times
    }

    #[test]
    fn a_few_rounds_follow_one_another_and_many_leave_time() {
        let millis = Duration::from_millis;
        let quick = begins(millis(10), 30);
        for (number, at) in quick[..BURST as usize].iter().enumerate() {
            assert_eq!(*at, millis(10) * number as u32, "at once");
        }
        for pair in quick[BURST as usize..].windows(2) {
            assert_eq!(pair[1] - pair[0], GAP);
        }
        // A second of lists each time.
        let long = begins(millis(1_000), 10);
        assert_eq!(long[1], millis(4_000), "a second of what is to be free is left later");
        for pair in long[1..].windows(2) {
            assert_eq!(pair[1] - pair[0], millis(4_000));
        }
    }

    /// Nobody waits for hours after an API server was down for one.
    #[test]
    fn a_round_that_waited_for_a_server_delays_the_next_ones_little() {
        let long = begins(Duration::from_secs(3_600), 3);
        for pair in long.windows(2) {
            let delayed = pair[1] - pair[0] - Duration::from_secs(3_600);
            assert!(delayed <= SHARE * WORK, "{delayed:?}");
        }
    }

    #[tokio::test]
    async fn a_round_without_some_lists_waits_for_a_decision() {
        let barrier = Barrier::default();
        let round = barrier.ask(None);
        barrier.begin_now();
        let mut decides = pin!(barrier.partly());
        assert!(poll!(&mut decides).is_pending());
        barrier.pass_partly(round);
        assert_eq!(decides.await, round);
        assert!(!barrier.has_passed(round) && barrier.partly_passed() == Some(round));
        barrier.pass(round);
        assert!(barrier.has_passed(round) && barrier.partly_passed().is_none());
        barrier.pass_partly(round);
        assert!(poll!(pin!(barrier.partly())).is_pending(), "it is over");
    }

    #[test]
    fn quiet_hours_are_not_saved_up() {
        let (mut now, mut pace) = (clock::now(), Pace::default());
        for _ in 0..2 {
            let mut times = Vec::new();
            for _ in 0..BURST + 2 {
                now = pace.next().map_or(now, |next| next.max(now));
                times.push(now);
                pace.began = Some(now);
                pace.over(now, GAP);
            }
            let last = &times[BURST as usize..];
            assert_eq!((times[0], last[1] - last[0]), (times[BURST as usize - 1], GAP));
            now += Duration::from_secs(3_600);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_waits_for_its_time() {
        let (barrier, cheap) = (Barrier::default(), Barrier::of_cheap_rounds());
        let begun = tokio::time::Instant::now();
        for (barrier, rounds) in [(&barrier, BURST), (&cheap, 4 * BURST)] {
            for _ in 0..rounds {
                barrier.ask(None);
                barrier.pass(barrier.begin().await);
            }
        }
        assert!(begun.elapsed() < GAP / 2, "the first ones are not delayed, nor are cheap ones");
        assert!(!barrier.has_time() && cheap.has_time());
        barrier.ask(None);
        barrier.begin().await;
        assert!(begun.elapsed() >= GAP / 2, "{:?}", begun.elapsed());
    }

    /// The time that is left after a round is counted once.
    #[test]
    fn a_round_that_is_said_to_be_over_again_delays_no_other() {
        let barrier = Barrier::default();
        let mut round = 0;
        for _ in 0..BURST + 3 {
            barrier.ask(None);
            round = barrier.begin_now().unwrap();
            barrier.pass(round);
        }
        let next = barrier.pace().next();
        assert!(next.is_some_and(|next| next > clock::now()));
        barrier.pass(round);
        assert_eq!(barrier.pace().next(), next);
    }
}
