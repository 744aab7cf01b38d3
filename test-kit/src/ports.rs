//! Free loopback ports for servers whose port must be given in advance.
//!
//! They are below the kernel's range for outgoing connections: a port obtained with `:0` is inside that range, and
//! could be taken when a server that was killed wants it back.
//!
//! **Invariant:** a port is given to one process as long as that lives, whether or not anybody listens on it: tests of
//! other processes do not get the port of a server that is about to be started again.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as Name, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Socket, Type};

const FIRST: u32 = 12_000;
const COUNT: u32 = 18_000;
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A loopback address with a port that nobody listens on and that this process has not handed out yet.
///
/// # Panics
/// There is none.
pub fn free() -> SocketAddr {
    free_at(Ipv4Addr::LOCALHOST.into())
}

/// The same on another address of this machine.
///
/// # Panics
/// There is none.
pub fn free_at(ip: IpAddr) -> SocketAddr {
    // Concurrent processes start at different positions.
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let step = TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + start.wrapping_add(step) % COUNT;
        let address = SocketAddr::from((ip, u16::try_from(port).expect("below 30,000")));
        if reserve(address.port()) && TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port from {FIRST} to {}", FIRST + COUNT - 1);
}

/// Reserves a port for this process; `false`: some process has it. A socket without a file says so to the others, in the
/// same network namespace, until this process ends.
fn reserve(port: u16) -> bool {
    let name = Name::from_abstract_name(format!("firth-test-port-{port}")).expect("a short name");
    match UnixListener::bind_addr(&name) {
        Ok(socket) => {
            std::mem::forget(socket);
            true
        }
        Err(error) => error.kind() != io::ErrorKind::AddrInUse,
    }
}

/// A loopback address that refuses connections as long as this process lives, and whose port is given only to those
/// who name it: a socket is bound to it and does not listen.
///
/// # Panics
/// There is none.
pub fn refusing() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    // Allows those who name it to bind it.
    socket.set_reuse_address(true).expect("an option that there is");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("the kernel knows one");
    let address = socket.local_addr().expect("it is bound").as_socket().expect("it is of IPv4");
    std::mem::forget(socket);
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_though_nobody_listens_there() {
        let port = free().port();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
        assert!(!reserve(port));
    }
}
