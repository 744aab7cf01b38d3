use proptest::prelude::*;

use super::fuzz::Compared;
use super::*;
use crate::codec::hpack::block::ENTRY;
use crate::codec::hpack::blocks::{literal, named, numbered};

/// More than any list here has.
const LIST: usize = 1 << 20;

/// The size of a block's list, and its fields.
type Listed = (u64, Vec<(String, String)>);

/// Decodes a block of only valid fields.
fn fields(decoder: &mut Decoder, block: &[u8]) -> Listed {
    let mut into = FieldBlock::default();
    decoder.decode(block, LIST, &mut into).unwrap();
    let text = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap();
    let pseudo = [":method", ":scheme", ":authority", ":path"].into_iter();
    let which = [Pseudo::Method, Pseudo::Scheme, Pseudo::Authority, Pseudo::Path];
    let pseudo = pseudo
        .zip(which)
        .filter_map(|(name, which)| into.pseudo(which).map(|it| (name.to_owned(), text(it))));
    let others = into.fields().map(|(_, name, value)| (text(name), text(value)));
    let all = pseudo.chain(others).collect();
    assert!(!into.is_malformed() && !into.is_over());
    (into.size(), all)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn is_malformed(decoder: &mut Decoder, block: &[u8]) -> bool {
    let mut into = FieldBlock::default();
    decoder.decode(block, LIST, &mut into).unwrap();
    into.is_malformed()
}

#[test]
fn requests_of_the_appendix() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::new();
        let mut ask = |block: &str| fields(&mut decoder, &bytes(block)).1;
        let first =
            [(":method", "GET"), (":scheme", "http"), (":authority", "www.example.com"), (":path", "/")];
        let field = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut expected: Vec<_> = first.map(field).into();
        assert_eq!(ask(blocks[0]), expected);
        expected.push(field(("cache-control", "no-cache")));
        assert_eq!(ask(blocks[1]), expected);
        let third = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "www.example.com"),
            (":path", "/index.html"),
            ("custom-key", "custom-value"),
        ];
        assert_eq!(ask(blocks[2]), third.map(field));
        assert_eq!(decoder.table.sizes(), [54, 53, 57]);
    }
}

#[test]
fn responses_of_the_appendix() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let coded = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    for blocks in [plain, coded] {
        let mut compared = Compared::new();
        for (block, status) in blocks.into_iter().zip([302, 307, 200]) {
            // A table of 256 bytes.
            let block = [&[0x3f, 0xe1, 0x01][..], &bytes(block)].concat();
            assert_eq!(compared.decode(&block, LIST).unwrap().status(), Some(status));
        }
        let last: Vec<_> = compared
            .decode(&[0xbe, 0xbf, 0xc0], LIST)
            .unwrap()
            .fields()
            .map(|(_, _, value)| value.to_vec())
            .collect();
        let cookie = b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
        assert_eq!(last, [&cookie[..], b"gzip", b"Mon, 21 Oct 2013 20:13:22 GMT"]);
        assert_eq!(compared.decode(&[0xc1], LIST).map(|_| ()), None);
    }
}

#[test]
fn the_static_table_is_the_one_of_the_appendix() {
    for index in 1..=61 {
        let block = numbered(0x80, 7, index);
        assert!(Compared::new().decode(&block, LIST).is_some(), "{index}");
    }
}

#[test]
fn what_is_malformed_is_stored_like_the_rest() {
    let bad: [(&[u8], &[u8]); 31] = [
        (b"X-Up", b"a"),
        (b"", b"a"),
        (b"x\x01y", b"a"),
        (b"x y", b"a"),
        (b"x:y", b"a"),
        (b":foo", b"a"),
        (b":", b"a"),
        (b":pathy", b"/"),
        (b":status", b""),
        (b":status", b"20"),
        (b":status", b"020"),
        (b":status", b"2x0"),
        (b":status", b"2000"),
        (b"x", b"a\0b"),
        (b"x", b"a\nb"),
        (b"x", b"a\rb"),
        (b"x", b"\x7f"),
        (b"connection", b"close"),
        (b"proxy-connection", b"close"),
        (b"keep-alive", b"5"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"te", b"gzip"),
        (b"te", b"Trailers"),
        (b":method", b"G T"),
        (b":method", b""),
        (b":scheme", b"ht:tp"),
        (b":scheme", b""),
        (b":authority", b"a b"),
        (b":path", b""),
        (b":protocol", b"\xff"),
    ];
    for (name, value) in bad {
        for (is_kept, is_huffman) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut compared = Compared::new();
            let field = literal(name, value, is_kept, is_huffman);
            let several =
                [&literal(b"one", b"1", true, is_huffman), &field[..], &literal(b"two", b"2", true, true)]
                    .concat();
            let block = compared.decode(&several, LIST).unwrap();
            assert!(block.is_malformed(), "{name:?} {value:?}");
            let others: Vec<_> = block.fields().map(|(_, name, value)| (name, value)).collect();
            assert_eq!(others, [(&b"one"[..], &b"1"[..]), (b"two", b"2")]);
            assert!(!compared.decode(&[0xbe], LIST).unwrap().is_malformed());
            assert_eq!(compared.decode(&[0xbf], LIST).unwrap().is_malformed(), is_kept);
        }
    }
}

#[test]
fn what_is_not_malformed() {
    let good: [(&[u8], &[u8]); 14] = [
        (b"x-up", b"a\tb\xe9\xff"),
        (b"x", b""),
        (b"te", b"trailers"),
        (b":path", b"/ \x01\xe9\""),
        (b":path", b"*"),
        (b":method", b"get"),
        (b":scheme", b"ftp"),
        (b":authority", b"a.test"),
        (b":authority", b"[::1]:8080"),
        (b":authority", b"user@a.test"),
        (b":protocol", b"websocket"),
        (b":status", b"999"),
        (b"trailer", b"x"),
        (b"host", b"a b"),
    ];
    for (name, value) in good {
        for is_huffman in [false, true] {
            let block = literal(name, value, true, is_huffman);
            let mut compared = Compared::new();
            for block in [&block[..], &[0xbe]] {
                let block = compared.decode(block, LIST).unwrap();
                assert!(!block.is_malformed(), "{name:?} {value:?}");
                assert_eq!(block.has_pseudo(), name[0] == b':');
            }
        }
    }
}

#[test]
fn the_name_of_a_bad_value_can_be_used() {
    let mut decoder = Decoder::new();
    assert!(is_malformed(&mut decoder, &named(2, b"G T", true, true)));
    assert!(is_malformed(&mut decoder, &[0xbe]));
    assert!(!is_malformed(&mut decoder, &named(62, b"PUT", false, true)));
    assert!(is_malformed(&mut decoder, &literal(b"X-Up", b"a", true, false)));
    assert!(is_malformed(&mut decoder, &named(62, b"a", false, true)), "that one is bad");
}

#[test]
fn pseudo_fields_are_there_once_and_first() {
    let of = |fields: &[(&[u8], &[u8])]| {
        let block: Vec<_> =
            fields.iter().flat_map(|(name, value)| literal(name, value, false, false)).collect();
        is_malformed(&mut Decoder::new(), &block)
    };
    let (path, method, field) =
        ((&b":path"[..], &b"/"[..]), (&b":method"[..], &b"GET"[..]), (&b"a"[..], &b""[..]));
    assert!(!of(&[method, path, field, field]));
    for bad in [&[path, method, path][..], &[path, field, method], &[field, path], &[(b":path", b""), path]] {
        assert!(of(bad), "{bad:?}");
    }
}

#[test]
fn what_cannot_be_decoded_is_broken() {
    for block in [
        &[0x80][..],
        &[0xbe],
        &[0xff],
        &[0x7f, 0x00, 0x01, b'a'],
        &[0x40],
        &[0x00, 0x02, b'a'],
        &[0x00, 0x01, b'a'],
        // A table that is too large, and one that changes behind a field.
        &[0x3f, 0xe2, 0x1f],
        &[0x82, 0x20],
        // An octet of padding, padding of zeros, and the code that ends a string.
        &[0x00, 0x01, b'a', 0x82, 0x1f, 0xff],
        &[0x00, 0x01, b'a', 0x81, 0x18],
        &[0x00, 0x01, b'a', 0x84, 0xff, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0xff, 0x80, 0x80, 0x80, 0x80, 0x00],
    ] {
        assert_eq!(Decoder::new().decode(block, LIST, &mut FieldBlock::default()), Err(Broken), "{block:?}");
    }
    assert_eq!(
        Decoder::new().decode(&[0x20, 0x3f, 0xe1, 0x1f, 0x82], LIST, &mut FieldBlock::default()),
        Ok(())
    );
}

#[test]
fn nothing_is_held_before_the_first_entry_and_a_table_at_most_after() {
    let mut compared = Compared::new();
    compared.decode(&[&[0x82, 0x84, 0x86][..], &literal(b"x", b"y", false, true)].concat(), LIST).unwrap();
    assert_eq!(compared.memory(), 0);
    // Of all sizes, so that the text moves often.
    for length in (0..6_000).step_by(101).chain([0; 140]) {
        compared.decode(&literal(b"", &vec![b'v'; length], true, length % 2 == 0), LIST).unwrap();
    }
    assert!(compared.memory() > MOST);
}

#[test]
fn a_bomb_takes_no_more_memory_than_the_list_may_have() {
    let most = 8 << 10;
    let mut compared = Compared::new();
    let value = [b'v'; MOST - ENTRY - 1];
    let bomb = [literal(b"x", &value, true, false), vec![0xbe; 20_000]].concat();
    let block = compared.decode(&bomb, most).unwrap();
    assert_eq!((block.size(), block.is_over(), block.len()), (20_001 * MOST as u64, true, 2));
    // A literal that is larger than the list and the table, in a code of five bits for each octet, empties the table.
    for (is_kept, is_huffman) in [(false, false), (false, true), (true, true)] {
        let text = vec![b'a'; 200_000];
        for large in [literal(b"x", &text, is_kept, is_huffman), literal(&text, b"x", is_kept, is_huffman)] {
            compared.decode(&literal(b"x", b"y", true, false), most).unwrap();
            let block = compared.decode(&[&large[..], &[0x82]].concat(), most).unwrap();
            let (size, pseudo) = (block.size(), block.pseudo(Pseudo::Method).is_some());
            assert_eq!((size, pseudo, block.is_over(), block.len()), (200_001 + 32 + 42, false, true, 0));
            assert_eq!(compared.decode(&[0xbe], most).is_none(), is_kept);
            compared = Compared::new();
        }
    }
    // The entries behind the last field with room are stored.
    let (first, second) = (literal(b"a", &[b'a'; 100], true, true), literal(b"b", &[b'b'; 100], true, true));
    let block = compared.decode(&[first, second].concat(), 150).unwrap();
    assert_eq!((block.len(), block.is_over()), (1, true));
    assert_eq!(compared.decode(&[0xbe], 150).unwrap().fields().next().unwrap().1, b"b");
}

/// A field as an encoder may write it, or not.
fn field() -> impl Strategy<Value = Vec<u8>> {
    let octet = || prop_oneof![8 => 0x61_u8..0x7b, 1 => 0x20_u8..0x7f, 1 => any::<u8>()];
    let known = prop::sample::select(vec![
        ":authority",
        ":scheme",
        ":path",
        ":protocol",
        ":method",
        ":status",
        ":foo",
        "te",
        "upgrade",
        "connection",
        "cookie",
    ]);
    let name = prop_oneof![
        4 => prop::collection::vec(octet(), 0..9),
        1 => known.prop_map(|name| name.as_bytes().to_vec()),
    ];
    let value = prop_oneof![
        20 => prop::collection::vec(octet(), 0..20),
        4 => prop::sample::select(vec!["http", "trailers", "GET", "a.test"]).prop_map(|it| it.as_bytes().to_vec()),
        1 => prop::collection::vec(octet(), 500..5_000),
    ];
    // Those behind the entries that there are break the block, so they are rare.
    let index = || prop_oneof![10 => 1_usize..66, 2 => 1_usize..80, 1 => 0_usize..200];
    prop_oneof![
        6 => (name, value.clone(), any::<bool>(), any::<bool>()).prop_map(|(name, value, is_kept, is_huffman)| literal(&name, &value, is_kept, is_huffman)),
        3 => (index(), value, any::<bool>(), any::<bool>()).prop_map(|(index, value, is_kept, is_huffman)| named(index, &value, is_kept, is_huffman)),
        9 => index().prop_map(|index| numbered(0x80, 7, index)),
    ]
}

fn block() -> impl Strategy<Value = Vec<u8>> {
    let size =
        prop_oneof![8 => Just(Vec::new()), 1 => (0_usize..4_097).prop_map(|size| numbered(0x20, 5, size))];
    (size, prop::collection::vec(field(), 0..8)).prop_map(|(size, fields)| [size, fields.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever arrives, it is decoded as the slow decoder does, and the tables are the same.
    #[test]
    fn blocks_are_decoded_as_by_the_slow_one(blocks in prop::collection::vec(block(), 1..12), most in prop_oneof![Just(LIST), 0_usize..9_000]) {
        let mut compared = Compared::new();
        for block in blocks {
            if compared.decode(&block, most).is_none() {
                break;
            }
        }
    }

    #[test]
    fn any_octets_are_decoded_as_by_the_slow_one(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..24), 1..4)) {
        let mut compared = Compared::new();
        for block in blocks {
            if compared.decode(&block, LIST).is_none() {
                break;
            }
        }
    }
}
