//! Counts what passes over a connection to an endpoint and what h2 does not report.
//!
//! **Invariant:** however the bytes are split, the same is counted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::codec::frame::{Cursor, Frame, Kind, number};
use crate::local::timer::Timers;

/// Streams that we may reset per period; after that the connection accepts no more calls. Netty closes a connection
/// for more than 200 in 30 s, and as many calls as were reset may still be on it.
const RESETS: usize = 100;
const PERIOD: Duration = Duration::from_secs(30);

/// A connection with less window than one frame, without a window update for this long, is used up by a call that the
/// endpoint does not read.
const FRAME: u32 = 16 * 1024;
const STUCK: Duration = Duration::from_millis(200);

/// Maximum bytes of a head or of trailers, both encoded and by their list size (RFC 9113 section 6.5.2).
const LONGEST: usize = 64 * 1024;

/// The list size that h2 is given. From longer trailers h2 would silently drop the fields that do not fit. So it is
/// given more: anything of that size is also longer than our limit when encoded, since the Huffman code has at least 5
/// bits per octet.
pub(super) const LIST: usize = 2 * LONGEST;

/// Whether received fields exceed the limit.
pub(super) fn are_overlong(fields: &HeaderMap) -> bool {
    const EACH: usize = 32;
    let reckoned = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + EACH);
    reckoned.sum::<usize>() > LONGEST
}

/// Initial send window for bodies (RFC 9113 section 6.9.2).
const WINDOW: i64 = 65_535;

/// Payload bytes of a frame that are looked at.
const FIRST: usize = 4;

/// The ACK flag of SETTINGS.
const ACK: u8 = 1;

/// The counts of a connection.
#[derive(Debug)]
pub(super) struct WireStats {
    timers: Rc<Timers>,
    received: Cell<u64>,
    answers: Cell<u64>,
    /// Times of recent resets.
    resets: RefCell<VecDeque<Instant>>,
    is_worn: Cell<bool>,
    is_settled: Cell<bool>,
    /// Remaining send window, and when it last changed while it was used up.
    window: Cell<i64>,
    used_up: Cell<Option<Instant>>,
    /// Bytes of the most recent field block.
    block: Cell<usize>,
    /// Streams with overlong fields: four bytes for each 64 KiB received.
    overlong: RefCell<Vec<u32>>,
}

impl WireStats {
    /// For a new connection.
    pub(super) fn new(timers: &Rc<Timers>) -> Self {
        let [received, answers] = Default::default();
        let (resets, is_worn, is_settled) = Default::default();
        let (window, used_up) = (Cell::new(WINDOW), Cell::default());
        let (timers, block, overlong) = (Rc::clone(timers), Cell::default(), RefCell::default());
        Self { timers, received, answers, resets, is_worn, is_settled, window, used_up, block, overlong }
    }

    /// Bytes received.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Received frames that are part of a response.
    pub(super) fn answers(&self) -> u64 {
        self.answers.get()
    }

    /// Whether so many streams were reset that the endpoint may soon close the connection.
    pub(super) fn is_worn(&self) -> bool {
        self.is_worn.get()
    }

    /// Whether the endpoint's initial settings are in effect.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.get()
    }

    /// Whether a head or trailers received on a stream are longer than allowed.
    pub(super) fn is_overlong(&self, stream: u32) -> bool {
        self.overlong.borrow().contains(&stream)
    }

    /// Whether a body would have to wait for others that are not read.
    pub(super) fn is_used_up(&self, now: Instant) -> bool {
        self.used_up.get().is_some_and(|since| now.duration_since(since) >= STUCK)
    }

    fn frame_sent(&self, frame: Frame) {
        match frame.kind {
            Kind::Data => self.moved(-i64::from(frame.length)),
            Kind::Reset => self.reset(),
            Kind::Settings if frame.flags & ACK != 0 => self.is_settled.set(true),
            _ => {}
        }
    }

    fn frame_received(&self, frame: Frame, first: [u8; FIRST]) {
        match frame.kind {
            Kind::Data => self.answers.set(self.answers.get() + 1),
            Kind::Headers => {
                self.answers.set(self.answers.get() + 1);
                self.block.set(0);
                self.fields(frame);
            }
            Kind::Continuation => self.fields(frame),
            Kind::WindowUpdate if frame.stream == 0 => {
                self.moved(i64::from(number(first)));
            }
            _ => {}
        }
    }

    fn reset(&self) {
        let now = self.timers.now();
        let mut resets = self.resets.borrow_mut();
        resets.push_back(now);
        if resets.len() >= RESETS {
            let first = resets.pop_front().unwrap_or(now);
            self.is_worn.set(self.is_worn.get() || now.duration_since(first) < PERIOD);
        }
    }

    fn fields(&self, frame: Frame) {
        let before = self.block.replace(self.block.get() + frame.length as usize);
        if before <= LONGEST && self.block.get() > LONGEST {
            self.overlong.borrow_mut().push(frame.stream);
        }
    }

    fn moved(&self, by: i64) {
        let window = self.window.get() + by;
        self.window.set(window);
        match window < i64::from(FRAME) {
            true if by > 0 || self.used_up.get().is_none() => self.used_up.set(Some(self.timers.now())),
            true => {}
            false => self.used_up.set(None),
        }
    }
}

/// A connection whose frames are counted.
pub(super) struct Counted<W> {
    wire: W,
    read: Cursor<FIRST>,
    written: Cursor<0>,
    stats: Rc<WireStats>,
}

impl<W> Counted<W> {
    /// Wraps a new connection.
    pub(super) fn new(wire: W, stats: &Rc<WireStats>) -> Self {
        Self { wire, read: Cursor::default(), written: Cursor::of_client(), stats: Rc::clone(stats) }
    }
}

impl<W: AsyncRead + Unpin> AsyncRead for Counted<W> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { wire, read, stats, .. } = self.get_mut();
        let before = into.filled().len();
        ready!(Pin::new(wire).poll_read(cx, into))?;
        let came = &into.filled()[before..];
        stats.received.set(stats.received.get() + came.len() as u64);
        read.pass(came, |frame, first| stats.frame_received(frame, first));
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Counted<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { wire, written, stats, .. } = self.get_mut();
        let count = ready!(Pin::new(wire).poll_write(cx, bytes))?;
        written.pass(&bytes[..count], |frame, []| stats.frame_sent(frame));
        Poll::Ready(Ok(count))
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
        let Self { wire, written, stats, .. } = self.get_mut();
        let count = ready!(Pin::new(wire).poll_write_vectored(cx, slices))?;
        let mut left = count;
        for slice in slices {
            let some = left.min(slice.len());
            written.pass(&slice[..some], |frame, []| stats.frame_sent(frame));
            left -= some;
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
