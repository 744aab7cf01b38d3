//! Relays bytes in both directions between two streams. Bytes that one side has sent and the other has not taken are
//! counted in the budget for what is held for clients, and meanwhile the first side is not read.
//!
//! After a certain number of bytes, data between two sockets is not read any more: it goes through a kernel pipe.

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
use super::stall::Stall;
use super::stint::{STINT, poll_others};
use super::timer::Timer;
use crate::codec::stream::{ROOM, Stream, poll_fill};
use bytes::{Buf, BytesMut};

/// Bytes after which a direction gets a pipe: most never reach that, and small amounts need fewer calls with read and
/// write.
const PLENTY: u64 = 128 * 1024;

/// A stream, and the bytes that were already read from it.
pub(crate) struct End<'a, S> {
    pub(crate) stream: &'a mut S,
    pub(crate) input: BytesMut,
}

/// Numbers of relayed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moved {
    /// From the client.
    pub(crate) up: u64,
    /// To the client.
    pub(crate) down: u64,
}

/// How long a relay may stand still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Idle {
    /// While neither side says anything, or the endpoint takes nothing.
    pub(crate) silent: Duration,
    /// While the client takes nothing of what the endpoint has sent.
    pub(crate) untaken: Duration,
}

impl Idle {
    /// The same for both.
    pub(crate) fn of(time: Duration) -> Self {
        Self { silent: time, untaken: time }
    }
}

/// Relays until both directions have ended, one has failed, or both were idle for too long. `told` is called along the
/// way with the bytes relayed since its last call, because a relay may be cut at any moment.
///
/// # Errors
/// Why it was cut.
pub(crate) async fn relay<C: Stream, E: Stream>(
    (local, timer): (&Local, &Timer),
    client: End<'_, C>,
    endpoint: End<'_, E>,
    idle: Idle,
    mut told: impl FnMut(Moved),
) -> io::Result<()> {
    let (mut up, mut down) = (Direction::new(client.input), Direction::new(endpoint.input));
    let (client, endpoint) = (client.stream, endpoint.stream);
    let (mut is_untaken, mut stall) = (false, Stall::new());
    stall.begin(timer, idle.silent, None);
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
        // What one side still takes of what the kernel has is not silence.
        let mut of_both =
            || Some(client.unacknowledged().unwrap_or(0) + endpoint.unacknowledged().unwrap_or(0));
        if moved != Moved::default() || is_untaken != down.is_held() {
            is_untaken = down.is_held();
            match is_untaken {
                true => stall.begin(timer, idle.untaken, of_both()),
                false => stall.begin(timer, idle.silent, None),
            }
        }
        stall.poll_over(timer, cx, of_both).map(|()| Err(io::ErrorKind::TimedOut.into()))
    })
    .await;
    timer.disarm();
    local.buffers.give_input(up.buffer);
    local.buffers.give_input(down.buffer);
    // A pipe that is not empty is closed.
    [up.pipe, down.pipe].into_iter().flatten().for_each(|pipe| local.pipes.give(pipe));
    outcome
}

/// The worker's resources that a direction uses.
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
    /// The source has ended; the rest is written, then the sink is shut down.
    Finishing,
    Over,
}

/// One direction.
struct Direction {
    /// Bytes that were read but not written yet. Without memory when empty.
    buffer: BytesMut,
    /// Data that passes without being read. Empty while the buffer is not.
    pipe: Option<Pipe>,
    /// The budget share of both, while their data is not taken.
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

    /// Whether the sink does not take what was read.
    fn is_held(&self) -> bool {
        self.share.is_some()
    }

    /// Moves what can be moved. Ready when the source has ended and the sink was shut down.
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
            // It has less capacity after each write, and as much memory.
            let room = self.buffer.capacity();
            if self.poll_write(to, cx)?.is_pending() {
                if !quota.cover(&mut self.share, room) {
                    return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
                }
                return Poll::Pending;
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
                    return Poll::Pending;
                }
            }
        }
    }

    /// Writes what was read. TLS holds what its socket does not accept, as much as a large buffer, so nothing more is
    /// read before that was sent.
    fn poll_write<T: Stream>(&mut self, to: &mut T, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.buffer.is_empty() {
            let count = ready!(Pin::new(&mut *to).poll_write(cx, &self.buffer))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.buffer.advance(count);
            self.moved += count as u64;
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(to).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Moves available data from socket to socket, once; returns whether that was the end. `None`: it has to be read.
    fn poll_pass<F: Stream, T: Stream>(
        &mut self,
        from: &mut F,
        to: &mut T,
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
                // A direction that waits holds no pipe.
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
