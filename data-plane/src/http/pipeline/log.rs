//! Reports a request to the log and the counters once, when it ends, however it ends.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::basic;
use super::trace::Told;
use crate::access_log::{Captured, Format};
use crate::codec::error::Kind;
use crate::codec::head::{Known, RequestHead, Version};
use crate::http::peer::Peer;
use crate::http::reply::Untold;
use crate::http::server::Server;
use crate::listen::Scheme;
use crate::local::Local;
use crate::local::ids::Ids;
use crate::metrics::{Request, RequestLabels};
use crate::rate::Permit;
use crate::table::Policy;
use attempts::Attempts;
pub(super) use entered::Entered;
use line::Ended;
use unread::Unread;

mod attempts;
pub(super) mod capture;
mod entered;
mod line;
pub(super) mod so_far;
mod unread;

/// The status of a request whose client disconnected before the response, as in nginx.
const CLIENT_GONE: u16 = 499;

/// Bytes that a request takes in addition to its head: its task and that one's state.
pub(crate) const REQUEST: usize = 8 * 1024;

/// A request in progress. It ends when this is dropped.
pub(crate) struct RequestRecord {
    local: Rc<Local>,
    peer: Peer,
    /// `None` if no head could be parsed.
    pub(crate) head: Option<Box<RequestHead>>,
    /// A head that could not be parsed.
    unread: Option<Box<Unread>>,
    /// Its location, once that is found.
    pub(super) location: Entered,
    pub(crate) info: RequestInfo,
    /// Held until the end.
    pub(super) permits: Vec<Permit>,
}

/// Which backend answers a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum InPlace {
    /// The location's own backend.
    #[default]
    Nobody,
    /// The location's error backend.
    Errors,
    /// The fleet's default backend.
    DefaultBackend,
}

/// What is known about a request so far.
#[derive(Debug)]
pub(crate) struct RequestInfo {
    started: Instant,
    /// 0 before there is a response.
    status: u16,
    /// Bytes of response body.
    sent: u64,
    /// Bytes of framing around its pieces.
    around: u64,
    /// Bytes of the request's body.
    pub(crate) received: u64,
    /// Whether no location takes it.
    pub(crate) default_backend: bool,
    /// Its metric labels, if no location takes it.
    pub(super) unclaimed: Option<Arc<RequestLabels>>,
    /// Whether its host was requested by an alias.
    pub(super) by_alias: bool,
    /// The name of the canary, if it was chosen.
    pub(crate) alternative: Option<Arc<str>>,
    /// Which backend has answered instead of the location's own.
    pub(super) in_place: InPlace,
    /// The client, if reported by a trusted peer.
    pub(crate) client: Option<IpAddr>,
    /// The authenticated user, which the backend is not told.
    pub(crate) user: Option<Vec<u8>>,
    /// X-Request-ID, from when it is first asked for. Never empty.
    pub(crate) id: OnceCell<Bytes>,
    /// Its id that no client chooses, from when it is first asked for: the same unless the client sent one.
    own_id: OnceCell<Bytes>,
    /// The trace context that the backend was told.
    pub(super) trace: Option<Told>,
    /// Whether it is not logged.
    pub(crate) silent: bool,
    /// The endpoints that were tried.
    pub(crate) attempts: Attempts,
    /// Number of the request on its connection, from 1 on.
    pub(crate) place: u32,
    /// Bytes of the response head.
    head_sent: u64,
    /// Whether the whole response was sent.
    completed: bool,
    /// The log format, if it uses values that are no longer known at the end.
    format: Option<Arc<Format>>,
    captured: Captured,
}

/// Applies the fleet's logging and metrics settings to the worker. Returns the log format if it uses values that are
/// no longer known at the end of a request.
pub(super) fn follow(local: &Local, policy: &Policy) -> Option<Arc<Format>> {
    local.requests.borrow_mut().follow(policy.counting.as_ref());
    let format = policy.log.format.as_ref();
    local.log.borrow_mut().follow(format);
    format.filter(|format| !format.asks().is_empty()).cloned()
}

impl RequestInfo {
    /// Gives the request an id, unless it has one: the client's, else a new one of these.
    pub(super) fn identify(&self, head: Option<&RequestHead>, ids: Option<&Ids>) {
        if self.id.get().is_some() {
            return;
        }
        let received =
            head.and_then(|head| head.fields.joined(Known::XRequestId)).filter(|id| !id.is_empty());
        if let Some(id) = received.or_else(|| ids.map(|ids| self.own_id(ids).clone())) {
            _ = self.id.set(id);
        }
    }

    /// The request's id that no client chooses.
    pub(super) fn own_id(&self, ids: &Ids) -> &Bytes {
        self.own_id.get_or_init(|| ids.next())
    }

    /// The request's id; empty if it has none yet.
    pub(super) fn id(&self) -> &[u8] {
        self.id.get().map_or(&[], |id| &id[..])
    }
}

impl RequestRecord {
    /// Starts now.
    pub(crate) fn new(local: &Rc<Local>, peer: &Peer, head: Option<Box<RequestHead>>) -> Self {
        let now = shared::clock::now();
        local.metrics.busy.add(1);
        Self {
            local: Rc::clone(local),
            peer: peer.clone(),
            head,
            unread: None,
            location: Entered::default(),
            permits: Vec::new(),
            info: RequestInfo {
                started: now,
                status: 0,
                sent: 0,
                around: 0,
                received: 0,
                default_backend: false,
                unclaimed: None,
                by_alias: false,
                alternative: None,
                in_place: InPlace::default(),
                client: None,
                user: None,
                id: OnceCell::new(),
                own_id: OnceCell::new(),
                trace: None,
                silent: false,
                attempts: Attempts::default(),
                place: 1,
                head_sent: 0,
                completed: false,
                format: None,
                captured: Captured::default(),
            },
        }
    }
}

impl RequestRecord {
    /// For a head that cannot be parsed; `bytes` is what was received of it.
    pub(crate) fn refused(local: &Rc<Local>, peer: &Peer, bytes: &[u8]) -> Self {
        let mut record = Self::new(local, peer, None);
        record.unread = Some(Box::new(Unread::of(bytes)));
        record
    }
}

impl RequestRecord {
    /// The client.
    fn client(&self) -> IpAddr {
        self.info.client.unwrap_or_else(|| self.peer.address().ip())
    }

    /// `$http2`: as in nginx, depending on whether the connection is encrypted.
    fn http2(&self) -> &'static [u8] {
        let is_http2 = self.head.as_deref().is_some_and(|head| head.version == Version::Http2);
        match (is_http2, self.peer.scheme()) {
            (false, _) => b"",
            (true, Scheme::Https) => b"h2",
            (true, Scheme::Http) => b"h2c",
        }
    }

    /// Counts it under its labels, if those were determined.
    fn count(&self, took: Duration) {
        let Self { info, location, head, local, .. } = self;
        let place = info.unclaimed.as_ref().or_else(|| location.last().map(|it| &it.place));
        let (Some(place), Some(head)) = (place, head.as_deref()) else {
            return;
        };
        let micros = |time: Duration| time.as_micros() as u64;
        // As in ingress-nginx: the times of a single endpoint, and none if several were tried.
        let [connect, header, response] = match info.attempts.list() {
            [only] => [only.connect, only.header, Some(only.took)].map(|time| time.map(micros)),
            _ => [None; 3],
        };
        let sent = Some(info.head_sent + info.taken());
        let figures = [Some(micros(took)), connect, header, response, Some(self.received()), sent, sent];
        let request = Request {
            method: head.method_name(),
            host: (place.has_no_host() || info.by_alias).then(|| head.host.name()),
            status: info.status,
            canary: info.alternative.as_ref(),
            figures,
        };
        // A panic may have unwound while this was borrowed.
        if let Ok(mut requests) = local.requests.try_borrow_mut() {
            requests.count(place, &request);
        }
    }

    /// Bytes of the request: head and body.
    fn received(&self) -> u64 {
        self.info.received + self.head.as_deref().map_or(0, |head| head.size() as u64)
    }
}

impl RequestInfo {
    /// No location is looked up: only the fleet's settings determine whether and how it is logged.
    pub(crate) fn unrouted(&mut self, server: &Server) {
        server.with_table(|table| {
            let policy = table.policy();
            self.format = follow(&server.local, policy);
            self.silent = !policy.log.is_on;
        });
    }

    /// The client gets this status, and a head of this size.
    pub(crate) fn replied(&mut self, status: u16, head: usize) {
        (self.status, self.head_sent) = (status, head as u64);
    }

    /// The client has the whole response.
    pub(crate) fn completed(&mut self) {
        self.completed = true;
    }

    /// The client gets no response. If it disconnected, that is no answered request; else there is a status.
    pub(crate) fn untold(&mut self, why: Untold) {
        match why {
            Untold::Failed(Kind::ClientGone) => {}
            Untold::Failed(kind) => self.status = kind.status(),
            Untold::Said(status) => self.status = status,
        }
    }

    /// Bytes of body sent to the client, and the bytes from the endpoint that they were made of: these differ with
    /// compression.
    pub(crate) fn relayed(&mut self, sent: usize, came: usize) {
        self.sent += sent as u64;
        self.attempts.relayed(came);
    }

    /// Counts bytes of framing around the pieces of that body.
    pub(crate) fn framed(&mut self, bytes: usize) {
        self.around += bytes as u64;
    }

    /// Bytes sent after the response head, including framing: nginx takes that number from the connection.
    pub(crate) fn taken(&self) -> u64 {
        self.sent + self.around
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let now = shared::clock::now();
        let info = &mut self.info;
        let took = now.duration_since(info.started);
        let metrics = &self.local.metrics;
        if info.status == 0 {
            info.status = CLIENT_GONE;
            metrics.abandoned.add(1);
        }
        metrics.answered(info.status, took);
        metrics.sent.add(info.sent);
        metrics.busy.set(metrics.busy.value().saturating_sub(1));
        info.attempts.end(now);
        self.count(took);
        let makes_id = self.location.last().is_none_or(|it| it.policy.forwarding.makes_id);
        let info = &mut self.info;
        // A panic may have unwound while a line was written.
        let Ok(mut log) = self.local.log.try_borrow_mut() else {
            return;
        };
        if info.silent || !log.wanted() {
            return;
        }
        info.identify(self.head.as_deref(), makes_id.then_some(&self.local.ids));
        if let (Some(unread), Some(format)) = (&self.unread, &info.format) {
            info.captured = capture::of_unread(unread, format);
        }
        log.write(&Ended { record: self, took }, self.info.format.as_deref());
    }
}
