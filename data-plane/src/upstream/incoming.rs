//! HTTP/2 bodies that may not be read for a while.
//!
//! h2 keeps each DATA frame of a body separately until it is read, with some 250 bytes of overhead: a peer that sends
//! a byte at a time makes it hold 25 times what was sent, up to its windows. h2's own defence is to count such frames
//! and to close the whole connection at a limit (`data_frame_budget`): also that of a client with short messages whose
//! endpoint is slow, and that of all calls to an endpoint of which one client reads nothing.
//!
//! So small frames are counted where the bytes of a connection are read. After a number of them, nothing more is read
//! until the data inside h2 was collected: taken out and joined, in order. The windows stay as they are; they open
//! when somebody reads the bytes.
//!
//! **Invariant:** h2 holds no more than [`Inflow::allowed`] small frames at a time.

use std::cell::{Cell, RefCell};
use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use bytes::{BufMut as _, Bytes};
use h2::RecvStream;
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use crate::codec::body::Backlog;

/// Maximum number of small frames that a connection may have inside h2: some initially, one more for each 25 bytes
/// received, and a limit for all of them. A frame takes some 250 bytes there, which is ten bytes for each byte sent.
const AHEAD: u64 = 256;
const MOST: u64 = 2_048;
const BYTES_A_FRAME: u64 = 25;

/// The smallest size on the wire of a frame with any content, in bytes.
const LEAST: u64 = 10;

/// The value for h2's own limit, which must not be reached before ours.
pub(crate) const UNCOUNTED: usize = usize::MAX / 2;

/// What was received over a connection and is inside h2.
#[derive(Debug, Default)]
pub(crate) struct Inflow {
    received: Cell<u64>,
    /// Small frames since everything was collected.
    small: Cell<u64>,
    bodies: RefCell<Vec<Weak<Body>>>,
}

/// The body of a message.
#[derive(Debug)]
pub(crate) struct Incoming {
    body: Rc<Body>,
    inflow: Rc<Inflow>,
}

#[derive(Debug)]
struct Body {
    stream: RefCell<RecvStream>,
    gathered: RefCell<Gathered>,
    /// The task that waits for more of it.
    waits: RefCell<Option<Waker>>,
}

/// What was taken out of h2.
#[derive(Debug, Default)]
struct Gathered {
    pieces: Backlog,
    /// How the body ended, after all of that.
    end: Option<Result<(), h2::Error>>,
}

impl Inflow {
    /// Maximum number of small frames inside h2.
    fn allowed(&self) -> u64 {
        (AHEAD + self.received.get() / BYTES_A_FRAME).min(MOST)
    }

    /// Whether nothing may be read until everything was collected.
    pub(crate) fn is_full(&self) -> bool {
        self.small.get() >= self.allowed() / 2
    }

    /// Reads at most `most` bytes, and no more at a time than may be inside h2.
    pub(crate) fn poll_read(
        &self,
        mut stream: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<io::Result<()>> {
        let frames = self.allowed().saturating_sub(self.small.get());
        let room = usize::try_from(frames * LEAST).unwrap_or(usize::MAX).min(most);
        if into.remaining() <= room {
            return stream.poll_read(cx, into);
        }
        // Only what comes is written to the buffer: to clear all of the room first, each time, would cost more than most
        // reads. The future keeps no state between polls, so dropping it loses nothing.
        pin!(stream.read_buf(&mut into.limit(room))).poll(cx).map_ok(drop)
    }

    /// Counts received bytes and small frames.
    pub(crate) fn read(&self, bytes: usize, small: u64) {
        self.received.set(self.received.get() + bytes as u64);
        self.small.set(self.small.get() + small);
    }

    /// A body that is received over this connection.
    pub(crate) fn body(self: &Rc<Self>, stream: RecvStream) -> Incoming {
        let (gathered, waits) = Default::default();
        let body = Rc::new(Body { stream: RefCell::new(stream), gathered, waits });
        self.bodies.borrow_mut().push(Rc::downgrade(&body));
        Incoming { body, inflow: Rc::clone(self) }
    }

    /// Takes everything out of h2. Before calling it, the task that drives the connection lets other tasks run:
    /// responses that have just begun are read first.
    pub(crate) fn gather(&self) {
        for body in &*self.bodies.borrow() {
            if let Some(body) = body.upgrade() {
                // This makes h2 forget the registered waker.
                body.gather(&mut Context::from_waker(Waker::noop()));
                if let Some(waits) = body.waits.borrow_mut().take() {
                    waits.wake();
                }
            }
        }
        self.small.set(0);
    }
}

impl Body {
    fn gather(&self, cx: &mut Context<'_>) {
        let mut gathered = self.gathered.borrow_mut();
        while gathered.end.is_none()
            && let Poll::Ready(came) = self.stream.borrow_mut().poll_data(cx)
        {
            match came {
                Some(Ok(piece)) => gathered.pieces.push(piece),
                Some(Err(error)) => gathered.end = Some(Err(error)),
                None => gathered.end = Some(Ok(())),
            }
        }
    }

    /// Bytes that were received and that nobody has taken.
    fn unread(&self) -> usize {
        self.stream.borrow_mut().flow_control().used_capacity()
    }
}

impl Incoming {
    /// The next piece, or the end.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let mut gathered = self.body.gathered.borrow_mut();
        if let Some(piece) = gathered.pieces.pop() {
            return Poll::Ready(Some(Ok(piece)));
        }
        match gathered.end.take() {
            Some(Ok(())) => {
                gathered.end = Some(Ok(()));
                return Poll::Ready(None);
            }
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => {}
        }
        let polled = self.body.stream.borrow_mut().poll_data(cx);
        if polled.is_pending() {
            *self.body.waits.borrow_mut() = Some(cx.waker().clone());
        }
        polled
    }

    /// Bytes that were received and not taken. Whoever does not take them is woken when it is more.
    pub(crate) fn poll_unread(&mut self, cx: &mut Context<'_>) -> usize {
        self.body.gather(cx);
        *self.body.waits.borrow_mut() = Some(cx.waker().clone());
        self.body.unread()
    }

    /// The trailers, once the body has ended.
    pub(crate) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, h2::Error>> {
        self.body.stream.borrow_mut().poll_trailers(cx)
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.gathered.borrow().pieces.is_empty() && self.body.stream.borrow().is_end_stream()
    }

    /// Opens the window for as many bytes as were taken.
    pub(crate) fn release(&mut self, bytes: usize) {
        let _ = self.body.stream.borrow_mut().flow_control().release_capacity(bytes);
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let mine = Rc::downgrade(&self.body);
        let mut bodies = self.inflow.bodies.borrow_mut();
        if let Some(place) = bodies.iter().position(|body| body.ptr_eq(&mine)) {
            bodies.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn read_clears_nothing_of_its_buffer() {
        let (mut near, mut far) = duplex(64);
        let (inflow, mut room) = (Inflow::default(), [MaybeUninit::uninit(); 8 * 1024]);
        let mut into = ReadBuf::uninit(&mut room);
        let mut read = |into: &mut ReadBuf<'_>, most| {
            let mut cx = Context::from_waker(Waker::noop());
            inflow.poll_read(Pin::new(&mut far), &mut cx, into, most).map(Result::unwrap)
        };
        assert!(read(&mut into, usize::MAX).is_pending());
        assert!(into.initialized().is_empty());
        near.write_all(b"frame").await.unwrap();
        assert!(read(&mut into, 3).is_ready());
        assert_eq!((into.filled(), into.initialized().len()), (&b"fra"[..], 3));
        assert!(read(&mut into, usize::MAX).is_ready());
        assert_eq!((into.filled(), into.initialized().len()), (&b"frame"[..], 5));
    }

    #[test]
    fn inflow_limit_grows_with_received_bytes() {
        let inflow = Inflow::default();
        assert_eq!(inflow.allowed(), AHEAD);
        inflow.read(AHEAD as usize / 2 * LEAST as usize, AHEAD / 2 - 1);
        assert!(!inflow.is_full());
        inflow.read(0, 40);
        assert!(inflow.is_full());
        inflow.gather();
        assert!(!inflow.is_full());
        inflow.read(1 << 30, MOST / 2);
        assert!(inflow.is_full(), "and no more than that");
    }
}
