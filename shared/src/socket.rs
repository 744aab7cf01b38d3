//! Listening addresses as flags accept them.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Parses an IP address and a port.
///
/// # Errors
/// What was expected, and what was found.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("expected ADDRESS:PORT, such as 127.0.0.1:8080, got {text:?}"))
}

/// Whether a connection to one listening address might be one to the other: with `SO_REUSEPORT` the kernel lets both be
/// bound, and deals connections out where they are the same. Port 0 is another port each time.
pub fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |wide: IpAddr, ip: IpAddr| match wide {
        IpAddr::V4(wide) => wide.is_unspecified() && ip.is_ipv4(),
        // It includes IPv4.
        IpAddr::V6(wide) => wide.is_unspecified(),
    };
    let [ip, other_ip] = [one, other].map(|address| address.ip().to_canonical());
    let is_same = ip == other_ip || covers(ip, other_ip) || covers(other_ip, ip);
    is_same && one.port() == other.port() && one.port() != 0
}

/// Binds an address with `bind`; `[::]` as `0.0.0.0` where there is no IPv6.
///
/// # Errors
/// It cannot be bound.
pub fn bound<T>(address: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    bind(address).or_else(|error| bind(without_ipv6(address, &error).ok_or(error)?))
}

/// Where to listen instead of an address that cannot be bound: `[::]` includes IPv4, and is `0.0.0.0` on a machine without IPv6.
pub fn without_ipv6(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let is_taken = matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied);
    let is_any = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    (is_any && !is_taken).then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_address_needs_an_ip_and_a_port() {
        for text in ["127.0.0.1:0", "0.0.0.0:80", "[::1]:8443"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for text in ["", "80", ":80", "127.0.0.1", "localhost:80", "::1:80", "127.0.0.1:99999"] {
            assert!(parse(text).unwrap_err().contains("such as"), "{text}");
        }
    }

    #[test]
    fn addresses_overlap_where_one_connection_could_go_to_either() {
        for (one, other, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "[::1]:80", true),
            ("[::]:80", "0.0.0.0:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let [one, other] = [one, other].map(|text| parse(text).unwrap());
            assert_eq!((overlap(one, other), overlap(other, one)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn without_ipv6_all_addresses_are_those_of_ipv4() {
        // EAFNOSUPPORT of Linux.
        let [none, taken] = [97, 98].map(io::Error::from_raw_os_error);
        let [any, local] = ["[::]:80", "[::1]:80"].map(|text| parse(text).unwrap());
        assert_eq!(without_ipv6(any, &none), Some(parse("0.0.0.0:80").unwrap()));
        assert_eq!(without_ipv6(any, &taken), None, "IPv4 alone would be less than was asked for");
        assert_eq!(without_ipv6(local, &none), None);
        assert_eq!(without_ipv6(parse("0.0.0.0:80").unwrap(), &none), None);
    }
}
