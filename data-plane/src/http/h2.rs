//! HTTP/2 from clients: h2 speaks the protocol, and each stream becomes the head and body types of the pipeline.
//!
//! h2 is used directly, without hyper: that shows per stream what is buffered and what makes progress, and a stream
//! can be refused, or a connection closed, with a reason that the client understands.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::io::AsyncWriteExt as _;
use tokio::task::spawn_local;
use tracing::{debug, error};

use super::patience::hear_out;
use super::peer::Peer;
use crate::codec::guard::Limits as HeadLimits;
use crate::codec::stream::{Prefixed, Stream};
use crate::http::server::Server;
use crate::local::boxed::boxed;
use crate::local::isolated::isolated;
use crate::local::quota::Share;
use crate::local::stall::Stall;
use crate::local::timer::{SILENCE, Timer};
use crate::upstream::incoming::{Incoming, UNCOUNTED};
use streams::{Counted, HeadCharge, Streams};
use window::Window;
use wire::{Watched, Wire};

mod frames;
mod line;
mod send;
mod stream;
mod streams;
mod window;
mod wire;

/// Maximum number of concurrent streams of a connection (`http2-max-concurrent-streams`).
const STREAMS: u32 = 128;
/// Requests that a client may start after GOAWAY: twice as many as it may have in flight. It has seen the GOAWAY once
/// it answers the PING that comes with it; a client that never does would go on forever.
const AFTER_GOODBYE: usize = 2 * STREAMS as usize;
/// Size of a header list in bytes, if no head size is configured.
const HEADER_LIST: u32 = 32 * 1024;
/// Maximum number of streams that were reset before they were served; more end the connection (CVE-2023-44487). As many
/// calls as a connection may have can be cancelled at once.
const PENDING_RESETS: usize = STREAMS as usize;
/// Bytes of request body that a client may send ahead per stream.
const STREAM_WINDOW: u32 = 128 * 1024;
/// Bytes of response body per stream that may wait for the connection.
const SEND_BUFFER: usize = 32 * 1024;
/// The overhead of a field in addition to its text (RFC 9113 section 6.5.2).
const FIELD: usize = 32;

/// Serves a connection to its end, or until it is idle and can be parked. `begun` are the bytes that were already
/// read.
pub(crate) async fn serve<S: Stream>(
    server: Rc<Server>,
    peer: Peer,
    stream: S,
    begun: BytesMut,
) -> Option<Box<Serving<S>>> {
    // Boxed separately, because it is large and soon finished.
    let serving = Box::pin(begin(server, peer, stream, begun)).await?;
    serving.run().await
}

/// Does the HTTP/2 handshake; `None` if the client fails to.
async fn begin<S: Stream>(
    server: Rc<Server>,
    peer: Peer,
    stream: S,
    begun: BytesMut,
) -> Option<Box<Serving<S>>> {
    let local = Rc::clone(&server.local);
    let timer = local.timers.timer();
    let list = header_list(server.clients().head);
    let wire = Wire::new(&local.timers, list);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(server.clients().streams.unwrap_or(STREAMS))
        .max_header_list_size(list)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        // Counted by `frames`: h2 takes what arrives late for a stream that it has forgotten for an error of the client.
        .max_local_error_reset_streams(None)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(window::SIZE)
        .max_send_buffer_size(SEND_BUFFER)
        // Small frames are counted before h2 sees them, and cost no client its connection.
        .data_frame_budget(UNCOUNTED);
    let stream = Rc::new(RefCell::new(Prefixed::new(begun, stream)));
    let handshake = builder.handshake(Watched::new(Rc::clone(&stream), Rc::clone(&wire)));
    let connection = timer.limit(local.limits.head, handshake).await.ok()?;
    let connection =
        connection.inspect_err(|failure| debug!(error = %failure, "no HTTP/2 connection")).ok()?;
    Some(Box::new(Serving {
        server,
        peer: Rc::new(peer),
        connection,
        stream,
        streams: Rc::default(),
        waiting: VecDeque::new(),
        wire,
        window: Window::default(),
        asked: None,
        timer,
        waits: Waits::Nothing,
        stall: Stall::new(),
        requests: 0,
        leaving: false,
        since: 0,
        sent_away: false,
        is_clean: false,
    }))
}

/// Why a connection has no task any more.
enum Left {
    Ended,
    /// It has no request, and the client is idle.
    Silent,
}

/// The header list size that allows the largest permitted head. Changes apply to new connections.
fn header_list(head: Option<HeadLimits>) -> u32 {
    head.map_or(HEADER_LIST, |head| u32::try_from(head.head).unwrap_or(u32::MAX).max(HEADER_LIST))
}

/// What a connection currently waits for, if there is a timeout for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    /// For endpoints, or for something with a timeout of its own.
    Nothing,
    /// For a request.
    Request,
    /// For the client to close after GOAWAY.
    Goodbye,
    /// For the client to read what was sent; the number of bytes so far (nginx' `send_timeout`).
    Reader(u64),
}

/// An established connection.
pub(crate) struct Serving<S> {
    server: Rc<Server>,
    peer: Rc<Peer>,
    connection: Connection<Watched<S>, Bytes>,
    /// The underlying stream.
    stream: Rc<RefCell<Prefixed<S>>>,
    streams: Rc<Streams>,
    /// Requests that do not fit beside those in progress, in order.
    waiting: VecDeque<Waiting>,
    wire: Rc<Wire>,
    window: Window,
    /// When it last asked for the next tick.
    asked: Option<Instant>,
    timer: Timer,
    waits: Waits,
    /// Whether a client that is waited for takes some of what it is sent.
    stall: Stall,
    /// Number of requests so far.
    requests: usize,
    leaving: bool,
    /// Requests since GOAWAY was sent.
    since: usize,
    sent_away: bool,
    /// It was without a request for so long that the client must have read all responses.
    is_clean: bool,
}

/// A request, and its body if there is one.
type Begun = Request<Option<Incoming>>;

/// A request that waits for others to end. h2 holds little for it: long fields are shared.
struct Waiting {
    request: Begun,
    respond: SendResponse<Bytes>,
    size: u64,
    kept: HeadCharge,
    _share: Share,
}

impl<S: Stream> Serving<S> {
    /// Continues to serve it after it was parked, like [`serve`].
    pub(crate) async fn again(self: Box<Self>) -> Option<Box<Self>> {
        self.timer.arm(SILENCE);
        self.run().await
    }

    async fn run(mut self: Box<Self>) -> Option<Box<Self>> {
        loop {
            let mut left = poll_fn(|cx| self.poll(cx)).await;
            if matches!(left, Ok(Left::Silent)) {
                // h2 keeps the waker of its last caller, and with it the whole task.
                match self.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(again) => left = again,
                    Poll::Pending => continue,
                }
            }
            return match left {
                Ok(Left::Silent) => Some(self),
                Ok(Left::Ended) => {
                    Box::pin(self.close()).await;
                    None
                }
                Err(failure) => {
                    debug!(client = %self.peer.address(), error = %failure, "HTTP/2 connection ended");
                    // h2 has told the client how it broke the protocol.
                    if failure.is_go_away() && failure.is_library() && !self.sent_away {
                        self.server.local.metrics.sent_away.add(1);
                    }
                    None
                }
            };
        }
    }

    /// Accesses its stream while it has no task.
    pub(crate) fn with_stream<R>(&self, act: impl FnOnce(&mut S) -> R) -> R {
        act(self.stream.borrow_mut().get_mut())
    }

    /// Closes after the last response. The client has probably not read all of it, and reports its progress.
    async fn close(self: Box<Self>) {
        let Self { server, connection, stream, wire, timer, waits, sent_away, is_clean, .. } = *self;
        drop(connection);
        let is_stuck = matches!(waits, Waits::Reader(_));
        if is_clean || is_stuck || sent_away || wire.has_hung_up() {
            return;
        }
        let Some(stream) = Rc::into_inner(stream) else { return };
        let (local, mut stream) = (&server.local, stream.into_inner());
        timer.idle(false);
        if let Ok(Ok(())) = timer.limit(local.limits.linger, stream.shutdown()).await {
            let mut input = local.buffers.input();
            hear_out(local, &timer, (&mut stream, &mut input)).await;
            input.clear();
            local.buffers.give_input(input);
        }
    }

    /// Its timeouts.
    pub(crate) fn timer(&self) -> &Timer {
        &self.timer
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Left, h2::Error>> {
        loop {
            self.resume(cx);
            // What was read or discarded since must not be given to the client as a larger window, which nobody can take
            // back.
            self.widen();
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.accept(request, respond),
                Poll::Ready(Some(Err(failure))) => return Poll::Ready(Err(failure)),
                Poll::Ready(None) => return Poll::Ready(Ok(Left::Ended)),
                Poll::Pending if self.has_to_go() => {}
                Poll::Pending if self.wire.inflow().is_full() => {
                    self.wire.inflow().gather();
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => {
                    self.widen();
                    if self.window.is_short() {
                        self.server.local.timers.wake_at_tick(&mut self.asked, cx.waker());
                    }
                    self.wait();
                    if self.poll_over(cx).is_pending() {
                        return Poll::Pending;
                    }
                    if self.waits != Waits::Request {
                        return Poll::Ready(Ok(Left::Ended));
                    }
                    if !self.timer.has_to_end() {
                        return Poll::Ready(Ok(Left::Silent));
                    }
                    self.is_clean = true;
                    self.leave();
                }
            }
        }
    }

    /// Starts a graceful shutdown if there is a reason; then the connection has something to send.
    fn has_to_go(&mut self) -> bool {
        if let Some(abuse) = self.wire.abuse()
            && !self.sent_away
        {
            debug!(client = %self.peer.address(), reason = abuse.as_str(), "HTTP/2 connection sent away");
            self.server.local.metrics.sent_away.add(1);
            (self.sent_away, self.leaving) = (true, true);
            self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            return true;
        }
        if (self.server.local.closing() || self.wire.is_misdirected()) && !self.leaving {
            self.leave();
            return true;
        }
        false
    }

    /// Tells the client to use another connection (GOAWAY); current streams finish.
    fn leave(&mut self) {
        if !self.leaving {
            self.leaving = true;
            self.connection.graceful_shutdown();
        }
    }

    /// Has streams that are not read leave room for the others.
    fn widen(&mut self) {
        let inflow = self.wire.inflow();
        let size = self.window.follow(inflow.received(), || inflow.unread(), &self.server.local.quota);
        if let Some(size) = size {
            self.connection.set_target_window_size(size);
        }
    }

    /// Ready when it has waited for too long.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { waits, stall, timer, stream, streams, .. } = self;
        if !matches!(waits, Waits::Reader(_)) {
            return timer.poll_elapsed(cx).map(|_| ());
        }
        let before = stall.since();
        let over = stall.poll_over(timer, cx, || stream.borrow_mut().get_mut().unacknowledged());
        if stall.since() != before {
            streams.took_some();
        }
        over
    }

    /// Sets the timer for what the connection waits for now.
    fn wait(&mut self) {
        let (limits, quota) = (&self.server.local.limits, &self.server.local.quota);
        self.streams.took(self.wire.sent(), self.wire.stuck_at().is_some(), quota);
        let (waits, limit) = match self.wire.stuck_at() {
            Some(sent) => (Waits::Reader(sent), Some(limits.client_send)),
            None if self.streams.count() > 0 && !self.sent_away => (Waits::Nothing, None),
            None if self.leaving => (Waits::Goodbye, Some(limits.linger)),
            // A new connection always waits for its first request.
            None => {
                let configured = self.server.clients().idle.filter(|_| self.requests > 0);
                (Waits::Request, Some(configured.unwrap_or(limits.idle)))
            }
        };
        if waits == self.waits {
            return;
        }
        self.waits = waits;
        match waits {
            Waits::Request if self.requests > 0 => self.timer.rests(),
            waits => self.timer.idle(waits == Waits::Request),
        }
        self.timer.free();
        match (waits, limit) {
            (Waits::Request, Some(limit)) => self.timer.arm_within(SILENCE, limit),
            (Waits::Reader(_), Some(limit)) => {
                let unacknowledged = self.with_stream(S::unacknowledged);
                self.stall.begin(&self.timer, limit, unacknowledged);
            }
            (_, Some(limit)) => self.timer.arm(limit),
            (_, None) => {}
        }
    }

    /// Starts a request, queues it, or refuses it in a way that says that it was not processed.
    fn accept(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let local = Rc::clone(&self.server.local);
        let size = stream::size(&request);
        let kept = HeadCharge::of(size, request.headers().len());
        let mut request = request.map(|body| (!body.is_end_stream()).then(|| self.wire.inflow().body(body)));
        stream::ask(&mut request, self.wire.take_target(respond.stream_id().into()));
        self.requests += 1;
        self.since += usize::from(self.leaving);
        self.is_clean = false;
        if self.since > AFTER_GOODBYE {
            self.wire.reset();
            self.refuse(&mut respond);
        } else if self.waiting.is_empty() && self.fits(size) {
            match self.streams.begin(size, &local.quota) {
                Some(counted) => self.begin(counted, request, respond),
                None => self.refuse(&mut respond),
            }
        } else if let Some(share) = Streams::wait(kept, self.queued(), self.wire.received(), &local.quota) {
            self.waiting.push_back(Waiting { request, respond, size, kept, _share: share });
        } else {
            self.refuse(&mut respond);
        }
        let most = self.server.clients().requests.unwrap_or(local.limits.requests);
        if self.requests >= most {
            self.leave();
        }
    }

    /// Bytes of queued heads.
    fn queued(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.kept.reckoned).sum()
    }

    fn fits(&self, size: u64) -> bool {
        self.streams.fits(size, self.wire.received(), self.server.local.quota.level())
    }

    /// Starts queued requests if there is room now.
    fn resume(&mut self, cx: &mut Context<'_>) {
        self.waiting.retain_mut(|waiting| waiting.respond.poll_reset(cx).is_pending());
        while let Some(Waiting { request, mut respond, size, _share, .. }) = self.next_that_fits() {
            match self.streams.begin(size, &self.server.local.quota) {
                Some(counted) => self.begin(counted, request, respond),
                None => self.refuse(&mut respond),
            }
        }
        if !self.waiting.is_empty() {
            self.streams.wakes(cx);
        }
    }

    fn next_that_fits(&mut self) -> Option<Waiting> {
        let fits = self.waiting.front().is_some_and(|waiting| self.fits(waiting.size));
        if fits { self.waiting.pop_front() } else { None }
    }

    fn refuse(&self, respond: &mut SendResponse<Bytes>) {
        self.server.local.metrics.refusals.add(1);
        respond.send_reset(Reason::REFUSED_STREAM);
    }

    /// Starts the task of a request.
    fn begin(&self, counted: Counted, request: Begun, respond: SendResponse<Bytes>) {
        let (server, peer, wire) = (Rc::clone(&self.server), Rc::clone(&self.peer), Rc::clone(&self.wire));
        let metrics = Arc::clone(&server.local.metrics);
        let counted = Rc::new(counted);
        // Boxed: a task's future is moved when it starts and copied when it ends, and this one is large.
        let serving = boxed(|| async move {
            isolated(stream::serve((&server, &peer, &wire), &counted, request, respond)).await
        });
        spawn_local(async move {
            if let Err(panic) = serving.await {
                metrics.panics.add(1);
                error!(%panic, "a stream's task panicked; the stream is closed");
            }
        });
    }
}
