//! The ports of TCP and UDP services: bound for all workers at once when a configuration first names them, and for as
//! long as such services exist.
//!
//! **Invariant:** a port that is handed out is bound for every worker; one that cannot be bound is an error with a
//! reason, and none of its sockets stay open. No more than `MOST` are open, and each takes its descriptors from the
//! common budget.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use shared::budget::{Budget, Held};
use shared::resource::Transport;
use shared::socket;
use socket2::{Socket, Type};

use super::{BACKLOG, open, unshared};

/// Maximum number of open service ports. Further ones are refused.
const MOST: usize = 1024;

/// Opens service ports.
#[derive(Debug, Default)]
pub struct Ports {
    address: Option<IpAddr>,
    workers: usize,
    /// The TCP ports of the process itself.
    own: Vec<u16>,
    descriptors: Option<Budget>,
    begun: Arc<AtomicBool>,
    /// No other process may have them.
    alone: bool,
    known: HashMap<(Transport, u16), Weak<Port>>,
}

/// A port, with a socket for each worker. Closed when its last reference is dropped.
#[derive(Debug)]
pub struct Port {
    sockets: Box<[Socket]>,
    address: SocketAddr,
    _descriptors: Option<Held>,
}

impl Port {
    /// The socket of a worker, for its runtime. Clients can connect from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(&self, worker: usize) -> io::Result<Socket> {
        let socket = self.sockets.get(worker).ok_or(io::ErrorKind::NotFound)?;
        listen(socket)?;
        socket.try_clone()
    }

    /// Stops accepting TCP clients for this worker, even if the port is still referenced: otherwise the kernel would
    /// put clients into a queue that nobody accepts from.
    pub fn close(&self, worker: usize) {
        if let Some(socket) = self.sockets.get(worker) {
            // Fails if it does not listen, which is fine.
            let _ = socket.shutdown(Shutdown::Read);
            // Its service may come back, and its clients: see `Queue::rest`.
            let _ = socket.detach_filter();
        }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Ports {
    /// For this many workers, at an address, or at all addresses. `own` are the addresses in use by the process
    /// itself.
    pub fn new(address: Option<IpAddr>, workers: usize, own: &[SocketAddr]) -> Self {
        let own = own.iter().map(SocketAddr::port).collect();
        Self { address, workers, own, ..Self::default() }
    }

    /// Takes the sockets' descriptors from this budget.
    #[must_use]
    pub fn with_descriptors(self, descriptors: &Budget) -> Self {
        Self { descriptors: Some(descriptors.clone()), ..self }
    }

    /// Refuses ports that another process has: without that they are shared, as an old and a new process of one proxy
    /// do while the old one drains.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Set to true once clients may connect: ports that are opened from then on listen at once, so that they do so
    /// when the proxy reports them. Clients that connect before a worker accepts wait in the kernel's queue.
    pub fn begun(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.begun)
    }

    /// Opens a port; the same one as long as it is referenced.
    ///
    /// # Errors
    /// The port is in use, or another error of the kernel.
    pub fn take(&mut self, transport: Transport, number: u16) -> io::Result<Arc<Port>> {
        let port = self.find(transport, number)?;
        if self.begun.load(Ordering::Relaxed) {
            port.sockets.iter().try_for_each(listen)?;
        }
        Ok(port)
    }

    fn find(&mut self, transport: Transport, number: u16) -> io::Result<Arc<Port>> {
        if let Some(port) = self.known.get(&(transport, number)).and_then(Weak::upgrade) {
            return Ok(port);
        }
        if transport == Transport::Tcp && self.own.contains(&number) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "it is a port of the proxy itself"));
        }
        if self.workers == 0 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no ports are opened here"));
        }
        self.known.retain(|_, port| port.strong_count() > 0);
        if self.known.len() >= MOST {
            return Err(io::Error::other(format!("{MOST} ports of services are open already")));
        }
        let short = || io::Error::other("no file descriptors are left for it");
        // Each worker has its own descriptor of its socket, beside the one here.
        let held = self.descriptors.as_ref().map(|it| it.take(2 * self.workers).ok_or_else(short));
        let held = held.transpose()?;
        let port = match self.address {
            Some(ip) => self.bind(transport, SocketAddr::new(ip, number)),
            None => {
                let any = (Ipv6Addr::UNSPECIFIED, number).into();
                socket::bound(any, |address| self.bind(transport, address))
            }
        }?;
        let port = Arc::new(Port { _descriptors: held, ..port });
        self.known.insert((transport, number), Arc::downgrade(&port));
        Ok(port)
    }

    fn bind(&self, transport: Transport, address: SocketAddr) -> io::Result<Port> {
        if self.alone {
            is_free(address, transport)?;
        }
        let sockets = (0..self.workers).map(|_| open(address, transport)).collect::<io::Result<Box<_>>>()?;
        Ok(Port { sockets, address, _descriptors: None })
    }
}

/// Whether no socket of another process is at an address. One that shares its port (`SO_REUSEPORT`) does not share it
/// with a socket that does not.
fn is_free(address: SocketAddr, transport: Transport) -> io::Result<()> {
    let Err(error) = unshared(address, transport) else {
        return Ok(());
    };
    if error.kind() != io::ErrorKind::AddrInUse {
        return Err(error);
    }
    let (port, flag) = (address.port(), if transport == Transport::Tcp { 't' } else { 'u' });
    let name = transport.as_str().to_ascii_uppercase();
    let reason = format!(
        "another process has {name} port {port}: stop it, or choose another port; `ss -ln{flag}p 'sport = :{port}'` names it"
    );
    Err(io::Error::new(io::ErrorKind::AddrInUse, reason))
}

fn listen(socket: &Socket) -> io::Result<()> {
    match socket.r#type()? {
        Type::STREAM => socket.listen(BACKLOG),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

    use socket2::Domain;

    use super::*;

    /// A free port that is given only to those who name it: a socket is bound to it until this process ends, and does
    /// not listen.
    fn free() -> u16 {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let port = socket.local_addr().unwrap().as_socket().unwrap().port();
        std::mem::forget(socket);
        port
    }

    #[test]
    fn a_port_is_there_as_long_as_somebody_has_it() {
        let number = free();
        let mut ports = Ports::new(None, 2, &[]);
        let port = ports.take(Transport::Tcp, number).unwrap();
        assert!(Arc::ptr_eq(&port, &ports.take(Transport::Tcp, number).unwrap()));
        TcpStream::connect(("127.0.0.1", number)).unwrap_err();
        for _ in 0..2 {
            let sockets = [0, 1].map(|worker| port.open(worker).unwrap());
            for ip in ["127.0.0.1", "::1"] {
                TcpStream::connect((ip, number)).unwrap();
            }
            // It is still referenced.
            (0..2).for_each(|worker| port.close(worker));
            TcpStream::connect(("127.0.0.1", number)).unwrap_err();
            drop(sockets);
        }
        let other = ports.take(Transport::Udp, number).unwrap();
        assert!(port.open(2).is_err() && other.open(0).is_ok());
        drop((port, other));
        TcpListener::bind(("127.0.0.1", number)).unwrap();
        UdpSocket::bind(("127.0.0.1", number)).unwrap();
    }

    #[test]
    fn once_clients_may_come_a_port_that_is_taken_listens() {
        let (first, second) = (free(), free());
        let mut ports = Ports::new(Some(Ipv4Addr::LOCALHOST.into()), 2, &[]);
        let connect = |number: u16| TcpStream::connect(("127.0.0.1", number));
        let _first = ports.take(Transport::Tcp, first).unwrap();
        connect(first).unwrap_err();
        ports.begun().store(true, Ordering::Relaxed);
        let _second = ports.take(Transport::Tcp, second).unwrap();
        connect(second).unwrap();
        connect(first).unwrap_err();
        // Its service was removed and comes back.
        let _again = ports.take(Transport::Tcp, first).unwrap();
        connect(first).unwrap();
    }

    #[test]
    fn a_port_of_another_is_an_error_that_says_so() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = taken.local_addr().unwrap().port();
        let mut ports = Ports::new(Some(Ipv4Addr::LOCALHOST.into()), 1, &[([127, 0, 0, 1], 8443).into()]);
        let kind = |error: io::Error| error.kind();
        assert_eq!(ports.take(Transport::Tcp, number).map_err(kind).unwrap_err(), io::ErrorKind::AddrInUse);
        let own = ports.take(Transport::Tcp, 8443).unwrap_err();
        assert!(own.to_string().contains("the proxy itself"), "{own}");
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = taken.local_addr().unwrap().port();
        assert_eq!(ports.take(Transport::Udp, number).map_err(kind).unwrap_err(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_port_that_another_process_shares_is_refused_by_who_wants_it_alone() {
        for transport in [Transport::Tcp, Transport::Udp] {
            let number = free();
            let ports = || {
                let ports = Ports::new(Some(Ipv4Addr::LOCALHOST.into()), 2, &[]);
                ports.begun().store(true, Ordering::Relaxed);
                ports
            };
            let (mut one, mut other, mut successor) = (ports().alone(), ports().alone(), ports());
            let first = one.take(transport, number).unwrap();
            let refused = other.take(transport, number).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
            let name = transport.as_str().to_ascii_uppercase();
            let expected = format!("another process has {name} port {number}: ");
            assert!(refused.to_string().starts_with(&expected), "{refused}");
            successor.take(transport, number).unwrap();
            drop(first);
            let again = other.take(transport, number).unwrap();
            assert!(Arc::ptr_eq(&again, &other.take(transport, number).unwrap()), "its own");
        }
    }

    #[test]
    fn ports_leave_descriptors_for_others() {
        // Two ports, with two sockets for each worker: the one here, and its own.
        let budget = Budget::new(9);
        let mut ports = Ports::new(Some(Ipv4Addr::LOCALHOST.into()), 2, &[]).with_descriptors(&budget);
        let mut taken: Vec<_> = (0..2).map(|_| ports.take(Transport::Tcp, free()).unwrap()).collect();
        let refused = ports.take(Transport::Tcp, free()).unwrap_err();
        assert!(refused.to_string().contains("descriptors"), "{refused}");
        taken.pop();
        ports.take(Transport::Tcp, free()).unwrap();
    }

    #[test]
    fn there_are_so_many_ports_and_no_more() {
        let mut ports = Ports::new(Some(Ipv4Addr::LOCALHOST.into()), 1, &[]);
        let any =
            || Port { sockets: Box::default(), address: ([127, 0, 0, 1], 1).into(), _descriptors: None };
        let taken: Vec<_> = (0..MOST).map(|_| Arc::new(any())).collect();
        let known = (1..).zip(&taken).map(|(number, port)| ((Transport::Udp, number), Arc::downgrade(port)));
        ports.known = known.collect();
        let refused = ports.take(Transport::Tcp, free()).unwrap_err();
        assert!(refused.to_string().contains("1024"), "{refused}");
        drop(taken);
        ports.take(Transport::Tcp, free()).unwrap();
    }
}
