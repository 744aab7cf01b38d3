//! The sockets that clients connect to: one for each worker and address, joined by `SO_REUSEPORT`.
//!
//! **Invariant:** all sockets are bound before any worker starts, so that a port in use is a start-up error and never
//! leads to a proxy that serves only some of its addresses. No client can connect before [`ListenerSet::open`]:
//! otherwise, with an old proxy on the same ports, the kernel would send connections to the new one before it has
//! tables.

pub mod ports;
mod queue;

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use shared::resource::Transport;
use shared::socket;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

pub(crate) use queue::Accepted;
pub use queue::Queue;

/// Length of the kernel's accept queue.
const BACKLOG: i32 = 4096;

/// Idle time after which the kernel probes whether a client is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Pause in accepting when the process or the machine is out of a resource.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// The protocol of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Plain text.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// As in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The default port of the scheme.
    pub fn usual_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// The flag for its addresses.
    fn flag(self) -> &'static str {
        match self {
            Self::Http => "--http",
            Self::Https => "--https",
        }
    }
}

/// The ports that clients connect to. They differ from those of the sockets if something in between maps them, as a
/// Service does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublicPorts {
    /// Of plain HTTP.
    pub http: u16,
    /// Of HTTPS.
    pub https: u16,
}

impl Default for PublicPorts {
    fn default() -> Self {
        Self { http: Scheme::Http.usual_port(), https: Scheme::Https.usual_port() }
    }
}

impl PublicPorts {
    /// The port of a scheme.
    pub fn of(self, scheme: Scheme) -> u16 {
        match scheme {
            Scheme::Http => self.http,
            Scheme::Https => self.https,
        }
    }
}

/// One worker's socket for one address.
#[derive(Debug)]
pub struct Listener {
    /// The protocol spoken on it.
    pub scheme: Scheme,
    /// Its address; the port was chosen by the kernel if 0 was requested.
    pub address: SocketAddr,
    socket: Arc<Socket>,
}

impl Listener {
    /// Starts listening, if that was not done yet, and registers the socket with the runtime of the calling thread.
    ///
    /// # Errors
    /// The address was taken meanwhile, or the socket cannot be registered.
    pub fn into_queue(self) -> io::Result<Queue> {
        self.socket.listen(BACKLOG)?;
        Queue::new(self.socket.try_clone()?)
    }
}

/// All sockets of a process, to start listening on.
#[derive(Debug)]
pub struct ListenerSet {
    sockets: Vec<Arc<Socket>>,
}

impl ListenerSet {
    /// The sockets of all workers.
    pub fn of(sets: &[Vec<Listener>]) -> Self {
        let sockets = sets.iter().flatten();
        Self { sockets: sockets.map(|listener| Arc::clone(&listener.socket)).collect() }
    }

    /// Lets clients connect: those that come before a worker accepts wait in the kernel's queue.
    ///
    /// # Errors
    /// An address was taken meanwhile.
    pub fn open(self) -> io::Result<()> {
        self.sockets.iter().try_for_each(|socket| socket.listen(BACKLOG))
    }
}

/// An address that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({flag}): {source}")]
pub struct BindError {
    /// The flag with the address.
    pub flag: &'static str,
    /// The given address.
    pub address: SocketAddr,
    /// The kernel's error.
    pub source: io::Error,
}

/// Binds every address once for each worker. The outer list has one entry per worker.
///
/// # Errors
/// The first address that cannot be bound.
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
            let refused = |source| BindError { flag: scheme.flag(), address: wanted, source };
            let socket = socket::bound(address, |address| open(address, Transport::Tcp)).map_err(refused)?;
            // With port 0, all sockets get the port of the first one.
            address = socket
                .local_addr()
                .and_then(|local| local.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into()))
                .map_err(refused)?;
            set.push(Listener { scheme, address, socket: Arc::new(socket) });
        }
    }
    Ok(sets)
}

fn open(address: SocketAddr, transport: Transport) -> io::Result<Socket> {
    let socket = of_transport(address, transport)?;
    // A new process may run beside the old one while that drains.
    socket.set_reuse_port(true)?;
    if transport == Transport::Tcp {
        // Accepted sockets inherit these on Linux.
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE))?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Binds an address that no other socket has. Fails if one has it, shared or not.
fn unshared(address: SocketAddr, transport: Transport) -> io::Result<Socket> {
    let socket = of_transport(address, transport)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn of_transport(address: SocketAddr, transport: Transport) -> io::Result<Socket> {
    let (kind, protocol) = match transport {
        Transport::Tcp => (Type::STREAM, Protocol::TCP),
        Transport::Udp => (Type::DGRAM, Protocol::UDP),
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        // `[::]` includes IPv4, whatever net.ipv6.bindv6only says.
        socket.set_only_v6(false)?;
    }
    if transport == Transport::Tcp {
        // A restart does not wait for TIME_WAIT.
        socket.set_reuse_address(true)?;
    }
    Ok(socket)
}

/// How long to wait after a failed accept: not at all if only that connection was the problem, a moment if the process
/// is out of file descriptors or memory, so that the loop does not spin.
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

    fn any() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn every_worker_gets_every_address_under_one_port() {
        let sets = bind(&[any()], &[any()], 3).unwrap();
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
        ListenerSet::of(&sets).open().unwrap();
        let port = sets[0][0].address.port();
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        std::net::TcpStream::connect(("::1", port)).unwrap();
    }

    #[test]
    fn a_taken_port_names_flag_and_address() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = bind(&[], &[address], 1).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot listen on {address} (--https): ")), "{error}");
    }

    #[test]
    fn connections_are_accepted_only_once_all_sockets_are_open() {
        let old = bind(&[any()], &[], 1).unwrap();
        let address = old[0][0].address;
        let connect = || std::net::TcpStream::connect(address);
        connect().unwrap_err();
        ListenerSet::of(&old).open().unwrap();
        let new = bind(&[address], &[], 1).unwrap();
        // If both were listening, half of these would go to the new one.
        let clients: [_; 16] = std::array::from_fn(|_| connect().unwrap());
        old[0][0].socket.set_nonblocking(true).unwrap();
        let accepted = std::iter::from_fn(|| old[0][0].socket.accept().ok()).count();
        assert_eq!(accepted, clients.len());
        drop(old);
        connect().unwrap_err();
        ListenerSet::of(&new).open().unwrap();
        connect().unwrap();
    }

    #[test]
    fn only_shortage_pauses() {
        assert_eq!(pause_after(&io::ErrorKind::ConnectionAborted.into()), None);
        assert_eq!(pause_after(&io::Error::from_raw_os_error(24)), Some(PAUSE));
    }
}
