//! Pipes that keep a request body: it goes from the client's socket to an endpoint's without being copied to user
//! space, and remains for another endpoint.
//!
//! **Invariant:** bytes leave a pipe in the order in which they came, and a full pipe is never taken for a socket without
//! data.

use std::io;
use std::mem::MaybeUninit;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, tee};
use shared::budget::{Budget, Held};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::{Pipe, Pipes, is_passing, is_unable};
use crate::codec::stream::LARGE;

/// Capacity of each in bytes, the kernel's default maximum. It has as many slots as pages fit, and a segment of any size
/// can take one.
pub(crate) const ROOM: usize = 1024 * 1024;

/// Makes these pipes. None is kept for reuse: the kernel counts even an empty one in full.
#[derive(Debug)]
pub(crate) struct BodyPipes {
    number: Budget,
    pipes: Pipes,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct BodyPipe {
    pipe: Pipe,
    /// Bytes that were put in.
    length: usize,
    _one: Held,
}

/// The result of adding to a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Added {
    /// This many bytes. Zero: the stream has ended.
    Bytes(usize),
    /// Nothing, although there is more: the pipe is full, or the data can only be read (as in [`super::Filled::Unsure`]).
    Nothing,
    /// The kernel does not support it.
    Unable,
}

impl BodyPipes {
    /// At most this number of pipes. `descriptors` is shared with connections.
    pub(crate) fn new(number: Budget, descriptors: Budget) -> Self {
        Self { number, pipes: Pipes::new(descriptors) }
    }

    /// An empty pipe; `None` if there are enough, descriptors are not plentiful or the kernel makes none as large.
    pub(crate) fn make(&self) -> Option<Box<BodyPipe>> {
        if self.pipes.are_useless.get() {
            return None;
        }
        let one = self.number.take(1)?;
        let pipe = self.pipes.open(|| {
            let (reads, writes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            fcntl_setpipe_size(&writes, ROOM)?;
            Ok((reads, writes))
        })?;
        // Boxed: few requests have one.
        Some(Box::new(BodyPipe { pipe, length: 0, _one: one }))
    }

    /// A pipe with the same contents, which also stay where they are; `None` if there is none.
    pub(crate) fn copy(&self, of: &BodyPipe) -> Option<Box<BodyPipe>> {
        let mut copy = self.make()?;
        let count = tee(&of.pipe.reads, &copy.pipe.writes, of.held(), SpliceFlags::NONBLOCK).ok()?;
        (copy.pipe.held, copy.length) = (count, count);
        (count == of.held()).then_some(copy)
    }

    /// Makes none any more, because the kernel does not support splicing.
    pub(crate) fn give_up(&self) {
        self.pipes.give_up();
    }
}

impl BodyPipe {
    /// Bytes that are in it.
    pub(crate) fn held(&self) -> usize {
        self.pipe.held
    }

    /// Bytes that were taken out.
    pub(crate) fn taken(&self) -> usize {
        self.length - self.pipe.held
    }

    /// Moves data from a socket behind what is in it, at most `most` bytes.
    ///
    /// # Errors
    /// The socket's error.
    pub(crate) fn poll_add(
        &mut self,
        from: &TcpStream,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Added>> {
        let writes = &self.pipe.writes;
        let moved = || splice(from, None, writes, None, most, SpliceFlags::NONBLOCK);
        let moves = || match moved() {
            Err(Errno::AGAIN) => {
                // Without data, too, this would block.
                SockRef::from(from).peek(&mut [MaybeUninit::uninit()])?;
                match moved() {
                    Err(Errno::AGAIN) => Ok(Added::Nothing),
                    moved => Ok(Added::Bytes(moved?)),
                }
            }
            moved => Ok(Added::Bytes(moved?)),
        };
        loop {
            ready!(from.poll_read_ready(cx))?;
            return Poll::Ready(match from.try_io(Interest::READABLE, moves) {
                Err(error) if is_passing(&error) => continue,
                Err(error) if is_unable(&error) => Ok(Added::Unable),
                Ok(Added::Bytes(count)) => {
                    self.pipe.held += count;
                    self.length += count;
                    Ok(Added::Bytes(count))
                }
                added => added,
            });
        }
    }

    /// Sends everything that is in it.
    ///
    /// # Errors
    /// The socket's error.
    pub(crate) fn poll_drain(&mut self, to: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.poll_drain(to, cx)
    }

    /// Takes the next piece out of it; `None` if it is empty.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn read(&mut self) -> io::Result<Option<Bytes>> {
        if self.held() == 0 {
            return Ok(None);
        }
        let mut piece = Vec::with_capacity(self.held().min(LARGE));
        let count = rustix::io::read(&self.pipe.reads, spare_capacity(&mut piece))?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.pipe.held -= count;
        Ok(Some(piece.into()))
    }
}

#[cfg(test)]
mod tests;
