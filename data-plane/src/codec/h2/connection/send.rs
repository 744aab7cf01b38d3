//! What the tasks of streams do: read bodies, and respond.

use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};

use super::Connection;
use crate::codec::h2::Reason;
use crate::codec::h2::stream::{Cut, wait};

impl Connection {
    /// So many bytes of a body are still to come, says its head.
    pub(crate) fn declare(&mut self, stream: u32, length: u64) {
        if let Some(it) = self.stream(stream) {
            it.declared = Some(length);
        }
    }

    /// The next piece of a body; `None` at its end.
    pub(crate) fn poll_data(&mut self, stream: u32, cx: &Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let Some(it) = self.stream(stream) else { return Poll::Ready(Some(Err(Cut::Gone))) };
        if let Some(piece) = it.body.pop() {
            return Poll::Ready(Some(Ok(piece)));
        }
        if it.is_cut {
            return Poll::Ready(Some(Err(Cut::Gone)));
        }
        match (it.has_come, it.is_malformed) {
            (true, true) => Poll::Ready(Some(Err(Cut::Malformed))),
            (true, false) => Poll::Ready(None),
            (false, _) => wait(&mut it.reader, cx),
        }
    }

    /// That much of a body was taken: the client may send more.
    pub(crate) fn release(&mut self, stream: u32, bytes: usize) {
        let Some(it) = self.stream(stream) else { return };
        // What is held of one that was cut is released.
        if it.is_cut {
            return;
        }
        it.recv.release(bytes);
        self.recv.release(bytes);
        self.widen_stream(stream);
        if self.recv.is_due() {
            self.wake();
        }
    }

    /// Whether nothing is left of a body.
    pub(crate) fn has_ended(&self, stream: u32) -> bool {
        self.place(stream).is_none_or(|place| {
            let it = &self.streams[place].1;
            it.has_come && it.body.is_empty()
        })
    }

    /// Nobody reads the rest of a body.
    pub(crate) fn drop_body(&mut self, stream: u32) {
        let Some(it) = self.stream(stream) else { return };
        (it.is_unwanted, it.body) = (true, Default::default());
        if !it.is_cut {
            let held = it.recv.held();
            it.recv.release(held);
            self.recv.release(held);
            if self.recv.is_due() {
                self.wake();
            }
        }
        self.drop_handle(stream);
    }

    /// Whether a stream was reset, or its connection has ended.
    pub(crate) fn is_cut(&self, stream: u32) -> bool {
        self.place(stream).is_none_or(|place| self.streams[place].1.is_cut)
    }

    /// Ready when a stream was reset, or its connection has ended.
    pub(crate) fn poll_cut(&mut self, stream: u32, cx: &Context<'_>) -> Poll<()> {
        match self.stream(stream) {
            Some(it) if !it.is_cut => wait(&mut it.writer, cx),
            _ => Poll::Ready(()),
        }
    }

    /// Writes a head, or trailers, by a closure that encodes its fields.
    ///
    /// # Errors
    /// The stream was cut.
    pub(crate) fn fields(
        &mut self,
        stream: u32,
        is_end: bool,
        write: impl FnOnce(&mut BytesMut),
    ) -> Result<(), Cut> {
        self.sendable(stream)?;
        self.put_block(stream, is_end, write);
        if is_end {
            self.given(stream);
        }
        self.wake();
        Ok(())
    }

    /// How much data of a stream may be sent now.
    pub(crate) fn capacity(&self, stream: u32) -> usize {
        let own = self.place(stream).map_or(0, |place| self.streams[place].1.send.size());
        own.min(self.send.size()).min(super::AT_ONCE)
    }

    /// Ready when data of a stream may be sent: how much.
    pub(crate) fn poll_capacity(&mut self, stream: u32, cx: &Context<'_>) -> Poll<Result<usize, Cut>> {
        if let Err(cut) = self.sendable(stream) {
            return Poll::Ready(Err(cut));
        }
        match self.capacity(stream) {
            0 => {
                let is_own = self.stream(stream).is_some_and(|it| it.send.size() == 0);
                if is_own {
                    self.unqueue(stream)
                } else {
                    self.queue(stream)
                }
                match self.stream(stream) {
                    Some(it) => wait(&mut it.writer, cx),
                    None => Poll::Ready(Err(Cut::Gone)),
                }
            }
            room => Poll::Ready(Ok(room)),
        }
    }

    /// Does not wait for the window of the connection any more.
    pub(crate) fn rest(&mut self, stream: u32) {
        self.unqueue(stream);
    }

    /// Sends data, no more than there is [capacity](Self::capacity) for.
    ///
    /// # Errors
    /// The stream was cut.
    pub(crate) fn data(&mut self, stream: u32, piece: Bytes, is_end: bool) -> Result<(), Cut> {
        self.sendable(stream)?;
        self.unqueue(stream);
        if let Some(it) = self.stream(stream) {
            it.send.take(piece.len());
        }
        self.send.take(piece.len());
        if !piece.is_empty() {
            self.frames.sent_data();
        }
        self.out.data(stream, piece, is_end);
        if is_end {
            self.given(stream);
        }
        self.wake();
        Ok(())
    }

    /// Resets a stream, if that is not done; what was given before it is written before it.
    pub(crate) fn reset(&mut self, stream: u32, reason: Reason) {
        if self.stream(stream).is_some_and(|it| !it.is_closed()) {
            self.reset_stream(stream, reason);
        }
    }

    /// Nobody responds any more: a stream that has not ended is reset.
    pub(crate) fn drop_response(&mut self, stream: u32) {
        if self.stream(stream).is_some_and(|it| !it.is_given) {
            self.reset(stream, Reason::CANCEL);
        }
        self.drop_handle(stream);
    }

    fn drop_handle(&mut self, stream: u32) {
        let Some(it) = self.stream(stream) else { return };
        it.handles -= 1;
        if it.handles > 0 {
            return;
        }
        // The response was complete before the request (RFC 9113 section 8.1).
        self.reset(stream, Reason::NO_ERROR);
        if let Some(place) = self.place(stream) {
            self.streams.remove(place);
        }
    }

    fn sendable(&self, stream: u32) -> Result<(), Cut> {
        let place = self.place(stream).ok_or(Cut::Gone)?;
        let it = &self.streams[place].1;
        if it.is_cut || it.is_given { Err(Cut::Gone) } else { Ok(()) }
    }

    /// All of a response is given.
    fn given(&mut self, stream: u32) {
        let Some(it) = self.stream(stream) else { return };
        it.is_given = true;
        if it.has_come {
            self.open -= 1;
            // Who waits for its end may do something else.
            self.wake();
        }
    }

    /// Tells the client that it may send more of a body, if it is worth it.
    pub(super) fn widen_stream(&mut self, stream: u32) {
        if let Some(it) = self.stream(stream)
            && !(it.is_cut || it.has_come || it.is_unwanted)
            && let Some(by) = it.recv.growth()
        {
            self.out.window_update(stream, by);
            self.wake();
        }
    }
}
