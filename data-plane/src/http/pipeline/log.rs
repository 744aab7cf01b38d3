//! What the log and the counters are told of a request, once, when it ends, however it ends.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use smallvec::SmallVec;

use super::basic;
use super::forwarded::request_id;
use crate::access_log::{Attempt, Record};
use crate::codec::error::Kind;
use crate::codec::head::{Known, RequestHead};
use crate::http::peer::Peer;
use crate::local::Local;
use crate::rate::Permit;
use crate::table::{DEFAULT_UPSTREAM, Endpoint, PathEntry};

/// The status of a request whose client went before there was an answer; nginx' own.
const CLIENT_GONE: u16 = 499;

/// Bytes that a request takes beside its head: its task and what stands in it.
pub(crate) const REQUEST: usize = 8 * 1024;

/// So much of a line that cannot be read is logged, in bytes.
const LONGEST_LINE: usize = 1024;

/// A request under way. Dropping it is its end.
pub(crate) struct RequestRecord {
    local: Rc<Local>,
    client: IpAddr,
    /// `None` when there was no head that could be read.
    pub(crate) head: Option<Box<RequestHead>>,
    /// The first line of a head that could not be read.
    line: Bytes,
    /// What takes it, once that is found.
    pub(crate) location: Option<Arc<PathEntry>>,
    pub(crate) info: RequestInfo,
    /// Held until the end.
    pub(super) permit: Option<Permit>,
}

/// What is known of a request so far.
#[derive(Debug)]
pub(crate) struct RequestInfo {
    started: Instant,
    /// 0 before there is an answer.
    status: u16,
    /// Bytes of the answer's body.
    sent: u64,
    /// Bytes of the request's body.
    pub(crate) received: u64,
    /// Whether no location takes it.
    pub(crate) default_backend: bool,
    /// Name of the canary, when it was chosen.
    pub(crate) alternative: Option<Arc<str>>,
    /// The client, where the peer is believed to stand for one.
    pub(crate) client: Option<IpAddr>,
    /// The user that a password was asked for, whom the backend is not told.
    pub(crate) user: Option<Vec<u8>>,
    /// X-Request-ID.
    pub(crate) id: Bytes,
    /// Whether the log is spared it.
    pub(crate) silent: bool,
    attempts: SmallVec<[Attempt; 1]>,
    attempt_started: Instant,
    /// Whether the answer is that of the endpoint asked last, and not a page of ours.
    relaying: bool,
}

impl RequestRecord {
    /// Begins now.
    pub(crate) fn new(local: &Rc<Local>, peer: &Peer, head: Option<Box<RequestHead>>) -> Self {
        let now = shared::clock::now();
        Self {
            local: Rc::clone(local),
            client: peer.address().ip(),
            head,
            line: Bytes::new(),
            location: None,
            permit: None,
            info: RequestInfo {
                started: now,
                status: 0,
                sent: 0,
                received: 0,
                default_backend: false,
                alternative: None,
                client: None,
                user: None,
                id: Bytes::new(),
                silent: false,
                attempts: SmallVec::new(),
                attempt_started: now,
                relaying: false,
            },
        }
    }
}

impl RequestRecord {
    /// Begins with a head that cannot be read; `bytes` are what came of it.
    pub(crate) fn refused(local: &Rc<Local>, peer: &Peer, bytes: &[u8]) -> Self {
        let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next();
        let line = line.unwrap_or_default();
        let mut record = Self::new(local, peer, None);
        record.line = Bytes::copy_from_slice(&line[..line.len().min(LONGEST_LINE)]);
        record
    }
}

impl RequestInfo {
    /// An endpoint is asked.
    pub(crate) fn asked(&mut self, endpoint: &Endpoint) {
        // The first try begins with the request, but for the reading of its body: no second look at the clock.
        if !self.attempts.is_empty() {
            self.attempt_started = shared::clock::now();
        }
        self.attempts.push(Attempt {
            address: endpoint.address,
            length: 0,
            took: std::time::Duration::ZERO,
            status: 0,
        });
    }

    /// The endpoint that was asked last has answered, or failed with what stands for it in the log.
    pub(crate) fn answered(&mut self, status: u16, failed: bool) {
        self.relaying = !failed;
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.status = status;
            if failed {
                attempt.took = shared::clock::now().duration_since(self.attempt_started);
            }
        }
    }

    /// The client is answered with this status.
    pub(crate) fn replied(&mut self, status: u16) {
        self.status = status;
    }

    /// The client is not answered. One that has gone is no answered request; one that was too slow has a status.
    pub(crate) fn untold(&mut self, why: Kind) {
        if why != Kind::ClientGone {
            self.status = why.status();
        }
    }

    /// So many bytes of body go to the client.
    pub(crate) fn relayed(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        if let Some(attempt) = self.attempts.last_mut()
            && self.relaying
        {
            attempt.length += bytes as u64;
        }
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let info = &mut self.info;
        let now = shared::clock::now();
        let took = now.duration_since(info.started);
        let metrics = &self.local.metrics;
        if info.status == 0 {
            info.status = CLIENT_GONE;
            metrics.abandoned.add(1);
        }
        metrics.answered(info.status, took);
        metrics.sent.add(info.sent);
        // A panic may have unwound through a line that was being written.
        let Ok(mut log) = self.local.log.try_borrow_mut() else {
            return;
        };
        if info.silent || !log.wanted() {
            return;
        }
        if let Some(last) = info.attempts.last_mut()
            && last.took.is_zero()
        {
            last.took = now.duration_since(info.attempt_started);
        }
        let head = self.head.as_deref();
        if info.id.is_empty() {
            let said = head.and_then(|head| head.fields.joined(Known::XRequestId));
            info.id = said.filter(|id| !id.is_empty()).unwrap_or_else(request_id);
        }
        let user = info.user.take().or_else(|| basic::user(head?));
        log.push(&Record {
            client: info.client.unwrap_or(self.client),
            user: user.as_deref(),
            request: head.map_or([&self.line, b"", b""], |head| {
                [head.method_name().as_bytes(), head.raw_target(), head.version.as_str().as_bytes()]
            }),
            status: info.status,
            sent: info.sent,
            referer: head.and_then(|head| head.fields.get(Known::Referer)),
            user_agent: head.and_then(|head| head.fields.get(Known::UserAgent)),
            received: info.received + head.map_or(0, |head| head.size() as u64),
            took,
            upstream: match &self.location {
                Some(location) => &location.upstream_name,
                None if info.default_backend => DEFAULT_UPSTREAM,
                None => "-",
            },
            alternative: info.alternative.as_deref().unwrap_or_default(),
            attempts: &info.attempts,
            request_id: &info.id,
        });
    }
}
