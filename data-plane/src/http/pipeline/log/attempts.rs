//! The endpoints that were tried for a request, and the outcomes.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::CLIENT_GONE;
use crate::table::Endpoint;
use crate::upstream::link::Traffic;

/// Where ingress-nginx has its server for want of a default backend (`--default-server-port`).
const DEFAULT_SERVER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8181));

/// One endpoint that was tried.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(super) address: SocketAddr,
    begun: Instant,
    /// Bytes of body that came from it.
    pub(super) length: u64,
    /// Bytes on its connection; none for a gRPC call, which shares one, and before there is one.
    traffic: Option<Rc<Traffic>>,
    /// Connect time; none for a reused connection.
    pub(super) connect: Option<Duration>,
    /// Time until the response head.
    pub(super) header: Option<Duration>,
    /// Total time; 0 while it is in progress.
    pub(super) took: Duration,
    /// When it had sent its whole response, if that is read ahead of the client.
    arrived: Option<Rc<Cell<Option<Instant>>>>,
    /// The status of its response, or 502 or 504 if it failed; 0: neither, because the client has gone before.
    pub(super) status: u16,
    /// Whether the error backend starts here, which is an internal redirect in nginx.
    pub(super) stands_in: bool,
}

impl Attempt {
    /// Bytes on its connection; `None` if it is one that several calls share.
    pub(super) fn bytes(&self, of: fn(&Traffic) -> &Cell<u64>) -> Option<u64> {
        match &self.traffic {
            Some(traffic) => Some(of(traffic).get()),
            None => self.connect.is_none().then_some(0),
        }
    }
}

/// All attempts, in order.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    list: SmallVec<[Attempt; 1]>,
    /// The next attempt is the error backend's.
    stands_in: bool,
    /// Whether the response is the last endpoint's, and not our own page.
    relaying: bool,
}

impl Attempts {
    /// An attempt starts.
    pub(crate) fn asked(&mut self, endpoint: &Endpoint) {
        self.begin(endpoint.address);
    }

    fn begin(&mut self, address: SocketAddr) {
        let stands_in = std::mem::take(&mut self.stands_in) && !self.list.is_empty();
        self.list.push(Attempt {
            address,
            begun: shared::clock::now(),
            length: 0,
            traffic: None,
            connect: None,
            header: None,
            took: Duration::ZERO,
            arrived: None,
            status: 0,
            stands_in,
        });
    }

    /// There is no default backend, and a page says so. In ingress-nginx a server of its own sends it, and the log shows
    /// that one as the endpoint.
    pub(crate) fn defaulted(&mut self, status: u16) {
        self.begin(DEFAULT_SERVER);
        if let Some(attempt) = self.list.last_mut() {
            (attempt.connect, attempt.header) = (Some(Duration::ZERO), Some(Duration::ZERO));
            attempt.status = status;
        }
        self.relaying = true;
    }

    /// Whether the last one is that.
    pub(crate) fn are_defaulted(&self) -> bool {
        self.list.last().is_some_and(|last| last.address == DEFAULT_SERVER)
    }

    /// It is connected.
    pub(crate) fn connected(&mut self, kept: bool) {
        if let Some(attempt) = self.list.last_mut() {
            attempt.connect = Some(if kept { Duration::ZERO } else { attempt.begun.elapsed() });
        }
    }

    /// Its connection counts bytes.
    pub(crate) fn counted(&mut self, traffic: Rc<Traffic>) {
        if let Some(attempt) = self.list.last_mut() {
            attempt.traffic = Some(traffic);
        }
    }

    /// It has responded, and its response goes to the client.
    pub(crate) fn answered(&mut self, status: u16) {
        self.relaying = true;
        if let Some(attempt) = self.list.last_mut() {
            attempt.status = status;
            attempt.header = Some(attempt.begun.elapsed());
        }
    }

    /// Its response is read ahead of the client, which sets when all of it was there.
    pub(crate) fn read_ahead(&mut self, arrived: Rc<Cell<Option<Instant>>>) {
        if let Some(attempt) = self.list.last_mut() {
            attempt.arrived = Some(arrived);
        }
    }

    /// Its response had to wait for the client: nobody knows when the head came.
    pub(crate) fn waited(&mut self) {
        if let Some(attempt) = self.list.last_mut() {
            attempt.header = None;
        }
    }

    /// It has responded, and another one is tried.
    pub(crate) fn passed_over(&mut self, status: u16) {
        self.answered(status);
        self.relaying = false;
        if let Some(attempt) = self.list.last_mut() {
            attempt.took = attempt.header.unwrap_or_default();
        }
    }

    /// It has failed, with the status for the log: none if the client has gone.
    pub(crate) fn failed(&mut self, status: u16) {
        self.relaying = false;
        if let Some(attempt) = self.list.last_mut() {
            attempt.status = if status == CLIENT_GONE { 0 } else { status };
            attempt.took = attempt.begun.elapsed();
        }
    }

    /// The error backend is next.
    pub(crate) fn redirected(&mut self) {
        (self.stands_in, self.relaying) = (true, false);
    }

    /// Counts bytes of it that go to the client.
    pub(crate) fn relayed(&mut self, bytes: usize) {
        if let Some(attempt) = self.list.last_mut().filter(|_| self.relaying) {
            attempt.length += bytes as u64;
        }
    }

    /// The request has ended. An attempt under way ends with its client.
    pub(super) fn end(&mut self, now: Instant) {
        if let Some(last) = self.list.last_mut().filter(|last| last.took.is_zero()) {
            let arrived = last.arrived.take().and_then(|it| it.get());
            last.took = arrived.unwrap_or(now).duration_since(last.begun);
        }
    }

    /// The endpoint that was asked last.
    pub(crate) fn last(&self) -> Option<SocketAddr> {
        self.list.last().map(|attempt| attempt.address)
    }

    pub(super) fn list(&self) -> &[Attempt] {
        &self.list
    }
}
