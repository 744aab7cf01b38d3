//! Byte streams to clients, plain or TLS, and reading from them into buffers.

use std::any::Any;
use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::AsFd as _;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{client, server::TlsStream};

pub(crate) use frames::FrameWriter;
pub(crate) use gathered::Gathered;
pub(crate) use socket::Socket;
#[cfg(test)]
pub(crate) use unacknowledged::tests::read_a_little;
pub(crate) use unacknowledged::unacknowledged;

mod frames;
mod gathered;
mod socket;
mod unacknowledged;

/// Initial capacity of a buffer in bytes.
pub(crate) const ROOM: usize = 16 * 1024;

/// Capacity in bytes for the next read if the last one filled the buffer.
pub(crate) const LARGE: usize = 64 * 1024;

/// Bytes of its next request that are read ahead while a client waits for a response.
const AHEAD: usize = 4 * 1024;

/// A connection whose TLS is terminated here. Boxed, because each await may hold a copy of what it owns.
pub(crate) type Tls = Box<TlsStream<Gathered<Prefixed<Socket>>>>;

/// A connection to an endpoint over TLS, boxed for the same reason.
pub(crate) type EndpointTls = Box<client::TlsStream<TcpStream>>;

/// A connection to a client or, in a tunnel, to an endpoint: plain or TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + 'static {
    /// The socket itself, registered with the runtime, if its bytes are those of the connection.
    fn socket(&mut self) -> Option<&TcpStream>;

    /// Whether it is such a socket, registered or not.
    fn is_socket(&self) -> bool;

    /// Whether it is a socket whose end is not watched.
    fn is_unwatched(&self) -> bool;

    /// Whether something came to the socket, below TLS or not, that nobody has read.
    fn has_unread(&mut self) -> bool;

    /// Whether the other end of the socket has closed its half of it, and all that it had sent was read.
    fn has_ended(&mut self) -> bool;

    /// Writes bytes that are the last ones before the connection is closed or shut down: the end of them may leave
    /// only with the end of the connection, in the same segment.
    fn poll_write_last(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// The stream below TLS.
    fn below_tls(&mut self) -> Option<&mut Gathered<Prefixed<Socket>>>;

    /// Bytes of an incomplete record that TLS holds, if they are many.
    fn incomplete(&mut self) -> usize;

    /// Has the close reset the connection: what was sent must not be taken for complete.
    fn resets(&mut self);

    /// How many bytes its socket, below TLS or not, has accepted and the other end has not acknowledged; `None`: it has
    /// no socket.
    fn unacknowledged(&mut self) -> Option<usize>;
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Stream for S {
    fn socket(&mut self) -> Option<&TcpStream> {
        let any = self as &mut dyn Any;
        match any.is::<Socket>() {
            true => any.downcast_mut::<Socket>()?.registered().ok().map(|stream| &*stream),
            false => any.downcast_ref(),
        }
    }

    fn is_socket(&self) -> bool {
        let any = self as &dyn Any;
        any.is::<Socket>() || any.is::<TcpStream>()
    }

    fn is_unwatched(&self) -> bool {
        (self as &dyn Any).downcast_ref::<Socket>().is_some_and(Socket::is_unwatched)
    }

    fn has_unread(&mut self) -> bool {
        client_socket(self).is_some_and(|socket| socket.has_unread_now())
    }

    fn has_ended(&mut self) -> bool {
        client_socket(self).is_some_and(|socket| socket.has_ended_now())
    }

    fn poll_write_last(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match (self as &mut dyn Any).downcast_mut::<Socket>() {
            Some(socket) => socket.poll_write_last(cx, slices),
            None => Pin::new(self).poll_write_vectored(cx, slices),
        }
    }

    fn below_tls(&mut self) -> Option<&mut Gathered<Prefixed<Socket>>> {
        Some((self as &mut dyn Any).downcast_mut::<Tls>()?.get_mut().0)
    }

    fn incomplete(&mut self) -> usize {
        self.below_tls().map_or(0, |below| below.untaken())
    }

    fn resets(&mut self) {
        if let Some(socket) = client_socket(self) {
            socket.reset_on_close();
        }
    }

    fn unacknowledged(&mut self) -> Option<usize> {
        let any = self as &dyn Any;
        if let Some(socket) = any.downcast_ref::<TcpStream>() {
            return unacknowledged(socket.as_fd());
        }
        if let Some(tls) = any.downcast_ref::<EndpointTls>() {
            return unacknowledged(tls.get_ref().0.as_fd());
        }
        unacknowledged(client_socket(self)?.fd()?)
    }
}

/// The socket of a client connection, below TLS or not.
fn client_socket<S: Stream>(stream: &mut S) -> Option<&mut Socket> {
    match (stream as &dyn Any).is::<Socket>() {
        true => (stream as &mut dyn Any).downcast_mut(),
        false => Some(stream.below_tls()?.get_mut().get_mut()),
    }
}

/// Writes to a stream what is the [last](Stream::poll_write_last) before its end.
pub(crate) struct Last<'s, S>(pub(crate) &'s mut S);

impl<S: Stream> AsyncWrite for Last<'_, S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().0.poll_write_last(cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().0.poll_write_last(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}

/// Reads more into a buffer that has room. Returns the number of bytes, 0 at the end of the stream.
pub(crate) fn poll_fill<S: AsyncRead + Unpin + 'static>(
    stream: &mut S,
    buffer: &mut impl BufMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    // The future keeps no state between polls, so dropping it loses nothing.
    match ready!(pin!(stream.read_buf(buffer)).poll(cx)) {
        // A TLS peer that closed without close_notify; for HTTP that is an ordinary end of stream.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(0)),
        outcome => {
            if let Some(tls) = (stream as &mut dyn Any).downcast_mut::<Tls>() {
                tls.get_mut().0.is_taken();
            }
            Poll::Ready(outcome)
        }
    }
}

/// Makes sure that a read is worth its system call. The rest of a buffer is used first: a head at its front is still
/// referenced, so more capacity would be a new allocation.
pub(crate) fn make_room(buffer: &mut BytesMut) {
    const ENOUGH: usize = ROOM / 8;
    if buffer.capacity() - buffer.len() < ENOUGH {
        buffer.reserve(ROOM);
    }
}

/// Ready when a client disconnects while it waits for a response. Meanwhile it may send its next request: a little of
/// that is read ahead, into the rest of its buffer if it fits.
///
/// As in nginx, a client that closes its half of the connection is considered gone. One that only ends its half of TLS
/// is not: it sends no further request, but waits for the response (RFC 8446 section 6.1).
pub(crate) fn poll_gone<S: Stream>(stream: &mut S, input: &mut BytesMut, cx: &mut Context<'_>) -> Poll<()> {
    while input.len() < AHEAD {
        let room = AHEAD - input.len();
        input.reserve(room);
        match ready!(poll_fill(stream, &mut (&mut *input).limit(room), cx)) {
            Ok(0) => return stream.below_tls().map_or(Poll::Ready(()), |below| poll_end(below, cx)),
            Err(_) => return Poll::Ready(()),
            Ok(_) => {}
        }
    }
    Poll::Pending
}

/// Ready at the end of a stream. What arrives before it is discarded.
fn poll_end<S: AsyncRead + Unpin>(stream: &mut S, cx: &mut Context<'_>) -> Poll<()> {
    let mut nobody = [0; 64];
    loop {
        let mut into = ReadBuf::new(&mut nobody);
        match ready!(Pin::new(&mut *stream).poll_read(cx, &mut into)) {
            Ok(()) if !into.filled().is_empty() => {}
            _ => return Poll::Ready(()),
        }
    }
}

/// A stream whose first bytes were read already.
#[derive(Debug)]
pub(crate) struct Prefixed<S> {
    prefix: BytesMut,
    stream: S,
}

impl<S> Prefixed<S> {
    /// Returns `prefix` first, then what the stream has.
    pub(crate) fn new(prefix: BytesMut, stream: S) -> Self {
        Self { prefix, stream }
    }

    /// The underlying stream.
    pub(crate) fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { prefix, stream } = self.get_mut();
        if prefix.is_empty() {
            return Pin::new(stream).poll_read(cx, into);
        }
        let some = prefix.len().min(into.remaining());
        into.put_slice(&prefix[..some]);
        prefix.advance(some);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    /// A client that requests something slow and keeps sending costs little more than its request.
    #[tokio::test]
    async fn bytes_after_a_request_are_read_ahead_up_to_a_limit() {
        let (mut near, mut far) = duplex(1 << 20);
        near.write_all(&vec![b'x'; 1 << 20]).await.unwrap();
        for (length, most) in [(100, ROOM - 100), (ROOM - 100, AHEAD)] {
            let mut input = BytesMut::new();
            input.reserve(ROOM);
            input.extend_from_slice(&vec![b'h'; length]);
            // It is in use until the response has been sent.
            let head = input.split().freeze();
            for _ in 0..2 {
                let gone = std::future::poll_fn(|cx| Poll::Ready(poll_gone(&mut far, &mut input, cx)));
                assert!(gone.await.is_pending());
                assert_eq!((head.len(), input.len()), (length, AHEAD));
                assert!(input.capacity() <= most, "{} bytes behind {length}", input.capacity());
            }
        }
    }
}
