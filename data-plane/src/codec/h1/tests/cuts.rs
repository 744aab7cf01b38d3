//! The output does not depend on how the bytes were split.

use proptest::prelude::*;

use super::messages::connection;
use super::{requests, response};

const GOOD: &str = "\r\nPOST /a?b HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n\
    5;e=\"1\"\r\nhello\r\n1\r\n!\r\n0\r\nTrailer-A: 1\r\n\r\nGET /next HTTP/1.1\r\nHost: b.test\r\n\r\n\
    PUT /last HTTP/1.1\r\nHost: c.test\r\nContent-Length: 4\r\n\r\nlast";

/// Lines of answers' heads: good ones, odd ones, and bad ones.
const ANSWER: [&str; 11] = [
    "A: 1",
    "Content-Length: 3",
    "Content-Length: 2",
    "Transfer-Encoding: chunked",
    "Connection: close",
    "X:\t \t",
    "no colon",
    "B: a\u{1}b",
    "C : d",
    " folded",
    "D: a\rb",
];

#[test]
fn at_every_position() {
    let bytes = GOOD.as_bytes();
    let whole = requests([bytes]);
    assert_eq!((whole.0.len(), &whole.1[..]), (3, "idle"));
    assert_eq!(whole.0[0].body, b"hello!");
    for first in 0..bytes.len() {
        assert_eq!(requests([&bytes[..first], &bytes[first..]]), whole, "cut at {first}");
    }
    assert_eq!(requests(bytes.chunks(1)), whole);
}

#[test]
fn responses_at_every_position() {
    let bytes = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\n0\r\n\r\nextra";
    let whole = response([&bytes[..]], false, false).unwrap();
    assert_eq!((whole.0, &whole.2[..], whole.3), (200, &b"abc"[..], 5));
    for first in 0..bytes.len() {
        assert_eq!(
            response([&bytes[..first], &bytes[first..]], false, false).unwrap(),
            whole,
            "cut at {first}"
        );
    }
}

proptest! {
    #[test]
    fn of_any_connection(bytes in connection(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.push(bytes.len());
        at.sort_unstable();
        let mut from = 0;
        let pieces = at.iter().map(|&to| { let piece = &bytes[from..to]; from = to; piece }).collect::<Vec<_>>();
        let whole = requests([&bytes[..]]);
        prop_assert_eq!(&requests(pieces), &whole);
        prop_assert_eq!(&requests(bytes.chunks(1)), &whole);
    }

    /// What is mended and what is refused, too: one that comes at once is read in another way.
    #[test]
    fn of_any_answer(
        before in prop_oneof![4 => Just(""), 1 => Just("\r\n"), 1 => Just("\n")],
        lines in prop::collection::vec(0..ANSWER.len(), 0..6),
        ends in prop::collection::vec(prop::bool::weighted(0.8), 8),
    ) {
        let ends = ends.into_iter().map(|well| if well { "\r\n" } else { "\n" });
        let lines = std::iter::once("HTTP/1.1 200 OK").chain(lines.into_iter().map(|line| ANSWER[line])).chain([""]);
        let text: String = lines.zip(ends).flat_map(|(line, end)| [line, end]).collect();
        let bytes = [before.as_bytes(), text.as_bytes(), b"abc"].concat();
        let whole = response([&bytes[..]], false, true);
        prop_assert_eq!(&response(bytes.chunks(1), false, true), &whole);
    }

    #[test]
    fn of_noise(bytes in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b' '), Just(b':'), any::<u8>()], 0..200)) {
        let whole = requests([&bytes[..]]);
        prop_assert_eq!(&requests(bytes.chunks(1)), &whole);
        prop_assert_eq!(&requests(bytes.chunks(3)), &whole);
    }
}
