//! The bytes of a shared connection to an endpoint: how many are inside h2, and whether the connection accepts any
//! now. What is given to h2 while it does not is held there piece by piece, however small the pieces are.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::inbound::Inbound;
use super::incoming::Inflow;
use super::wire_stats;

/// Maximum header list size in bytes that h2 is given.
pub(super) const LIST: u32 = wire_stats::LIST as u32;

/// The state of a connection that its calls share.
#[derive(Debug)]
pub(super) struct Flow {
    inbound: Inbound,
    inflow: Rc<Inflow>,
    is_stuck: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Default for Flow {
    fn default() -> Self {
        let inbound = Inbound::new(LIST);
        Self { inbound, inflow: Rc::default(), is_stuck: Cell::default(), waiting: RefCell::default() }
    }
}

impl Flow {
    /// Which responses are malformed.
    pub(super) fn inbound(&self) -> &Inbound {
        &self.inbound
    }

    /// The received data.
    pub(super) fn inflow(&self) -> &Rc<Inflow> {
        &self.inflow
    }

    /// Ready when the connection accepts data.
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

    /// Sets whether it is blocked.
    fn stuck(&self, is_stuck: bool) {
        if self.is_stuck.replace(is_stuck) && !is_stuck {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// A connection that reports to its [`Flow`].
pub(super) struct Flowing<W> {
    wire: W,
    flow: Rc<Flow>,
}

impl<W> Flowing<W> {
    /// Wraps a connection.
    pub(super) fn new(wire: W, flow: &Rc<Flow>) -> Self {
        Self { wire, flow: Rc::clone(flow) }
    }
}

impl<W> Drop for Flowing<W> {
    /// Wakes the calls: everything they send from here on fails.
    fn drop(&mut self) {
        self.flow.stuck(false);
    }
}

impl<W: AsyncRead + Unpin> AsyncRead for Flowing<W> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { wire, flow } = self.get_mut();
        if flow.inflow.is_full() {
            // Nothing more is read for now; the task that drives the connection checks as soon as h2 waits.
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
        // TLS may have accepted what the socket does not.
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
