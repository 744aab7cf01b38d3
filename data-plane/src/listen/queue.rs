//! The connections that wait in the kernel's queue of a listening socket.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::task::{Context, Poll, ready};

use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{SockFilter, Socket};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{BACKLOG, pause_after};

/// A connection and the address of its client. It is non-blocking, and not registered with the runtime: many are served
/// without that.
pub(crate) type Accepted = (TcpStream, SocketAddr);

/// A program for the kernel (classic BPF, from the TCP header on) that drops what begins a connection: a SYN without an
/// ACK. It takes everything else, so handshakes that have begun are completed.
const NO_BEGINNINGS: [SockFilter; 5] = [
    // The flags, and of them SYN and ACK.
    SockFilter::new(0x30, 0, 0, 13),
    SockFilter::new(0x54, 0, 0, 0x12),
    SockFilter::new(0x15, 0, 1, 0x02),
    SockFilter::new(0x06, 0, 0, 0),
    SockFilter::new(0x06, 0, 0, u32::MAX),
];

/// The queue of a listening socket.
#[derive(Debug)]
pub struct Queue(AsyncFd<Socket>);

impl Queue {
    /// Registers a listening socket with the runtime of the calling thread.
    ///
    /// # Errors
    /// The kernel's.
    #[expect(
        deprecated,
        reason = "its successor is unsafe, for a type may change its descriptor while it is registered. This one does not"
    )]
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        Ok(Self(AsyncFd::with_interest(socket, Interest::READABLE)?))
    }

    /// Accepts the next connection.
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            match self.accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready.clear_ready(),
                accepted => return Poll::Ready(accepted),
            }
        }
    }

    /// Accepts all connections in the queue, for the last time: they are established, and would be reset with the
    /// socket. So would be those that arrive between the last of them and the end of the socket, which may be long where
    /// threads wait for a processor. The SYN of such a client is dropped instead, and sent again by its kernel after a
    /// second (RFC 6298 section 2): to the process that took over, if there is one.
    pub(crate) fn rest(&self) -> impl Iterator<Item = Accepted> {
        // Without it, few are reset.
        let _ = self.0.get_ref().attach_filter(&NO_BEGINNINGS);
        // Asks the kernel: the runtime knows only of those that arrived before its last poll. More than the queue's
        // length would be such that keep coming.
        (0..BACKLOG)
            .map(move |_| self.accept())
            .take_while(|accepted| match accepted {
                Ok(_) => true,
                Err(error) => error.kind() != ErrorKind::WouldBlock && pause_after(error).is_none(),
            })
            .flatten()
    }

    fn accept(&self) -> io::Result<Accepted> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (stream, address) = acceptfrom_with(self.0.get_ref(), flags)?;
        let address = address.ok_or(ErrorKind::Unsupported)?.try_into()?;
        Ok((stream.into(), address))
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpStream;
    use std::time::Duration;

    use socket2::{Domain, SockRef, Socket, Type};

    use crate::listen::{KEEP_ALIVE, bind};

    #[tokio::test]
    async fn the_queue_is_emptied_and_its_connections_are_kept_alive() {
        let listener = bind(&[([127, 0, 0, 1], 0).into()], &[], 1).unwrap().remove(0).remove(0);
        let address = listener.address;
        let queue = listener.into_queue().unwrap();
        // The runtime has not polled the socket yet, and knows of none of them.
        let clients: [_; 8] = std::array::from_fn(|_| TcpStream::connect(address).unwrap());
        let accepted: Vec<_> = queue.rest().collect();
        assert_eq!(accepted.len(), clients.len());
        for (stream, _) in &accepted {
            let socket = SockRef::from(stream);
            assert!(socket.keepalive().unwrap() && socket.nonblocking().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEP_ALIVE);
        }
        assert_eq!(queue.rest().count(), 0);
    }

    #[tokio::test]
    async fn who_comes_too_late_for_a_queue_is_not_reset_and_finds_the_next_one() {
        let old = bind(&[([127, 0, 0, 1], 0).into()], &[], 1).unwrap().remove(0).remove(0);
        let address = old.address;
        let queue = old.into_queue().unwrap();
        let _early = TcpStream::connect(address).unwrap();
        assert_eq!(queue.rest().count(), 1);
        let unheard = TcpStream::connect_timeout(&address, Duration::from_millis(200)).unwrap_err();
        assert_eq!(unheard.kind(), ErrorKind::TimedOut);
        let late = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        late.set_nonblocking(true).unwrap();
        // Its SYN is sent, and not answered.
        late.connect(&address.into()).unwrap_err();
        let new = bind(&[address], &[], 1).unwrap().remove(0).remove(0).into_queue().unwrap();
        drop(queue);
        std::future::poll_fn(|cx| new.poll_accept(cx)).await.unwrap();
        assert!(late.take_error().unwrap().is_none());
    }
}
