//! What passes over a connection to an endpoint that h2 keeps to itself.
//!
//! **Invariant:** however the bytes are cut, the same is counted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::codec::frame::{Cursor, Frame, Kind};
use crate::local::timer::Timers;

/// Streams that we may reset within a period; then the connection takes no more calls. Netty closes one for more than 200 in 30 s, and as
/// many as were reset may be on it yet.
const RESETS: usize = 100;
const PERIOD: Duration = Duration::from_secs(30);

/// A connection that takes less than a frame of bodies yet, and has said nothing about it for so long, is used up by somebody who
/// is not read.
const FRAME: u32 = 16 * 1024;
const STUCK: Duration = Duration::from_millis(200);

/// Bytes of a head or of trailers, as they come and as they are reckoned (RFC 9113 section 6.5.2).
const LONGEST: usize = 64 * 1024;

/// What h2 is told of that. Trailers that are longer than it is told it gives without the fields that do not fit, and says nothing. So it is
/// told more: what is as long as that is longer than ours as it comes, too, in Huffman's code of 5 bits for an octet at the least.
pub(super) const LIST: usize = 2 * LONGEST;

/// Whether fields that came are more than may be.
pub(super) fn are_overlong(fields: &HeaderMap) -> bool {
    const EACH: usize = 32;
    let reckoned = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + EACH);
    reckoned.sum::<usize>() > LONGEST
}

/// What may be sent of bodies at first (RFC 9113 section 6.9.2).
const WINDOW: i64 = 65_535;

/// Bytes behind a frame's header that are looked at.
const FIRST: usize = 4;

/// Says of SETTINGS that those of the other side hold from now on.
const ACK: u8 = 1;

/// What was counted.
#[derive(Debug)]
pub(super) struct Tally {
    timers: Rc<Timers>,
    received: Cell<u64>,
    answers: Cell<u64>,
    /// When the last streams were reset.
    resets: RefCell<VecDeque<Instant>>,
    is_worn: Cell<bool>,
    is_settled: Cell<bool>,
    /// What may be sent of bodies yet, and when its end last moved while it was used up.
    window: Cell<i64>,
    used_up: Cell<Option<Instant>>,
    /// Bytes of the fields that came last.
    block: Cell<usize>,
    /// Streams of which they were too many: four bytes for each 64 KiB that came.
    overlong: RefCell<Vec<u32>>,
}

impl Tally {
    /// Of a connection that nothing was said on.
    pub(super) fn new(timers: &Rc<Timers>) -> Self {
        let [received, answers] = Default::default();
        let (resets, is_worn, is_settled) = Default::default();
        let (window, used_up) = (Cell::new(WINDOW), Cell::default());
        let (timers, block, overlong) = (Rc::clone(timers), Cell::default(), RefCell::default());
        Self { timers, received, answers, resets, is_worn, is_settled, window, used_up, block, overlong }
    }

    /// Bytes that came.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Frames that came and are part of an answer.
    pub(super) fn answers(&self) -> u64 {
        self.answers.get()
    }

    /// Whether so many streams were reset that its endpoint may soon have enough.
    pub(super) fn is_worn(&self) -> bool {
        self.is_worn.get()
    }

    /// Whether what the endpoint says of itself at first holds by now.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.get()
    }

    /// Whether a head or trailers that came on a stream are longer than any may be.
    pub(super) fn is_overlong(&self, stream: u32) -> bool {
        self.overlong.borrow().contains(&stream)
    }

    /// Whether a body would wait for others that are not read.
    pub(super) fn is_used_up(&self, now: Instant) -> bool {
        self.used_up.get().is_some_and(|since| now.duration_since(since) >= STUCK)
    }

    fn went(&self, frame: Frame) {
        match frame.kind {
            Kind::Data => self.moved(-i64::from(frame.length)),
            Kind::Reset => self.reset(),
            Kind::Settings if frame.flags & ACK != 0 => self.is_settled.set(true),
            _ => {}
        }
    }

    fn came(&self, frame: Frame, first: [u8; FIRST]) {
        match frame.kind {
            Kind::Data => self.answers.set(self.answers.get() + 1),
            Kind::Headers => {
                self.answers.set(self.answers.get() + 1);
                self.block.set(0);
                self.fields(frame);
            }
            Kind::Continuation => self.fields(frame),
            Kind::WindowUpdate if frame.stream == 0 => {
                self.moved(i64::from(u32::from_be_bytes(first) & 0x7fff_ffff));
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

/// A connection that is counted.
pub(super) struct Tallied<W> {
    wire: W,
    read: Cursor<FIRST>,
    written: Cursor<0>,
    tally: Rc<Tally>,
}

impl<W> Tallied<W> {
    /// One that nothing was said on.
    pub(super) fn new(wire: W, tally: &Rc<Tally>) -> Self {
        Self { wire, read: Cursor::default(), written: Cursor::of_client(), tally: Rc::clone(tally) }
    }
}

impl<W: AsyncRead + Unpin> AsyncRead for Tallied<W> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { wire, read, tally, .. } = self.get_mut();
        let before = into.filled().len();
        ready!(Pin::new(wire).poll_read(cx, into))?;
        let came = &into.filled()[before..];
        tally.received.set(tally.received.get() + came.len() as u64);
        read.pass(came, |frame, first| tally.came(frame, first));
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Tallied<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { wire, written, tally, .. } = self.get_mut();
        let count = ready!(Pin::new(wire).poll_write(cx, bytes))?;
        written.pass(&bytes[..count], |frame, []| tally.went(frame));
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
        let Self { wire, written, tally, .. } = self.get_mut();
        let count = ready!(Pin::new(wire).poll_write_vectored(cx, slices))?;
        let mut left = count;
        for slice in slices {
            let some = left.min(slice.len());
            written.pass(&slice[..some], |frame, []| tally.went(frame));
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
