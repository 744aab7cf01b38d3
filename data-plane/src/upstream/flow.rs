//! The bytes of a connection to an endpoint that is shared: what of them lies in h2, and whether the connection takes any at
//! this moment. What is handed to h2 while it does not, is held there piece by piece, however small each is.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::inbound::Inbound;
use super::incoming::Inflow;
use super::tally;

/// Size of a header list, in bytes, as h2 is told.
pub(super) const LIST: u32 = tally::LIST as u32;

/// What the calls of a connection know of it.
#[derive(Debug)]
pub(super) struct Flow {
    inbound: Inbound,
    inflow: Rc<Inflow>,
    is_stuck: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Default for Flow {
    fn default() -> Self {
        let inbound = Inbound::from_endpoint(LIST);
        Self { inbound, inflow: Rc::default(), is_stuck: Cell::default(), waiting: RefCell::default() }
    }
}

impl Flow {
    /// Which of the answers are malformed.
    pub(super) fn inbound(&self) -> &Inbound {
        &self.inbound
    }

    /// What has come.
    pub(super) fn inflow(&self) -> &Rc<Inflow> {
        &self.inflow
    }

    /// Ready when the connection takes bytes.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.is_stuck.get() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// It takes none now, or takes them again.
    fn stuck(&self, is_stuck: bool) {
        if self.is_stuck.replace(is_stuck) && !is_stuck {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// A connection that tells.
pub(super) struct Flowing<W> {
    wire: W,
    flow: Rc<Flow>,
}

impl<W> Flowing<W> {
    /// Around the bytes of a connection.
    pub(super) fn new(wire: W, flow: &Rc<Flow>) -> Self {
        Self { wire, flow: Rc::clone(flow) }
    }
}

impl<W> Drop for Flowing<W> {
    /// What its calls hand on from here on fails, and they are told so.
    fn drop(&mut self) {
        self.flow.stuck(false);
    }
}

impl<W: AsyncRead + Unpin> AsyncRead for Flowing<W> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { wire, flow } = self.get_mut();
        if flow.inflow.is_full() {
            // Nothing more is read for now; who drives the connection looks as soon as h2 waits.
            return Poll::Pending;
        }
        flow.inbound.poll_read((Pin::new(wire), &flow.inflow), cx, into, |_| {})
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Flowing<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { wire, flow, .. } = self.get_mut();
        let outcome = Pin::new(wire).poll_write(cx, bytes);
        flow.stuck(outcome.is_pending());
        outcome
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { wire, flow, .. } = self.get_mut();
        let outcome = Pin::new(wire).poll_flush(cx);
        // TLS may have taken what the socket does not.
        flow.stuck(outcome.is_pending());
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().wire).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { wire, flow, .. } = self.get_mut();
        let outcome = Pin::new(wire).poll_write_vectored(cx, slices);
        flow.stuck(outcome.is_pending());
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }
}
