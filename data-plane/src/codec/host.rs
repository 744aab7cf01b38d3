//! The host of a request: validated, and in the form used for lookups.

use std::net::Ipv6Addr;

use bytes::Bytes;

use super::guard::HeadError;

/// A valid `Host` or `:authority` (RFC 9110 section 7.2): the original text, and the name in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    raw: Bytes,
    /// The name is the beginning of the original text, up to here...
    name_len: usize,
    /// ...unless that has capitals: then it is this.
    folded: Option<Box<str>>,
}

impl Host {
    /// The host of an HTTP/1.0 request without one: only the catch-all serves it.
    pub(crate) fn none() -> Self {
        Self { raw: Bytes::new(), name_len: 0, folded: None }
    }

    /// Validates a host with an optional port.
    ///
    /// A name may contain what RFC 3986 section 3.2.2 allows in a reg-name, except the comma, which would join two
    /// Hosts; an address in brackets must be IPv6. As in nginx, a name cannot be empty or contain `..`, and one
    /// trailing dot is ignored.
    ///
    /// # Errors
    /// [`HeadError::Host`] for anything else: userinfo, a port above 65535, a path, octets outside ASCII.
    pub(crate) fn parse(raw: Bytes) -> Result<Self, HeadError> {
        let end = match raw.first() {
            Some(b'[') => bracketed(&raw)?,
            _ => memchr::memchr(b':', &raw).unwrap_or(raw.len()),
        };
        match &raw[end..] {
            [] | [b':'] => {}
            [b':', digits @ ..] => check_port(digits)?,
            _ => return Err(HeadError::Host),
        }
        let mut name_end = end;
        let has_capitals = if raw.first() == Some(&b'[') {
            raw[..end].iter().any(u8::is_ascii_uppercase)
        } else {
            name_end -= usize::from(raw[..end].ends_with(b"."));
            check_name(&raw[..end])?
        };
        if name_end == 0 {
            return Err(HeadError::Host);
        }
        let folded = match has_capitals {
            true => {
                let name = std::str::from_utf8(&raw[..name_end]).map_err(|_| HeadError::Host)?;
                Some(name.to_ascii_lowercase().into())
            }
            false => None,
        };
        Ok(Self { raw, name_len: name_end, folded })
    }

    /// The original text including the port: the Host header for the backend. Empty if there was none.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// [`Host::raw`], sharing the head's memory.
    pub(crate) fn raw_bytes(&self) -> Bytes {
        self.raw.clone()
    }

    /// The name alone: in lower case, without port and trailing dot, with brackets. Empty if there was none.
    pub(crate) fn name(&self) -> &str {
        match &self.folded {
            Some(name) => name,
            // A valid name is ASCII, so this never falls back; the check is cheaper than storing a copy of the name.
            None => std::str::from_utf8(&self.raw[..self.name_len]).unwrap_or_default(),
        }
    }
}

/// The end of an IP literal, including its bracket.
fn bracketed(raw: &[u8]) -> Result<usize, HeadError> {
    let close = raw.iter().position(|&b| b == b']').ok_or(HeadError::Host)?;
    let address = std::str::from_utf8(&raw[1..close]).map_err(|_| HeadError::Host)?;
    address.parse::<Ipv6Addr>().map_err(|_| HeadError::Host)?;
    Ok(close + 1)
}

fn check_port(digits: &[u8]) -> Result<(), HeadError> {
    // Leading zeros would allow several spellings of one port.
    if digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(HeadError::Host);
    }
    let number = digits.iter().fold(0u32, |n, b| n * 10 + u32::from(b - b'0'));
    if number > u32::from(u16::MAX) { Err(HeadError::Host) } else { Ok(()) }
}

/// Whether the name has capitals.
///
/// # Errors
/// [`HeadError::Host`] if it is not a valid name.
fn check_name(name: &[u8]) -> Result<bool, HeadError> {
    let (mut seen, mut previous) = (0, 0);
    for &b in name {
        let class = CLASS[usize::from(b)];
        let twice = if class & previous & DOT == 0 { 0 } else { BAD };
        seen |= class | twice;
        previous = class;
    }
    let well = seen & BAD == 0 && (seen & PERCENT == 0 || escapes_well(name));
    if well { Ok(seen & CAPITAL != 0) } else { Err(HeadError::Host) }
}

/// Whether two hex digits follow every percent sign.
fn escapes_well(name: &[u8]) -> bool {
    let mut parts = name.split(|&b| b == b'%').skip(1);
    parts.all(|part| part.get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)))
}

/// Properties of an octet in a name, as bits: never allowed, not allowed twice in a row, and so on.
const BAD: u8 = 1;
const DOT: u8 = 2;
const PERCENT: u8 = 4;
const CAPITAL: u8 = 8;

const CLASS: [u8; 256] = {
    let mut classes = [BAD; 256];
    let mut b = 0;
    while b < 256 {
        classes[b] = match b as u8 {
            b'.' => DOT,
            b'%' => PERCENT,
            b'-' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b';' | b'=' => 0,
            b'A'..=b'Z' => CAPITAL,
            octet if octet.is_ascii_alphanumeric() => 0,
            _ => BAD,
        };
        b += 1;
    }
    classes
};

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &'static str) -> Option<String> {
        let host = Host::parse(Bytes::from_static(text.as_bytes())).ok()?;
        assert_eq!(host.raw(), text.as_bytes());
        Some(host.name().to_owned())
    }

    #[test]
    fn the_name_is_folded_and_the_port_cut() {
        for (text, name) in [
            ("case.test", "case.test"),
            ("CASE.Test:8080", "case.test"),
            ("case.test.", "case.test"),
            ("case.test.:80", "case.test"),
            ("case.test:", "case.test"),
            ("my_app.case.test", "my_app.case.test"),
            ("10.0.0.1:1", "10.0.0.1"),
            ("[::1]:8080", "[::1]"),
            ("[FE80::A]", "[fe80::a]"),
            ("a%41b", "a%41b"),
            ("a:65535", "a"),
        ] {
            assert_eq!(parse(text).as_deref(), Some(name), "{text}");
        }
    }

    #[test]
    fn invalid_host_is_refused() {
        for text in [
            "",
            ".",
            ":80",
            "user@a",
            "a/b",
            "a:abc",
            "a:80:81",
            "a:65536",
            "a:-1",
            "a:000080",
            "a b",
            "a,b",
            "a\"",
            "a..b",
            "a..",
            "[::1",
            "[::1]x",
            "[::1].",
            "[v1.a]",
            "[fe80::1%25eth0]",
            "::1",
            "a?b",
            "a#b",
            "a\\b",
            "é",
            "a%4",
            "a%zz",
            "a\u{1}b",
            "a\u{7f}",
            "a\tb",
            "[]",
            "]",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn no_host_is_an_empty_name() {
        let none = Host::none();
        assert_eq!((none.name(), none.raw()), ("", &b""[..]));
    }
}
