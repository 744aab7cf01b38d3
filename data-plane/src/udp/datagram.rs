//! Datagrams with their local destination address: a reply is sent from the same address, because a client with a
//! connected socket would not accept it otherwise. A wildcard socket has to ask the kernel for that address.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use tokio::net::UdpSocket;

/// Buffer size for the kernel's control messages.
const CONTROL: usize = 128;

/// A received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Received {
    pub(super) length: usize,
    pub(super) client: SocketAddr,
    /// The local address that it was sent to, if known.
    pub(super) asked: Option<IpAddr>,
}

/// Has the kernel report the local address of each datagram.
///
/// # Errors
/// The kernel's.
pub(super) fn watch(socket: &UdpSocket) -> io::Result<()> {
    match socket.local_addr()? {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?,
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?,
    }
    Ok(())
}

/// Receives a datagram, without waiting.
///
/// # Errors
/// The kernel's.
pub(super) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Received> {
    let (mut slices, mut control) = ([IoSliceMut::new(buffer)], [0; CONTROL]);
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut slices,
        Some(&mut control),
        MsgFlags::MSG_DONTWAIT,
    )?;
    let asked = message.cmsgs()?.find_map(|said| match said {
        ControlMessageOwned::Ipv4PacketInfo(it) => Some(IpAddr::from(it.ipi_addr.s_addr.to_ne_bytes())),
        ControlMessageOwned::Ipv6PacketInfo(it) => Some(IpAddr::from(it.ipi6_addr.s6_addr)),
        _ => None,
    });
    let address = message.address.ok_or(io::ErrorKind::InvalidData)?;
    let v4 = address.as_sockaddr_in().map(|it| SocketAddr::new(it.ip().into(), it.port()));
    let v6 = || {
        let it = address.as_sockaddr_in6()?;
        Some(SocketAddr::V6(std::net::SocketAddrV6::new(it.ip(), it.port(), 0, it.scope_id())))
    };
    let client = v4.or_else(v6).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Received { length: message.bytes, client, asked })
}

/// Sends a reply to a client from the address that it had sent to, without waiting.
///
/// # Errors
/// The kernel's.
pub(super) fn answer(
    socket: &UdpSocket,
    bytes: &[u8],
    client: SocketAddr,
    asked: Option<IpAddr>,
) -> io::Result<()> {
    let to = SockaddrStorage::from(client);
    let v4 = |ip: std::net::Ipv4Addr| libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
    let (of_v4, of_v6);
    // An IPv6 socket uses IPv4-mapped addresses for IPv4.
    let control = match (asked, client) {
        (Some(IpAddr::V4(ip)), SocketAddr::V4(_)) => {
            of_v4 = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: v4(ip), ipi_addr: v4(ip) };
            Some(ControlMessage::Ipv4PacketInfo(&of_v4))
        }
        (Some(ip), SocketAddr::V6(_)) => {
            let ip: Ipv6Addr = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            of_v6 = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: ip.octets() }, ipi6_ifindex: 0 };
            Some(ControlMessage::Ipv6PacketInfo(&of_v6))
        }
        _ => None,
    };
    let control: &[ControlMessage<'_>] = control.as_slice();
    sendmsg(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_DONTWAIT, Some(&to))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_comes_from_the_address_that_was_asked() {
        for (bound, asked) in [
            ("0.0.0.0:0", "127.0.0.9"),
            ("[::]:0", "127.0.0.9"),
            ("[::]:0", "::1"),
            ("127.0.0.1:0", "127.0.0.1"),
        ] {
            let socket = UdpSocket::bind(bound).await.unwrap();
            watch(&socket).unwrap();
            let port = socket.local_addr().unwrap().port();
            let asked = SocketAddr::new(asked.parse().unwrap(), port);
            let from = if asked.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
            let client = std::net::UdpSocket::bind(from).unwrap();
            // The kernel would not deliver a reply from another address.
            client.connect(asked).unwrap();
            client.send(b"ping").unwrap();
            client.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
            socket.readable().await.unwrap();
            let mut buffer = [0; 16];
            let it = receive(&socket, &mut buffer).unwrap();
            assert_eq!(&buffer[..it.length], b"ping");
            assert_eq!(it.asked.map(|ip| ip.to_canonical()), Some(asked.ip()), "{bound}");
            answer(&socket, b"pong", it.client, it.asked).unwrap();
            let count = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], b"pong", "{bound} {asked}");
        }
    }
}
