//! One stream: what is left of what comes and of what is given, and who waits for it.

use std::task::{Context, Poll, Waker};

use super::Reason;
use super::windows::{RecvWindow, SendWindow};
use crate::codec::body::Backlog;

/// Why there is no more of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// Its connection has ended, or it was reset by this end.
    Gone,
    /// The peer reset it.
    Reset,
    /// What came is malformed.
    Malformed,
    /// The peer reset it and has certainly not heeded it (RFC 9113 section 8.7).
    Refused,
    /// The peer takes no more on this connection, and has certainly not heeded it (the same).
    Untouched,
}

/// A stream that has handles.
#[derive(Debug)]
pub(super) struct Stream<M> {
    /// What its role keeps of it.
    pub(super) message: M,
    pub(super) send: SendWindow,
    pub(super) recv: RecvWindow,
    pub(super) body: Backlog,
    /// What the content-length of what comes says is still to come.
    pub(super) declared: Option<u64>,
    /// Whether all of what comes has come: of the request, at the server.
    pub(super) has_come: bool,
    /// Whether all of what is given is given: of the response, at the server.
    pub(super) is_given: bool,
    /// Whether it was reset by either side, or lost, and why.
    pub(super) is_cut: bool,
    pub(super) why: Cut,
    /// Whether a client has reset it itself, and so may not send more of it (RFC 9113 section 5.1).
    pub(super) is_left: bool,
    /// Whether nobody reads the rest of its body.
    pub(super) is_unwanted: bool,
    /// Whether its window is granted, but that of the connection is not: it has a place in the queue for that.
    pub(super) is_queued: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

impl<M: Default> Stream<M> {
    /// A new one, with the window that the peer gives its streams, and ours.
    pub(super) fn new(send: u32, recv: u32) -> Self {
        Self {
            message: M::default(),
            send: SendWindow::new(send),
            recv: RecvWindow::of_stream(recv),
            body: Backlog::default(),
            declared: None,
            has_come: false,
            is_given: false,
            is_cut: false,
            why: Cut::Gone,
            is_left: false,
            is_unwanted: false,
            is_queued: false,
            reader: None,
            writer: None,
        }
    }

    /// Whether it is closed (RFC 9113 section 5.1), whoever still refers to it.
    pub(super) fn is_closed(&self) -> bool {
        self.is_cut || self.has_come && self.is_given
    }

    /// A DATA frame of this length comes, with so much data. Returns how much of it will be held: what is padding, or
    /// nobody reads, is not; `None`: none of it matters.
    pub(super) fn begin_data(&mut self, length: usize, data: usize) -> Result<Option<usize>, Reason> {
        if self.is_left {
            return Err(Reason::STREAM_CLOSED);
        }
        if self.is_cut {
            // Its peer did not know (RFC 9113 section 5.1).
            return Ok(None);
        }
        if self.has_come {
            return Err(Reason::STREAM_CLOSED);
        }
        self.recv.receive(length)?;
        let held = if self.is_unwanted { 0 } else { data };
        self.recv.release(length - held);
        self.count(data).inspect_err(|_| self.recv.release(held))?;
        Ok(Some(held))
    }

    /// Counts data that comes against the declared length.
    fn count(&mut self, bytes: usize) -> Result<(), Reason> {
        let Some(left) = &mut self.declared else { return Ok(()) };
        *left = left.checked_sub(bytes as u64).ok_or(Reason::PROTOCOL_ERROR)?;
        Ok(())
    }

    /// All of it has come.
    pub(super) fn complete(&mut self) -> Result<(), Reason> {
        if self.declared.is_some_and(|left| left > 0) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        self.has_come = true;
        self.wake_reader();
        Ok(())
    }

    /// There is no more of it in either direction. What has come may be read all the same.
    pub(super) fn cut(&mut self, why: Cut, is_read_on: bool) {
        if !std::mem::replace(&mut self.is_cut, true) {
            self.why = why;
        }
        if !is_read_on {
            self.body = Backlog::default();
        }
        self.wake_reader();
        self.wake_writer();
    }

    pub(super) fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    pub(super) fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}

/// Has the task woken later.
pub(super) fn wait<T>(waker: &mut Option<Waker>, cx: &Context<'_>) -> Poll<T> {
    match waker {
        Some(waker) => waker.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
    Poll::Pending
}
