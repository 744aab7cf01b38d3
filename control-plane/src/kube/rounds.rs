//! Rounds of the freshness barrier in a cluster: each watch lists again, and a round ends when the last of them has
//! sent its result.

use std::sync::{Arc, Mutex, PoisonError};

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
    /// Number of watches.
    parts: usize,
    /// The newest round, and how many watches are done.
    told: Mutex<(u64, usize)>,
}

impl Rounds {
    /// For this number of watches.
    pub(super) fn new(inputs: Inputs, parts: usize) -> Self {
        Self(Arc::new(Inner { inputs, parts, told: Mutex::default() }))
    }

    /// One watch has sent all its results.
    pub(super) async fn told(&self, round: u64) -> Result<(), KubeError> {
        let is_over = {
            let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.0 != round {
                *told = (round, 0);
            }
            told.1 += 1;
            told.1 == self.0.parts
        };
        match is_over {
            true => self.0.inputs.fresh(round).await.map_err(|_| KubeError::Closed),
            false => Ok(()),
        }
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
        let rounds = Rounds::new(inputs, 3);
        for _ in 0..2 {
            rounds.told(1).await.unwrap();
        }
        assert_eq!(receivers.objects.waiting(), 0);
        rounds.clone().told(1).await.unwrap();
        assert_eq!(receivers.objects.recv().await, Some(Input::Fresh(1)));
        assert_eq!(receivers.endpoints.recv().await, Some(Input::Fresh(1)), "behind what came on either way");
        rounds.told(2).await.unwrap();
        assert_eq!(receivers.objects.waiting(), 0, "another round counts anew");
    }
}
