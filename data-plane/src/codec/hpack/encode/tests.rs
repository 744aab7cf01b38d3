use proptest::prelude::*;

use super::*;
use crate::codec::hpack::block::FieldBlock;
use crate::codec::hpack::decode::Decoder;
use crate::codec::hpack::model::{Field, Model, STATIC};

/// The fields of a block, according to the slow decoder.
fn read(block: &[u8]) -> Vec<Field> {
    Model::new().read(block).unwrap()
}

fn encoded(name: &[u8], value: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    field(&mut out, Known::of(name), name, value);
    out
}

#[test]
fn every_status_is_written_and_the_common_ones_are_indexed() {
    for code in 100..1_000 {
        let mut out = BytesMut::new();
        status(&mut out, code);
        assert_eq!(read(&out), [(b":status".to_vec(), code.to_string().into_bytes())]);
        let is_common = [200, 204, 206, 304, 400, 404, 500].contains(&code);
        assert_eq!(out.len(), if is_common { 1 } else { 5 }, "{code}");
    }
}

#[test]
fn names_in_the_static_table_are_not_spelled_out() {
    // Those before these are pseudo-header fields, and these are never passed on.
    let asked = ["proxy-authenticate", "proxy-authorization"];
    for (place, name) in STATIC.iter().enumerate().skip(14).filter(|(_, name)| !asked.contains(name)) {
        let title = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
        for written in [*name, &title] {
            let out = encoded(written.as_bytes(), b"v");
            let index = if place < 14 { vec![place as u8 + 1] } else { vec![0x0f, place as u8 + 1 - 15] };
            assert_eq!(out, [&index[..], b"\x01v"].concat(), "{written}");
        }
    }
}

#[test]
fn requests_begin_with_their_pseudo_header_fields() {
    let text = |text: &[u8]| text.to_vec();
    for (method, is_https, authority, path, length) in [
        (&b"GET"[..], false, &b""[..], &b"/"[..], 3),
        (b"POST", true, b"a.test", b"/a?\"<`", 3 + 7 + 8),
        (b"M-SEARCH", true, b"[::1]:8080", b"*", 1 + 10 + 12 + 3),
    ] {
        let mut out = BytesMut::new();
        request(&mut out, method, is_https, authority, path);
        let scheme = if is_https { &b"https"[..] } else { b"http" };
        let mut expected = vec![(text(b":method"), text(method)), (text(b":scheme"), text(scheme))];
        if !authority.is_empty() {
            expected.push((text(b":authority"), text(authority)));
        }
        expected.push((text(b":path"), text(path)));
        assert_eq!((read(&out), out.len()), (expected, length));
    }
}

#[test]
fn names_are_written_in_lower_case_and_numbers_as_digits() {
    assert_eq!(encoded(b"X-Custom_1", b"Value")[..], b"\x00\x0ax-custom_1\x05Value"[..]);
    assert_eq!(encoded(b"X-Request-ID", b"")[..], b"\x00\x0cx-request-id\x00"[..]);
    for length in [0, 7, 10, 1_234_567_890, u64::MAX] {
        let mut out = BytesMut::new();
        number(&mut out, Known::ContentLength, length);
        assert_eq!(read(&out), [(b"content-length".to_vec(), length.to_string().into_bytes())]);
    }
}

#[test]
fn a_block_may_begin_with_the_end_of_the_table() {
    let mut out = BytesMut::new();
    no_table(&mut out);
    status(&mut out, 200);
    let mut model = Model::new();
    model.read(b"\x40\x01a\x01b").unwrap();
    assert_eq!((model.read(&out).unwrap().len(), model.sizes()), (1, vec![]));
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        fields in prop::collection::vec(("[A-Za-z0-9_-]{1,20}|[a-z]{100,400}|Age|VIA|etag", prop_oneof![9 => "[ -~]{0,40}", 1 => "[ -~]{100,20000}"]), 0..12),
        code in 100_u16..1_000,
    ) {
        let mut out = BytesMut::new();
        status(&mut out, code);
        for (name, value) in &fields {
            field(&mut out, Known::of(name.as_bytes()), name.as_bytes(), value.as_bytes());
        }
        let expected = fields.iter().map(|(name, value)| (name.to_ascii_lowercase().into_bytes(), value.clone().into_bytes()));
        let mut read = read(&out);
        prop_assert_eq!(read.remove(0).1, code.to_string().into_bytes());
        prop_assert_eq!(&read, &expected.collect::<Vec<_>>());
        let mut block = FieldBlock::default();
        Decoder::new().decode(&out, 1 << 20, &mut block).unwrap();
        let is_taken = |(name, _): &&Field| !["te", "upgrade", "connection"].iter().any(|it| it.as_bytes() == name);
        let taken: Vec<_> = read.iter().filter(is_taken).map(|(name, value)| (&name[..], &value[..])).collect();
        let fields: Vec<_> = block.fields().map(|(_, name, value)| (name, value)).collect();
        prop_assert_eq!(fields, taken);
    }
}
