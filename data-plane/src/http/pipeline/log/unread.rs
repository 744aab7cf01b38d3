//! The log line of a request whose head could not be parsed, so that its sender can be found.

use bytes::Bytes;

use crate::codec::host::Host;

/// Maximum bytes of an unparsable line that are logged.
const LONGEST: usize = 1024;

/// Maximum number of lines that are searched.
const LINES: usize = 128;

/// What is logged of a head that could not be parsed.
#[derive(Debug, Default)]
pub(super) struct Unread {
    pub(super) line: Box<[u8]>,
    pub(super) referer: Option<Box<[u8]>>,
    pub(super) agent: Option<Box<[u8]>>,
    /// The first Host header, whatever it says.
    pub(super) host: Option<Box<[u8]>>,
}

impl Unread {
    /// Built from the received bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut lines = bytes.split(|byte| matches!(byte, b'\r' | b'\n'));
        let line = cut(lines.next().unwrap_or_default());
        let mut unread = Self { line, ..Self::default() };
        for line in lines.take(LINES) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let place = match &line[..colon] {
                name if name.eq_ignore_ascii_case(b"referer") => &mut unread.referer,
                name if name.eq_ignore_ascii_case(b"user-agent") => &mut unread.agent,
                name if name.eq_ignore_ascii_case(b"host") => &mut unread.host,
                _ => continue,
            };
            place.get_or_insert_with(|| cut(line[colon + 1..].trim_ascii()));
        }
        unread
    }

    /// Its method. As in nginx it has one if its first line has the form of one.
    pub(super) fn method(&self) -> Option<&[u8]> {
        let mut words = self.line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let (method, _target, version) = (words.next()?, words.next()?, words.next()?);
        let is_method = method.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'_' | b'-'));
        (is_method && version.starts_with(b"HTTP/") && words.next().is_none()).then_some(method)
    }

    /// The host that it names, lower-case and without a port, if it is one.
    pub(super) fn host_name(&self) -> Option<Vec<u8>> {
        let host = Host::parse(Bytes::copy_from_slice(self.host.as_deref()?)).ok()?;
        Some(host.name().as_bytes().to_vec()).filter(|name| !name.is_empty())
    }
}

fn cut(line: &[u8]) -> Box<[u8]> {
    line[..line.len().min(LONGEST)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unparsed_request_is_logged_as_far_as_it_is_readable() {
        let head = b"GET / HTTP/1.1\r\nUser-Agent: a\"\x01b \r\nREFERER:x\r\nReferer: y\r\n\r\n";
        let unread = Unread::of(head);
        assert_eq!(&*unread.line, b"GET / HTTP/1.1");
        assert_eq!(unread.agent.as_deref(), Some(&b"a\"\x01b"[..]));
        assert_eq!(unread.referer.as_deref(), Some(&b"x"[..]));
        let long = Unread::of(&[b'x'; 5000]);
        assert_eq!((long.line.len(), long.agent), (LONGEST, None));
        assert!(Unread::of(b"").line.is_empty());
    }

    #[test]
    fn method_and_host_are_those_of_a_readable_line() {
        for (head, method, host) in [
            ("GET /\u{1} HTTP/1.1\r\nhost: A.test:80\r\nX : y", Some("GET"), Some("a.test")),
            ("PROP-FIND  /  HTTP/7\nHost: a\nHost: b", Some("PROP-FIND"), Some("a")),
            ("GET / HTTP/1.1\r\nHost: a b\r\n", Some("GET"), None),
            ("get / HTTP/1.1\r\nHost:\r\n", None, None),
            ("GET / x HTTP/1.1", None, None),
            ("BAD", None, None),
        ] {
            let unread = Unread::of(head.as_bytes());
            assert_eq!(unread.method(), method.map(str::as_bytes), "{head}");
            assert_eq!(unread.host_name().as_deref(), host.map(str::as_bytes), "{head}");
        }
    }
}
