//! Admission on the stream's address: which connections are accepted, and how long they may stay without a call.
//!
//! **Invariant:** an idle connection never keeps out one with a call: at the limit, the one that has been idle longest is closed. No error
//! of accept ends the server or makes it spin.

mod guest;
mod line;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::Stream;
use shared::budget::{Budget, Held, Peers};
use shared::clock;
use shared::telemetry::Seldom;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tonic::Request;
use tracing::warn;

pub use guest::{Call, Caller, Guest};
pub(crate) use line::{Line, Wants, secure};

use super::limits::Limits;
use guest::GuestState;

/// Pause after a failed accept if no connection can be closed.
const PAUSE: Duration = Duration::from_millis(50);
/// Minimum interval of warnings.
const WARNINGS: Duration = Duration::from_secs(1);

/// All admitted connections. Clones share state.
#[derive(Clone, Debug)]
pub struct Admission(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: Limits,
    places: Budget,
    peers: Peers,
    numbers: AtomicU64,
    /// Connections without a call, by the time since when (with a number to distinguish equal times).
    waiting: Mutex<BTreeMap<(Instant, u64), Arc<GuestState>>>,
}

/// The call of a request: a handler that runs longer than one message keeps it, so that the connection is not idle.
pub fn call<T>(request: &Request<T>) -> Option<Arc<Call>> {
    request.extensions().get::<Arc<Call>>().cloned()
}

impl Admission {
    /// Without connections.
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Inner {
            limits,
            places: Budget::new(limits.connections),
            peers: Peers::new(limits.per_peer),
            numbers: AtomicU64::new(0),
            waiting: Mutex::default(),
        }))
    }

    /// The limits that it enforces.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.0.places.used()
    }

    /// Admitted connections, forever.
    pub(super) fn guests(
        self,
        listener: TcpListener,
    ) -> impl Stream<Item = Result<Guest, Infallible>> + Send {
        let warning = Seldom::new(WARNINGS);
        futures::stream::unfold((self, listener, warning), async |(admission, listener, mut warning)| {
            loop {
                match listener.accept().await {
                    Ok((stream, address)) => match admission.admit(stream, address) {
                        Ok(guest) => return Some((Ok(guest), (admission, listener, warning))),
                        Err(why) => {
                            if let Some(before) = warning.now(clock::now()) {
                                warn!(%address, before, "a connection is refused: {why}");
                            }
                        }
                    },
                    Err(error) if concerns_one(&error) => {}
                    Err(error) => {
                        if let Some(before) = warning.now(clock::now()) {
                            warn!(%error, before, open = admission.open(), "accept failed");
                        }
                        // Out of descriptors or memory: close the connection that has been idle longest, which takes a
                        // moment.
                        drop(admission.send_away());
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        })
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr) -> Result<Guest, String> {
        let limits = &self.0.limits;
        let Some(at_peer) = self.0.peers.enter(peer.ip()) else {
            return Err(format!("its address has {} (--max-connections-per-peer)", limits.per_peer));
        };
        let Some(place) = self.0.places.take(1).or_else(|| self.send_away()) else {
            return Err(format!("all {} connections are in use (--max-connections)", limits.connections));
        };
        // Send small messages without delay.
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let number = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        Ok(Guest::new(stream, GuestState::new(self.clone(), number, peer, place), at_peer))
    }

    /// Closes the connection that has been idle longest and returns its slot. `None`: all have calls.
    fn send_away(&self) -> Option<Held> {
        loop {
            let (_, longest) = self.waiting().pop_first()?;
            // If it has just closed by itself, its slot is free already.
            if let Some(place) = longest.close() {
                return Some(place);
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<(Instant, u64), Arc<GuestState>>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the error only concerns the connection that was to be accepted.
fn concerns_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | TimedOut)
}

#[cfg(test)]
mod tests;
