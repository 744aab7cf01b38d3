//! HTTP/2 from clients: h2 speaks it, and each stream becomes the head and the body that the pipeline knows.
//!
//! h2 itself and not hyper around it: what is held and what moves is seen by stream here, and a stream can be refused, or a
//! connection sent away, with the reason that its client understands.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::task::spawn_local;
use tracing::{debug, error};

use super::peer::Peer;
use super::pipeline::log::REQUEST;
use crate::codec::stream::{Prefixed, Stream};
use crate::http::server::Server;
use crate::local::isolated::isolated;
use crate::local::quota::{Quota, Share};
use crate::local::timer::Timer;
use wire::{Watched, Wire};

mod frames;
mod send;
mod stream;
mod wire;

/// Requests at once on a connection (configmap.md 1.5 has 128; security.md 2 asks for 100).
const STREAMS: u32 = 100;
/// Size of a header list, in bytes.
const HEADER_LIST: u32 = 32 * 1024;
/// Streams that were reset before they were served; more end the connection (CVE-2023-44487).
const PENDING_RESETS: usize = 20;
/// Streams that we had to reset because of the client's own errors (CVE-2025-8671).
const CAUSED_RESETS: usize = 128;
/// Bytes of request body that a client may send ahead, a stream and a connection.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// Bytes of response body that wait for the connection, a stream.
const SEND_BUFFER: usize = 32 * 1024;
/// Bytes of heads that a connection's streams may hold at once, and more for each byte that it has sent: what is said in
/// one byte by reference to the compression's table may be long (the HPACK bomb). A browser with 2 kB of cookies has all
/// its streams; who has more than fits asks again for those that are refused.
const HEADS: u64 = 128 * 1024;
const HEADS_A_BYTE: u64 = 10;
/// What a field costs beside its text (RFC 9113 section 6.5.2).
const FIELD: usize = 32;

/// Serves a connection to its end. `begun` is what was read of it already.
pub(crate) async fn serve<S: Stream>(server: Rc<Server>, peer: Peer, stream: S, begun: BytesMut) {
    let local = Rc::clone(&server.local);
    let timer = local.timers.timer();
    let wire = Wire::new(&local.timers);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_LIST)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(Some(CAUSED_RESETS))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER);
    let handshake = builder.handshake(Watched::new(Prefixed::new(begun, stream), Rc::clone(&wire)));
    let Ok(connection) = timer.limit(local.limits.head, handshake).await else { return };
    let outcome = match connection {
        Ok(connection) => {
            let streams = Rc::default();
            let mut serving = Serving {
                server,
                peer: Rc::new(peer),
                connection,
                streams,
                wire,
                timer,
                waits: Waits::Nothing,
                requests: 0,
                leaving: false,
                sent_away: false,
            };
            poll_fn(|cx| serving.poll(cx)).await
        }
        Err(failure) => Err(failure),
    };
    if let Err(failure) = outcome {
        debug!(error = %failure, "HTTP/2 connection ended");
    }
}

/// What a connection waits for, if there is a limit to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    /// For endpoints, or for what a stream has its own limit for.
    Nothing,
    /// For a request.
    Request,
    /// For the client to close after it was told that we leave.
    Goodbye,
    /// For the client to take what it was sent, so many bytes so far (nginx' send_timeout).
    Reader(u64),
}

struct Serving<S> {
    server: Rc<Server>,
    peer: Rc<Peer>,
    connection: Connection<Watched<Prefixed<S>>, Bytes>,
    streams: Rc<Streams>,
    wire: Rc<Wire>,
    timer: Timer,
    waits: Waits,
    /// So far.
    requests: usize,
    leaving: bool,
    sent_away: bool,
}

impl<S: Stream> Serving<S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.begin(request, respond),
                Poll::Ready(Some(Err(failure))) => return Poll::Ready(Err(failure)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending if self.has_to_go() => {}
                Poll::Pending => {
                    self.wait();
                    if self.timer.poll_elapsed(cx).is_pending() {
                        return Poll::Pending;
                    }
                    if self.waits != Waits::Request {
                        return Poll::Ready(Ok(()));
                    }
                    self.leave();
                }
            }
        }
    }

    /// Begins to go where there is a reason; then the connection has something to say.
    fn has_to_go(&mut self) -> bool {
        if let Some(abuse) = self.wire.abuse()
            && !self.sent_away
        {
            debug!(client = %self.peer.address(), ?abuse, "HTTP/2 connection sent away");
            self.server.local.metrics.sent_away.add(1);
            (self.sent_away, self.leaving) = (true, true);
            self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            return true;
        }
        if self.server.local.closing() && !self.leaving {
            self.leave();
            return true;
        }
        false
    }

    /// Tells the client to use another connection from now on (GOAWAY); its streams end in peace.
    fn leave(&mut self) {
        if !self.leaving {
            self.leaving = true;
            self.connection.graceful_shutdown();
        }
    }

    /// Sets the clock for what the connection waits for now.
    fn wait(&mut self) {
        let limits = &self.server.local.limits;
        let (waits, limit) = match self.wire.stuck_at() {
            Some(sent) => (Waits::Reader(sent), Some(limits.client_send)),
            None if self.streams.count.get() > 0 && !self.sent_away => (Waits::Nothing, None),
            None if self.leaving => (Waits::Goodbye, Some(limits.linger)),
            None => (Waits::Request, Some(limits.idle)),
        };
        if waits == self.waits {
            return;
        }
        self.waits = waits;
        self.timer.idle(waits == Waits::Request);
        match limit {
            Some(limit) => self.timer.arm(limit),
            None => self.timer.disarm(),
        }
    }

    /// Gives a request its task, or refuses it in a way that says that nothing was done.
    fn begin(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let local = &self.server.local;
        let size = size(&request);
        let allowed = HEADS + HEADS_A_BYTE * self.wire.received();
        let counted = Counted::new(&self.streams, size, allowed, &local.quota);
        self.requests += 1;
        if let Some(counted) = counted {
            let (server, peer) = (Rc::clone(&self.server), Rc::clone(&self.peer));
            let wire = Rc::clone(&self.wire);
            let metrics = Arc::clone(&local.metrics);
            spawn_local(async move {
                let _counted = counted;
                let stream = stream::serve(&server, &peer, &wire, request, respond);
                if let Err(panic) = isolated(stream).await {
                    metrics.panics.add(1);
                    error!(%panic, "a stream's task panicked; the stream is closed");
                }
            });
        } else {
            local.metrics.refusals.add(1);
            respond.send_reset(Reason::REFUSED_STREAM);
        }
        if self.requests >= self.server.local.limits.requests {
            self.leave();
        }
    }
}

/// What the streams of a connection hold together.
#[derive(Debug, Default)]
struct Streams {
    count: Cell<usize>,
    /// Bytes of heads.
    heads: Cell<u64>,
}

/// One stream, while it lives.
struct Counted {
    streams: Rc<Streams>,
    size: u64,
    _share: Share,
}

impl Counted {
    /// One more with a head of this size, if its connection and the process may hold it.
    fn new(streams: &Rc<Streams>, size: u64, allowed: u64, quota: &Rc<Quota>) -> Option<Self> {
        let heads = streams.heads.get() + size;
        if heads > allowed {
            return None;
        }
        // As it came, as it is kept and as it is sent on; and the task around it.
        let share = quota.open(3 * usize::try_from(size).unwrap_or(usize::MAX / 4) + REQUEST)?;
        streams.heads.set(heads);
        streams.count.set(streams.count.get() + 1);
        Some(Self { streams: Rc::clone(streams), size, _share: share })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.streams.count.set(self.streams.count.get() - 1);
        self.streams.heads.set(self.streams.heads.get() - self.size);
    }
}

/// Bytes that a head takes.
fn size(request: &Request<RecvStream>) -> u64 {
    let uri = request.uri();
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD);
    (target + authority + fields.sum::<usize>() + 4 * FIELD) as u64
}
