//! The endpoints that were asked for a request, and how that went.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::table::Endpoint;

/// One endpoint that was asked.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(super) address: SocketAddr,
    begun: Instant,
    /// Bytes of body that came from it.
    pub(super) length: u64,
    /// Until there was a connection; none for one that was kept.
    pub(super) connect: Option<Duration>,
    /// Until the head of its answer.
    pub(super) header: Option<Duration>,
    /// How long it took in all; 0 while it goes on.
    pub(super) took: Duration,
    /// Status that it answered, or 502 or 504 when it failed.
    pub(super) status: u16,
    /// Whether the location's error backend begins with it: an internal redirect of nginx.
    pub(super) stands_in: bool,
}

/// All of them, in order.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    list: SmallVec<[Attempt; 1]>,
    /// The next one stands in for those before it.
    stands_in: bool,
    /// Whether the answer is that of the endpoint asked last, and not a page of ours.
    relaying: bool,
}

impl Attempts {
    /// An endpoint is asked.
    pub(crate) fn asked(&mut self, endpoint: &Endpoint) {
        let stands_in = std::mem::take(&mut self.stands_in) && !self.list.is_empty();
        self.list.push(Attempt {
            address: endpoint.address,
            begun: shared::clock::now(),
            length: 0,
            connect: None,
            header: None,
            took: Duration::ZERO,
            status: 0,
            stands_in,
        });
    }

    /// There is a connection to it.
    pub(crate) fn connected(&mut self, kept: bool) {
        if let Some(attempt) = self.list.last_mut() {
            attempt.connect = Some(if kept { Duration::ZERO } else { attempt.begun.elapsed() });
        }
    }

    /// It has answered, and its answer is the client's.
    pub(crate) fn answered(&mut self, status: u16) {
        self.relaying = true;
        if let Some(attempt) = self.list.last_mut() {
            attempt.status = status;
            attempt.header = Some(attempt.begun.elapsed());
        }
    }

    /// It has answered, and another one is asked.
    pub(crate) fn passed_over(&mut self, status: u16) {
        self.answered(status);
        self.relaying = false;
        if let Some(attempt) = self.list.last_mut() {
            attempt.took = attempt.header.unwrap_or_default();
        }
    }

    /// It has failed, with what stands for that in the log.
    pub(crate) fn failed(&mut self, status: u16) {
        self.relaying = false;
        if let Some(attempt) = self.list.last_mut() {
            attempt.status = status;
            attempt.took = attempt.begun.elapsed();
        }
    }

    /// Another backend answers for the error.
    pub(crate) fn redirected(&mut self) {
        (self.stands_in, self.relaying) = (true, false);
    }

    /// So many of its bytes go to the client.
    pub(crate) fn relayed(&mut self, bytes: usize) {
        if let Some(attempt) = self.list.last_mut().filter(|_| self.relaying) {
            attempt.length += bytes as u64;
        }
    }

    /// The request is over.
    pub(super) fn end(&mut self, now: Instant) {
        if let Some(last) = self.list.last_mut().filter(|last| last.took.is_zero()) {
            last.took = now.duration_since(last.begun);
        }
    }

    pub(super) fn list(&self) -> &[Attempt] {
        &self.list
    }
}
