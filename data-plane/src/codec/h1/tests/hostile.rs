//! Inputs known from attacks, and the rule that refuses each.

use bytes::BytesMut;

use super::{requests, text};
use crate::codec::guard::{HeadError, Limits};
use crate::codec::h1::RequestReader;

fn outcome(head: &str, body: &str) -> String {
    let bytes = format!("{head}\r\n\r\n{body}");
    let (seen, end) = requests([bytes.as_bytes()]);
    if seen.is_empty() { end } else { format!("{} passed, {}", seen.len(), text(&seen[0].body)) }
}

fn with(fields: &str) -> String {
    outcome(&format!("POST / HTTP/1.1\r\nHost: a.test\r\n{fields}"), "3\r\nabc\r\n0\r\n\r\n")
}

#[test]
fn framing_has_one_reading() {
    for (fields, expected) in [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked", "Framing"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 3", "Framing"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Framing"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Framing"),
        ("Transfer-Encoding: gzip, chunked", "TransferCoding"),
        ("Transfer-Encoding: chunked, chunked", "TransferCoding"),
        ("Transfer-Encoding: ,chunked", "TransferCoding"),
        ("Transfer-Encoding: \"chunked\"", "TransferCoding"),
        ("Transfer-Encoding: identity", "TransferCoding"),
        ("Transfer-Encoding:", "TransferCoding"),
        ("Transfer-Encoding: \u{b}chunked", "Field"),
        ("Transfer-Encoding : chunked", "Field"),
        ("Transfer-Encoding:\r\n chunked", "Field"),
        ("Transfer-Encoding: chunked\nX: y", "LineEnd"),
        ("Transfer-Encoding: chun\0ked", "Field"),
        ("Content-Length: 5\r\nContent-Length: 5", "ContentLength"),
        ("Content-Length: 5, 5", "ContentLength"),
        ("Content-Length: -5", "ContentLength"),
        ("Content-Length: +5", "ContentLength"),
        ("Content-Length: 0x5", "ContentLength"),
        ("Content-Length: ", "ContentLength"),
        ("Content-Length: 5 5", "ContentLength"),
        ("Content-Length: 9223372036854775808", "ContentLength"),
        ("Content-Length: 18446744073709551621", "ContentLength"),
        ("Transfer-Encoding: Chunked", "1 passed, abc"),
        ("Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked", "1 passed, abc"),
    ] {
        assert_eq!(with(fields), expected, "{fields:?}");
    }
    assert_eq!(outcome("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), "Framing");
}

#[test]
fn some_fields_come_once() {
    for (fields, expected) in [
        ("Authorization: Basic YTpi\r\nAuthorization: Basic YTpi", "Repeated"),
        ("Authorization: Basic YTpi\r\nA: b\r\nAUTHORIZATION: Bearer x", "Repeated"),
        ("Expect: 100-continue\r\nExpect: 100-continue", "Repeated"),
        ("If-Match: \"a\"\r\nIf-Match: \"b\"", "Repeated"),
        ("If-None-Match: \"a\"\r\nIf-None-Match: \"b\"", "Repeated"),
        ("If-Modified-Since: x\r\nIf-Modified-Since: x", "Repeated"),
        ("If-Unmodified-Since: x\r\nIf-Unmodified-Since: x", "Repeated"),
        ("If-Range: x\r\nif-range: x", "Repeated"),
        ("Content-Range: bytes 0-2/3\r\nContent-Range: bytes 0-2/3", "Repeated"),
        ("If-Match: x\r\nIf-None-Match: x\r\nRange: a\r\nRange: b\r\nContent-Length: 1", "1 passed, 3"),
        ("Authorization: Basic YTpi\r\nProxy-Authorization: x\r\nContent-Length: 1", "1 passed, 3"),
    ] {
        assert_eq!(with(fields), expected, "{fields:?}");
    }
}

#[test]
fn chunks_have_one_reading() {
    for (body, expected) in [
        ("3\r\nabc\r\n0\r\n\r\n", "1 passed, abc"),
        ("3;a;b=c ; d = \"x;\\\"y\"\r\nabc\r\n0;z\r\n\r\n", "1 passed, abc"),
        ("\r\nabc\r\n0\r\n\r\n", "Chunk"),
        (";5\r\nabc\r\n0\r\n\r\n", "Chunk"),
        ("0x3\r\nabc\r\n0\r\n\r\n", "Chunk"),
        ("3_0\r\nabc\r\n0\r\n\r\n", "Chunk"),
        ("3 \r\nabc\r\n0\r\n\r\n", "Chunk"),
        ("3;a\nabc\r\n0\r\n\r\n", "Chunk"),
        ("3\rabc\r\n0\r\n\r\n", "Chunk"),
        ("3;a=\"\r\nabc\r\n0\r\n\r\n", "Chunk"),
        ("3\r\nabcd\r\n0\r\n\r\n", "Chunk"),
        ("3\r\nabc\n0\r\n\r\n", "Chunk"),
        ("10000000000000003\r\nabc", "Chunk"),
        ("ffffffffffffffff\r\nabc", "ChunkTooLarge"),
        ("7fffffffffffffff\r\nabc", "within a body, after 3 bytes"),
        ("3\r\nabc\r\n0\r\n\r\r\n", "Trailer"),
        ("3\r\nabc\r\n0\r\nContent-Length: 50\r\n\r\n", "1 passed, abc"),
        ("3\r\nabc\r\n0\r\nno colon\r\n\r\n", "Trailer"),
        ("3\r\nabc\r\n0\r\n: no name\r\n\r\n", "Trailer"),
        ("3\r\nabc\r\n0\r\nno name: x\r\n\r\n", "Trailer"),
        ("3\r\nabc\r\n0\r\nX : blank\r\n\r\n", "Trailer"),
        ("3\r\nabc\r\n0\r\nX: a\0b\r\n\r\n", "Trailer"),
        ("3\r\nabc\r\n0\r\nX: a\r\n b\r\n\r\n", "Trailer"),
        ("3\r\nabc\r\n0\r\nX: a\nY: b\r\n\r\n", "Trailer"),
    ] {
        assert_eq!(
            outcome("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked", body),
            expected,
            "{body:?}"
        );
    }
}

#[test]
fn lines_have_one_reading() {
    for (head, expected) in [
        ("GET /\r\nHost: a", "StartLine"),
        ("GET / HTTP/1.2\r\nHost: a", "Version"),
        ("GET / HTTP/2.0\r\nHost: a", "Version"),
        ("GET / http/1.1\r\nHost: a", "StartLine"),
        ("GET / HTTP/1\r\nHost: a", "StartLine"),
        ("GET / HTTP/01.1\r\nHost: a", "StartLine"),
        ("GET  / HTTP/1.1\r\nHost: a", "StartLine"),
        ("GET /  HTTP/1.1\r\nHost: a", "StartLine"),
        ("GET\t/\tHTTP/1.1\r\nHost: a", "StartLine"),
        ("get / HTTP/1.1\r\nHost: a", "StartLine"),
        ("G@T / HTTP/1.1\r\nHost: a", "StartLine"),
        (" GET / HTTP/1.1\r\nHost: a", "StartLine"),
        ("\u{16}\u{3}\u{1}", "StartLine"),
        ("TRACE / HTTP/1.1\r\nHost: a", "Method"),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a", "Method"),
        ("GET /#x HTTP/1.1\r\nHost: a", "Target"),
        ("GET * HTTP/1.1\r\nHost: a", "Target"),
        ("GET a:80 HTTP/1.1\r\nHost: a", "Target"),
        ("GET ?a HTTP/1.1\r\nHost: a", "Target"),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a", "Target"),
        ("GET http://u@a/ HTTP/1.1\r\nHost: a", "Host"),
        ("GET http:///x HTTP/1.1\r\nHost: a", "Host"),
        ("GET / HTTP/1.1", "Host"),
        ("GET http://a/ HTTP/1.1", "Host"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a", "Host"),
        ("GET / HTTP/1.1\r\nHost: a,b", "Host"),
        ("GET / HTTP/1.1\r\nHost:", "Host"),
        ("GET / HTTP/1.1\r\n Host: a", "Field"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c", "Field"),
        ("GET / HTTP/1.1\r\nHost: a\r\nno colon", "Field"),
        ("GET / HTTP/1.1\r\nHost: a\r\n: v", "Field"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX(A): v", "Field"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\rc", "Field"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\u{7f}", "Field"),
        ("GET / HTTP/1.1\nHost: a\n", "LineEnd"),
        ("\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a", "StartLine"),
        ("\nGET / HTTP/1.1\r\nHost: a", "LineEnd"),
        ("OPTIONS * HTTP/1.1\r\nHost: a", "1 passed, "),
        ("GET / HTTP/1.0", "1 passed, "),
        ("\r\n\r\nGET http://b/ HTTP/1.1\r\nHost: a", "1 passed, "),
    ] {
        assert_eq!(outcome(head, ""), expected, "{head:?}");
    }
}

#[test]
fn sizes_are_bounded() {
    let long = "a".repeat(9000);
    let fit = "a".repeat(8000);
    for (head, expected) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: a"), "StartLineTooLong"),
        (format!("GET /{fit} HTTP/1.1\r\nHost: a"), "1 passed, "),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}"), "HeadTooLong"),
        (format!("GET / HTTP/1.1\r\nHost: a{}", format!("\r\nX: {fit}").repeat(4)), "1 passed, "),
        (format!("GET / HTTP/1.1\r\nHost: a{}", format!("\r\nX: {fit}").repeat(5)), "HeadTooLong"),
        (format!("GET / HTTP/1.1\r\nHost: a{}", "\r\nX: 1".repeat(99)), "1 passed, "),
        (format!("GET / HTTP/1.1\r\nHost: a{}", "\r\nX: 1".repeat(100)), "TooManyFields"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: {}", "x,".repeat(40)), "Field"),
    ] {
        assert_eq!(outcome(&head, ""), expected, "{} bytes", head.len());
    }
    // Neither has an end: both are refused once they exceed their limit.
    assert_eq!(requests([format!("GET /{long}").as_bytes()]).1, "StartLineTooLong");
    assert_eq!(requests([format!("GET / HTTP/1.1\r\nX: {long}").as_bytes()]).1, "HeadTooLong");
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked";
    assert_eq!(outcome(chunked, &"0".repeat(300)), "Chunk");
    assert_eq!(outcome(chunked, &format!("1;{}\r\na\r\n", "e".repeat(200)).repeat(100)), "Chunk");
    assert_eq!(
        outcome(chunked, &format!("0\r\n{}", format!("T: {}\r\n", "t".repeat(200)).repeat(100))),
        "Trailer"
    );
}

#[test]
fn a_refusal_has_nginx_status() {
    for (error, status) in [
        (HeadError::Method, 405),
        (HeadError::StartLineTooLong, 414),
        (HeadError::HeadTooLong, 400),
        (HeadError::TooManyFields, 400),
        (HeadError::TransferCoding, 501),
        (HeadError::Version, 505),
        (HeadError::Host, 400),
        (HeadError::Repeated, 400),
    ] {
        assert_eq!(error.status(), status, "{error}");
    }
}

/// The log shows the head that was refused.
#[test]
fn refused_head_stays_in_the_buffer() {
    for bytes in [
        "GET /no-host HTTP/1.1\r\n\r\nGET /next",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        "GET / HTTP/9.9\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\nx",
    ] {
        let mut buffer = BytesMut::from(bytes);
        assert!(RequestReader::new(Limits::REQUEST).feed(&mut buffer).is_err(), "{bytes:?}");
        assert_eq!(buffer, bytes);
    }
}
