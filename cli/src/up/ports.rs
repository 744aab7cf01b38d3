//! The addresses of `firth up`: tried before anything starts, so that an address in use is reported with the flag's
//! name.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use shared::socket;
use tokio::net::TcpSocket;

use crate::args::UpArgs;

/// Free addresses, with actual ports in place of 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) http: SocketAddr,
    pub(super) https: SocketAddr,
    pub(super) listen: SocketAddr,
}

/// Reserves the ports until the planes have bound them, and after that.
///
/// Its sockets are bound and never listen: with `SO_REUSEADDR` on both sides, Linux lets another socket bind and listen
/// at the same address, but does not assign the port to sockets that bind port 0 or connect
/// (`inet_csk_find_open_port`).
#[derive(Debug)]
pub(super) struct Held {
    _sockets: [TcpSocket; 3],
}

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PortError {
    #[error("{flag} {addr}: the address is in use; stop what has it, or choose another: {flag} {other}")]
    InUse { flag: &'static str, addr: SocketAddr, other: SocketAddr },
    #[error("{flag} {addr}: cannot be bound")]
    Bind { flag: &'static str, addr: SocketAddr, source: io::Error },
    #[error("{flag}: {addr} is taken by {of} {other}; choose another port for one of them")]
    Twice { flag: &'static str, addr: SocketAddr, of: &'static str, other: SocketAddr },
    #[error(
        "--listen {addr}: expected a loopback address: both planes are in this process, and whoever runs it is its operator"
    )]
    Exposed { addr: SocketAddr },
}

impl Ports {
    /// Tries the addresses and reserves them.
    pub(super) fn claim(args: &UpArgs) -> Result<(Self, Held), PortError> {
        if !args.listen.ip().is_loopback() {
            return Err(PortError::Exposed { addr: args.listen });
        }
        distinct(&[("--http", args.http), ("--https", args.https), ("--listen", args.listen)])?;
        let (held_http, http) = claim("--http", args.http)?;
        let (held_https, https) = claim("--https", args.https)?;
        let (held_listen, listen) = claim("--listen", args.listen)?;
        Ok((Self { http, https, listen }, Held { _sockets: [held_http, held_https, held_listen] }))
    }
}

/// A held port does not keep others from binding it, so that two flags with one address are not noticed there.
fn distinct(named: &[(&'static str, SocketAddr)]) -> Result<(), PortError> {
    for (at, (flag, addr)) in named.iter().copied().enumerate() {
        let earlier = named[..at].iter().copied().find(|(_, other)| socket::overlap(*other, addr));
        if let Some((of, other)) = earlier {
            return Err(PortError::Twice { flag, addr, of, other });
        }
    }
    Ok(())
}

fn claim(flag: &'static str, addr: SocketAddr) -> Result<(TcpSocket, SocketAddr), PortError> {
    hold(addr).map_err(|source| match source.kind() {
        ErrorKind::AddrInUse => {
            let port = addr.port().checked_add(1).unwrap_or(0);
            let other = SocketAddr::new(addr.ip(), port);
            PortError::InUse { flag, addr, other }
        }
        _ => PortError::Bind { flag, addr, source },
    })
}

/// A socket that is bound to the address and does not listen.
///
/// # Errors
/// The kernel's: the address is in use, or not one of this machine.
pub(super) fn hold(addr: SocketAddr) -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    let addr = socket.local_addr()?;
    Ok((socket, addr))
}

/// The address at which a local client reaches a listener: a wildcard is no destination.
pub(super) fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    fn args(line: &str) -> UpArgs {
        let Command::Up(args) = Args::parse_from(line.split(' ')).command else {
            panic!("expected up");
        };
        args
    }

    #[test]
    fn zeros_become_different_ports() {
        let args = args("firth up . --http 127.0.0.1:0 --https 127.0.0.1:0 --listen 127.0.0.1:0");
        let (ports, _held) = Ports::claim(&args).unwrap();
        assert_ne!(ports.http, ports.https);
        assert_ne!(ports.https, ports.listen);
        assert_ne!(ports.listen.port(), 0);
    }

    #[test]
    fn a_port_in_use_names_its_flag_and_another() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = taken.local_addr().unwrap();
        let args = args(&format!("firth up . --http 127.0.0.1:0 --https {addr} --listen 127.0.0.1:0"));
        let error = Ports::claim(&args).unwrap_err().to_string();
        assert!(error.starts_with(&format!("--https {addr}: the address is in use")), "{error}");
    }

    #[test]
    fn an_address_is_that_of_one_flag() {
        for (line, expected) in [
            (
                "--http 127.0.0.1:4000 --https 127.0.0.1:4000",
                "--https: 127.0.0.1:4000 is taken by --http 127.0.0.1:4000",
            ),
            (
                "--http 0.0.0.0:4000 --https 127.0.0.1:4000",
                "--https: 127.0.0.1:4000 is taken by --http 0.0.0.0:4000",
            ),
            ("--listen 127.0.0.1:8080", "--listen: 127.0.0.1:8080 is taken by --http 127.0.0.1:8080"),
        ] {
            let error = Ports::claim(&args(&format!("firth up . {line}"))).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    /// In a test, another `firth up` was given the same port in the meantime.
    #[test]
    fn what_is_held_goes_to_who_names_it_and_to_nobody_else() {
        let args = args("firth up . --http 127.0.0.1:0 --https 127.0.0.1:0 --listen 127.0.0.1:0");
        let (ports, _held) = Ports::claim(&args).unwrap();
        let taken = data_plane::listen::bind(&[ports.http], &[ports.https], 2).unwrap();
        data_plane::listen::ListenerSet::of(&taken).open().unwrap();
        let _stream = TcpListener::bind(ports.listen).unwrap();
        drop(taken);
        let other = TcpSocket::new_v4().unwrap().bind(ports.http).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn the_stream_stays_on_loopback() {
        let error = Ports::claim(&args("firth up . --listen 0.0.0.0:0")).unwrap_err();
        assert!(matches!(error, PortError::Exposed { .. }));
    }

    #[test]
    fn the_wildcard_is_reached_by_loopback() {
        assert_eq!(reachable("0.0.0.0:80".parse().unwrap()), "127.0.0.1:80".parse().unwrap());
        assert_eq!(reachable("[::]:80".parse().unwrap()), "[::1]:80".parse().unwrap());
    }
}
