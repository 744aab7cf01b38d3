//! Rounds of the freshness barrier in a cluster: each watch lists again, and a round ends when the last of them has
//! sent its result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::KubeError;
use crate::barrier::Barrier;
use crate::event::Inputs;

/// Counts the watches that have sent the results of their lists. Clones share state.
#[derive(Clone, Debug)]
pub(super) struct Rounds(Arc<Inner>);

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
    /// How many are done with it.
    done: usize,
}

impl Rounds {
    /// Nobody takes part yet.
    pub(super) fn new(inputs: Inputs) -> Self {
        Self(Arc::new(Inner { inputs, progress: Mutex::default() }))
    }

    /// For one more part of each round. All of them exist before the first round begins.
    pub(super) fn part(&self) -> Self {
        self.progress().parts += 1;
        self.clone()
    }

    /// One part has sent all its results.
    pub(super) async fn reported(&self, round: u64) -> Result<(), KubeError> {
        let is_over = {
            let mut progress = self.progress();
            if progress.round != round {
                (progress.round, progress.done) = (round, 0);
            }
            progress.done += 1;
            progress.done == progress.parts
        };
        match is_over {
            true => self.0.inputs.fresh(round).await.map_err(|_| KubeError::Closed),
            false => Ok(()),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.progress.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[tokio::test]
    async fn a_round_is_over_when_the_last_one_has_told() {
        let (inputs, mut receivers) = Inputs::channel(4);
        let rounds = Rounds::new(inputs);
        let parts = [rounds.part(), rounds.part(), rounds.part()];
        for part in &parts[..2] {
            part.reported(1).await.unwrap();
        }
        assert_eq!(receivers.objects.waiting(), 0);
        parts[2].reported(1).await.unwrap();
        assert_eq!(receivers.objects.recv().await, Some(Input::Fresh(1)));
        assert_eq!(receivers.endpoints.recv().await, Some(Input::Fresh(1)), "behind what came on either way");
        parts[0].reported(2).await.unwrap();
        assert_eq!(receivers.objects.waiting(), 0, "another round counts anew");
    }
}
