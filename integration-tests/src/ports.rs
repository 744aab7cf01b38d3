//! Free loopback ports for servers that are told theirs.
//!
//! They lie below the range from which the kernel takes the ports of outgoing connections: a port asked for with `:0`
//! would lie inside, and could be gone when a server that was killed wants it back.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 12_000;
const COUNT: u32 = 18_000;
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A loopback address with a port that nobody listens on and that this process has not given away yet.
///
/// # Panics
/// When there is none.
pub fn free() -> SocketAddr {
    free_at(Ipv4Addr::LOCALHOST.into())
}

/// The same on another address of this machine.
///
/// # Panics
/// When there is none.
pub fn free_at(ip: IpAddr) -> SocketAddr {
    // Processes that run at the same time start at different places.
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
