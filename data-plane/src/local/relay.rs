//! Bytes in both directions between two streams, as they come. What one side has said and the other does not take is
//! reckoned with what is held for clients, and the first side is read no further.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Local;
use super::buffers::Buffers;
use super::quota::{Quota, Share};
use super::timer::Timer;
use crate::codec::stream::{ROOM, Stream, poll_fill};

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
        let sent = up.poll(&mut *client, &mut *endpoint, (&local.buffers, &local.quota), cx);
        let received = down.poll(&mut *endpoint, &mut *client, (&local.buffers, &local.quota), cx);
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
    outcome
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
    /// That of the buffer, while nobody takes what is in it.
    share: Option<Share>,
    state: State,
    unflushed: bool,
    /// Bytes written.
    moved: u64,
}

impl Direction {
    fn new(buffer: BytesMut) -> Self {
        Self { buffer, share: None, state: State::Open, unflushed: false, moved: 0 }
    }

    /// Moves what can be moved. Ready when the source has finished and the sink knows.
    fn poll<F, T>(
        &mut self,
        from: &mut F,
        to: &mut T,
        lent: (&Buffers, &Rc<Quota>),
        cx: &mut Context<'_>,
    ) -> io::Result<Poll<()>>
    where
        F: AsyncRead + Unpin,
        T: AsyncWrite + Unpin,
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
        lent: (&Buffers, &Rc<Quota>),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>>
    where
        F: AsyncRead + Unpin,
        T: AsyncWrite + Unpin,
    {
        let (buffers, quota) = lent;
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
                State::Open => {}
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
}

#[cfg(test)]
mod tests {
    use shared::budget::Budget;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn one_direction_copies_and_ends() {
        let buffers = Buffers::new();
        let (mut source, mut from) = duplex(7);
        let (mut to, mut sink) = duplex(5);
        let mut direction = Direction::new(BytesMut::from(&b"left over, "[..]));
        let writing = async {
            source.write_all(b"and what follows").await.unwrap();
            drop(source);
        };
        let quota = Quota::new(Budget::new(1 << 20));
        let copying = poll_fn(|cx| direction.step(&mut from, &mut to, (&buffers, &quota), cx));
        let mut seen = String::new();
        let reading = sink.read_to_string(&mut seen);
        let ((), copied, read) = tokio::join!(writing, copying, reading);
        copied.unwrap();
        read.unwrap();
        assert_eq!(seen, "left over, and what follows");
        assert_eq!(direction.moved, seen.len() as u64);
        assert_eq!(direction.buffer.capacity(), 0);
    }

    #[tokio::test]
    async fn what_nobody_takes_is_reckoned_and_without_room_the_relay_ends() {
        let buffers = Buffers::new();
        for room in [1 << 20, 100] {
            let quota = Quota::new(Budget::new(room));
            let (mut source, mut from) = duplex(64 * 1024);
            let (mut to, mut sink) = duplex(5);
            let mut direction = Direction::new(BytesMut::new());
            source.write_all(&[b'x'; 1_000]).await.unwrap();
            let step =
                poll_fn(|cx| Poll::Ready(direction.step(&mut from, &mut to, (&buffers, &quota), cx))).await;
            if room < ROOM {
                let Poll::Ready(Err(error)) = step else { panic!("it goes on without room: {step:?}") };
                assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
                continue;
            }
            assert!(step.is_pending());
            assert!(quota.held() >= 995, "{} bytes are held", quota.held());
            drop(source);
            let mut seen = Vec::new();
            let copying = poll_fn(|cx| direction.step(&mut from, &mut to, (&buffers, &quota), cx));
            let (copied, read) = tokio::join!(copying, sink.read_to_end(&mut seen));
            copied.unwrap();
            read.unwrap();
            assert_eq!((seen.len(), quota.held()), (1_000, 0));
        }
    }
}
