//! Measures how long endpoints take for requests, for the latency-based balancer (ingress-nginx' `ewma`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Turn;
use crate::balance::Moment;
use crate::table::Endpoint;

/// A request that was sent to an endpoint. It ends when this is dropped: when the response was read, or is abandoned.
#[derive(Debug)]
pub(crate) struct Observation {
    endpoint: Arc<Endpoint>,
    begun: Instant,
    connecting: Duration,
    counts: bool,
}

impl Observation {
    /// Starts now, if the balancer uses latencies.
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

    /// Records that a connection was made for it. As in ingress-nginx, connect time counts twice: nginx measures the
    /// response time from the start of connecting.
    pub(crate) fn connected(&mut self) {
        self.connecting = shared::clock::now().duration_since(self.begun);
    }

    /// Discards it: it says nothing about the endpoint, or a retry follows, and only the last attempt is measured.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_connect_counts_in_addition() {
        let endpoint = Arc::new(Endpoint::new(0, ([127, 0, 0, 1], 80).into()));
        let mut observation = Observation::begin(Turn::Latency, &endpoint).unwrap();
        observation.connecting = Duration::from_secs(3_600);
        drop(observation);
        assert!(endpoint.latency.known().is_some_and(|seconds| seconds >= 3_600.0));
    }
}
