//! A stream that holds back what is written while its writer may have more, and sends it all together.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::ROOM;

/// Maximum number of slices per system call, including those held back.
const SLICES: usize = 16;

/// Bytes of an incomplete TLS record that every session has room for.
const USUAL: usize = 4 * 1024;

/// The largest record, with its header (RFC 8446 section 5.2). No more of one is held.
const RECORD: usize = 5 + (16 * 1024 + 256);

/// A stream, and data that was written but held back.
///
/// **Invariant:** whoever holds data back also sends it, or writes more, or shuts down: held data never waits for a
/// reader.
#[derive(Debug)]
pub(crate) struct Gathered<S> {
    stream: S,
    held: Vec<u8>,
    until: Until,
    /// The transport is closed next, so its sending side need not be shut down first.
    closes: bool,
    /// Bytes that were read since somebody got something of them.
    untaken: usize,
}

/// What held-back data waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Until {
    /// For nothing.
    Now,
    /// For a read that would block: then the peer has to respond first.
    Silence,
    /// For the shutdown, which follows.
    End,
}

impl<S> Gathered<S> {
    /// For a writer and reader that take turns: everything written between two reads is sent at once.
    pub(crate) fn in_turns(stream: S) -> Self {
        Self { stream, held: Vec::new(), until: Until::Silence, closes: false, untaken: 0 }
    }

    /// Stops taking turns. Held data is sent together with the next write.
    pub(crate) fn at_once(&mut self) {
        self.until = Until::Now;
    }

    /// What is written from here on is the last before the shutdown.
    pub(crate) fn ends(&mut self) {
        self.until = Until::End;
    }

    /// Shutting down will be followed by closing the transport.
    pub(crate) fn closes(&mut self) {
        self.closes = true;
    }

    /// Whether data is held back.
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Bytes of a record that TLS holds until it is complete, if they are more than every session has room for.
    pub(crate) fn untaken(&self) -> usize {
        if self.untaken > USUAL { self.untaken.min(RECORD) } else { 0 }
    }

    /// Something of what was read has been taken: at most the beginning of a record is left.
    pub(super) fn is_taken(&mut self) {
        self.untaken = 0;
    }

    /// The underlying stream.
    pub(crate) fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    /// Sends held data, as far as possible without waiting.
    pub(crate) fn let_go(&mut self) {
        let _ = self.poll_held(&mut Context::from_waker(Waker::noop()));
    }

    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            ready!(self.poll_with_held(&[], cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes held data and some of what follows. Returns how much of the latter.
    fn poll_with_held(&mut self, more: &[IoSlice<'_>], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        slices[0] = IoSlice::new(&self.held);
        let count = more.len().min(SLICES - 1);
        slices[1..=count].copy_from_slice(&more[..count]);
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..=count]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let old = written.min(self.held.len());
        self.held.drain(..old);
        if self.held.is_empty() {
            self.held = Vec::new();
        }
        Poll::Ready(Ok(written - old))
    }

    fn poll_slices(&mut self, slices: &[IoSlice<'_>], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if self.until != Until::Now && self.held.len() + length <= ROOM {
            self.held.reserve_exact(length);
            slices.iter().for_each(|slice| self.held.extend_from_slice(slice));
            return Poll::Ready(Ok(length));
        }
        while !self.held.is_empty() {
            let written = ready!(self.poll_with_held(slices, cx))?;
            if written > 0 || length == 0 {
                return Poll::Ready(Ok(written));
            }
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, into);
        this.untaken = this.untaken.saturating_add(into.filled().len() - before);
        if read.is_pending()
            && this.until == Until::Silence
            && let Poll::Ready(Err(error)) = this.poll_held(cx)
        {
            return Poll::Ready(Err(error));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_slices(&[IoSlice::new(bytes)], cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_slices(slices, cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.until != Until::Now {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_held(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_held(cx))?;
        match this.closes {
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut this.stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// What was received so far.
    fn come(other: &mut tokio::io::DuplexStream) -> Vec<u8> {
        let mut all = vec![0; 64 * 1024];
        let count = other.read(&mut all).now_or_never().map_or(0, Result::unwrap);
        all.truncate(count);
        all
    }

    #[tokio::test]
    async fn gathered_writes_are_sent_before_the_next_read() {
        let (stream, mut other) = duplex(1024);
        let mut stream = Gathered::in_turns(stream);
        stream.write_all(b"one, ").await.unwrap();
        stream.flush().await.unwrap();
        stream.write_all(b"two").await.unwrap();
        assert_eq!(come(&mut other), b"");
        assert!(stream.read_u8().now_or_never().is_none());
        assert_eq!(come(&mut other), b"one, two");
        other.write_all(b"answer").await.unwrap();
        stream.write_all(b"three").await.unwrap();
        assert_eq!(stream.read_u8().now_or_never().unwrap().unwrap(), b'a', "nobody had to wait");
        assert_eq!(come(&mut other), b"");
        stream.at_once();
        stream.write_all(b", four").await.unwrap();
        assert_eq!(come(&mut other), b"three, four");
        stream.write_all(b"five").await.unwrap();
        assert_eq!(come(&mut other), b"five");
    }

    #[tokio::test]
    async fn the_last_of_it_goes_out_with_the_end() {
        let (stream, mut other) = duplex(1024);
        let mut stream = Gathered::in_turns(stream);
        stream.at_once();
        stream.ends();
        stream.write_all(b"last ").await.unwrap();
        stream.write_all(b"word").await.unwrap();
        assert!(come(&mut other).is_empty() && stream.is_holding());
        stream.closes();
        stream.shutdown().await.unwrap();
        assert_eq!(come(&mut other), b"last word");
        assert!(other.read_u8().now_or_never().is_none(), "its close says the end");
    }

    #[tokio::test]
    async fn gathered_writes_keep_their_order_under_backpressure() {
        let (stream, mut other) = duplex(100);
        let mut stream = Gathered::in_turns(stream);
        let bytes: Vec<u8> = (0..3 * ROOM).map(|it| it as u8).collect();
        let writing = async {
            for (number, part) in bytes.chunks(1000).enumerate() {
                match number {
                    20 => stream.at_once(),
                    30 => stream.ends(),
                    _ => {}
                }
                stream.write_all(part).await.unwrap();
                assert!(stream.held.len() <= ROOM);
            }
            stream.shutdown().await.unwrap();
        };
        let mut all = Vec::new();
        let (_, read) = tokio::join!(writing, other.read_to_end(&mut all));
        read.unwrap();
        assert_eq!(all, bytes);
        stream.let_go();
    }
}
