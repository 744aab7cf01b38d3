//! The bytes of a connection to an endpoint, plain or in TLS.

use std::io::{self, IoSlice, Read};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use std::mem::MaybeUninit;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::codec::stream::{EndpointTls, unacknowledged};

/// Maximum number of reads to learn whether a connection over TLS is quiet. The runtime does not count them and gives
/// nobody else a turn, so an endpoint that goes on sending tickets would keep the worker. Those of a handshake take one
/// or two.
const READS: usize = 16;

/// A connection's bytes.
#[derive(Debug)]
pub(crate) enum Wire {
    /// Plain.
    Plain(TcpStream),
    /// TLS, after the handshake.
    Tls(EndpointTls),
}

impl Wire {
    /// The socket itself, if its bytes are those of the connection.
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(_) => None,
        }
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Ends the connection if sent data is not acknowledged for this long. No effect if the kernel does not support
    /// that.
    pub(super) fn ends_unacknowledged(&self, after: Duration) {
        let _ = SockRef::from(self.tcp()).set_tcp_user_timeout(Some(after));
    }

    /// How many bytes its socket has accepted and the endpoint has not acknowledged; `None`: the kernel does not say.
    pub(super) fn unacknowledged(&self) -> Option<usize> {
        unacknowledged(self.tcp().as_fd())
    }

    /// Ready when a read is worth a buffer. For TLS that is not known before reading.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => stream.poll_read_ready(cx),
            Self::Tls(_) => Poll::Ready(Ok(())),
        }
    }

    /// Ready when there is something to read, if only the end. TLS messages such as tickets are processed and ignored.
    pub(crate) fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if matches!(self, Self::Tls(_)) && !self.is_quiet() {
                return Poll::Ready(());
            }
            ready!(self.tcp().poll_read_ready(cx).map(|_| ()));
            if matches!(self, Self::Plain(_)) {
                return Poll::Ready(());
            }
        }
    }

    /// Whether the peer has neither closed it nor sent anything; no system call unless epoll has reported something.
    /// TLS messages such as tickets are processed and ignored, unless they go on and on.
    pub(super) fn is_quiet(&mut self) -> bool {
        match self {
            Self::Plain(stream) => would_block(&stream.try_read(&mut [0])),
            Self::Tls(stream) => {
                let (tcp, session) = stream.get_mut();
                for _ in 0..READS {
                    match session.process_new_packets() {
                        Ok(state) if state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {}
                        _ => return false,
                    }
                    match session.read_tls(&mut Now(tcp)) {
                        Ok(count) if count > 0 => {}
                        read => return would_block(&read),
                    }
                }
                // Who reads next finds an error again, but waits for the socket if there is no data: none may be left
                // unprocessed.
                let _ = session.process_new_packets();
                false
            }
        }
    }

    /// Whether the kernel currently has nothing to read, which the runtime may not know yet. One system call.
    pub(super) fn is_quiet_now(&self) -> bool {
        let mut one = [MaybeUninit::uninit()];
        would_block(&SockRef::from(self.tcp()).peek(&mut one))
    }
}

fn would_block(read: &io::Result<usize>) -> bool {
    matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Reads what is available, without registering a waker.
struct Now<'a>(&'a TcpStream);

impl Read for Now<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

#[cfg(test)]
mod tests;
