//! What the other end of a connection has not acknowledged.

use std::os::fd::BorrowedFd;

use nix::libc;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `SIOCOUTQ` of tcp(7), which has the number of `TIOCOUTQ`.
const SIOCOUTQ: Opcode = libc::TIOCOUTQ as Opcode;

/// How many bytes of what was written to a TCP socket the other end has not acknowledged; `None`: the kernel does not say.
/// One system call.
#[allow(unsafe_code, reason = "rustix has no function for it")]
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> Option<usize> {
    // SAFETY: this operation writes one `int`.
    let getter = unsafe { Getter::<SIOCOUTQ, libc::c_int>::new() };
    // SAFETY: as above; it changes nothing.
    let count = unsafe { ioctl(socket, getter) };
    count.ok().and_then(|count| count.try_into().ok())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Reads so little that it is just seen at the other end.
    pub(crate) async fn read_a_little(stream: &mut tokio::net::TcpStream, other_end: BorrowedFd<'_>) {
        let before = unacknowledged(other_end);
        let mut few = [0; 4096];
        while unacknowledged(other_end) == before {
            stream.read_exact(&mut few).await.unwrap();
        }
    }

    #[test]
    fn what_is_read_is_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut near, _) = listener.accept().unwrap();
        assert_eq!(unacknowledged(near.as_fd()), Some(0));
        near.set_nonblocking(true).unwrap();
        while near.write(&[b'x'; 64 * 1024]).is_ok() {}
        let full = unacknowledged(near.as_fd()).unwrap();
        assert!(full > 64 * 1024, "{full}");
        assert_eq!(unacknowledged(near.as_fd()), Some(full), "it reads nothing");
        client.read_exact(&mut vec![0; full]).unwrap();
        while unacknowledged(near.as_fd()) == Some(full) {
            std::thread::yield_now();
        }
        let none = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(unacknowledged(none.as_fd()), None);
    }
}
