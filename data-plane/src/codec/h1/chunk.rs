//! The chunked coding (RFC 9112 section 7.1), read strictly.
//!
//! **Invariant:** what is accepted can be read in only one way. Sizes are plain hexadecimal, every line ends in CRLF,
//! extensions and trailers follow their grammar, are bounded, and are discarded. In responses, blanks after a size are
//! accepted: old servers pad sizes to a fixed length with them, and they have only one meaning
//! (docs/adr/004-strict-and-odd.md).

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use super::body::{Body, BodyError};
use crate::codec::guard::{is_name, is_token, is_value_octet};

/// Maximum length of the line with a chunk's size and extensions, including CRLF.
pub(super) const MAX_SIZE_LINE: usize = 256;
/// Maximum total bytes of extensions in one body; more is an attempt to make a small body costly.
pub(super) const MAX_EXTENSIONS: usize = 16 << 10;
/// Maximum total bytes of all trailer lines.
pub(super) const MAX_TRAILERS: usize = 8 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a line with size and extensions.
    Size,
    /// Within chunk data; the number of missing bytes.
    Data(u64),
    /// Before the CRLF after chunk data.
    DataEnd,
    /// Before a trailer line or the empty line.
    Trailer,
    /// After the empty line.
    Done,
}

/// Decodes one chunked body.
#[derive(Debug, Clone)]
pub(super) struct Chunks {
    state: State,
    /// Total bytes announced so far: more than 2^63 are refused.
    total: u64,
    extensions: usize,
    trailers: usize,
    /// Whether blanks after a size are accepted.
    pads: bool,
}

impl Chunks {
    /// For a request.
    pub(super) fn new() -> Self {
        Self { state: State::Size, total: 0, extensions: 0, trailers: 0, pads: false }
    }

    /// For a response.
    pub(super) fn of_answer() -> Self {
        Self { pads: true, ..Self::new() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes the next piece of data from the buffer.
    ///
    /// # Errors
    /// [`BodyError::Chunk`], [`BodyError::ChunkTooLarge`] or [`BodyError::Trailer`].
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Result<Body, BodyError> {
        loop {
            match self.state {
                State::Done => return Ok(Body::End),
                State::Size => {
                    let Some(line) = line(buffer, MAX_SIZE_LINE, BodyError::Chunk)? else {
                        return Ok(Body::Need);
                    };
                    let size = self.size(&line)?;
                    self.total = self.total.checked_add(size).ok_or(BodyError::ChunkTooLarge)?;
                    if self.total > i64::MAX as u64 {
                        return Err(BodyError::ChunkTooLarge);
                    }
                    self.state = if size == 0 { State::Trailer } else { State::Data(size) };
                }
                State::Data(missing) => {
                    if buffer.is_empty() {
                        return Ok(Body::Need);
                    }
                    let take = usize::try_from(missing).unwrap_or(usize::MAX).min(buffer.len());
                    let left = missing - take as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                    return Ok(Body::Data(buffer.split_to(take).freeze()));
                }
                State::DataEnd => match &buffer[..] {
                    [b'\r', b'\n', ..] => {
                        buffer.advance(2);
                        self.state = State::Size;
                    }
                    [] | [b'\r'] => return Ok(Body::Need),
                    _ => return Err(BodyError::Chunk),
                },
                State::Trailer => {
                    let left = MAX_TRAILERS - self.trailers;
                    let Some(line) = line(buffer, left, BodyError::Trailer)? else {
                        return Ok(Body::Need);
                    };
                    self.trailers += line.len() + 2;
                    if line.is_empty() {
                        self.state = State::Done;
                    } else {
                        check_trailer(&line)?;
                    }
                }
            }
        }
    }

    /// Parses a line with size and extensions.
    fn size(&mut self, line: &[u8]) -> Result<u64, BodyError> {
        let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        if digits == 0 || digits > 16 {
            return Err(BodyError::Chunk);
        }
        let mut size = 0u64;
        for &b in &line[..digits] {
            let digit = match b {
                b'0'..=b'9' => b - b'0',
                _ => (b | 0x20) - b'a' + 10,
            };
            size = size << 4 | u64::from(digit);
        }
        let extensions = &line[digits..];
        let extensions = if self.pads { extensions.trim_ascii_end() } else { extensions };
        self.extensions += extensions.len();
        if self.extensions > MAX_EXTENSIONS || !are_extensions(extensions) {
            return Err(BodyError::Chunk);
        }
        Ok(size)
    }
}

/// Takes a line from the buffer, without its CRLF; at most `limit` bytes including the CRLF.
fn line(buffer: &mut BytesMut, limit: usize, error: BodyError) -> Result<Option<Bytes>, BodyError> {
    let window = &buffer[..buffer.len().min(limit)];
    let Some(lf) = memchr(b'\n', window) else {
        return if window.len() == limit { Err(error) } else { Ok(None) };
    };
    let text = window[..lf].strip_suffix(b"\r").ok_or(error)?;
    if !text.iter().all(|&b| is_value_octet(b)) {
        return Err(error);
    }
    let mut line = buffer.split_to(lf + 1).freeze();
    line.truncate(lf - 1);
    Ok(Some(line))
}

/// `*( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )`
fn are_extensions(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Some(after) = blank(rest).strip_prefix(b";") else {
            return false;
        };
        let Some(after) = token(blank(after)) else {
            return false;
        };
        rest = after;
        if let Some(value) = blank(after).strip_prefix(b"=") {
            let value = blank(value);
            let end = if value.first() == Some(&b'"') { quoted(value) } else { token(value) };
            let Some(after) = end else { return false };
            rest = after;
        }
    }
    true
}

fn blank(text: &[u8]) -> &[u8] {
    let length = text.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    &text[length..]
}

/// The text after a token; `None` if there is no token.
fn token(text: &[u8]) -> Option<&[u8]> {
    let length = text.iter().take_while(|&&b| is_token(b)).count();
    (length > 0).then(|| &text[length..])
}

/// The text after a quoted-string (RFC 9110 section 5.6.4).
fn quoted(text: &[u8]) -> Option<&[u8]> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(&text[at + 1..]),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Trailers follow the grammar of fields; folded lines begin with whitespace, which no name does.
fn check_trailer(line: &[u8]) -> Result<(), BodyError> {
    let colon = memchr(b':', line).ok_or(BodyError::Trailer)?;
    if is_name(&line[..colon]) { Ok(()) } else { Err(BodyError::Trailer) }
}

#[cfg(test)]
mod tests;
