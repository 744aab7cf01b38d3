//! Addresses for origins in an EndpointSlice of a real API server, which accepts no loopback address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::OnceLock;

/// An address in the range that [`routable`] makes local if this machine has no other.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// An address of this machine that is neither loopback nor link-local.
///
/// The machine's own one if it has one; else an address of 10.77.0.0/16, which is made local first (needs root).
///
/// # Errors
/// What would have to be done, if there is none and none can be made.
pub fn routable() -> Result<IpAddr, String> {
    static FOUND: OnceLock<Result<IpAddr, String>> = OnceLock::new();
    FOUND.get_or_init(|| own().map_or_else(made, Ok)).clone()
}

/// The source address of packets to the world; nothing is sent to find out.
fn own() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let IpAddr::V4(address) = socket.local_addr().ok()?.ip() else {
        return None;
    };
    let usable = !address.is_loopback() && !address.is_link_local() && !address.is_unspecified();
    (usable && can_bind(address.into())).then_some(address.into())
}

fn made() -> Result<IpAddr, String> {
    let address = IpAddr::from(OWN);
    if !can_bind(address) {
        let route = ["route", "add", "local", "10.77.0.0/16", "dev", "lo"];
        let done = Command::new("ip").args(route).output();
        if !can_bind(address) {
            return Err(format!(
                "this machine has no address but loopback ones, which an EndpointSlice may not carry; as root: \
                 `ip {}` (tried: {done:?})",
                route.join(" ")
            ));
        }
    }
    Ok(address)
}

fn can_bind(address: IpAddr) -> bool {
    TcpListener::bind(SocketAddr::from((address, 0))).is_ok()
}
