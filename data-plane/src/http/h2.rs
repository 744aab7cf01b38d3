//! HTTP/2 from clients: the codec speaks the protocol, and each stream becomes the head and body types of the pipeline.
//!
//! One task reads and writes for all streams of a connection; each of these has a task of its own. What the latter give is
//! in the connection's hands at once, and its task is woken to write it.

use std::cell::RefMut;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt as _;
use tokio::task::spawn_local;
use tracing::{debug, error};

use super::patience::hear_out;
use super::peer::Peer;
use crate::codec::frame::most_split;
use crate::codec::guard::Limits as HeadLimits;
use crate::codec::h2::{self, Abuse, Connection, Limits, Opened, Reason};
use crate::codec::head::Framing;
use crate::codec::hpack::block::FieldBlock;
use crate::codec::stream::{FrameWriter, Stream};
use crate::http::server::Server;
use crate::local::boxed::boxed;
use crate::local::buffers::Buffers;
use crate::local::isolated::isolated;
use crate::local::quota::Share;
use crate::local::stall::Stall;
use crate::local::timer::{SILENCE, Timer};
use link::{Lease, Link, Response, Upload};
use stream::Request;
use streams::{Counted, Streams};
use window::Window;

mod line;
mod link;
mod send;
mod stream;
mod streams;
mod window;

/// Maximum number of concurrent streams of a connection (`http2-max-concurrent-streams`).
const STREAMS: u32 = 128;
/// Requests that a client may start after GOAWAY: twice as many as it may have in flight. It has seen the GOAWAY once
/// it answers the PING that comes with it; a client that never does would go on forever.
const AFTER_GOODBYE: usize = 2 * STREAMS as usize;
/// Size of a header list in bytes, if no head size is configured.
const HEADER_LIST: u32 = 32 * 1024;
/// Bytes of request body that a client may send ahead per stream.
const STREAM_WINDOW: u32 = 128 * 1024;

/// Memory of a connection beside what comes and what its streams hold, in bytes.
const STATE: usize = 2 * 1024;

/// Serves a connection to its end, or until it is idle and can be parked. `begun` are the bytes that were already
/// read.
pub(crate) async fn serve<S: Stream>(
    server: Rc<Server>,
    peer: Peer,
    stream: S,
    begun: BytesMut,
) -> Option<Box<Serving<S>>> {
    Serving::begin(server, peer, stream, begun).run().await
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

/// Why a connection has ended before its time.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The client has broken the protocol, and was told so.
    #[error("{0}")]
    Protocol(Reason),
}

/// What happens next on a connection.
enum Next {
    Request(Opened),
    Ended,
}

/// What a connection currently waits for, if there is a timeout for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    /// For endpoints, or for something with a timeout of its own.
    Nothing,
    /// For the client's preface.
    Greeting,
    /// For a request.
    Request,
    /// For the client to close after GOAWAY. Firefox takes what it has not handed on for incomplete when the other side
    /// has closed.
    Goodbye,
    /// For the client to read what was sent; the number of bytes so far (nginx' `send_timeout`).
    Reader(u64),
}

/// An established connection.
pub(crate) struct Serving<S> {
    server: Rc<Server>,
    peer: Rc<Peer>,
    stream: S,
    /// What has come, as far as it is no complete frame yet.
    input: BytesMut,
    /// The fields of the last request.
    fields: FieldBlock,
    /// The memory that it holds while it waits.
    share: Option<Share>,
    link: Lease,
    streams: Rc<Streams>,
    /// Requests that do not fit beside those in progress, in order.
    waiting: VecDeque<Waiting>,
    /// Bytes that have come.
    received: u64,
    writer: FrameWriter,
    /// Whether the client does not take the next bytes.
    is_stuck: bool,
    /// Whether the client has closed its side.
    has_hung_up: bool,
    /// How the client has broken the protocol.
    broken: Option<Reason>,
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

/// A request that waits for others to end.
struct Waiting {
    request: Request,
    size: u64,
    _share: Share,
}

impl<S: Stream> Serving<S> {
    // Boxed at once, because it is large.
    fn begin(server: Rc<Server>, peer: Peer, stream: S, input: BytesMut) -> Box<Self> {
        let timers = Rc::clone(&server.local.timers);
        let streams = server.clients().streams.unwrap_or(STREAMS);
        let list = header_list(server.clients().head);
        let limits = Limits { stream: STREAM_WINDOW, window: window::SIZE, list, block: most_split(list) };
        let received = input.len() as u64;
        Box::new(Self {
            server,
            peer: Rc::new(peer),
            stream,
            input,
            fields: FieldBlock::default(),
            share: None,
            link: Lease(Link::new(Connection::new(streams, limits, timers.now()))),
            streams: Rc::default(),
            waiting: VecDeque::new(),
            received,
            writer: FrameWriter::default(),
            is_stuck: false,
            has_hung_up: false,
            broken: None,
            window: Window::default(),
            asked: None,
            timer: timers.timer(),
            waits: Waits::Nothing,
            stall: Stall::new(),
            requests: 0,
            leaving: false,
            since: 0,
            sent_away: false,
            is_clean: false,
        })
    }

    /// Continues to serve it after it was parked, like [`serve`].
    pub(crate) async fn again(self: Box<Self>) -> Option<Box<Self>> {
        self.timer.arm(SILENCE);
        self.run().await
    }

    async fn run(mut self: Box<Self>) -> Option<Box<Self>> {
        loop {
            let mut left = poll_fn(|cx| self.poll(cx)).await;
            if matches!(left, Ok(Left::Silent)) {
                // The timer keeps the waker of its last caller, and with it the whole task.
                match self.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(again) => left = again,
                    Poll::Pending => continue,
                }
            }
            return match left {
                Ok(Left::Silent) => {
                    self.connection().let_go();
                    self.fields = FieldBlock::default();
                    // Less than before: that does not fail.
                    let _ = self.charge();
                    Some(self)
                }
                Ok(Left::Ended) => {
                    Box::pin(self.close()).await;
                    None
                }
                Err(failure) => {
                    debug!(client = %self.peer.address(), error = %failure, "HTTP/2 connection ended");
                    if matches!(failure, Failure::Protocol(_)) && !self.sent_away {
                        self.server.local.metrics.sent_away.add(1);
                    }
                    None
                }
            };
        }
    }

    fn connection(&self) -> RefMut<'_, Connection<h2::Server>> {
        self.link.connection.borrow_mut()
    }

    /// Accesses its stream while it has no task.
    pub(crate) fn with_stream<R>(&mut self, act: impl FnOnce(&mut S) -> R) -> R {
        act(&mut self.stream)
    }

    /// Closes after the last response. The client has probably not read all of it, and reports its progress.
    async fn close(self: Box<Self>) {
        let Self {
            server,
            peer,
            link,
            input,
            fields,
            mut stream,
            timer,
            waits,
            sent_away,
            is_clean,
            has_hung_up,
            share,
            ..
        } = *self;
        drop((link, fields, share));
        server.local.buffers.give_input(input);
        let is_vain = matches!(waits, Waits::Reader(_) | Waits::Greeting);
        if is_clean || is_vain || sent_away || has_hung_up {
            return;
        }
        let local = &server.local;
        timer.idle(false);
        if let Ok(Ok(())) = timer.limit(local.limits.linger, stream.shutdown()).await {
            hear_out(local, (&timer, &peer), &mut stream).await;
        }
    }

    /// Its timeouts.
    pub(crate) fn timer(&self) -> &Timer {
        &self.timer
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Left, Failure>> {
        self.connection().wakes();
        loop {
            self.resume(cx);
            // What was read or discarded since must not be given to the client as a larger window, which nobody can take
            // back.
            self.widen();
            match self.poll_next(cx)? {
                Poll::Ready(Next::Request(opened)) => self.accept(opened),
                Poll::Ready(Next::Ended) => {
                    let broken = self.broken.take().map(Failure::Protocol);
                    return Poll::Ready(broken.map_or(Ok(Left::Ended), Err));
                }
                Poll::Pending if self.has_to_go() => {}
                Poll::Pending => {
                    self.widen();
                    if !self.is_stuck && !self.connection().is_written() {
                        continue;
                    }
                    if !self.charge() {
                        self.server.local.metrics.refusals.add(1);
                        (self.leaving, self.sent_away) = (true, true);
                        self.connection().end(Reason::ENHANCE_YOUR_CALM);
                        continue;
                    }
                    self.connection().wait(cx);
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

    /// Takes what has come, writes what there is to write, and reads more, up to the next request.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Next, Failure>> {
        loop {
            let now = self.server.local.timers.now();
            let taken = self.link.connection.borrow_mut().receive(&mut self.input, &mut self.fields, now);
            match taken {
                Ok(Some(opened)) => return Poll::Ready(Ok(Next::Request(opened))),
                Ok(None) => {}
                Err(reason) => {
                    self.broken = Some(reason);
                    self.connection().end(reason);
                }
            }
            let (is_over, was_full) = {
                let connection = self.connection();
                (connection.is_over(), connection.is_full())
            };
            let is_written = self.poll_write(cx)?.is_ready();
            if is_over {
                // Nobody waits for who has left.
                if !is_written && !self.has_hung_up {
                    return Poll::Pending;
                }
                let is_shut = Pin::new(&mut self.stream).poll_shutdown(cx).is_ready();
                return if is_shut || self.has_hung_up {
                    Poll::Ready(Ok(Next::Ended))
                } else {
                    Poll::Pending
                };
            }
            if was_full && is_written {
                continue;
            }
            if was_full || self.connection().abuse().is_some() {
                return Poll::Pending;
            }
            if ready!(self.poll_read(cx))? == 0 {
                self.has_hung_up = true;
                self.connection().lose();
            }
        }
    }

    /// Reads more. While nothing comes, the buffer is lent to others.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Self { input, stream, server, received, .. } = self;
        let read = server.local.buffers.poll_frames(stream, input, cx);
        if let Poll::Ready(Ok(bytes)) = &read {
            *received += *bytes as u64;
        }
        read
    }

    /// Writes what there is.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { link, stream, is_stuck, writer, .. } = self;
        let written = writer.poll(&mut link.connection.borrow_mut(), stream, cx)?;
        *is_stuck = written.is_pending();
        written.map(Ok)
    }

    /// Starts a graceful shutdown if there is a reason; then the connection has something to send.
    fn has_to_go(&mut self) -> bool {
        let abuse = self.connection().abuse();
        if let Some(abuse) = abuse
            && !self.sent_away
        {
            debug!(client = %self.peer.address(), reason = abuse.as_str(), "HTTP/2 connection sent away");
            self.server.local.metrics.sent_away.add(1);
            self.leaving = true;
            // Behind a balancer or in a gRPC client, which gives up calls at their deadlines, others have streams here.
            let goes_on = abuse == Abuse::Resets && self.connection().turn_away(Reason::ENHANCE_YOUR_CALM);
            if !goes_on {
                self.sent_away = true;
                self.connection().end(Reason::ENHANCE_YOUR_CALM);
            }
            return true;
        }
        if (self.server.local.closing() || self.link.is_outdated()) && !self.leaving {
            self.leave();
            return true;
        }
        false
    }

    /// Tells the client to use another connection (GOAWAY); current streams finish.
    fn leave(&mut self) {
        if !self.leaving {
            self.leaving = true;
            self.connection().leave();
        }
    }

    /// Charges what it holds while it waits: its state, and what has come of frames that are not complete. Where there is
    /// no memory, who sends frames whole is told so for each request, and requests in progress are not cut; `false`: it
    /// has to end, for frames without a request, or for a head in several of them.
    fn charge(&mut self) -> bool {
        let unfinished = self.connection().unfinished();
        let held = STATE + Buffers::room_of(&mut self.input) + self.fields.room() + unfinished;
        let share = self.share.get_or_insert_with(|| self.server.local.quota.nothing());
        let is_covered = share.resize(held) && self.peer.charge(self.stream.incomplete());
        let has_frames = self.input.capacity() + unfinished > 0;
        let goes_on =
            !has_frames || self.connection().is_over() || (unfinished == 0 && self.streams.count() > 0);
        is_covered || goes_on
    }

    /// Has streams that are not read leave room for the others.
    fn widen(&mut self) {
        let Self { window, link, received, server, .. } = self;
        let mut connection = link.connection.borrow_mut();
        if let Some(size) = window.follow(*received, || connection.unread(), &server.local.quota) {
            connection.resize(size);
        }
        connection.widen();
    }

    /// Ready when it has waited for too long.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { waits, stall, timer, stream, streams, .. } = self;
        if !matches!(waits, Waits::Reader(_)) {
            return timer.poll_elapsed(cx).map(|_| ());
        }
        let before = stall.since();
        let over = stall.poll_over(timer, cx, || stream.unacknowledged());
        if stall.since() != before {
            streams.took_some();
        }
        over
    }

    /// Sets the timer for what the connection waits for now.
    fn wait(&mut self) {
        let (limits, quota) = (&self.server.local.limits, &self.server.local.quota);
        self.streams.took(self.writer.sent(), self.is_stuck, quota);
        let (waits, limit) = match self.is_stuck.then_some(self.writer.sent()) {
            Some(sent) => (Waits::Reader(sent), Some(limits.client_send)),
            None if !self.connection().is_greeted() => (Waits::Greeting, Some(limits.head)),
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
                let unacknowledged = self.stream.unacknowledged();
                self.stall.begin(&self.timer, limit, unacknowledged);
            }
            (_, Some(limit)) => self.timer.arm(limit),
            (_, None) => {}
        }
    }

    /// Starts a request, queues it, or refuses it in a way that says that it was not processed.
    fn accept(&mut self, Opened { stream, ended, is_malformed }: Opened) {
        let local = Rc::clone(&self.server.local);
        let response = Response::new(&self.link, stream);
        let upload = (!ended).then(|| Upload::new(&self.link, stream));
        let limits = self.server.clients().head.unwrap_or(HeadLimits::REQUEST);
        let head = match is_malformed {
            true => Err(stream::Refused::Malformed),
            false => stream::head(&self.fields, ended, limits),
        };
        if let Ok(head) = &head
            && let Framing::Length(length) = head.framing
        {
            self.connection().declare(stream, length);
        }
        let size = self.fields.size();
        let request = Request { head, upload, response };
        self.requests += 1;
        self.since += usize::from(self.leaving);
        self.is_clean = false;
        if self.since > AFTER_GOODBYE {
            self.link.count_reset();
            self.refuse(&request);
        } else if self.waiting.is_empty() && self.fits(size) {
            match self.streams.begin(size, &local.quota) {
                Some(counted) => self.start(counted, request),
                None => self.refuse(&request),
            }
        } else if let Some(share) = Streams::wait(size, self.queued(), self.received, &local.quota) {
            self.waiting.push_back(Waiting { request, size, _share: share });
        } else {
            self.refuse(&request);
        }
        let most = self.server.clients().requests.unwrap_or(local.limits.requests);
        if self.requests >= most {
            self.leave();
        }
    }

    /// Bytes of queued heads.
    fn queued(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.size).sum()
    }

    fn fits(&self, size: u64) -> bool {
        self.streams.fits(size, self.received, self.server.local.quota.level())
    }

    /// Starts queued requests if there is room now.
    fn resume(&mut self, cx: &mut Context<'_>) {
        self.waiting.retain(|waiting| !waiting.request.response.is_cut());
        while let Some(Waiting { request, size, _share, .. }) = self.next_that_fits() {
            match self.streams.begin(size, &self.server.local.quota) {
                Some(counted) => self.start(counted, request),
                None => self.refuse(&request),
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

    fn refuse(&self, request: &Request) {
        self.server.local.metrics.refusals.add(1);
        request.response.reset(Reason::REFUSED_STREAM);
    }

    /// Starts the task of a request.
    fn start(&self, counted: Counted, request: Request) {
        let (server, peer, link) = (Rc::clone(&self.server), Rc::clone(&self.peer), Rc::clone(&self.link));
        let metrics = Arc::clone(&server.local.metrics);
        let counted = Rc::new(counted);
        // Boxed: a task's future is moved when it starts and copied when it ends, and this one is large.
        let serving = boxed(|| async move {
            let worker = (&server, &*peer, &link);
            isolated(stream::serve(worker, &counted, request)).await
        });
        spawn_local(async move {
            if let Err(panic) = serving.await {
                metrics.panics.add(1);
                error!(%panic, "a stream's task panicked; the stream is closed");
            }
        });
    }
}
