//! The header with the client's address that a load balancer sends at the start of a connection: the PROXY protocol,
//! versions 1 and 2 (proxy-protocol.txt of HAProxy). Accepts exactly what nginx accepts.
//!
//! **Invariant:** no header is longer than [`LONGEST`], and input that is not a header is examined only as far as
//! needed to see that.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use shared::template::OfConnection;
use thiserror::Error;

/// Maximum length of a version 1 line, including its end (proxy-protocol.txt 2.1).
const LINE: usize = 107;

/// Maximum length of a version 2 header with all extensions, as in nginx.
pub(crate) const LONGEST: usize = 4096;

/// The beginning of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The beginning of version 1.
const WORD: &[u8] = b"PROXY ";

/// Both ends of a connection, according to a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    /// The client.
    pub(crate) source: SocketAddr,
    /// The address that the client connected to.
    pub(crate) destination: SocketAddr,
}

impl Ends {
    /// Appends the value of an nginx variable about them; `false`: `what` is another variable.
    pub(crate) fn tell(&self, what: OfConnection, out: &mut Vec<u8>) -> bool {
        let Self { source, destination } = self;
        // Writing to memory never fails.
        let _ = match what {
            OfConnection::ToldAddr => write!(out, "{}", source.ip()),
            OfConnection::ToldPort => write!(out, "{}", source.port()),
            OfConnection::ToldServerAddr => write!(out, "{}", destination.ip()),
            OfConnection::ToldServerPort => write!(out, "{}", destination.port()),
            _ => return false,
        };
        true
    }
}

/// A parsed header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Its length in bytes.
    pub(crate) length: usize,
    /// `None`: it contains no addresses, like that of a health check.
    pub(crate) ends: Option<Ends>,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum NoHeader {
    /// They begin differently.
    #[error("expected a PROXY header, got something else")]
    Other,
    /// A version 1 line without an end.
    #[error("a PROXY line is longer than {LINE} bytes")]
    LongLine,
    /// A malformed version 1 line.
    #[error("expected PROXY, TCP4, TCP6 or UNKNOWN, two addresses and two ports, got another line")]
    Line,
    /// An unknown version.
    #[error("expected version 2 of the binary PROXY header, got another one")]
    Version,
    /// The header is too long.
    #[error("a PROXY header is longer than {LONGEST} bytes")]
    Long,
    /// Its addresses are truncated.
    #[error("a PROXY header is shorter than its addresses")]
    Short,
}

/// Parses a header at the beginning of a connection; `None`: there may be one, but more bytes are needed.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Header>, NoHeader> {
    let is_begun = |whole: &[u8]| bytes.iter().zip(whole).all(|(byte, expected)| byte == expected);
    if is_begun(SIGNATURE) {
        return if bytes.len() < SIGNATURE.len() { Ok(None) } else { binary(bytes) };
    }
    if !is_begun(WORD) {
        return Err(NoHeader::Other);
    }
    let line = bytes.get(..LINE).unwrap_or(bytes);
    let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < LINE { Ok(None) } else { Err(NoHeader::LongLine) };
    };
    let words = line.get(WORD.len()..end).ok_or(NoHeader::Line)?;
    let words = std::str::from_utf8(words).map_err(|_| NoHeader::Line)?;
    Ok(Some(Header { length: end + 2, ends: text(words)? }))
}

/// Parses what follows the first word of version 1. For an unknown protocol the rest of the line is ignored.
fn text(line: &str) -> Result<Option<Ends>, NoHeader> {
    let mut words = line.split(' ');
    let family = words.next();
    let mut word = || words.next().ok_or(NoHeader::Line);
    let (source, destination) = match family {
        Some("UNKNOWN") => return Ok(None),
        Some("TCP4") => (ip::<Ipv4Addr>(word()?)?, ip::<Ipv4Addr>(word()?)?),
        Some("TCP6") => (ip::<Ipv6Addr>(word()?)?, ip::<Ipv6Addr>(word()?)?),
        _ => return Err(NoHeader::Line),
    };
    let (from, to) = (port(word()?)?, port(word()?)?);
    match words.next() {
        None => Ok(Some(Ends {
            source: SocketAddr::new(source, from),
            destination: SocketAddr::new(destination, to),
        })),
        Some(_) => Err(NoHeader::Line),
    }
}

fn ip<A: FromStr + Into<IpAddr>>(word: &str) -> Result<IpAddr, NoHeader> {
    word.parse::<A>().map(Into::into).map_err(|_| NoHeader::Line)
}

/// Digits only; `parse` would accept a sign.
fn port(word: &str) -> Result<u16, NoHeader> {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|_| is_number).ok_or(NoHeader::Line)
}

/// Parses version 2 after its signature (proxy-protocol.txt 2.2).
fn binary(bytes: &[u8]) -> Result<Option<Header>, NoHeader> {
    let Some([version, family, high, low]) = bytes.get(SIGNATURE.len()..SIGNATURE.len() + 4) else {
        return Ok(None);
    };
    if version >> 4 != 2 {
        return Err(NoHeader::Version);
    }
    let start = SIGNATURE.len() + 4;
    let length = start + usize::from(u16::from_be_bytes([*high, *low]));
    if length > LONGEST {
        return Err(NoHeader::Long);
    }
    let Some(body) = bytes.get(start..length) else {
        return Ok(None);
    };
    // The command is PROXY and the transport a stream; a balancer that connects on its own behalf uses LOCAL.
    let is_told = version & 0x0f == 1 && family & 0x0f == 1;
    let ends = match family >> 4 {
        1 if is_told => Some(ends::<4>(body)?),
        2 if is_told => Some(ends::<16>(body)?),
        _ => None,
    };
    Ok(Some(Header { length, ends }))
}

/// Two addresses of this size, and two ports.
fn ends<const N: usize>(body: &[u8]) -> Result<Ends, NoHeader>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = body.split_first_chunk::<N>().ok_or(NoHeader::Short)?;
    let (destination, rest) = rest.split_first_chunk::<N>().ok_or(NoHeader::Short)?;
    let (from, rest) = rest.split_first_chunk::<2>().ok_or(NoHeader::Short)?;
    let (to, _) = rest.split_first_chunk::<2>().ok_or(NoHeader::Short)?;
    let at = |ip: &[u8; N], port: &[u8; 2]| SocketAddr::new(IpAddr::from(*ip), u16::from_be_bytes(*port));
    Ok(Ends { source: at(source, from), destination: at(destination, to) })
}

/// The version 1 line for these ends. If only one is IPv4, both are written as IPv6.
pub(crate) fn line(ends: Ends) -> String {
    let canonical = |it: SocketAddr| SocketAddr::new(it.ip().to_canonical(), it.port());
    let (source, destination) = (canonical(ends.source), canonical(ends.destination));
    let (family, from, to) = match (source.ip(), destination.ip()) {
        (from @ IpAddr::V4(_), to @ IpAddr::V4(_)) => ("TCP4", from, to),
        (from, to) => ("TCP6", IpAddr::V6(wide(from)), IpAddr::V6(wide(to))),
    };
    format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port())
}

fn wide(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

#[cfg(test)]
mod tests;
