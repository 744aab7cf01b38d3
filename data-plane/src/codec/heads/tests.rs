use proptest::prelude::*;

use super::fuzz::{Passed, frame, pass};
use super::*;
use crate::codec::hpack::blocks::{count, is_in_order, literal, named};
use crate::codec::hpack::model::{Model, is_valid};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END: u8 = END_HEADERS;
const LIST: u32 = 32 * 1024;

fn whole(bytes: &[u8]) -> Passed {
    let whole = pass(bytes, std::iter::repeat(usize::MAX));
    for width in [1, 2, 3, 7, 9, 10, 100] {
        assert_eq!(pass(bytes, std::iter::repeat(width)), whole, "{width} of {bytes:?}");
    }
    whole
}

/// The reported blocks: the stream, and whether it is malformed.
fn malformed(bytes: &[u8]) -> Vec<(u32, bool)> {
    let passed = whole(bytes);
    assert!(!passed.broken, "{bytes:?}");
    assert_eq!(passed.bytes.len(), bytes.len());
    passed
        .blocks
        .iter()
        .map(|block| (block.stream, block.fault.is_some() || block.target.is_some()))
        .collect()
}

#[test]
fn a_bad_field_is_its_stream_s_own() {
    let good = literal(b"x-good", b"1", true, true);
    let bad = literal(b"X-Bad", b"1", true, true);
    let sent = [
        frame(HEADERS, END, 1, &good),
        frame(DATA, 0, 1, b"some"),
        frame(HEADERS, END, 3, &[&good[..], &bad].concat()),
        frame(DATA, 1, 1, b"more"),
        frame(HEADERS, END, 5, &[0xbf]),
        frame(HEADERS, END, 7, &[0xbe]),
    ]
    .concat();
    assert_eq!(malformed(&sent), [(1, false), (3, true), (5, false), (7, true)]);
}

#[test]
fn padding_and_priority_around_a_field_block_are_skipped() {
    let bad = literal(b"X", b"", false, false);
    let padded = [&[3][..], &bad, &[0; 3]].concat();
    let weighted = [&[0, 0, 0, 9, 16][..], &bad].concat();
    let both = [&[1, 0, 0, 0, 9, 16][..], &bad, &[0]].concat();
    for (flags, payload) in [(PADDED, padded), (PRIORITY, weighted), (PADDED | PRIORITY, both)] {
        assert_eq!(malformed(&frame(HEADERS, END | flags, 1, &payload)), [(1, true)]);
    }
    assert_eq!(malformed(&frame(HEADERS, END | PADDED, 1, &[1, 0])), [(1, false)], "nothing but padding");
    // It depends on itself; its fields are read nevertheless.
    let sent = [&[0x80, 0, 0, 5, 16][..], &literal(b"x", b"y", true, false)].concat();
    let passed = whole(&[frame(HEADERS, END | PRIORITY, 5, &sent), frame(HEADERS, END, 7, &[0xbe])].concat());
    assert_eq!(passed.blocks.iter().map(|it| it.fault.is_some()).collect::<Vec<_>>(), [true, false]);
    assert_eq!(&passed.bytes[9..13], &[0; 4], "it depends on none");
    for (flags, payload) in [
        (PADDED, &[][..]),
        (PADDED, &[1]),
        (PADDED, &[2, 0x88]),
        (PRIORITY, &[0, 0, 0, 0]),
        (PADDED | PRIORITY, &[1, 0, 0, 0, 0, 0]),
    ] {
        assert!(whole(&frame(HEADERS, END | flags, 1, payload)).broken, "{flags} {payload:?}");
    }
}

#[test]
fn a_field_in_several_frames() {
    let good = literal(b"x-good", b"1", true, true);
    let block = [&good[..], &literal(b"X-Long-Name", &[b'a'; 200], true, false), &good].concat();
    for at in 0..block.len() {
        for then in [at, block.len().min(at + 1), block.len()] {
            let sent = [
                frame(HEADERS, 0, 1, &block[..at]),
                frame(CONTINUATION, 0, 1, &block[at..then]),
                frame(CONTINUATION, 0, 1, &[]),
                frame(CONTINUATION, END, 1, &block[then..]),
                frame(HEADERS, END, 3, &[0xbf]),
                frame(HEADERS, END, 5, &[0xbe]),
            ];
            assert_eq!(malformed(&sent.concat()), [(1, true), (3, true), (5, false)], "{at} {then}");
        }
    }
    let bytewise: Vec<_> = block[1..].iter().flat_map(|octet| frame(CONTINUATION, 0, 1, &[*octet])).collect();
    let sent = [frame(HEADERS, 0, 1, &block[..1]), bytewise, frame(CONTINUATION, END, 1, &[])].concat();
    assert_eq!(malformed(&sent), [(1, true)]);
}

#[test]
fn connection_error_frame_is_passed_on_and_later_bytes_are_not() {
    let good = literal(b"x-good", b"1", true, true);
    let data = frame(DATA, 0, 1, b"some");
    for broken in [
        frame(HEADERS, END, 0, &good),
        frame(HEADERS, END, 1, &[0xff]),
        frame(HEADERS, END, 1, &[0x00, 0x00, 0x00]),
        frame(CONTINUATION, END, 1, &good),
        frame(5, END, 1, &good),
        [frame(HEADERS, 0, 1, &good), frame(CONTINUATION, END, 3, &good)].concat(),
        [frame(HEADERS, 0, 1, &good), data.clone()].concat(),
        [frame(HEADERS, 0, 1, &good[..3]), frame(CONTINUATION, END, 1, &[])].concat(),
        [frame(HEADERS, 0, 1, &good), frame(HEADERS, END, 3, &good)].concat(),
    ] {
        let passed = whole(&[&data[..], &broken, &data].concat());
        assert!(passed.broken);
        assert_eq!(passed.bytes, [&data[..], &broken].concat());
    }
    // For an oversized frame the header is enough.
    let (before, long) = (frame(HEADERS, END, 1, &good), frame(HEADERS, END, 3, &[0; 16_385]));
    for width in [20, 50, usize::MAX] {
        let passed = pass(&[&before[..], &long].concat(), std::iter::repeat(width));
        assert!(passed.broken && passed.bytes.starts_with(&[&before[..], &long[..9]].concat()));
    }
}

#[test]
fn no_more_is_held_than_h2_would_take() {
    let field = [&[0x00, 0x01, b'x', 0x7f, 0x80, 0xff, 0xff, 0x00][..], &[b'a'; 16_000]].concat();
    let mut heads = Heads::new(false, LIST);
    let mut sent = frame(HEADERS, 0, 1, &field);
    let mut count = 0;
    while !heads.is_broken() {
        assert!(sent.is_empty() || heads.pass(&mut sent, |_| {}) == 0);
        assert!(heads.ready().is_empty() && count < 12);
        sent = frame(CONTINUATION, 0, 1, &[b'a'; 16_000]);
        count += 1;
    }
    assert!(count > 7, "{count}");
}

proptest! {
    /// With blocks split over frames and frames over reads in any way, the same is passed on and reported, and it
    /// agrees with the slow reader.
    #[test]
    fn however_the_bytes_are_cut(
        blocks in prop::collection::vec((prop::collection::vec((0..6_u8, any::<bool>(), any::<bool>()), 0..6), prop::collection::vec(0..20_usize, 0..4)), 1..6),
        widths in prop::collection::vec(1..30_usize, 1..40),
    ) {
        let (mut sent, mut model, mut expected) = (Vec::new(), Model::default(), Vec::new());
        for (number, (fields, cuts)) in blocks.into_iter().enumerate() {
            let stream = 2 * number as u32 + 1;
            let mut block: Vec<u8> = fields.into_iter().flat_map(|(what, is_kept, is_huffman)| match what {
                0 => vec![0x82],
                1 => literal(b"X-Up", b"some value", is_kept, is_huffman),
                2 => named(5, b"/\xe9", is_kept, is_huffman),
                3 => named(16, b"a\x01b", is_kept, is_huffman),
                4 => literal(b"x-plain", b"12345", is_kept, is_huffman),
                _ => named(32, b"a=b", is_kept, is_huffman),
            }).collect();
            // The newest entry, whatever it is.
            if count(&model) > 61 {
                block.push(0xbe);
            }
            let fields = model.read(&block).unwrap();
            let malformed = !(fields.iter().all(is_valid) && is_in_order(&fields));
            expected.push((stream, malformed));
            let mut rest = &block[..];
            let mut kind = HEADERS;
            for cut in cuts {
                let (part, behind) = rest.split_at(cut.min(rest.len()));
                sent.extend(frame(kind, 0, stream, part));
                (rest, kind) = (behind, CONTINUATION);
            }
            sent.extend(frame(kind, END, stream, rest));
            sent.extend(frame(DATA, 0, stream, b"some data"));
        }
        let passed = pass(&sent, widths.iter().copied().cycle());
        prop_assert_eq!(&passed, &pass(&sent, std::iter::repeat(usize::MAX)));
        prop_assert!(!passed.broken);
        let told: Vec<_> = passed.blocks.iter().map(|block| (block.stream, block.fault.is_some() || block.target.is_some())).collect();
        prop_assert_eq!(&told, &expected);
        prop_assert_eq!(passed.bytes.len(), sent.len());
        if expected.iter().all(|(_, malformed)| !malformed) {
            prop_assert_eq!(&passed.bytes, &sent);
        }
    }
}
