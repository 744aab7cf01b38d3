//! Shutdown: proxies move to other replicas, then the streams end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use crate::peers::Peers;
use crate::serve::registry::Registry;

/// Timeout for streams to end.
const LEAVING: Duration = Duration::from_secs(5);
/// Interval between proxies that move: each costs the other replicas a handshake.
const APART: Duration = Duration::from_millis(5);
/// Bounds of the time in which all of them move.
const WITHIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// Additional time for proxies that have not found another replica yet.
const STAY: Duration = Duration::from_secs(5);

/// The channels that are told of the shutdown, in order.
#[derive(Debug)]
pub(super) struct Ends {
    /// This replica accepts no more proxies.
    ends: watch::Sender<bool>,
    /// Proxies move to other replicas within this time.
    moving: watch::Sender<Option<Duration>>,
    /// Streams end.
    leaving: watch::Sender<bool>,
}

impl Ends {
    pub(super) fn new() -> Self {
        Self {
            ends: watch::Sender::new(false),
            moving: watch::Sender::new(None),
            leaving: watch::Sender::new(false),
        }
    }

    pub(super) fn ending(&self) -> watch::Receiver<bool> {
        self.ends.subscribe()
    }

    pub(super) fn moving(&self) -> watch::Receiver<Option<Duration>> {
        self.moving.subscribe()
    }

    /// For what sends proxies away before the end.
    pub(super) fn mover(&self) -> watch::Sender<Option<Duration>> {
        self.moving.clone()
    }

    pub(super) fn leaving(&self) -> watch::Receiver<bool> {
        self.leaving.subscribe()
    }
}

/// What is needed to hand the proxies over before the end.
#[derive(Debug)]
pub(super) struct Exit {
    pub(super) ends: Ends,
    pub(super) registry: Arc<Registry>,
    pub(super) peers: Peers,
    /// Resolves when all streams have ended.
    pub(super) served: oneshot::Receiver<()>,
}

impl Exit {
    /// Tells other replicas from now on that this one accepts no proxies.
    pub(super) fn begin(&self) {
        self.ends.ends.send_replace(true);
    }

    /// Hands the proxies over, then ends the streams.
    pub(super) async fn leave(self) {
        self.hand_over().await;
        info!("shutting down: telling proxies to reconnect");
        self.ends.leaving.send_replace(true);
        if tokio::time::timeout(LEAVING, self.served).await.is_err() {
            warn!("some connections did not end within {} s", LEAVING.as_secs());
        }
    }

    /// Asks proxies to move to the other replicas, if there are any, and waits for that. Until then they are served
    /// here: each disconnects only when another replica has accepted it.
    async fn hand_over(&self) {
        if self.peers.is_none() {
            return;
        }
        let within = within(self.registry.len());
        info!(proxies = self.registry.len(), ?within, "shutting down: sending proxies to other replicas");
        self.ends.moving.send_replace(Some(within));
        if tokio::time::timeout(within + STAY, self.registry.emptied()).await.is_err() {
            warn!(proxies = self.registry.len(), "some proxies have found no other replica");
        }
        // From now on the others do not take this replica for one that fails to answer.
        self.peers.leave().await;
    }
}

/// The time in which this many proxies move.
pub(super) fn within(proxies: usize) -> Duration {
    let apart = APART.saturating_mul(u32::try_from(proxies).unwrap_or(u32::MAX));
    apart.clamp(WITHIN.0, WITHIN.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_proxies_move_at_once_and_many_one_after_the_other() {
        let seconds = [0, 100, 1_000, 2_000, usize::MAX].map(|proxies| within(proxies).as_secs_f64());
        assert_eq!(seconds, [0.5, 0.5, 5.0, 10.0, 10.0]);
        // Fits into the chart's terminationGracePeriodSeconds: 30 s.
        let telling = crate::peers::LOOKUP + crate::peers::ANSWER;
        assert!(WITHIN.1 + STAY + telling + LEAVING < Duration::from_secs(30));
    }
}
