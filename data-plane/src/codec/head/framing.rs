//! How long a message's body is, from nothing but what is unmistakable.

use super::fields::Fields;
use super::name::Known;
use super::{Framing, Version};
use crate::codec::guard::HeadError;

/// Decides how long the body of an HTTP/1 request is, from nothing but what is unmistakable (RFC 9112 section 6.3).
///
/// # Errors
/// [`HeadError::Framing`], [`HeadError::TransferCoding`] or [`HeadError::ContentLength`].
pub(crate) fn request_framing(version: Version, fields: &Fields) -> Result<Framing, HeadError> {
    let length = content_length(fields)?;
    Ok(match (transfer_coding(fields)?, length) {
        (true, Some(_)) => return Err(HeadError::Framing),
        (true, None) if version == Version::Http10 => return Err(HeadError::Framing),
        (true, None) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::None,
    })
}

/// Reads Content-Length.
///
/// # Errors
/// [`HeadError::ContentLength`] when it is repeated, even with the same value, or is not `1*DIGIT` below 2^63.
pub(crate) fn content_length(fields: &Fields) -> Result<Option<u64>, HeadError> {
    let mut values = fields.all(Known::ContentLength);
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(HeadError::ContentLength);
    }
    decimal(value).map(Some).ok_or(HeadError::ContentLength)
}

/// Whether the one transfer coding `chunked` is used.
///
/// # Errors
/// [`HeadError::TransferCoding`] for another coding; [`HeadError::Framing`] for a second Transfer-Encoding line.
pub(crate) fn transfer_coding(fields: &Fields) -> Result<bool, HeadError> {
    let mut values = fields.all(Known::TransferEncoding);
    let Some(value) = values.next() else {
        return Ok(false);
    };
    if values.next().is_some() {
        return Err(HeadError::Framing);
    }
    // A list, even `chunked, chunked`, is a coding that some reader takes otherwise: only the bare word passes.
    if value.eq_ignore_ascii_case(b"chunked") { Ok(true) } else { Err(HeadError::TransferCoding) }
}

/// A decimal number below 2^63 in at most 19 digits; leading zeros within those are allowed.
fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 {
        return None;
    }
    let mut number = 0u64;
    for &b in value {
        if !b.is_ascii_digit() {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(b - b'0'))?;
    }
    (number <= i64::MAX as u64).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_plain_decimals() {
        for (text, number) in [("0", 0), ("7", 7), ("007", 7), ("9223372036854775807", i64::MAX as u64)] {
            assert_eq!(decimal(text.as_bytes()), Some(number), "{text}");
        }
        for text in [
            "",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1,1",
            "0x1",
            "1_0",
            "9223372036854775808",
            "00000000000000000001",
            "\u{ff15}",
        ] {
            assert_eq!(decimal(text.as_bytes()), None, "{text}");
        }
    }
}
