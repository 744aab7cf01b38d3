//! Free loopback ports for servers whose port must be given in advance.
//!
//! They are below the kernel's range for outgoing connections: a port obtained with `:0` is inside that range, and
//! could be taken when a server that was killed wants it back.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
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
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port from {FIRST} to {}", FIRST + COUNT - 1);
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
