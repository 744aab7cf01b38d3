//! What the tasks of streams do at both ends: make room for more of what they read, and send.

use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};

use super::{Connection, Role};
use crate::codec::h2::Reason;
use crate::codec::h2::stream::{Cut, wait};

impl<R: Role> Connection<R> {
    /// That much of a body was taken: the peer may send more.
    pub(crate) fn release(&mut self, stream: u32, bytes: usize) {
        let Some(it) = self.stream(stream) else { return };
        // What was held of one that was cut may have been released.
        let bytes = bytes.min(it.recv.held());
        it.recv.release(bytes);
        self.recv.release(bytes);
        self.widen_stream(stream);
        if self.recv.is_due() {
            self.wake();
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
            self.role.wrote_data();
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

    fn sendable(&self, stream: u32) -> Result<(), Cut> {
        let place = self.place(stream).ok_or(Cut::Gone)?;
        let it = &self.streams[place].1;
        if it.is_cut || it.is_given { Err(Cut::Gone) } else { Ok(()) }
    }

    /// All of a message is given.
    fn given(&mut self, stream: u32) {
        let Some(it) = self.stream(stream) else { return };
        it.is_given = true;
        if it.has_come {
            self.open -= 1;
            // Who waits for its end may do something else.
            self.wake();
        }
    }

    /// Tells the peer that it may send more of a body, if it is worth it.
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
