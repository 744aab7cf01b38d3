use proptest::prelude::*;

use super::blocks::{count, is_in_order, is_taken, literal, named, numbered};
use super::model::{Field, Model, is_valid};
use super::*;

/// Reads a block and returns its faults. What h2 gets must be well-formed, and its table the same as the peer's.
fn read(
    fields: &mut Fields,
    (sent, got): (&mut Model, &mut Model),
    block: &[u8],
) -> (Outcome, BlockFindings) {
    let (mut mended, mut found) = (block.to_vec(), BlockFindings::default());
    let outcome = fields.read(&mut mended, &mut found);
    if found.fault.is_none() && found.target.is_none() && outcome == Outcome::Whole {
        assert_eq!(mended, block, "what is well-formed is not changed");
    }
    if outcome == Outcome::Whole {
        sent.read(block).unwrap();
        let fields = got.read(&mended).unwrap();
        assert!(fields.iter().all(is_valid), "{fields:?} of {block:?}");
        assert_eq!(got.sizes(), sent.sizes(), "{block:?}");
    }
    (outcome, found)
}

fn read_one(block: &[u8]) -> (Outcome, BlockFindings) {
    read(&mut Fields::default(), (&mut Model::default(), &mut Model::default()), block)
}

#[test]
fn invalid_hpack_block_breaks_the_connection() {
    for (name, value) in [
        (&b"X-Up"[..], &b"a"[..]),
        (b"x\x01p", b"a"),
        (b"x p", b"a"),
        (b"x:p", b"a"),
        (b"x\xe9p", b"a"),
        (b"x(", b""),
        (b":foo", b"a"),
        (b":pathy", b"a"),
        (b":", b"a"),
        (b"x-long-name", b"a\0b"),
        (b"x", b"a\nb"),
        (b"x", b"\x7f"),
        (b"X", b"\x01"),
        (b":method", b"ge t"),
        (b":method", b""),
        (b":method", b"G\xc3\xa9T"),
        (b":scheme", b"h\xe9ttp"),
        (b":authority", b"a\xffb"),
        (b":protocol", b"web\xf0socket"),
        (b":status", b"20"),
        (b":status", b"2x0"),
        (b":status", b"020"),
        (b":status", b""),
        (b":status", b"20000"),
    ] {
        for (is_kept, is_huffman) in [(false, false), (false, true), (true, false), (true, true)] {
            let field = literal(name, value, is_kept, is_huffman);
            let (outcome, found) = read_one(&field);
            assert_eq!(
                (outcome, found.fault.is_some()),
                (Outcome::Whole, true),
                "{name:?} {value:?} {is_kept} {is_huffman}"
            );
            let number =
                [":method", ":path", ":scheme", ":status"].iter().position(|it| it.as_bytes() == name);
            if let Some(place) = number {
                let number = [3, 5, 7, 14][place];
                let (outcome, found) = read_one(&named(number, value, is_kept, is_huffman));
                assert_eq!((outcome, found.fault.is_some()), (Outcome::Whole, true), "{number} {value:?}");
            }
            // The fields after it must be unaffected.
            let several =
                [literal(b"one", b"1", true, is_huffman), field, literal(b"two", b"2", true, true)].concat();
            assert_eq!(read_one(&several).0, Outcome::Whole);
        }
    }
}

#[test]
fn the_worst_is_told() {
    let bad = literal(b"x", b"\x01", true, false);
    let target = named(5, b"/\xe9", true, true);
    let other = literal(b"X", b"", false, false);
    for (block, fault) in [
        (&[&target[..], &other].concat(), Fault::Malformed),
        (&[&other[..], &target].concat(), Fault::Malformed),
        (&[&bad[..], &[0xbe]].concat(), Fault::Malformed),
        (&named(1, b"a.test\xe9", true, true), Fault::Malformed),
    ] {
        assert_eq!(read_one(block).1.fault, Some(fault));
    }
}

#[test]
fn hpack_block_that_h2_accepts_is_accepted() {
    for (name, value) in [
        (&b"x-up"[..], &b"a\tb\xe9\xff"[..]),
        (b"x\"", b""),
        (b"te", b"gzip"),
        (b":path", b""),
        (b":path", b"/\xc3\xa9"),
        (b":path", b"/#\""),
        (b":path", b"*"),
        (b":method", b"get"),
        (b":status", b"999"),
        (b":protocol", b"websocket"),
    ] {
        for is_huffman in [false, true] {
            let (outcome, found) = read_one(&literal(name, value, true, is_huffman));
            assert_eq!(found.has_pseudo(), name[0] == b':', "{name:?}");
            assert_eq!(
                (outcome, found.fault, found.target),
                (Outcome::Whole, None, None),
                "{name:?} {value:?}"
            );
        }
    }
}

#[test]
fn unmendable_hpack_block_is_broken() {
    for block in [
        &[0x80][..],
        &[0xbe],
        &[0x7f, 0x00, 0x01, b'a'],
        &[0x3f, 0xe2, 0x1f],
        &[0x00, 0x01, b'a', 0x81, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &literal(b"", b"a", true, false),
        // There is no other valid name of two octets encoded in five bytes.
        &literal(b"a\n", b"", true, true),
        &literal(b"a", b"\n\r\n\r", true, true),
    ] {
        assert_eq!(read_one(block).0, Outcome::Broken, "{block:?}");
    }
    // A field that is not stored in the table may change its length.
    for block in [literal(b"a\n", b"", false, true), literal(b"a", b"\n\r\n\r", false, true)] {
        let (outcome, found) = read_one(&block);
        assert_eq!((outcome, found.fault.is_some()), (Outcome::Whole, true), "{block:?}");
    }
}

#[test]
fn a_target_that_h2_does_not_take_is_kept_aside() {
    for target in [
        &b"/?a=\"b\""[..],
        b"/api/v1/query?query=up{job=\"x\"}",
        b"/<b>/`",
        b"/caf\xe9/page",
        b"/a?b=<c>#d\"",
        b"/a b",
        b"a",
        b"http://a.test/",
    ] {
        let told = target.split(|octet| *octet == b'#').next().map(<[u8]>::to_vec);
        for (is_kept, is_huffman) in [(false, false), (false, true), (true, false), (true, true)] {
            for field in
                [literal(b":path", target, is_kept, is_huffman), named(4, target, is_kept, is_huffman)]
            {
                let (mut fields, mut sent, mut got) = (Fields::default(), Model::default(), Model::default());
                let mut ask = |block: &[u8]| {
                    let (outcome, found) = read(&mut fields, (&mut sent, &mut got), block);
                    assert_eq!((outcome, found.fault), (Outcome::Whole, None), "{target:?}");
                    (found.has_pseudo(), found.target.map(|target| target.to_vec()))
                };
                assert_eq!(ask(&field), (true, told.clone()));
                if is_kept {
                    assert_eq!(ask(&[0xbe]), (true, told.clone()), "by its place");
                    assert_eq!(ask(&named(62, b"/plain", false, true)), (true, None), "its name alone");
                }
                let mut mended = field.clone();
                Fields::default().read(&mut mended, &mut BlockFindings::default());
                let seen = Model::default().read(&mended).unwrap();
                assert!(is_taken(&seen[0]) && seen[0].1 != target, "{seen:?}");
            }
        }
    }
}

#[test]
fn hpack_references_to_invalid_fields_are_malformed() {
    let (mut fields, mut sent, mut got) = (Fields::default(), Model::default(), Model::default());
    let mut is_malformed = |block: &[u8]| {
        let (outcome, found) = read(&mut fields, (&mut sent, &mut got), block);
        assert_eq!(outcome, Outcome::Whole, "{block:?}");
        found.fault.is_some()
    };
    assert!(is_malformed(&literal(b"X-Up", b"a", true, true)));
    assert!(is_malformed(&named(2, b"G T", true, true)));
    // The newest entry has index 62.
    assert!(is_malformed(&[0xbe]) && is_malformed(&[0xbf]));
    assert!(!is_malformed(&named(62, b"GET", false, false)), "its name is one");
    assert!(is_malformed(&named(63, b"good", false, false)), "this is not");
    assert!(!is_malformed(&literal(b"x-good", b"good", true, true)));
    assert!(!is_malformed(&[0xbe]));
    assert!(is_malformed(&[0xbf]) && is_malformed(&[0xc0]));
    // Evicted entries are gone.
    assert!(!is_malformed(&[numbered(0x20, 5, 0), numbered(0x20, 5, 4_096)].concat()));
    assert!(!is_malformed(&literal(b"x-other", b"other", true, true)));
    assert!(!is_malformed(&[0xbe]));
    let (outcome, _) = read(&mut fields, (&mut sent, &mut got), &[0xbf]);
    assert_eq!(outcome, Outcome::Broken);
}

#[test]
fn one_that_is_larger_than_the_table_empties_it() {
    let (mut fields, mut sent, mut got) = (Fields::default(), Model::default(), Model::default());
    let mut outcome = |block: &[u8]| read(&mut fields, (&mut sent, &mut got), block);
    assert!(outcome(&literal(b"X-Up", b"a", true, true)).1.fault.is_some());
    assert_eq!(outcome(&literal(b"large", &[b'a'; 4_096 - 32 - 4], true, false)).0, Outcome::Whole);
    assert_eq!(outcome(&[0xbe]).0, Outcome::Broken);
    assert_eq!(outcome(&literal(b"x-up", b"a", true, true)).0, Outcome::Whole);
    let (outcome, found) = outcome(&[0xbe]);
    assert_eq!((outcome, found.fault), (Outcome::Whole, None));
}

#[test]
fn a_part_of_a_block_ends_within_a_field() {
    let block = literal(b"x-long-name", &[b'a'; 300], true, false);
    let mut lacks = Vec::new();
    for length in 0..block.len() {
        let mut part = [&literal(b"a", b"b", false, true), &block[..length]].concat();
        let outcome = Fields::default().read(&mut part, &mut BlockFindings::default());
        match outcome {
            Outcome::Whole => assert_eq!(length, 0),
            Outcome::Cut(at, octets) => {
                assert_eq!(at, part.len() - length);
                lacks.push(octets);
            }
            Outcome::Broken => panic!("{length}"),
        }
    }
    assert!(
        lacks.iter().all(|octets| *octets >= 1) && lacks.contains(&300) && lacks.contains(&11),
        "{lacks:?}"
    );
}

#[test]
fn pseudo_fields_are_there_once_and_first() {
    let fault = |fields: &[(&[u8], &[u8])]| {
        let block: Vec<_> =
            fields.iter().flat_map(|(name, value)| literal(name, value, false, false)).collect();
        read_one(&block).1.fault
    };
    let (path, method, field) =
        ((&b":path"[..], &b"/"[..]), (&b":method"[..], &b"GET"[..]), (&b"a"[..], &b""[..]));
    assert_eq!(fault(&[method, path, field, field]), None);
    for bad in [&[path, method, path][..], &[path, field, method], &[path, (b":path", b"/\"")]] {
        assert_eq!(fault(bad), Some(Fault::Malformed), "{bad:?}");
    }
}

/// A field as an encoder may write it, of names and values good and bad.
fn field() -> impl Strategy<Value = (usize, Option<Vec<u8>>, Vec<u8>, u8)> {
    let octet = || prop_oneof![8 => 0x61_u8..0x7b, 1 => 0x20_u8..0x7f, 1 => any::<u8>()];
    let pseudo = || prop::sample::select(vec![":authority", ":scheme", ":path", ":protocol", ":foo"]);
    let name = prop_oneof![
        6 => prop::collection::vec(octet(), 1..9),
        1 => pseudo().prop_map(|name| name.as_bytes().to_vec()),
    ];
    let value = prop_oneof![20 => prop::collection::vec(octet(), 0..20), 1 => prop::collection::vec(octet(), 500..2_000)];
    (any::<u16>().prop_map(usize::from), prop::option::weighted(0.6, name), value, 0..8_u8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever arrives, h2 gets well-formed fields, and malformed ones are reported, also for each reference to them.
    #[test]
    fn h2_has_the_table_of_the_peer(blocks in prop::collection::vec(prop::collection::vec(field(), 0..8), 1..12)) {
        let (mut fields, mut sent, mut got) = (Fields::default(), Model::default(), Model::default());
        for block in blocks {
            let (mut bytes, mut ahead) = (Vec::new(), sent.clone());
            for (number, name, value, how) in block {
                let number = number % count(&ahead) + 1;
                // An invalid status replaces its name, too.
                let number = if (8..=14).contains(&number) || number < 4 { 15 } else { number };
                let (is_kept, is_huffman) = (how & 1 != 0, how & 2 != 0);
                let field = match name {
                    Some(name) => literal(&name, &value, is_kept, is_huffman),
                    None if how & 4 == 0 => numbered(0x80, 7, number),
                    None => named(number, &value, is_kept, is_huffman),
                };
                ahead.read(&field).unwrap();
                bytes.extend_from_slice(&field);
            }
            let truth = sent.clone().read(&bytes).unwrap();
            let (outcome, found) = read(&mut fields, (&mut sent, &mut got), &bytes);
            if outcome == Outcome::Broken {
                // A text that consists almost only of control octets.
                prop_assert!(!truth.iter().all(is_taken));
                return Ok(());
            }
            prop_assert_eq!(outcome, Outcome::Whole);
            let has_pseudo = found.has_pseudo();
            let is_path = |(name, _): &&Field| name == b":path";
            let odd = truth.iter().filter(is_path).rfind(|field| !is_taken(field));
            let told = odd.map(|(_, value)| value.split(|octet| *octet == b'#').next().unwrap().to_vec());
            prop_assert_eq!(found.target.map(|target| target.to_vec()), told);
            let is_good = truth.iter().filter(|field| !is_path(field)).all(is_valid) && is_in_order(&truth);
            prop_assert_eq!(found.fault.is_some(), !is_good, "{:?}", truth);
            prop_assert_eq!(has_pseudo, truth.iter().any(|(name, _)| is_valid(&(name.clone(), Vec::new())) && name[0] == b':'));
        }
    }
}
