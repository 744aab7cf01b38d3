//! What passes over a connection to an endpoint that h2 keeps to itself.
//!
//! **Invariant:** however the bytes are cut, the same is counted.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::codec::frame::HEADER;

/// Kinds of frames (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    received: Cell<u64>,
    answers: Cell<u64>,
}

impl Tally {
    /// Bytes that came.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Frames that came and are part of an answer.
    pub(super) fn answers(&self) -> u64 {
        self.answers.get()
    }

    fn came(&self, frame: &Frame) {
        if matches!(frame.kind, DATA | HEADERS) {
            self.answers.set(self.answers.get() + 1);
        }
    }
}

/// A frame, as far as anybody here asks.
struct Frame {
    kind: u8,
}

/// A place in a stream of frames, which tells of each one.
#[derive(Debug, Default)]
struct Scan {
    /// Bytes until the next one.
    skip: u64,
    begin: [u8; HEADER],
    /// Bytes of its begin that are here.
    have: usize,
}

impl Scan {
    fn pass(&mut self, mut bytes: &[u8], mut seen: impl FnMut(&Frame)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let some = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
                self.skip -= some as u64;
                bytes = &bytes[some..];
                continue;
            }
            let some = (HEADER - self.have).min(bytes.len());
            self.begin[self.have..self.have + some].copy_from_slice(&bytes[..some]);
            self.have += some;
            bytes = &bytes[some..];
            if self.have < HEADER {
                continue;
            }
            self.have = 0;
            let [a, b, c, kind, ..] = self.begin;
            self.skip = u64::from(u32::from_be_bytes([0, a, b, c]));
            seen(&Frame { kind });
        }
    }
}

/// A connection that is counted.
pub(super) struct Tallied<W> {
    wire: W,
    read: Scan,
    tally: Rc<Tally>,
}

impl<W> Tallied<W> {
    /// One that nothing was said on.
    pub(super) fn new(wire: W, tally: &Rc<Tally>) -> Self {
        Self { wire, read: Scan::default(), tally: Rc::clone(tally) }
    }
}

impl<W: AsyncRead + Unpin> AsyncRead for Tallied<W> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { wire, read, tally } = self.get_mut();
        let before = into.filled().len();
        ready!(Pin::new(wire).poll_read(cx, into))?;
        let came = &into.filled()[before..];
        tally.received.set(tally.received.get() + came.len() as u64);
        read.pass(came, |frame| tally.came(frame));
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Tallied<W> {
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

#[cfg(test)]
mod tests;
