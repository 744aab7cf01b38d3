//! The octets allowed in names and values, which are those of the types of the `http` crate.

/// A set of properties of an octet, or of all octets of a text.
pub(super) type Classes = u8;

/// Allowed in field names: no capitals (RFC 9113 section 8.2.1).
pub(super) const NAME: Classes = 1;
/// Allowed in field values: no control except HTAB.
pub(super) const VALUE: Classes = 2;
/// Allowed in methods.
pub(super) const METHOD: Classes = 4;
/// Below 0x80.
pub(super) const ASCII: Classes = 8;

pub(super) const ALL: Classes = NAME | VALUE | METHOD | ASCII;

/// By octet.
pub(super) static CLASSES: [Classes; 256] = classes();

const fn classes() -> [Classes; 256] {
    let mut classes = [0; 256];
    let mut at = 0;
    while at < 256 {
        let octet = at as u8;
        let is_small = matches!(octet, b'0'..=b'9' | b'a'..=b'z')
            || matches!(octet, b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.')
            || matches!(octet, b'^' | b'_' | b'`' | b'|' | b'~');
        // The `http` crate allows a quotation mark in a name, which RFC 9110 does not.
        if is_small || octet == b'"' {
            classes[at] |= NAME;
        }
        if is_small || octet.is_ascii_uppercase() {
            classes[at] |= METHOD;
        }
        if octet == b'\t' || octet >= b' ' && octet != 0x7f {
            classes[at] |= VALUE;
        }
        if octet.is_ascii() {
            classes[at] |= ASCII;
        }
        at += 1;
    }
    classes
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, Method};

    use super::*;

    #[test]
    fn octet_classes_match_the_http_crate() {
        for octet in 0..=u8::MAX {
            let is = |class| CLASSES[usize::from(octet)] & class != 0;
            let text = &[octet];
            assert_eq!(is(NAME), HeaderName::from_lowercase(text).is_ok(), "{octet}");
            assert_eq!(is(VALUE), HeaderValue::from_bytes(text).is_ok(), "{octet}");
            assert_eq!(is(METHOD), Method::from_bytes(text).is_ok(), "{octet}");
            assert_eq!(is(ASCII), std::str::from_utf8(text).is_ok(), "{octet}");
        }
    }
}
