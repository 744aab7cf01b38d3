//! The bytes of an HTTP/2 connection between socket and h2: counted, and monitored for a client that stops reading.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{Abuse, Frames};
use crate::codec::hpack::{Fault, Target};
use crate::codec::stream::{Prefixed, Stream};
use crate::local::timer::Timers;
use crate::upstream::inbound::Inbound;
use crate::upstream::incoming::Inflow;

/// What is known about a connection's bytes.
pub(super) struct Wire {
    timers: Rc<Timers>,
    frames: RefCell<Frames>,
    inbound: Inbound,
    inflow: Rc<Inflow>,
    sent: Cell<u64>,
    stuck: Cell<bool>,
    misdirected: Cell<bool>,
    hung_up: Cell<bool>,
}

impl Wire {
    /// For a new connection, with header lists of this size.
    pub(super) fn new(timers: &Rc<Timers>, list: u32) -> Rc<Self> {
        Rc::new(Self {
            timers: Rc::clone(timers),
            frames: RefCell::new(Frames::new(timers.now())),
            inbound: Inbound::from_client(list),
            inflow: Rc::default(),
            sent: Cell::new(0),
            stuck: Cell::new(false),
            misdirected: Cell::new(false),
            hung_up: Cell::new(false),
        })
    }

    /// The reason to disconnect the client, if any.
    pub(super) fn abuse(&self) -> Option<Abuse> {
        let abuse = self.frames.borrow().abuse();
        abuse.or_else(|| self.inbound.is_over().then_some(Abuse::Malformed))
    }

    /// Why the request on a stream is malformed so far, although h2 accepts it.
    pub(super) fn fault(&self, stream: u32) -> Option<Fault> {
        self.inbound.fault(stream)
    }

    /// The original target of a request for which h2 was given another one.
    pub(super) fn take_target(&self, stream: u32) -> Option<Target> {
        self.inbound.take_target(stream)
    }

    /// Drops what is known about a stream.
    pub(super) fn forget(&self, stream: u32) {
        self.inbound.forget(stream);
    }

    /// Counts a stream that we reset because of the client's behaviour.
    pub(super) fn reset(&self) {
        self.frames.borrow_mut().reset();
    }

    /// Notes a 421 response: the client should open a new connection.
    pub(super) fn misdirected(&self) {
        self.misdirected.set(true);
    }

    /// Whether there was one.
    pub(super) fn is_misdirected(&self) -> bool {
        self.misdirected.get()
    }

    /// Whether the client has closed its side.
    pub(super) fn has_hung_up(&self) -> bool {
        self.hung_up.get()
    }

    /// Bytes received from the client.
    pub(super) fn received(&self) -> u64 {
        self.inflow.received()
    }

    /// The data inside h2.
    pub(super) fn inflow(&self) -> &Rc<Inflow> {
        &self.inflow
    }

    /// Bytes that the client has taken so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Those, if it does not take the next ones.
    pub(super) fn stuck_at(&self) -> Option<u64> {
        self.stuck.get().then(|| self.sent.get())
    }

    /// Records the result of a write; `slices` is what was to be written.
    fn wrote(&self, outcome: &Poll<io::Result<usize>>, slices: &[&[u8]]) {
        self.stuck.set(outcome.is_pending());
        let Poll::Ready(Ok(count)) = outcome else { return };
        self.sent.set(self.sent.get() + *count as u64);
        let mut frames = self.frames.borrow_mut();
        let mut left = *count;
        for slice in slices {
            let some = left.min(slice.len());
            frames.written(&slice[..some], |stream| self.inbound.forget(stream));
            left -= some;
        }
    }
}

/// A stream that reports to its [`Wire`].
pub(super) struct Watched<S> {
    /// Shared with the code that parks it while it is idle.
    stream: Rc<RefCell<Prefixed<S>>>,
    wire: Rc<Wire>,
}

impl<S: Stream> Watched<S> {
    /// Wraps a stream.
    pub(super) fn new(stream: Rc<RefCell<Prefixed<S>>>, wire: Rc<Wire>) -> Self {
        Self { stream, wire }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, wire } = self.get_mut();
        if wire.abuse().is_some() || wire.inflow.is_full() {
            // Nothing more is read for now; the connection checks the wire as soon as h2 waits.
            return Poll::Pending;
        }
        let before = into.filled().len();
        let (mut stream, mut frames) = (stream.borrow_mut(), wire.frames.borrow_mut());
        let from = (Pin::new(&mut *stream), &*wire.inflow);
        let outcome = wire.inbound.poll_read(from, cx, into, |frame| frames.read(frame, wire.timers.now()));
        wire.hung_up.set(outcome.is_ready() && into.filled().len() == before);
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, wire } = self.get_mut();
        let outcome = Pin::new(&mut *stream.borrow_mut()).poll_write(cx, bytes);
        wire.wrote(&outcome, &[bytes]);
        outcome
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, wire } = self.get_mut();
        let outcome = Pin::new(&mut *stream.borrow_mut()).poll_flush(cx);
        // TLS may have accepted what the socket does not; once that is flushed the client reads again, even if nothing
        // is written until a stream learns of it.
        wire.stuck.set(outcome.is_pending());
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().stream.borrow_mut()).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, wire } = self.get_mut();
        let outcome = Pin::new(&mut *stream.borrow_mut()).poll_write_vectored(cx, slices);
        let bytes: smallvec::SmallVec<[&[u8]; 4]> = slices.iter().map(|slice| &**slice).collect();
        wire.wrote(&outcome, &bytes);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.borrow().is_write_vectored()
    }
}
