//! What is refused before anything is routed: the rules, their limits, and the status each breach is answered with.
//!
//! The readers of [`super::h1`] and the constructor of [`super::head::RequestHead`] hold to them, with the rules on
//! start lines and framing that stand beside the heads; the pipeline sees only heads that passed. The rules are
//! security.md 5.1, with ingress-nginx' answers.
//!
//! **Invariant:** a head that passed has one framing, at most one Host, and no octet in a line that a later
//! reader could take for the end of it.

use thiserror::Error;

/// The most fields that a head can ever have; [`Limits::fields`] may ask for fewer.
pub(crate) const MAX_FIELDS: usize = 256;

/// How large a message head may be. Sizes are in bytes and count the line's CRLF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The first line. ingress-nginx: `large-client-header-buffers 4 8k`, a longer one is answered 414.
    pub(crate) start_line: usize,
    /// One field line. ingress-nginx answers a longer one 400.
    pub(crate) field_line: usize,
    /// The whole head with its empty line.
    pub(crate) head: usize,
    /// The number of fields.
    pub(crate) fields: usize,
}

impl Limits {
    /// What clients may send by default: nginx' four large buffers, of which a line fills one at most, and its first one.
    pub(crate) const REQUEST: Self =
        Self { start_line: 8 << 10, field_line: 8 << 10, head: 33 << 10, fields: 100 };

    /// What backends may send by default: only the whole head is bounded, a single field may fill it.
    pub(crate) const RESPONSE: Self =
        Self { start_line: 64 << 10, field_line: 64 << 10, head: 64 << 10, fields: MAX_FIELDS };

    /// What a backend may send whose head may have so many bytes.
    pub(crate) fn response(head: usize) -> Self {
        Self { start_line: head, field_line: head, head, ..Self::RESPONSE }
    }
}

/// Why a message head cannot be taken.
///
/// On the client's side [`HeadError::status`] says what to answer; on the backend's side every one is a 502.
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
    /// Content-Length is not one decimal number below 2^63, or is repeated.
    #[error("expected one decimal Content-Length")]
    ContentLength,
    /// Transfer-Encoding stands beside Content-Length, is repeated, or is used in HTTP/1.0.
    #[error("the framing of the message is ambiguous")]
    Framing,
    /// A transfer coding other than `chunked`.
    #[error("the only transfer coding understood is chunked")]
    TransferCoding,
    /// A status code outside 100 to 999.
    #[error("the status code is not one of three digits from 100")]
    Status,
    /// An application's records are none of FastCGI, or end before its head does.
    #[error("expected the head of an answer in records of FastCGI")]
    Record,
}

impl HeadError {
    /// The status that a client is answered with, before its connection is closed.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::StartLineTooLong => 414,
            Self::TransferCoding => 501,
            Self::Version => 505,
            // ingress-nginx answers oversized heads with a 400 page as well (its internal 494).
            _ => 400,
        }
    }
}

/// Whether the octet may stand in a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(b: u8) -> bool {
    TOKEN[usize::from(b)]
}

/// Whether this is a field name: a token of at least one octet (RFC 9110 section 5.1).
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&b| is_token(b))
}

/// Whether the octet may stand in a field value: no control but HTAB (RFC 9110 section 5.5).
pub(crate) fn is_value_octet(b: u8) -> bool {
    b == b'\t' || (b >= b' ' && b != 0x7f)
}

/// Whether this is a field value: eight octets are looked at at a time, the last eight once more, for nearly no value has a
/// control.
pub(crate) fn is_value(value: &[u8]) -> bool {
    let is_clear = match value.last_chunk() {
        Some(last) => !value.as_chunks().0.iter().chain([last]).any(may_have_control),
        None => false,
    };
    is_clear || value.iter().all(|&b| is_value_octet(b))
}

/// Whether one of the octets is a control; sometimes though none is, never the other way round.
fn may_have_control(octets: &[u8; 8]) -> bool {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    let word = u64::from_ne_bytes(*octets);
    let without_del = word ^ (0x7f * EACH);
    // The top bit of an octet is set that was less than what is taken from it.
    let below_space = word.wrapping_sub(0x20 * EACH) & !word;
    let del = without_del.wrapping_sub(EACH) & !without_del;
    (below_space | del) & (0x80 * EACH) != 0
}

/// Whether nginx passes a field of this name on: letters, digits and dashes alone.
///
/// ingress-nginx behaviour (configmap.md 1.2, `ignore-invalid-headers`, `enable-underscores-in-headers`): others
/// are dropped and the request goes on, so that no backend takes `X_Forwarded_For` for the real one.
pub(crate) fn is_plain_name(name: &[u8]) -> bool {
    name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        let octet = b as u8;
        table[b] = octet.is_ascii_alphanumeric()
            || matches!(
                octet,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        b += 1;
    }
    table
};

#[cfg(test)]
mod tests;
