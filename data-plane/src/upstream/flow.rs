//! The bytes of a connection to an endpoint that is shared, on their way to h2 and from it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::incoming::Inflow;
use crate::codec::frame::{Cursor, Seen};

/// What the calls of a connection know of its bytes.
#[derive(Debug, Default)]
pub(super) struct Flow {
    inflow: Rc<Inflow>,
}

impl Flow {
    /// What has come.
    pub(super) fn inflow(&self) -> &Rc<Inflow> {
        &self.inflow
    }
}

/// A connection that tells.
pub(super) struct Flowing<W> {
    wire: W,
    frames: Cursor,
    flow: Rc<Flow>,
}

impl<W> Flowing<W> {
    /// Around the bytes of a connection.
    pub(super) fn new(wire: W, flow: &Rc<Flow>) -> Self {
        Self { wire, frames: Cursor::default(), flow: Rc::clone(flow) }
    }
}

impl<W: AsyncRead + Unpin> AsyncRead for Flowing<W> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { wire, frames, flow } = self.get_mut();
        if flow.inflow.is_full() {
            // Nothing more is read for now; who drives the connection looks as soon as h2 waits.
            return Poll::Pending;
        }
        let before = into.filled().len();
        let outcome = flow.inflow.poll_read(Pin::new(wire), cx, into);
        let (bytes, mut small) = (&into.filled()[before..], 0);
        frames.pass(bytes, |seen| {
            if let Seen::Frame(frame) = seen {
                small += u64::from(frame.is_small());
            }
        });
        flow.inflow.read(bytes.len(), small);
        outcome
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Flowing<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().wire).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().wire).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().wire).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().wire).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }
}
