//! Counters of the request path: each worker writes its own without contention, and a scrape adds them up.
//!
//! **Invariant:** a counter has one writer, its worker. Readers see each value as of some moment, never a torn one.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;

pub use crate::codec::error::Kind;

pub use page::{Labels, RequestPage, head, label};
pub use request_labels::{NO_HOST, RequestLabels};
pub use requests::{Request, Requests};
pub use rules::{FAMILIES, PREFIX, Rules, RulesConfig};

mod collect;
mod page;
mod request_labels;
mod requests;
mod rules;

/// A number that one thread changes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds without an atomic read-modify-write: there is only one writer.
    pub fn add(&self, more: u64) {
        self.set(self.value().wrapping_add(more));
    }

    /// Replaces the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the request time buckets in seconds, as in ingress-nginx.
pub const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Number of status classes.
const CLASSES: usize = 5;

/// The counters of one worker. Aligned so that two workers never share a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerMetrics {
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections closed at once because too many were open.
    pub refused: Counter,
    /// Idle connections closed to make room for others.
    pub shed: Counter,
    /// Failed accepts.
    pub accept_errors: Counter,
    /// Connections open now.
    pub open: Counter,
    /// Idle connections among those that have no task.
    pub parked: Counter,
    /// TLS handshakes with clients that succeeded.
    pub handshakes: Counter,
    /// Those of them that resumed a session.
    pub handshakes_resumed: Counter,
    /// TLS handshakes that failed.
    pub handshake_failures: Counter,
    /// HTTP/2 connections closed because of their clients' behaviour.
    pub sent_away: Counter,
    /// Panics in connection tasks. Anything but 0 is a bug.
    pub panics: Counter,
    /// Requests with a response, by class of status: `1xx` first.
    pub requests: [Counter; CLASSES],
    /// Requests sent to a backend.
    pub routed: Counter,
    /// Requests refused before routing.
    pub refusals: Counter,
    /// Requests whose client disconnected before the response was complete.
    pub abandoned: Counter,
    /// Bytes of request bodies.
    pub received: Counter,
    /// Bytes of response bodies.
    pub sent: Counter,
    /// Connections opened to endpoints.
    pub connected: Counter,
    /// Requests sent over a reused connection.
    pub reused: Counter,
    /// Requests retried on another endpoint.
    pub retries: Counter,
    /// Requests that were not retried, because too many were.
    pub retries_denied: Counter,
    /// Ejected endpoints.
    pub ejected: Counter,
    /// Endpoints that returned after an ejection.
    pub returned: Counter,
    /// Mirrored requests that were sent.
    pub copied: Counter,
    /// Mirrored requests that were not sent, or only partially.
    pub copies_lost: Counter,
    /// Failed attempts by kind.
    pub failures: [Counter; Kind::COUNT],
    /// Request times by bucket; the last one is unbounded.
    pub times: [Counter; BOUNDS.len() + 1],
    /// Sum of all request times, in microseconds.
    pub time_micros: Counter,
    /// Log lines handed to the writer.
    pub log_lines: Counter,
    /// Log lines dropped because the writer was behind.
    pub log_dropped: Counter,
    /// Requests in progress.
    pub busy: Counter,
    /// Times that no bytes were left to hold something for a client.
    pub held_refused: Counter,
    /// Times that nothing was held ahead of its use, because few bytes were left.
    pub held_deferred: Counter,
    /// Requests for whose method and status there was no room.
    pub overflowed: Counter,
    /// Bytes that these may take.
    room: OnceLock<usize>,
    /// The published counts of requests by place.
    sets: ArcSwap<requests::Published>,
    /// The counters of all workers.
    all: OnceLock<Weak<[Arc<Self>]>>,
}

impl WorkerMetrics {
    /// Counts a request with its response.
    pub(crate) fn answered(&self, status: u16, took: std::time::Duration) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.requests[class].add(1);
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
        self.times[bucket].add(1);
        self.time_micros.add(took.as_micros() as u64);
    }

    /// The counters of all workers, if they are still in use.
    pub fn all(&self) -> Option<Metrics> {
        let workers = self.all.get()?.upgrade()?;
        Some(Metrics { workers })
    }

    /// Counts a failed attempt.
    pub(crate) fn failed(&self, kind: Kind) {
        self.failures[kind as usize].add(1);
    }
}

/// The counters of all workers.
#[derive(Clone)]
pub struct Metrics {
    workers: Arc<[Arc<WorkerMetrics>]>,
}

impl Metrics {
    /// Counters for this many workers, all 0.
    pub fn new(workers: usize) -> Self {
        let workers: Arc<[Arc<WorkerMetrics>]> = (0..workers).map(|_| Arc::default()).collect();
        for worker in &*workers {
            let _ = worker.all.set(Arc::downgrade(&workers));
        }
        Self { workers }
    }

    /// The same of a process that may use this much memory: there are more series where there is room for them.
    #[must_use]
    pub fn within(self, memory: usize) -> Self {
        for worker in &*self.workers {
            let _ = worker.room.set(requests::room(memory, self.workers.len()));
        }
        self
    }

    /// The counters of one worker.
    pub fn worker(&self, index: usize) -> Arc<WorkerMetrics> {
        Arc::clone(&self.workers[index])
    }

    /// Currently open connections of all workers. The drain is done when there are none.
    pub fn open(&self) -> u64 {
        self.sum(|worker| &worker.open)
    }

    /// Idle connections without a task.
    pub fn parked(&self) -> u64 {
        self.sum(|worker| &worker.parked)
    }

    /// Requests in progress.
    pub fn busy(&self) -> u64 {
        self.sum(|worker| &worker.busy)
    }

    /// Accepted connections, and those of them that were not refused.
    pub fn connections(&self) -> (u64, u64) {
        let accepted = self.sum(|worker| &worker.accepted);
        (accepted, accepted.saturating_sub(self.sum(|worker| &worker.refused)))
    }

    /// Requests with a response.
    pub fn answered(&self) -> u64 {
        (0..CLASSES).map(|class| self.sum(|worker| &worker.requests[class])).sum()
    }

    /// nginx' `stub_status` page.
    pub fn stub(&self) -> String {
        let ((accepted, handled), (open, busy)) = (self.connections(), (self.open(), self.busy()));
        let waiting = open.saturating_sub(busy);
        format!(
            "Active connections: {open} \nserver accepts handled requests\n {accepted} {handled} {} \n\
             Reading: 0 Writing: {busy} Waiting: {waiting} \n",
            self.answered()
        )
    }

    /// The sum of a counter over all workers.
    fn sum(&self, which: impl Fn(&WorkerMetrics) -> &Counter) -> u64 {
        self.workers.iter().map(|worker| which(worker).value()).sum()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("workers", &self.workers.len()).finish()
    }
}
