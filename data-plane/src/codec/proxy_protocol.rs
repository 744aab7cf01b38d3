//! The header that a load balancer puts before a connection, to tell whose it is: the PROXY protocol, versions 1 and 2
//! (proxy-protocol.txt of HAProxy). What nginx takes is taken, and nothing else.
//!
//! **Invariant:** no header is longer than [`LONGEST`], and of one that is none no more is looked at than it takes to see that.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use shared::template::OfConnection;
use thiserror::Error;

/// A line of version 1, its end included (proxy-protocol.txt 2.1).
const LINE: usize = 107;

/// A header of version 2 with all that may hang on it. nginx takes as much.
pub(crate) const LONGEST: usize = 4096;

/// What version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// What version 1 begins with.
const WORD: &[u8] = b"PROXY ";

/// Both ends of a connection, as they were told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    /// The client.
    pub(crate) source: SocketAddr,
    /// Where it connected to.
    pub(crate) destination: SocketAddr,
}

impl Ends {
    /// Appends one of nginx' variables of them; `false`: it is none.
    pub(crate) fn tell(&self, what: OfConnection, out: &mut Vec<u8>) -> bool {
        let Self { source, destination } = self;
        // Into memory: never fails.
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

/// A header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Its bytes.
    pub(crate) length: usize,
    /// `None`: it tells nothing, as that of a health check.
    pub(crate) ends: Option<Ends>,
}

/// Why bytes are no header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum NoHeader {
    /// They begin otherwise.
    #[error("expected a PROXY header, got something else")]
    Other,
    /// A line of version 1 that does not end.
    #[error("a PROXY line is longer than {LINE} bytes")]
    LongLine,
    /// A line of version 1 that is none.
    #[error("expected PROXY, TCP4, TCP6 or UNKNOWN, two addresses and two ports, got another line")]
    Line,
    /// Of a version that nobody knows.
    #[error("expected version 2 of the binary PROXY header, got another one")]
    Version,
    /// Too much hangs on it.
    #[error("a PROXY header is longer than {LONGEST} bytes")]
    Long,
    /// Its addresses are cut.
    #[error("a PROXY header is shorter than its addresses")]
    Short,
}

/// Reads a header at the beginning of a connection; `None`: there may be one, and more of it has to come.
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

/// What stands behind the first word of version 1. Of what is unknown the rest of the line is not looked at.
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

/// Digits alone, where `parse` would take a sign.
fn port(word: &str) -> Result<u16, NoHeader> {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|_| is_number).ok_or(NoHeader::Line)
}

/// Version 2, behind its signature (proxy-protocol.txt 2.2).
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
    // The command is PROXY, the transport a stream; a balancer that asks for itself says LOCAL, and is who it is.
    let is_told = version & 0x0f == 1 && family & 0x0f == 1;
    let ends = match family >> 4 {
        1 if is_told => Some(ends::<4>(body)?),
        2 if is_told => Some(ends::<16>(body)?),
        _ => None,
    };
    Ok(Some(Header { length, ends }))
}

/// Two addresses of so many bytes, and two ports.
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

/// The line of version 1 that tells these ends. Where one is IPv4 and the other is not, both are told as IPv6.
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
