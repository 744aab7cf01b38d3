//! The way out: proxies go to other replicas, then the streams end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use crate::peers::Peers;
use crate::serve::registry::Registry;

/// How long streams may take to end.
const LEAVING: Duration = Duration::from_secs(5);
/// Proxies go to other replicas one after the other, so far apart: each of them costs the others a handshake.
const APART: Duration = Duration::from_millis(5);
/// All of them within this time, however few or many there are.
const WITHIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// After that, those that have found no other replica yet have so long.
const STAY: Duration = Duration::from_secs(5);

/// Who hears of the end, each in turn.
#[derive(Debug)]
pub(super) struct Ends {
    /// Nobody is sent here any more.
    ends: watch::Sender<bool>,
    /// Proxies go to other replicas, within this time.
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

    pub(super) fn leaving(&self) -> watch::Receiver<bool> {
        self.leaving.subscribe()
    }
}

/// What is needed to end without leaving anybody alone.
#[derive(Debug)]
pub(super) struct Exit {
    pub(super) ends: Ends,
    pub(super) registry: Arc<Registry>,
    pub(super) peers: Peers,
    /// Hears of it when all streams have ended.
    pub(super) served: oneshot::Receiver<()>,
}

impl Exit {
    /// From now on other replicas hear that this one takes nobody.
    pub(super) fn begin(&self) {
        self.ends.ends.send_replace(true);
    }

    /// Hands the proxies over, and has the streams end.
    pub(super) async fn leave(self) {
        self.hand_over().await;
        info!("shutting down: telling proxies to reconnect");
        self.ends.leaving.send_replace(true);
        if tokio::time::timeout(LEAVING, self.served).await.is_err() {
            warn!("some connections did not end within {} s", LEAVING.as_secs());
        }
    }

    /// Has proxies go to the other replicas, where there are any, and waits for that. Until then they are served here: each leaves
    /// when it has found another one that takes it.
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
        // From now on it is not one that does not answer.
        self.peers.leave().await;
    }
}

/// In which time so many proxies go elsewhere.
fn within(proxies: usize) -> Duration {
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
        // With what the chart gives: 30 s.
        assert!(WITHIN.1 + STAY + crate::peers::ANSWER + LEAVING < Duration::from_secs(30));
    }
}
