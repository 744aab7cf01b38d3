//! Bytes in both directions between two streams, as they come. What one side has said and the other does not take is
//! reckoned with what is held for clients, and the first side is read no further.
//!
//! From some bytes on what passes from socket to socket is not read: it goes through a pipe of the kernel's.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::Local;
use super::buffers::Buffers;
use super::pipes::{Filled, Pipe, Pipes};
use super::quota::{Quota, Share};
use super::stint::{STINT, poll_others};
use super::timer::Timer;
use crate::codec::stream::{ROOM, Stream, poll_fill};
use bytes::{Buf, BytesMut};

/// Bytes that one direction has moved before it is given a pipe: most never have so many, and who says little is served with
/// fewer calls by a read and a write.
const PLENTY: u64 = 128 * 1024;

/// A stream, and what was read of it already.
pub(crate) struct End<'a, S> {
    pub(crate) stream: &'a mut S,
    pub(crate) input: BytesMut,
}

/// Bytes that went on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moved {
    /// From the client.
    pub(crate) up: u64,
    /// To the client.
    pub(crate) down: u64,
}

/// Copies until both directions are over, one has failed, or nothing has passed in either for so long. `told` hears as
/// they go of the bytes that went on since it was told last: a relay may be cut at any moment.
///
/// # Errors
/// Why it was cut.
pub(crate) async fn relay<C: Stream, E: Stream>(
    (local, timer): (&Local, &Timer),
    client: End<'_, C>,
    endpoint: End<'_, E>,
    idle: Duration,
    mut told: impl FnMut(Moved),
) -> io::Result<()> {
    let (mut up, mut down) = (Direction::new(client.input), Direction::new(endpoint.input));
    let (client, endpoint) = (client.stream, endpoint.stream);
    timer.arm(idle);
    let outcome: io::Result<()> = poll_fn(|cx| {
        let before = Moved { up: up.moved, down: down.moved };
        let sent = up.poll(&mut *client, &mut *endpoint, Lent::by(local), cx);
        let received = down.poll(&mut *endpoint, &mut *client, Lent::by(local), cx);
        let moved = Moved { up: up.moved - before.up, down: down.moved - before.down };
        told(moved);
        let (sent, received) = (sent?, received?);
        if sent.is_ready() && received.is_ready() {
            return Poll::Ready(Ok(()));
        }
        if moved != Moved::default() {
            timer.arm(idle);
        }
        timer.poll_elapsed(cx).map(|_| Err(io::ErrorKind::TimedOut.into()))
    })
    .await;
    timer.disarm();
    local.buffers.give_input(up.buffer);
    local.buffers.give_input(down.buffer);
    // One that is not empty is closed.
    [up.pipe, down.pipe].into_iter().flatten().for_each(|pipe| local.pipes.give(pipe));
    outcome
}

/// What the worker lends a direction.
#[derive(Clone, Copy)]
struct Lent<'a> {
    buffers: &'a Buffers,
    quota: &'a Rc<Quota>,
    pipes: &'a Pipes,
}

impl<'a> Lent<'a> {
    fn by(local: &'a Local) -> Self {
        Self { buffers: &local.buffers, quota: &local.quota, pipes: &local.pipes }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// The source has finished; what is left goes out, then the sink is told.
    Finishing,
    Over,
}

/// One direction.
struct Direction {
    /// Read and not written yet. Without memory when empty.
    buffer: BytesMut,
    /// What passes without being read. Empty while the buffer is not.
    pipe: Option<Pipe>,
    /// That of the two, while nobody takes what is in them.
    share: Option<Share>,
    state: State,
    unflushed: bool,
    /// Bytes written.
    moved: u64,
}

impl Direction {
    fn new(buffer: BytesMut) -> Self {
        Self { buffer, pipe: None, share: None, state: State::Open, unflushed: false, moved: 0 }
    }

    /// Moves what can be moved. Ready when the source has finished and the sink knows.
    fn poll<F, T>(
        &mut self,
        from: &mut F,
        to: &mut T,
        lent: Lent<'_>,
        cx: &mut Context<'_>,
    ) -> io::Result<Poll<()>>
    where
        F: Stream,
        T: Stream,
    {
        match self.step(from, to, lent, cx) {
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    fn step<F, T>(
        &mut self,
        from: &mut F,
        to: &mut T,
        lent: Lent<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>>
    where
        F: Stream,
        T: Stream,
    {
        let Lent { buffers, quota, .. } = lent;
        let begun = self.moved;
        loop {
            while !self.buffer.is_empty() {
                let Poll::Ready(written) = Pin::new(&mut *to).poll_write(cx, &self.buffer) else {
                    if self.share.is_none() {
                        let share = quota.take(self.buffer.capacity());
                        self.share = Some(share.ok_or(io::ErrorKind::OutOfMemory)?);
                    }
                    return Poll::Pending;
                };
                let count = written?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.buffer.advance(count);
                self.moved += count as u64;
                self.unflushed = true;
            }
            self.share = None;
            match self.state {
                State::Over => return Poll::Ready(Ok(())),
                State::Finishing => {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.state = State::Over;
                    continue;
                }
                State::Open if self.moved - begun >= STINT => return poll_others(cx),
                State::Open => {}
            }
            if self.moved >= PLENTY
                && let Some(ended) = ready!(self.poll_pass(from, to, lent, cx))?
            {
                self.state = if ended { State::Finishing } else { State::Open };
                continue;
            }
            if self.buffer.capacity() == 0 {
                self.buffer = buffers.input();
            }
            self.buffer.reserve(ROOM);
            match poll_fill(from, &mut self.buffer, cx)? {
                Poll::Ready(0) => {
                    buffers.give_input(std::mem::take(&mut self.buffer));
                    self.state = State::Finishing;
                }
                Poll::Ready(_) => {}
                Poll::Pending => {
                    buffers.give_input(std::mem::take(&mut self.buffer));
                    if self.unflushed {
                        ready!(Pin::new(&mut *to).poll_flush(cx))?;
                        self.unflushed = false;
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Moves what is there from socket to socket, once; gives whether that was the end. `None`: it has to be read.
    fn poll_pass<F: Stream, T: Stream>(
        &mut self,
        from: &F,
        to: &T,
        Lent { quota, pipes, .. }: Lent<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<bool>>> {
        let (Some(from), Some(to)) = (from.socket(), to.socket()) else {
            return Poll::Ready(Ok(None));
        };
        let Some(mut pipe) = self.pipe.take().or_else(|| pipes.take()) else {
            return Poll::Ready(Ok(None));
        };
        if pipe.held() == 0 {
            match pipe.poll_fill(from, usize::MAX, cx) {
                Poll::Ready(Ok(Filled::With(count))) if count > 0 => {}
                // Who waits for more has none.
                outcome => {
                    pipes.give(pipe);
                    return match outcome {
                        Poll::Ready(Ok(Filled::With(_))) => Poll::Ready(Ok(Some(true))),
                        Poll::Ready(Ok(Filled::Unsure)) => Poll::Ready(Ok(None)),
                        Poll::Ready(Ok(Filled::Unable)) => {
                            pipes.give_up();
                            Poll::Ready(Ok(None))
                        }
                        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
        let before = pipe.held();
        let drained = pipe.poll_drain(to, cx);
        self.moved += (before - pipe.held()) as u64;
        if drained.is_pending() && self.share.is_none() {
            self.share = Some(quota.take(before).ok_or(io::ErrorKind::OutOfMemory)?);
        }
        self.pipe = Some(pipe);
        ready!(drained)?;
        self.share = None;
        Poll::Ready(Ok(Some(false)))
    }
}

#[cfg(test)]
mod tests;
