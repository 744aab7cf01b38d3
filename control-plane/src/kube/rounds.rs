//! Rounds of the freshness barrier in a cluster: each watch lists again, and a round ends when the last of them has
//! sent its result.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::KubeError;
use crate::barrier::Barrier;
use crate::event::Inputs;

/// Tracks the watches that have sent the results of their lists. Clones share state, and are the same part.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    shared: Arc<Inner>,
    /// Which part of each round this is.
    part: usize,
}

#[derive(Debug)]
struct Inner {
    inputs: Inputs,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    /// Number of those that take part.
    parts: usize,
    /// The newest round.
    round: u64,
    /// Those that are done with it, and those that may not list their objects.
    done: BTreeSet<usize>,
    unread: BTreeSet<usize>,
    /// What was reported last: whether it was whole.
    told: Option<bool>,
}

impl Progress {
    /// Notes that a part has sent what it may list. Returns whether the round is whole if that is news, and over.
    fn note(&mut self, part: usize, round: u64, is_whole: bool) -> Option<bool> {
        if round < self.round {
            return None;
        }
        if round > self.round {
            *self = Self { parts: self.parts, round, ..Self::default() };
        }
        match is_whole {
            true => _ = self.done.insert(part),
            false => _ = self.unread.insert(part),
        }
        let reported = self.done.union(&self.unread).count();
        let over = (reported == self.parts).then_some(self.done.len() == self.parts);
        let news = over.filter(|_| over != self.told);
        self.told = over.or(self.told);
        news
    }
}

impl Rounds {
    /// Nobody takes part yet.
    pub(super) fn new(inputs: Inputs) -> Self {
        Self { shared: Arc::new(Inner { inputs, progress: Mutex::default() }), part: 0 }
    }

    /// For one more part of each round. All of them exist before the first round begins.
    pub(super) fn part(&self) -> Self {
        let mut progress = self.progress();
        progress.parts += 1;
        Self { shared: Arc::clone(&self.shared), part: progress.parts }
    }

    /// This part has sent all its results; if it is not `whole`, except those that it may not list.
    pub(super) async fn reported(&self, round: u64, is_whole: bool) -> Result<(), KubeError> {
        let news = self.progress().note(self.part, round, is_whole);
        match news {
            Some(is_whole) => self.shared.inputs.fresh(round, is_whole).await.map_err(|_| KubeError::Closed),
            None => Ok(()),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins rounds, forever.
///
/// # Errors
/// Never.
pub(super) async fn begin(barrier: Barrier, round: watch::Sender<u64>) -> Result<(), KubeError> {
    loop {
        let next = barrier.begin().await;
        tracing::debug!(round = next, "everything is listed anew for proxies that may have more");
        round.send_replace(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Input;

    const fn fresh(round: u64, is_whole: bool) -> Option<Input> {
        Some(Input::Fresh { round, is_whole })
    }

    #[tokio::test]
    async fn a_round_is_over_when_the_last_one_has_told() {
        let (inputs, mut receivers) = Inputs::channel(4);
        let rounds = Rounds::new(inputs);
        let parts = [rounds.part(), rounds.part(), rounds.part()];
        for part in &parts[..2] {
            part.reported(1, true).await.unwrap();
        }
        assert_eq!(receivers.objects.waiting(), 0);
        parts[2].reported(1, true).await.unwrap();
        assert_eq!(receivers.objects.recv().await, fresh(1, true));
        assert_eq!(receivers.endpoints.recv().await, fresh(1, true), "behind what came on either way");
        parts[0].reported(2, true).await.unwrap();
        assert_eq!(receivers.objects.waiting(), 0, "another round counts anew");
    }

    #[tokio::test]
    async fn what_may_not_be_listed_is_said_and_so_is_that_it_may() {
        let (inputs, mut receivers) = Inputs::channel(4);
        let rounds = Rounds::new(inputs);
        let parts = [rounds.part(), rounds.part()];
        parts[0].reported(1, false).await.unwrap();
        assert_eq!(receivers.objects.waiting(), 0);
        parts[1].reported(1, true).await.unwrap();
        assert_eq!(receivers.objects.recv().await, fresh(1, false));
        parts[0].reported(1, false).await.unwrap();
        assert_eq!(receivers.objects.waiting(), 0, "once");
        parts[0].reported(1, true).await.unwrap();
        assert_eq!(receivers.objects.recv().await, fresh(1, true));
        // The next one has begun when the first part may list again.
        parts[1].reported(2, true).await.unwrap();
        parts[0].reported(1, true).await.unwrap();
        parts[0].reported(2, true).await.unwrap();
        assert_eq!(receivers.objects.recv().await, fresh(2, true));
    }
}
