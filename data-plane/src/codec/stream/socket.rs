//! The socket of a client connection, which is registered with the runtime only while it is in use.

use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::mem;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::poll_proceed;

/// Maximum number of bytes of a read without the runtime: room for most heads. Such room is zeroed first.
const FIRST: usize = 4 * 1024;

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

    /// The runtime's socket; registers it if necessary.
    ///
    /// # Errors
    /// It could not be registered: the socket is lost.
    pub(crate) fn registered(&mut self) -> io::Result<&mut TcpStream> {
        if matches!(self.0, State::Unknown(_))
            && let State::Unknown(stream) = mem::replace(&mut self.0, State::Lost)
        {
            self.0 = State::Known(TcpStream::from_std(stream)?);
        }
        match &mut self.0 {
            State::Known(stream) => Ok(stream),
            State::Unknown(_) | State::Lost => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Whether it is not registered, so that its end is not watched.
    pub(crate) fn is_unwatched(&self) -> bool {
        matches!(self.0, State::Unknown(_))
    }

    /// Whether something came that nobody has read.
    pub(super) fn has_unread_now(&self) -> bool {
        self.peek() == Ok(1)
    }

    /// Whether the other end has closed its half, and all that it had sent was read.
    pub(super) fn has_ended_now(&self) -> bool {
        !matches!(self.peek(), Ok(1) | Err(Errno::AGAIN))
    }

    /// The number of bytes, at most one, that the next read would find now; 0 at the end.
    fn peek(&self) -> Result<usize, Errno> {
        let socket = self.fd().ok_or(Errno::NOTCONN)?;
        let (_, count) = recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
        Ok(count)
    }

    /// Has its close reset the connection.
    pub(super) fn reset_on_close(&self) {
        // Where the kernel does not know the socket any more, there is nothing to reset.
        let _ = self.fd().map(|socket| sockopt::set_socket_linger(socket, Some(Duration::ZERO)));
    }

    /// The kernel's socket.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            State::Known(stream) => Some(stream.as_fd()),
            State::Unknown(stream) => Some(stream.as_fd()),
            State::Lost => None,
        }
    }

    /// Writes what is the last before the socket is closed or shut down, which has to follow at once: until then the
    /// kernel keeps the last segment, so that it leaves together with the end. If something unread has come by then,
    /// only a shutdown sends it: a close resets the connection and drops what was kept.
    pub(super) fn poll_write_last(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let send = |socket: BorrowedFd<'_>| {
            let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
            sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags).map_err(io::Error::from)
        };
        if let Some(count) = ready!(self.poll_at_once(cx, |stream| send(stream.as_fd()))) {
            return Poll::Ready(count);
        }
        let stream = self.registered()?;
        loop {
            ready!(stream.poll_write_ready(cx))?;
            match stream.try_io(Interest::WRITABLE, || send(stream.as_fd())) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                count => return Poll::Ready(count),
            }
        }
    }

    /// Runs a system call on the socket if it is not registered: what is possible at once needs no runtime. `None`: it
    /// has to be waited for.
    fn poll_at_once<T>(
        &self,
        cx: &mut Context<'_>,
        call: impl FnOnce(&std::net::TcpStream) -> io::Result<T>,
    ) -> Poll<Option<io::Result<T>>> {
        let State::Unknown(stream) = &self.0 else {
            return Poll::Ready(None);
        };
        // As the runtime's sockets do: a client that always has more does not keep others waiting.
        let turn = ready!(poll_proceed(cx));
        match call(stream) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Poll::Ready(None)
            }
            outcome => {
                turn.made_progress();
                Poll::Ready(Some(outcome))
            }
        }
    }
}

impl From<std::net::TcpStream> for Socket {
    /// A non-blocking socket.
    fn from(stream: std::net::TcpStream) -> Self {
        Self(State::Unknown(stream))
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let most = FIRST.min(into.remaining());
        match ready!(this.poll_at_once(cx, |mut stream| stream.read(into.initialize_unfilled_to(most)))) {
            Some(count) => {
                let count = count?;
                into.advance(count);
                if count == FIRST {
                    // Probably a body: the next reads are larger.
                    this.registered()?;
                }
                Poll::Ready(Ok(()))
            }
            None => Pin::new(this.registered()?).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match ready!(this.poll_at_once(cx, |mut stream| stream.write(bytes))) {
            Some(count) => Poll::Ready(count),
            None => Pin::new(this.registered()?).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is held back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &this.0 {
            State::Unknown(stream) => Poll::Ready(match stream.shutdown(Shutdown::Write) {
                Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
                outcome => outcome,
            }),
            State::Known(_) | State::Lost => Pin::new(this.registered()?).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match ready!(this.poll_at_once(cx, |mut stream| stream.write_vectored(slices))) {
            Some(count) => Poll::Ready(count),
            None => Pin::new(this.registered()?).poll_write_vectored(cx, slices),
        }
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
    use crate::codec::stream::Last;

    /// An unregistered socket, and its client.
    fn unknown() -> (Socket, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        (Socket::from(stream), client)
    }

    /// Here registering it panics.
    #[test]
    fn what_is_possible_at_once_is_done_without_the_runtime() {
        let (mut socket, mut client) = unknown();
        client.write_all(b"asked").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut some = [0; 8];
            assert_eq!(socket.read(&mut some).await.unwrap(), 5);
            assert_eq!(&some[..5], b"asked");
            assert!(socket.is_unwatched() && !socket.has_unread_now() && !socket.has_ended_now());
            client.write_all(b"more").unwrap();
            assert!(socket.has_unread_now() && !socket.has_ended_now());
            assert_eq!(socket.read(&mut some).await.unwrap(), 4);
            socket.write_all(b"ans").await.unwrap();
            let rest = [IoSlice::new(b"we"), IoSlice::new(b"red")];
            assert_eq!(socket.write_vectored(&rest).await.unwrap(), 5);
            socket.flush().await.unwrap();
            socket.shutdown().await.unwrap();
            let mut answer = String::new();
            io::Read::read_to_string(&mut client, &mut answer).unwrap();
            assert_eq!(answer, "answered");
            drop(client);
            assert_eq!(socket.read(&mut some).await.unwrap(), 0, "so is its end");
            assert!(socket.has_ended_now());
        });
    }

    /// Registered or not; it is closed while most of the bytes are in the kernel.
    #[tokio::test]
    async fn last_bytes_arrive_before_the_end() {
        for is_registered in [false, true] {
            for length in [1, 100_000] {
                let (mut socket, mut client) = unknown();
                if is_registered {
                    socket.registered().unwrap();
                }
                let bytes = vec![b'x'; length];
                let reading = std::thread::spawn(move || {
                    let mut all = Vec::new();
                    io::Read::read_to_end(&mut client, &mut all).map(|_| all)
                });
                Last(&mut socket).write_all(&bytes).await.unwrap();
                drop(socket);
                assert_eq!(reading.join().unwrap().unwrap().len(), length, "{is_registered}");
            }
        }
    }

    /// A client that always has more, and one that never takes any, are left to the runtime, which gives others their
    /// turn.
    #[tokio::test]
    async fn nobody_keeps_others_waiting() {
        let (mut socket, mut client) = unknown();
        client.write_all(&[b'x'; 2 * FIRST]).unwrap();
        let mut some = [0; FIRST];
        assert_eq!(socket.read(&mut some).await.unwrap(), FIRST);
        assert!(matches!(socket.0, State::Known(_)), "the next reads are larger");
        socket.forget().unwrap();
        let much = vec![b'x'; 64 << 20];
        assert!(poll!(Box::pin(socket.write_all(&much))).is_pending());
        assert!(matches!(socket.0, State::Known(_)));
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
