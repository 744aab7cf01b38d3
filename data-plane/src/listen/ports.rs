//! The ports of TCP and UDP services: bound when the first configuration names them, for all workers at once, while there
//! are such services.
//!
//! **Invariant:** a port that is given away is bound for every worker; one that cannot be had is an error that says why,
//! and none of it is left open. No more than `MOST` are open, and each has its descriptors from the budget of all.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use shared::budget::{Budget, Held};
use shared::resource::Transport;
use socket2::{Socket, Type};

use super::{BACKLOG, open};

/// Ports of services that are open at once. Of further ones each is refused.
const MOST: usize = 1024;

/// Where ports are opened.
#[derive(Debug, Default)]
pub struct Ports {
    address: Option<IpAddr>,
    workers: usize,
    /// Of the process itself, over TCP.
    own: Vec<u16>,
    descriptors: Option<Budget>,
    begun: Arc<AtomicBool>,
    known: HashMap<(Transport, u16), Weak<Port>>,
}

/// A port, with a socket for each worker. Closed with the last one that has it.
#[derive(Debug)]
pub struct Port {
    sockets: Box<[Socket]>,
    address: SocketAddr,
    _descriptors: Option<Held>,
}

impl Port {
    /// The socket of a worker, for its runtime. Clients come from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(&self, worker: usize) -> io::Result<Socket> {
        let socket = self.sockets.get(worker).ok_or(io::ErrorKind::NotFound)?;
        listen(socket)?;
        socket.try_clone()
    }

    /// Clients of TCP come no longer to this worker, whoever has the port still: the kernel would give them to a queue
    /// of which nobody takes them.
    pub fn close(&self, worker: usize) {
        if let Some(socket) = self.sockets.get(worker) {
            // One that does not listen has nothing to end.
            let _ = socket.shutdown(Shutdown::Read);
        }
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Ports {
    /// For so many workers, at an address, at all of the machine without one. `own` are addresses that the process has.
    pub fn new(address: Option<IpAddr>, workers: usize, own: &[SocketAddr]) -> Self {
        let own = own.iter().map(SocketAddr::port).collect();
        Self { address, workers, own, ..Self::default() }
    }

    /// Sockets are descriptors of this budget.
    #[must_use]
    pub fn within(self, descriptors: &Budget) -> Self {
        Self { descriptors: Some(descriptors.clone()), ..self }
    }

    /// True once clients may come, for whoever decides that: a port that is taken from then on listens at once, so that
    /// it does when a proxy says that it has it. Whoever connects before a worker accepts stands in the kernel's queue.
    pub fn begun(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.begun)
    }

    /// Takes a port; the same one as long as anybody has it.
    ///
    /// # Errors
    /// That the port is taken, or what else the kernel says.
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
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "it is one of the proxy's own"));
        }
        if self.workers == 0 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no ports are opened here"));
        }
        self.known.retain(|_, port| port.strong_count() > 0);
        if self.known.len() >= MOST {
            return Err(io::Error::other(format!("{MOST} ports of services are open already")));
        }
        let short = || io::Error::other("no file descriptors are left for it");
        let held = self.descriptors.as_ref().map(|it| it.take(self.workers).ok_or_else(short));
        let held = held.transpose()?;
        let port = match self.address {
            Some(ip) => self.bind(transport, SocketAddr::new(ip, number)),
            None => self.bind(transport, (Ipv6Addr::UNSPECIFIED, number).into()).or_else(|error| {
                match error.kind() {
                    io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
                    // A machine without IPv6.
                    _ => self.bind(transport, (Ipv4Addr::UNSPECIFIED, number).into()),
                }
            }),
        }?;
        let port = Arc::new(Port { _descriptors: held, ..port });
        self.known.insert((transport, number), Arc::downgrade(&port));
        Ok(port)
    }

    fn bind(&self, transport: Transport, address: SocketAddr) -> io::Result<Port> {
        let sockets = (0..self.workers).map(|_| open(address, transport)).collect::<io::Result<Box<_>>>()?;
        Ok(Port { sockets, address, _descriptors: None })
    }
}

fn listen(socket: &Socket) -> io::Result<()> {
    match socket.r#type()? {
        Type::STREAM => socket.listen(BACKLOG),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use socket2::Domain;

    use super::*;

    /// A port that nobody is given who does not name it: a socket has it until this process ends, and does not listen.
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
            // Somebody has it still.
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
        // Its service went and comes again.
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
        assert!(own.to_string().contains("own"), "{own}");
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = taken.local_addr().unwrap().port();
        assert_eq!(ports.take(Transport::Udp, number).map_err(kind).unwrap_err(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn ports_leave_descriptors_for_others() {
        let budget = Budget::new(5);
        let mut ports = Ports::new(Some(Ipv4Addr::LOCALHOST.into()), 2, &[]).within(&budget);
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
