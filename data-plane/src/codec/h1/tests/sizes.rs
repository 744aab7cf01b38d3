//! Every size limit of an incoming message, to the byte.

use super::requests;
use crate::codec::guard::{HeadError, Limits};
use crate::codec::h1::chunk::{MAX_EXTENSIONS, MAX_SIZE_LINE, MAX_TRAILERS};
use crate::codec::h1::scan::MAX_EMPTY_LINES;
use crate::codec::head::hop::MAX_OPTIONS;
use crate::codec::head::{Known, RequestHead};

fn end(bytes: &str) -> String {
    let (seen, end) = requests([bytes.as_bytes()]);
    if seen.is_empty() { end } else { "passed".to_owned() }
}

/// A line of this many bytes, including CRLF.
fn line(begin: &str, finish: &str, bytes: usize) -> String {
    format!("{begin}{}{finish}\r\n", "a".repeat(bytes - begin.len() - finish.len() - 2))
}

/// The maximum passes; one byte (or item) more is refused.
fn ends_at(most: usize, refused: &str, message: impl Fn(usize) -> String) {
    assert_eq!(end(&message(most)), "passed", "{most}");
    assert_eq!(end(&message(most + 1)), refused, "{most} and one");
}

#[test]
fn heads_have_their_sizes_to_the_byte() {
    let Limits { start_line, field_line, head, fields } = Limits::REQUEST;
    assert_eq!((start_line, field_line, head, fields), (8 << 10, 8 << 10, 33 << 10, 100));
    ends_at(start_line, "StartLineTooLong", |bytes| {
        format!("{}Host: a\r\n\r\n", line("GET /", " HTTP/1.1", bytes))
    });
    let begin = "GET / HTTP/1.1\r\nHost: a\r\n";
    ends_at(field_line, "HeadTooLong", |bytes| format!("{begin}{}\r\n", line("X: ", "", bytes)));
    ends_at(head, "HeadTooLong", |bytes| {
        let long = line("X: ", "", field_line).repeat(head / field_line);
        let rest = bytes - begin.len() - long.len() - 2;
        format!("{begin}{long}{}\r\n", line("X: ", "", rest))
    });
    // Including Host.
    ends_at(fields, "TooManyFields", |number| format!("{begin}{}\r\n", "X: 1\r\n".repeat(number - 1)));
    ends_at(MAX_EMPTY_LINES, "StartLine", |number| format!("{}{begin}\r\n", "\r\n".repeat(number)));
    ends_at(MAX_OPTIONS, "Field", |number| {
        format!("{begin}Connection: {}\r\n\r\n", vec!["x"; number].join(", "))
    });
}

#[test]
fn chunks_have_their_sizes_to_the_byte() {
    let begin = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    ends_at(MAX_SIZE_LINE, "Chunk", |bytes| format!("{begin}{}a\r\n0\r\n\r\n", line("1;", "", bytes)));
    ends_at(MAX_EXTENSIONS, "Chunk", |bytes| {
        // Everything after the digit counts.
        let chunk = |bytes| format!("{}a\r\n", line("1;", "", bytes + 3));
        format!("{begin}{}{}0\r\n\r\n", chunk(128).repeat(bytes / 128 - 1), chunk(128 + bytes % 128))
    });
    ends_at(MAX_TRAILERS, "Trailer", |bytes| {
        // Including the empty line.
        format!("{begin}0\r\n{}{}\r\n", line("T: ", "", 4096), line("T: ", "", bytes - 4096 - 2))
    });
}

/// However short they are: a reference to an earlier HTTP/2 field costs its sender one byte.
#[test]
fn a_head_of_http2_has_a_hundred_fields() {
    let outcome = |number: usize| {
        let fields = (0..number).map(|_| (Known::Other, &b"x"[..], &b"1"[..]));
        RequestHead::from_h2("GET", b"/", Some(b"a"), fields, true, Limits::REQUEST)
            .map(|head| head.fields.iter().count())
    };
    // Including Host.
    assert_eq!(outcome(99), Ok(100));
    assert_eq!(outcome(100), Err(HeadError::TooManyFields));
    assert_eq!(outcome(1_000), Err(HeadError::TooManyFields));
}

/// A host name of 60 kB would end up in every log line, key and auth request.
#[test]
fn the_authority_of_http_2_is_a_line_of_http_1() {
    let most = Limits::REQUEST.field_line - "host: ".len();
    let of = |length: usize| {
        let authority = "a".repeat(length);
        RequestHead::from_h2(
            "GET",
            b"/",
            Some(authority.as_bytes()),
            std::iter::empty(),
            true,
            Limits::REQUEST,
        )
        .map(|_| ())
    };
    assert_eq!(of(most), Ok(()));
    assert_eq!(of(most + 1), Err(HeadError::HeadTooLong));
}
