use proptest::prelude::*;

use super::*;
use crate::codec::hpack::blocks::coded;

fn read(bytes: &[u8]) -> Option<Vec<u8>> {
    let (count, _) = measure(bytes)?;
    let mut decoded = vec![0; most(bytes).min(count) + BEHIND];
    assert_eq!(decode(bytes, &mut decoded), measure(bytes));
    decoded.truncate(count);
    Some(decoded)
}

#[test]
fn as_in_the_appendix() {
    for (text, bytes) in [
        (&b"www.example.com"[..], &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..]),
        (b"custom-value", b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf"),
        (
            b"Mon, 21 Oct 2013 20:13:21 GMT",
            b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
        ),
        (b"", b""),
    ] {
        assert_eq!(read(bytes).as_deref(), Some(text));
        assert_eq!(coded(text), bytes);
    }
    // All ones is not the code of an octet; the 30-bit codes precede it.
    assert_eq!(CODE.end[30], 0x3fff_ffff);
    for (octet, code, length) in
        [(0_u8, 0x1ff8_u32, 13), (b'\n', 0x3fff_fffc, 30), (0xff, 0x03ff_ffee, 26), (0xf9, 0x0fff_fffe, 28)]
    {
        let bits: Vec<bool> = (0..length).rev().map(|bit| code >> bit & 1 != 0).collect();
        assert_eq!(code_of(octet), bits, "{octet}");
    }
}

#[test]
fn invalid_huffman_code_is_refused() {
    for bytes in [
        &b"\xff"[..],
        b"\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x1f\xff",
        b"\x18",
        b"\x00\x00",
        b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\xff",
    ] {
        assert_eq!(read(bytes), None, "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(text: Vec<u8>) {
        let bytes = coded(&text);
        let all = text.iter().fold(ALL, |all, octet| all & CLASSES[usize::from(*octet)]);
        prop_assert_eq!(measure(&bytes), Some((text.len(), all)));
        prop_assert_eq!(read(&bytes), Some(text));
    }

    #[test]
    fn anything_is_read_as_the_slow_one_has_it(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        let mut block = vec![0, 1, b'x', 0x80 | bytes.len() as u8];
        block.extend_from_slice(&bytes);
        let slow = crate::codec::hpack::model::Model::new().read(&block);
        prop_assert_eq!(read(&bytes), slow.map(|mut fields| fields.remove(0).1));
    }
}
