//! The bytes of an HTTP/2 connection on their way to h2 and from it: counted, and watched for a client that takes none.

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

/// What is known of a connection's bytes.
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
    /// Of a connection that begins now, with lists of fields of this size.
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

    /// What the client is to be sent away for.
    pub(super) fn abuse(&self) -> Option<Abuse> {
        let abuse = self.frames.borrow().abuse();
        abuse.or_else(|| self.inbound.is_over().then_some(Abuse::Malformed))
    }

    /// Why what the client sent on a stream so far is no request, though h2 takes it for one.
    pub(super) fn fault(&self, stream: u32) -> Option<Fault> {
        self.inbound.fault(stream)
    }

    /// The target of a request that h2 has another one of.
    pub(super) fn take_target(&self, stream: u32) -> Option<Target> {
        self.inbound.take_target(stream)
    }

    /// Nobody asks that of this stream any more.
    pub(super) fn forget(&self, stream: u32) {
        self.inbound.forget(stream);
    }

    /// We have reset a stream for something that the client did or did not do.
    pub(super) fn reset(&self) {
        self.frames.borrow_mut().reset();
    }

    /// A request was answered that should have come on another connection: the client is to make a new one.
    pub(super) fn misdirected(&self) {
        self.misdirected.set(true);
    }

    /// Whether there was one.
    pub(super) fn is_misdirected(&self) -> bool {
        self.misdirected.get()
    }

    /// Whether the client has closed its side: it says nothing more.
    pub(super) fn has_hung_up(&self) -> bool {
        self.hung_up.get()
    }

    /// Bytes that the client has sent.
    pub(super) fn received(&self) -> u64 {
        self.inflow.received()
    }

    /// What lies in h2.
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

    /// Notes how a write went; `slices` are what was to be written.
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

/// A connection that tells its [`Wire`].
pub(super) struct Watched<S> {
    /// Shared with who may take it from the runtime while nothing is done with it.
    stream: Rc<RefCell<Prefixed<S>>>,
    wire: Rc<Wire>,
}

impl<S: Stream> Watched<S> {
    /// Around a stream.
    pub(super) fn new(stream: Rc<RefCell<Prefixed<S>>>, wire: Rc<Wire>) -> Self {
        Self { stream, wire }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, wire } = self.get_mut();
        if wire.abuse().is_some() || wire.inflow.is_full() {
            // Nothing more is read of it for now; the connection looks at the wire as soon as h2 waits.
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
        // TLS may have taken what the socket does not; once that is gone the client takes bytes again, though none are
        // written until a stream is told so.
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
