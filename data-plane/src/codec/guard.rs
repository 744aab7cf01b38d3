//! What is refused before routing: the rules, their limits, and the status for each violation.
//!
//! The readers in [`super::h1`] and the constructor of [`super::head::RequestHead`] enforce them, together with the
//! rules for start lines and framing next to the heads. The pipeline sees only heads that passed. The statuses are
//! those of ingress-nginx.
//!
//! **Invariant:** a head that passed has one framing, at most one Host and one Authorization, and no octet in a line
//! that a later reader could take for a line end.

use thiserror::Error;

/// The maximum number of fields in any head; [`Limits::fields`] may be lower.
pub(crate) const MAX_FIELDS: usize = 256;

/// How large a message head may be. Sizes are in bytes and count the line's CRLF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The first line. ingress-nginx: `large-client-header-buffers 4 8k`, with a 414 for a longer one.
    pub(crate) start_line: usize,
    /// One field line. ingress-nginx responds with 400 to a longer one.
    pub(crate) field_line: usize,
    /// The whole head with its empty line.
    pub(crate) head: usize,
    /// The number of fields.
    pub(crate) fields: usize,
}

impl Limits {
    /// The default for requests: nginx' four large buffers, each for at most one line, plus its first buffer.
    pub(crate) const REQUEST: Self =
        Self { start_line: 8 << 10, field_line: 8 << 10, head: 33 << 10, fields: 100 };

    /// The default for responses: only the whole head is limited, and a single field may fill it.
    pub(crate) const RESPONSE: Self =
        Self { start_line: 64 << 10, field_line: 64 << 10, head: 64 << 10, fields: MAX_FIELDS };

    /// Limits for a response whose head may have this many bytes.
    pub(crate) fn response(head: usize) -> Self {
        Self { start_line: head, field_line: head, head, ..Self::RESPONSE }
    }
}

/// Why a message head is refused.
///
/// For clients [`HeadError::status`] is the status; for backends each is a 502.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(crate) enum HeadError {
    /// The first line does not follow the grammar of RFC 9112 section 3 or 4.
    #[error("the start line is not METHOD SP target SP HTTP/1.x")]
    StartLine,
    /// A line ends in a bare LF, or holds a CR or NUL.
    #[error("a line does not end in CRLF, or holds CR, LF or NUL")]
    LineEnd,
    /// A field line does not follow RFC 9112 section 5: bad name, space before the colon, folding, a control octet.
    #[error("a field line is not name: value")]
    Field,
    /// More fields than [`Limits::fields`].
    #[error("too many fields")]
    TooManyFields,
    /// The request line is longer than [`Limits::start_line`].
    #[error("the start line is too long")]
    StartLineTooLong,
    /// A field line or the whole head is longer than its limit.
    #[error("a field line, or the head as a whole, is too long")]
    HeadTooLong,
    /// An HTTP version other than 1.0 and 1.1.
    #[error("expected HTTP/1.0 or HTTP/1.1")]
    Version,
    /// TRACE or CONNECT.
    #[error("the method is not allowed")]
    Method,
    /// A target that is neither origin-form, nor absolute-form with http or https, nor `OPTIONS *`.
    #[error("the request target is neither a path nor an absolute http URI")]
    Target,
    /// Host is missing, repeated or not `host [":" port]`.
    #[error("expected exactly one valid Host")]
    Host,
    /// A second line of a field that says who the client is, how its body comes, or under which condition to serve it.
    #[error("a field that is said once is repeated")]
    Repeated,
    /// Content-Length is not one decimal number below 2^63, or is repeated.
    #[error("expected one decimal Content-Length")]
    ContentLength,
    /// Transfer-Encoding is combined with Content-Length, repeated, or used in HTTP/1.0.
    #[error("the framing of the message is ambiguous")]
    Framing,
    /// A transfer coding other than `chunked`.
    #[error("the only transfer coding understood is chunked")]
    TransferCoding,
    /// A status code outside 100 to 999.
    #[error("the status code is not one of three digits from 100")]
    Status,
    /// An application's records are not valid FastCGI, or end before the end of the head.
    #[error("expected the head of an answer in records of FastCGI")]
    Record,
}

impl HeadError {
    /// The status for the client, whose connection is closed afterwards.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::StartLineTooLong => 414,
            Self::TransferCoding => 501,
            Self::Version => 505,
            // ingress-nginx responds with a 400 page to oversized heads as well (its internal 494).
            _ => 400,
        }
    }
}

/// Whether the octet is allowed in a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(b: u8) -> bool {
    CLASS[usize::from(b)] & TOKEN != 0
}

/// Whether this is a field name: a token of at least one octet (RFC 9110 section 5.1).
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && are_all(TOKEN, name)
}

/// The same without capitals, as HTTP/2 requires (RFC 9113 section 8.2.1).
pub(crate) fn is_lower_name(name: &[u8]) -> bool {
    !name.is_empty() && are_all(TOKEN | NO_CAPITAL, name)
}

/// Whether the octet is allowed in a field value: no control except HTAB (RFC 9110 section 5.5).
pub(crate) fn is_value_octet(b: u8) -> bool {
    b == b'\t' || (b >= b' ' && b != 0x7f)
}

/// Whether this is a valid field value. Checks eight octets at a time, the last eight overlapping, because hardly any
/// value has a control octet.
pub(crate) fn is_value(value: &[u8]) -> bool {
    let is_clear = match value.last_chunk() {
        Some(last) => !value.as_chunks().0.iter().chain([last]).any(may_have_control),
        None => false,
    };
    is_clear || value.iter().all(|&b| is_value_octet(b))
}

/// Whether one of the octets is a control. May return false positives, but no false negatives.
fn may_have_control(octets: &[u8; 8]) -> bool {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    let word = u64::from_ne_bytes(*octets);
    let without_del = word ^ (0x7f * EACH);
    // Sets the top bit of each octet that was smaller than what was subtracted.
    let below_space = word.wrapping_sub(0x20 * EACH) & !word;
    let del = without_del.wrapping_sub(EACH) & !without_del;
    (below_space | del) & (0x80 * EACH) != 0
}

/// Whether nginx passes on a field of this name: only letters, digits and dashes.
///
/// As in ingress-nginx (`ignore-invalid-headers`, `enable-underscores-in-headers`): other fields are dropped and the
/// request continues, so that no backend confuses `X_Forwarded_For` with the real one.
pub(crate) fn is_plain_name(name: &[u8]) -> bool {
    are_all(PLAIN, name)
}

/// Whether each of the octets has these properties. Looks at all of them: hardly any name lacks one.
fn are_all(properties: u8, octets: &[u8]) -> bool {
    octets.iter().fold(properties, |common, b| common & CLASS[usize::from(*b)]) == properties
}

/// Properties of an octet in a name, as bits.
const TOKEN: u8 = 1;
const PLAIN: u8 = 2;
const NO_CAPITAL: u8 = 4;

const CLASS: [u8; 256] = {
    let mut classes = [0; 256];
    let mut b = 0;
    while b < 256 {
        classes[b] = match b as u8 {
            b'A'..=b'Z' => TOKEN | PLAIN,
            b'a'..=b'z' | b'0'..=b'9' | b'-' => TOKEN | PLAIN | NO_CAPITAL,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'.' | b'^' | b'_' | b'`' | b'|'
            | b'~' => TOKEN | NO_CAPITAL,
            _ => NO_CAPITAL,
        };
        b += 1;
    }
    classes
};

#[cfg(test)]
mod tests;
