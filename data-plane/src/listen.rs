//! The sockets that clients connect to: one for each worker and address, joined by `SO_REUSEPORT`.
//!
//! **Invariant:** all sockets are bound before any worker starts, so that a taken port is a start-up error and never a
//! proxy that serves on half of its addresses.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel keeps for us until we accept them.
const BACKLOG: i32 = 4096;

/// How long accepting pauses when the process or the machine is out of something.
const PAUSE: Duration = Duration::from_millis(10);

/// What clients speak on a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Plain text.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// As it stands in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The flag that gives addresses of it.
    fn flag(self) -> &'static str {
        match self {
            Self::Http => "--http",
            Self::Https => "--https",
        }
    }
}

/// One worker's socket for one address.
#[derive(Debug)]
pub struct Listener {
    /// What is spoken on it.
    pub scheme: Scheme,
    /// Where it listens; the port is the kernel's choice where 0 was asked for.
    pub address: SocketAddr,
    socket: TcpListener,
}

impl Listener {
    /// Hands the socket to the runtime of the calling thread.
    ///
    /// # Errors
    /// The kernel's, when the socket cannot be watched.
    pub fn into_tokio(self) -> io::Result<tokio::net::TcpListener> {
        tokio::net::TcpListener::from_std(self.socket)
    }
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({flag}): {source}")]
pub struct BindError {
    /// The flag that gave it.
    pub flag: &'static str,
    /// What it gave.
    pub address: SocketAddr,
    /// What the kernel said.
    pub source: io::Error,
}

/// Binds every address once for each worker. The outer list has one entry a worker.
///
/// # Errors
/// The first address that cannot be had.
pub fn bind(
    http: &[SocketAddr],
    https: &[SocketAddr],
    workers: usize,
) -> Result<Vec<Vec<Listener>>, BindError> {
    let mut sets: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
    let plain = http.iter().map(|address| (Scheme::Http, *address));
    let secure = https.iter().map(|address| (Scheme::Https, *address));
    for (scheme, wanted) in plain.chain(secure) {
        let mut address = wanted;
        for set in &mut sets {
            let refused = |source| BindError {
                flag: scheme.flag(),
                address: wanted,
                source,
            };
            let socket = open(address).map_err(refused)?;
            // With port 0 the first socket's port is everybody's.
            address = socket.local_addr().map_err(refused)?;
            set.push(Listener {
                scheme,
                address,
                socket,
            });
        }
    }
    Ok(sets)
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        // `[::]` means both families, whatever net.ipv6.bindv6only says.
        socket.set_only_v6(false)?;
    }
    // A restart does not wait for TIME_WAIT, and a new process may stand beside the old one while it drains.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Accepted sockets inherit it on Linux.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// How long to wait after a failed accept: not at all when that one connection was the problem, a moment when the
/// process is out of file descriptors or memory, so that the loop does not spin.
pub fn pause_after(error: &io::Error) -> Option<Duration> {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    match error.kind() {
        ConnectionAborted | ConnectionReset | Interrupted | TimedOut | WouldBlock => None,
        _ => Some(PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_gets_every_address_under_one_port() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let sets = bind(&[any], &[any], 3).unwrap();
        assert_eq!(sets.len(), 3);
        for set in &sets {
            assert_eq!(
                set.iter().map(|l| (l.scheme, l.address)).collect::<Vec<_>>(),
                sets[0].iter().map(|l| (l.scheme, l.address)).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn both_families_on_the_unspecified_address() {
        let sets = bind(&["[::]:0".parse().unwrap()], &[], 1).unwrap();
        let port = sets[0][0].address.port();
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        std::net::TcpStream::connect(("::1", port)).unwrap();
    }

    #[test]
    fn a_taken_port_names_flag_and_address() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = bind(&[], &[address], 1).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("cannot listen on {address} (--https): ")),
            "{error}"
        );
    }

    #[test]
    fn only_shortage_pauses() {
        assert_eq!(pause_after(&io::ErrorKind::ConnectionAborted.into()), None);
        assert_eq!(pause_after(&io::Error::from_raw_os_error(24)), Some(PAUSE));
    }
}
