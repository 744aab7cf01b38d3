//! Finds the end of a head. Each byte is looked at once, however slowly they arrive, and what can be refused early is.

use memchr::memchr;

use crate::codec::guard::{HeadError, Limits, is_token};

/// Maximum number of empty lines before a request that are skipped (RFC 9112 section 2.2); no client sends more.
pub(super) const MAX_EMPTY_LINES: usize = 4;

/// The sender of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Response,
}

/// The state of scanning a head.
///
/// **Invariant:** no byte is scanned twice for a line end, so a client that sends single bytes costs no more than one
/// that sends everything at once.
#[derive(Debug, Clone, Default)]
pub(super) struct Scan {
    /// All line ends before this position were seen.
    seen: usize,
    /// Start of the incomplete line.
    line: usize,
    /// Number of complete lines.
    lines: usize,
    /// Whether a line ended in LF alone.
    pub(super) bare: bool,
    /// Empty lines that were skipped before the head.
    skipped: usize,
}

impl Scan {
    /// Whether nothing was scanned yet, and the buffer begins as a head does.
    pub(super) fn begins(&self, buffer: &[u8], side: Side) -> bool {
        self.seen == 0 && begins_well(buffer, side).is_ok()
    }

    /// The number of bytes of empty lines before a request, which are to be discarded at once.
    ///
    /// # Errors
    /// [`HeadError::StartLine`] when there are too many, [`HeadError::LineEnd`] for half a line end.
    pub(super) fn leading(&mut self, buffer: &[u8]) -> Result<usize, HeadError> {
        if self.seen > 0 {
            return Ok(0);
        }
        let mut at = 0;
        loop {
            match &buffer[at..] {
                [b'\r', b'\n', ..] => at += 2,
                [b'\n', ..] | [b'\r', _, ..] => return Err(HeadError::LineEnd),
                _ => return Ok(at),
            }
            self.skipped += 1;
            if self.skipped > MAX_EMPTY_LINES {
                return Err(HeadError::StartLine);
            }
        }
    }

    /// Continues scanning; returns the length of the head once its empty line was received.
    ///
    /// # Errors
    /// What can be detected before the head is complete: a line that is too long or ends wrongly, or an invalid start
    /// line.
    pub(super) fn advance(
        &mut self,
        buffer: &[u8],
        side: Side,
        limits: &Limits,
    ) -> Result<Option<usize>, HeadError> {
        if self.seen == 0 && side == Side::Request && buffer == b"\r" {
            // Half of an empty line: the other half decides.
            return Ok(None);
        }
        if self.lines == 0 {
            begins_well(buffer, side)?;
        }
        while let Some(found) = memchr(b'\n', &buffer[self.seen..]) {
            let lf = self.seen + found;
            self.check_length(lf + 1, limits)?;
            let line = &buffer[self.line..lf];
            let line = match line.strip_suffix(b"\r") {
                Some(line) => line,
                // A backend may do that: its head is repaired.
                None if side == Side::Response => {
                    self.bare = true;
                    line
                }
                None => return Err(HeadError::LineEnd),
            };
            if self.lines == 0 {
                if side == Side::Request {
                    check_version(line)?;
                }
            } else if line.is_empty() {
                return Ok(Some(lf + 1));
            } else if self.lines > limits.fields {
                return Err(HeadError::TooManyFields);
            }
            self.lines += 1;
            self.seen = lf + 1;
            self.line = lf + 1;
        }
        self.seen = buffer.len();
        self.check_length(buffer.len(), limits)?;
        Ok(None)
    }

    /// Checks the length of the line up to `end`, and of the head so far.
    fn check_length(&self, end: usize, limits: &Limits) -> Result<(), HeadError> {
        let length = end - self.line;
        if self.lines == 0 && length > limits.start_line {
            Err(HeadError::StartLineTooLong)
        } else if end > limits.head || (self.lines > 0 && length > limits.field_line) {
            Err(HeadError::HeadTooLong)
        } else {
            Ok(())
        }
    }
}

/// Refuses at the first bytes what can never become a head: a TLS ClientHello on a plain port, or another protocol's
/// banner.
fn begins_well(buffer: &[u8], side: Side) -> Result<(), HeadError> {
    let well = match side {
        Side::Request => buffer.first().is_none_or(|&b| is_token(b)),
        Side::Response => {
            let prefix = b"HTTP/1.";
            let length = buffer.len().min(prefix.len());
            buffer[..length] == prefix[..length]
        }
    };
    if well { Ok(()) } else { Err(HeadError::StartLine) }
}

/// Distinguishes an unsupported version (505) from a line that is not HTTP (400).
fn check_version(line: &[u8]) -> Result<(), HeadError> {
    match line.rsplit(|&b| b == b' ').next().unwrap_or_default() {
        b"HTTP/1.1" | b"HTTP/1.0" => Ok(()),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(HeadError::Version)
        }
        _ => Err(HeadError::StartLine),
    }
}
