//! Measures how long changes take, from the source's first event to the last proxy's acknowledgement.
//!
//! **Invariant:** pure except for its edge; each commit is measured once, or given up once, or no proxy was connected
//! for it. If a proxy disconnected without a commit, the commit is not complete until that proxy is back or forgotten.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::clock;
use shared::version::Seq;
use tokio::sync::broadcast::error::RecvError;

use super::registry::Registry;
use crate::metrics::Metrics;
use crate::store::{Note, Published};

/// A commit that has not reached all proxies after this time is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Limit of pending commits; the oldest is given up for a new one.
const WAITING: usize = 1_024;
/// Interval of looks per proxy: the cost of a look is proportional to the number of proxies.
const GAP: Duration = Duration::from_micros(20);

/// Pending commits.
#[derive(Debug, Default)]
struct Convergence {
    waiting: VecDeque<Arc<Note>>,
}

/// Results of commits.
#[derive(PartialEq, Eq, Debug, Default)]
struct Outcome {
    /// Times of those that have reached all proxies.
    reached: Vec<Duration>,
    /// Number of those that were given up.
    given_up: u64,
}

/// The acknowledged positions of proxies on both lanes.
#[derive(Debug, Default)]
struct Reach {
    proxies: usize,
    /// The lowest positions of connected proxies; `None` if there are none.
    connected: Option<(Seq, Seq)>,
    /// Positions of silent proxies, and since when.
    silent: Vec<(Instant, Seq, Seq)>,
}

impl Reach {
    fn of(registry: &Registry) -> Self {
        let mut reach = Self::default();
        registry.visit(|proxy| {
            // A proxy that has just connected has nothing, as far as known.
            let (config, live) = (proxy.config.seq, proxy.live.seq);
            reach.proxies += 1;
            match proxy.silence {
                Some(silence) => reach.silent.push((silence.since, config, live)),
                None => {
                    let (least_config, least_live) = reach.connected.unwrap_or((config, live));
                    reach.connected = Some((config.min(least_config), live.min(least_live)));
                }
            }
        });
        reach
    }

    /// Whether a commit has reached every proxy that was there for it; `None`: there was none.
    fn has(&self, note: &Note) -> Option<bool> {
        let left = self.silent.iter().filter(|(since, ..)| *since >= note.at);
        let mut there = left.map(|(_, config, live)| (*config, *live)).chain(self.connected).peekable();
        there.peek()?;
        Some(there.all(|(config, live)| note.config_seq <= config && note.live_seq <= live))
    }
}

impl Convergence {
    fn look(&mut self, reach: &Reach, now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(note) = self.waiting.front() {
            let is_over = now.saturating_duration_since(note.at) > PATIENCE || self.waiting.len() > WAITING;
            match reach.has(note) {
                Some(true) => outcome.reached.push(now.saturating_duration_since(note.heard)),
                Some(false) if is_over => outcome.given_up += 1,
                Some(false) => break,
                None => {}
            }
            self.waiting.pop_front();
        }
        outcome
    }

    /// When the next commit is given up, even if no proxy acknowledges anything.
    fn patience(&self) -> Option<Instant> {
        self.waiting.front().map(|note| note.at + PATIENCE)
    }
}

/// Measures every commit, forever.
///
/// # Errors
/// Never.
pub async fn measure(
    published: Published,
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
) -> Result<(), Infallible> {
    let (mut notes, mut changes) = (published.notes(), registry.changes());
    drop(published);
    let mut convergence = Convergence::default();
    loop {
        let patience = convergence.patience();
        tokio::select! {
            note = notes.recv() => match note {
                Ok(note) if note.is_offered() => convergence.waiting.push_back(note),
                Ok(_) => continue,
                Err(RecvError::Lagged(lost)) => metrics.converged(&[], lost),
                // The store has ended, and the process with it.
                Err(RecvError::Closed) => return std::future::pending().await,
            },
            _ = changes.changed(), if patience.is_some() => {}
            () = until(patience), if patience.is_some() => {}
        }
        changes.mark_unchanged();
        let reach = Reach::of(&registry);
        let Outcome { reached, given_up } = convergence.look(&reach, clock::now());
        metrics.converged(&reached, given_up);
        tokio::time::sleep(GAP * u32::try_from(reach.proxies).unwrap_or(u32::MAX)).await;
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until((time + Duration::from_millis(1)).into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use shared::version::Root;

    use super::*;

    fn note(config: u64, live: u64, at: Instant) -> Arc<Note> {
        Arc::new(Note {
            config_seq: Seq(config),
            live_seq: Seq(live),
            version: Root([1; 16]),
            config: true,
            cause: "an edit".into(),
            changed: 1,
            held_back: 0,
            heard: at - Duration::from_millis(1),
            at,
        })
    }

    fn connected(config: u64, live: u64) -> Reach {
        Reach { proxies: 1, connected: Some((Seq(config), Seq(live))), silent: Vec::new() }
    }

    #[test]
    fn a_commit_is_measured_from_its_first_word_to_the_last_proxy() {
        let start = clock::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut convergence = Convergence::default();
        convergence.waiting.extend([note(1, 1, at(1)), note(2, 1, at(6)), note(2, 2, at(7))]);
        assert_eq!(convergence.look(&connected(1, 0), at(10)), Outcome::default());
        let reached = convergence.look(&connected(2, 1), at(20)).reached;
        assert_eq!(reached, [Duration::from_millis(20), Duration::from_millis(15)]);
        assert_eq!(convergence.waiting.len(), 1);
        assert_eq!(convergence.look(&connected(2, 1), at(7) + PATIENCE), Outcome::default());
        let late =
            convergence.look(&connected(2, 1), convergence.patience().unwrap() + Duration::from_millis(1));
        assert_eq!(late, Outcome { reached: vec![], given_up: 1 });
    }

    #[test]
    fn one_that_went_without_it_holds_it_up_and_one_that_was_gone_before_does_not() {
        let start = clock::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut convergence = Convergence::default();
        convergence.waiting.extend([note(1, 1, at(5)), note(2, 1, at(30))]);
        let silent = vec![(at(10), Seq(0), Seq(1))];
        let reach = Reach { silent, ..connected(2, 1) };
        assert_eq!(
            convergence.look(&reach, at(40)),
            Outcome::default(),
            "the first has to be somewhere first"
        );
        convergence.waiting.pop_front();
        assert_eq!(convergence.look(&reach, at(40)).reached, [Duration::from_millis(11)]);
        convergence.waiting.push_back(note(3, 1, at(50)));
        let last = Reach { proxies: 1, connected: None, silent: vec![(at(60), Seq(2), Seq(1))] };
        assert_eq!(convergence.look(&last, at(70)), Outcome::default(), "all are gone, and lack it");
        assert_eq!(convergence.waiting.len(), 1);
        convergence.waiting = VecDeque::from([note(4, 1, at(80))]);
        assert_eq!(convergence.look(&last, at(90)), Outcome::default());
        assert!(convergence.waiting.is_empty(), "nobody was there for it");
    }

    #[test]
    fn with_nobody_there_is_nothing_to_measure_and_with_too_many_the_oldest_goes() {
        let now = clock::now();
        let mut convergence = Convergence::default();
        convergence.waiting.extend((0..WAITING as u64 + 3).map(|seq| note(seq + 1, 1, now)));
        assert_eq!(convergence.look(&connected(0, 1), now).given_up, 3);
        assert_eq!(convergence.look(&Reach::default(), now), Outcome::default());
        assert!(convergence.waiting.is_empty());
    }
}
