//! How long endpoints take for requests, for a balancer that goes by it (balancing.md 5.7).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Turn;
use crate::balance::Moment;
use crate::table::Endpoint;

/// A request that an endpoint was given. Dropping it is its end: once the answer was read, or nobody reads it any more.
#[derive(Debug)]
pub(crate) struct Observation {
    endpoint: Arc<Endpoint>,
    begun: Instant,
    connecting: Duration,
    counts: bool,
}

impl Observation {
    /// Begins now, where anybody goes by it.
    pub(crate) fn begin(turn: Turn, endpoint: &Arc<Endpoint>) -> Option<Box<Self>> {
        (turn == Turn::Latency).then(|| {
            Box::new(Self {
                endpoint: Arc::clone(endpoint),
                begun: shared::clock::now(),
                connecting: Duration::ZERO,
                counts: true,
            })
        })
    }

    /// A connection was made for it. As in the original the time of that counts twice: nginx measures an answer from when it
    /// begins to connect.
    pub(crate) fn connected(&mut self) {
        self.connecting = shared::clock::now().duration_since(self.begun);
    }

    /// It says nothing about the endpoint, or another try follows: the last one alone counts.
    pub(crate) fn forget(observed: &mut Option<Box<Self>>) {
        if let Some(mut it) = observed.take() {
            it.counts = false;
        }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        if self.counts {
            let now = shared::clock::now();
            let took = now.duration_since(self.begun) + self.connecting;
            self.endpoint.latency.observe(took, Moment::of(now));
        }
    }
}
