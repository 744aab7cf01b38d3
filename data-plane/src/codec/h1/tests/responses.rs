//! Which responses of backends are accepted, and which are not.

use super::response;
use crate::codec::guard::Limits;
use crate::codec::h1::ResponseReader;
use crate::codec::head::{Framing, Known};

fn read(bytes: &str, to_head: bool) -> Result<(u16, Vec<u8>, usize), String> {
    response([bytes.as_bytes()], to_head, false).map(|(status, _, body, left)| (status, body, left))
}

#[test]
fn bodies_end_where_they_should() {
    let ok = |status: u16, body: &str, left: usize| Ok((status, body.as_bytes().to_vec(), left));
    for (bytes, to_head, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloEXTRA", false, ok(200, "hello", 5)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, ok(200, "", 0)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true, ok(200, "", 0)),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nEXTRA", false, ok(204, "", 5)),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", false, ok(304, "", 0)),
        ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", false, ok(200, "", 0)),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nA: b\r\n\r\nHTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n",
            false,
            ok(404, "", 0),
        ),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nTUNNEL", false, ok(101, "", 6)),
    ] {
        assert_eq!(read(bytes, to_head), expected, "{bytes:?}");
    }
    let until_close = b"HTTP/1.1 200 OK\r\n\r\nall of it";
    assert_eq!(response([&until_close[..]], false, false), Err("no end".to_owned()));
    assert_eq!(response([&until_close[..]], false, true).map(|r| r.2), Ok(b"all of it".to_vec()));
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello";
    assert_eq!(response([&cut[..]], false, true), Err("Truncated".to_owned()));
}

#[test]
fn unclear_responses_are_refused() {
    for (bytes, error) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "Framing"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 3\r\n\r\n", "ContentLength"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\n", "ContentLength"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "TransferCoding"),
        ("HTTP/1.1 200 OK\r\nX-A: a\0b\r\n\r\n", "Field"),
        ("HTTP/1.1 200 OK\r\nX-A: a\rb\r\n\r\n", "Field"),
        ("HTTP/1.1 200 OK\r\nX-A : b\r\n\r\n", "Field"),
        ("HTTP/1.1 2x0 OK\r\n\r\n", "Status"),
        ("HTTP/1.1 099 OK\r\n\r\n", "Status"),
        ("HTTP/2.0 200 OK\r\n\r\n", "StartLine"),
        ("SSH-2.0-OpenSSH\r\n", "StartLine"),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", "StartLine"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "Chunk"),
    ] {
        assert_eq!(read(bytes, false), Err(error.to_owned()), "{bytes:?}");
    }
    let huge = format!("HTTP/1.1 200 OK\r\n{}\r\n", format!("X: {}\r\n", "v".repeat(1000)).repeat(70));
    assert_eq!(read(&huge, false), Err("HeadTooLong".to_owned()));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: v\r\n".repeat(257));
    assert_eq!(read(&many, false), Err("TooManyFields".to_owned()));
}

#[test]
fn a_head_says_whether_its_connection_lives() {
    for (head, keeps, framing) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 1", true, Framing::Length(1)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close", false, Framing::Length(1)),
        ("HTTP/1.1 200 OK", false, Framing::UntilClose),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1", false, Framing::Length(1)),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive", true, Framing::Length(1)),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive", false, Framing::Chunked),
        ("HTTP/1.1 204 No Content", true, Framing::None),
    ] {
        let mut buffer = format!("{head}\r\nX-Keep: 1\r\nKeep-Alive: timeout=5\r\n\r\n").as_bytes().into();
        let response = ResponseReader::new(Limits::RESPONSE).feed(&mut buffer, false).unwrap().unwrap();
        assert_eq!((response.keep_alive, response.framing), (keeps, framing), "{head}");
        assert!(response.fields.has("x-keep") && !response.fields.has(Known::KeepAlive));
        assert!(!response.fields.has(Known::Connection));
    }
}
