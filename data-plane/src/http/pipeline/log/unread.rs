//! The log line of a request whose head could not be parsed, so that its sender can be found.

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
                _ => continue,
            };
            place.get_or_insert_with(|| cut(line[colon + 1..].trim_ascii()));
        }
        unread
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
}
