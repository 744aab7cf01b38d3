//! The socket of a client connection, which is registered with the runtime only while it is in use.

use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::mem;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A socket that is registered with the runtime only when something has to be waited for.
#[derive(Debug)]
pub(crate) struct Socket(State);

#[derive(Debug)]
enum State {
    /// Registered with the runtime.
    Known(TcpStream),
    /// Not registered, or polled by someone else.
    Unknown(std::net::TcpStream),
    /// Lost in transition: the kernel could not register it.
    Lost,
}

impl Socket {
    /// Deregisters it from the runtime. Returns what another poller can watch.
    ///
    /// # Errors
    /// It could not be deregistered: the socket is lost.
    pub(crate) fn forget(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.0 = match mem::replace(&mut self.0, State::Lost) {
            State::Known(stream) => State::Unknown(stream.into_std()?),
            other => other,
        };
        match &self.0 {
            State::Unknown(stream) => Ok(stream.as_fd()),
            State::Known(_) | State::Lost => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Converts it into a socket of the standard library.
    ///
    /// # Errors
    /// As [`Self::forget`].
    pub(crate) fn into_std(mut self) -> io::Result<std::net::TcpStream> {
        self.forget()?;
        match self.0 {
            State::Unknown(stream) => Ok(stream),
            State::Known(_) | State::Lost => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// The runtime's socket, if it is registered.
    pub(crate) fn as_known(&self) -> Option<&TcpStream> {
        match &self.0 {
            State::Known(stream) => Some(stream),
            State::Unknown(_) | State::Lost => None,
        }
    }

    fn known(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if matches!(self.0, State::Unknown(_))
            && let State::Unknown(stream) = mem::replace(&mut self.0, State::Lost)
        {
            self.0 = State::Known(TcpStream::from_std(stream)?);
        }
        match &mut self.0 {
            State::Known(stream) => Ok(Pin::new(stream)),
            State::Unknown(_) | State::Lost => Err(ErrorKind::NotConnected.into()),
        }
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self(State::Known(stream))
    }
}

impl From<std::net::TcpStream> for Socket {
    /// A non-blocking socket.
    fn from(stream: std::net::TcpStream) -> Self {
        Self(State::Unknown(stream))
    }
}

impl AsyncRead for Socket {
    /// If it is not registered, the kernel is asked first: available data is read at once, without waiting for the
    /// runtime.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let State::Unknown(stream) = &this.0 {
            match (&*stream).read(into.initialize_unfilled()) {
                Ok(count) => {
                    into.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        this.known()?.poll_read(cx, into)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().known()?.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().known()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().known()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().known()?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream as Client};

    use futures::poll;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// An unregistered socket, and its client.
    fn unknown() -> (Socket, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut socket = Socket::from(TcpStream::from_std(stream).unwrap());
        socket.forget().unwrap();
        (socket, client)
    }

    #[tokio::test]
    async fn received_bytes_are_read_at_once() {
        let (mut socket, mut client) = unknown();
        client.write_all(b"here").unwrap();
        // Without the runtime, which never gets a turn here.
        let mut some = [0; 8];
        let mut read = ReadBuf::new(&mut some);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(matches!(Pin::new(&mut socket).poll_read(&mut cx, &mut read), Poll::Ready(Ok(()))));
        assert_eq!(read.filled(), b"here");
        drop(client);
        assert_eq!(socket.read(&mut some).await.unwrap(), 0, "so is its end");
    }

    #[tokio::test]
    async fn pending_read_wakes_when_bytes_arrive() {
        let (mut socket, mut client) = unknown();
        for round in 0..2 {
            let mut some = [0; 8];
            let mut reading = Box::pin(socket.read(&mut some));
            assert!(poll!(&mut reading).is_pending());
            client.write_all(b"later").unwrap();
            assert_eq!(reading.await.unwrap(), 5);
            assert_eq!(&some[..5], b"later", "{round}");
            socket.write_all(b"answer").await.unwrap();
            socket.flush().await.unwrap();
            let mut answer = [0; 6];
            io::Read::read_exact(&mut client, &mut answer).unwrap();
            socket.forget().unwrap();
        }
        socket.write_all(b"first").await.unwrap();
    }
}
