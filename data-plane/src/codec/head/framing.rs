//! Determines the length of a message body, accepting only unambiguous framing.

use super::fields::Fields;
use super::name::Known;
use super::{Framing, Version};
use crate::codec::guard::HeadError;

/// Determines the body length of an HTTP/1 request, accepting only unambiguous framing (RFC 9112 section 6.3).
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

/// Parses Content-Length.
///
/// # Errors
/// [`HeadError::ContentLength`] if it is repeated, even with the same value, or is not `1*DIGIT` below 2^63.
pub(crate) fn content_length(fields: &Fields) -> Result<Option<u64>, HeadError> {
    let mut values = fields.all(Known::ContentLength);
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(HeadError::ContentLength);
    }
    length(value).map(Some)
}

/// Parses the value of the only Content-Length.
///
/// # Errors
/// [`HeadError::ContentLength`] if it is not `1*DIGIT` below 2^63.
pub(super) fn length(value: &[u8]) -> Result<u64, HeadError> {
    decimal(value).ok_or(HeadError::ContentLength)
}

/// Whether the single transfer coding `chunked` is used.
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
    // A list, even `chunked, chunked`, would be read differently by some servers: only the bare word is accepted.
    if value.eq_ignore_ascii_case(b"chunked") { Ok(true) } else { Err(HeadError::TransferCoding) }
}

/// A decimal number below 2^63 with at most 19 digits, including leading zeros.
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

/// The most digits of a number.
pub(crate) const DIGITS: usize = 20;

/// The text of a number, without an allocation.
pub(crate) fn digits_of(mut number: u64, digits: &mut [u8; DIGITS]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
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
