//! The part of DER (X.690) that is needed for certificates, OCSP requests and OCSP responses: one-byte tags, definite
//! lengths.

/// SEQUENCE.
pub(crate) const SEQUENCE: u8 = 0x30;
/// OBJECT IDENTIFIER.
pub(crate) const OID: u8 = 0x06;
/// OCTET STRING.
pub(crate) const OCTETS: u8 = 0x04;
/// INTEGER.
pub(crate) const INTEGER: u8 = 0x02;
/// ENUMERATED.
pub(crate) const ENUMERATED: u8 = 0x0a;
/// BIT STRING.
pub(crate) const BITS: u8 = 0x03;
/// GeneralizedTime.
pub(crate) const TIME: u8 = 0x18;
/// NULL.
pub(crate) const NULL: u8 = 0x05;

/// Reads one value after another. The input is untrusted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

/// One value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// Including tag and length: the bytes that a signature covers.
    pub(crate) whole: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next value, of any type.
    pub(crate) fn item(&mut self) -> Option<Item<'a>> {
        let (&[tag, first], rest) = self.0.split_first_chunk::<2>()?;
        let (length, header) = match first {
            0..=0x7f => (usize::from(first), 2),
            0x81..=0x83 => {
                let digits = rest.get(..usize::from(first & 0x7f))?;
                let length = digits.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
                (length, 2 + digits.len())
            }
            _ => return None,
        };
        let (whole, rest) = self.0.split_at_checked(header + length)?;
        self.0 = rest;
        Some(Item { tag, content: &whole[header..], whole })
    }

    /// Whether the next value has this tag.
    pub(crate) fn is_next(&self, tag: u8) -> bool {
        self.0.first() == Some(&tag)
    }

    /// The unread rest.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The contents of the next value, which must have this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.item().filter(|item| item.tag == tag).map(|item| item.content)
    }

    /// The same for an optional value.
    pub(crate) fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.is_next(tag).then(|| self.expect(tag)).flatten()
    }
}

/// Encodes a value with this tag.
pub(crate) fn write(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let digits = length.to_be_bytes();
    let digits = &digits[digits.iter().position(|byte| *byte > 0).unwrap_or(digits.len())..];
    let mut out = vec![tag];
    match u8::try_from(length) {
        Ok(short @ 0..=0x7f) => out.push(short),
        _ => {
            out.push(0x80 | u8::try_from(digits.len()).unwrap_or(0));
            out.extend_from_slice(digits);
        }
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_have_as_many_digits_as_they_need() {
        for length in [0, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; length];
            let written = write(OCTETS, &content);
            assert_eq!(Reader::new(&written).expect(OCTETS), Some(&content[..]), "{length}");
            assert_eq!(Reader::new(&written[..written.len() - 1]).expect(OCTETS), None);
        }
        for other in [&[0x30, 0x80, 0, 0][..], &[0x30, 0x84, 0, 0, 0, 0], &[0x30], &[0x30, 0x82, 1]] {
            assert!(Reader::new(other).item().is_none(), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(content in prop::collection::vec(any::<u8>(), 0..300)) {
            let written = [write(OCTETS, &content), write(NULL, &[])].concat();
            let mut reader = Reader::new(&written);
            let item = reader.item().unwrap();
            prop_assert_eq!((item.tag, item.content), (OCTETS, &content[..]));
            prop_assert_eq!(item.whole.len() + 2, written.len());
            prop_assert_eq!(reader.optional(OCTETS), None);
            prop_assert_eq!(reader.expect(NULL), Some(&[][..]));
            prop_assert!(reader.item().is_none());
        }

        #[test]
        fn any_bytes_are_read_to_their_end_or_not_at_all(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(&bytes);
            let mut read = 0;
            while let Some(item) = reader.item() {
                read += item.whole.len();
            }
            prop_assert!(read <= bytes.len());
        }
    }
}
