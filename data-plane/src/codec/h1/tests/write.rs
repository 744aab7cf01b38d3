//! What is written reads back as the same message.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::messages::request;
use super::{requests, response, text};
use crate::codec::guard::Limits;
use crate::codec::h1::body::BodyError;
use crate::codec::h1::{BodyWriter, Client, RequestReader, ResponseReader, write_request, write_response};
use crate::codec::head::{Framing, Known, RequestHead, ResponseHead, Version};

/// Copies a framed piece.
fn put(body: &mut BodyWriter, out: &mut Vec<u8>, piece: &[u8]) -> Result<(), BodyError> {
    let frame = body.frame(piece.len())?;
    out.extend_from_slice(frame.before());
    out.extend_from_slice(piece);
    out.extend_from_slice(frame.after());
    Ok(())
}

fn head(bytes: &str) -> Box<RequestHead> {
    let mut buffer = BytesMut::from(bytes.as_bytes());
    RequestReader::new(Limits::REQUEST).feed(&mut buffer).unwrap().unwrap()
}

fn written(head: &RequestHead) -> String {
    let mut out = Vec::new();
    let _ = write_request(&mut out, head, head.target(), head.host.raw(), head.framing);
    text(&out)
}

#[test]
fn a_request_keeps_its_fields_and_loses_what_was_for_us() {
    let mut head = head(
        "GET http://b.test:8080/x?y HTTP/1.1\r\nhOsT: a.test\r\nx-FIRST: 1\r\nConnection: X-Named, X-Real-IP, close\r\n\
         X-Named: n\r\nX_Real_IP: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nKeep-Alive: 5\r\nTE: gzip\r\nX-Two: 2\r\nx-two: 3\r\nProxy: p\r\n\
         Proxy-Connection: x\r\nHTTP2-Settings: AA\r\nX.Dot: 1\r\nTrailer: T\r\nUpgrade: h2c\r\nX-Last: 9\r\n\r\n",
    );
    assert!(!head.keep_alive);
    head.fields.set(Known::XRealIp, "1.2.3.4");
    head.fields.append("X-Evil", "a\r\nb");
    assert_eq!(
        written(&head),
        "GET /x?y HTTP/1.1\r\nHost: b.test:8080\r\nx-FIRST: 1\r\nX-Two: 2\r\nx-two: 3\r\nX-Last: 9\r\nX-Real-IP: 1.2.3.4\r\n\
         X-Evil: a  b\r\n\r\n"
    );
}

#[test]
fn an_upgrade_is_asked_for_unless_it_is_http() {
    let ask = |fields: &str| {
        let text = written(&head(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n")));
        text.strip_prefix("GET / HTTP/1.1\r\nHost: a\r\n").unwrap().replace("\r\n", "|")
    };
    assert_eq!(
        ask("Connection: Upgrade, close\r\nUpgrade: example/1"),
        "Connection: upgrade|Upgrade: example/1||"
    );
    assert_eq!(ask("Upgrade: websocket"), "Connection: upgrade|Upgrade: websocket||");
    for spelling in ["h2c", "H2C", "websocket, h2c", "h2c/1", "HTTP/2.0", "a b", ""] {
        assert_eq!(
            ask(&format!("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {spelling}\r\nHTTP2-Settings: x")),
            "|"
        );
    }
    assert_eq!(
        ask("Upgrade: tcp\r\nContent-Length: 1"),
        "Connection: upgrade|Upgrade: tcp|Content-Length: 1||",
        "as the API of Docker asks"
    );
}

#[test]
fn a_body_is_framed_once_whatever_its_head_said() {
    let head = head("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 007\r\nExpect: 100-continue\r\n\r\n");
    assert!(head.expect_continue);
    let mut out = Vec::new();
    let mut body = write_request(&mut out, &head, b"/", b"h", Framing::Length(7));
    put(&mut body, &mut out, b"abcd").unwrap();
    assert_eq!(body.end(), Err(BodyError::Length));
    assert_eq!(put(&mut body, &mut out, b"efgh"), Err(BodyError::Length));
    put(&mut body, &mut out, b"efg").unwrap();
    assert_eq!(body.end(), Ok(&b""[..]));
    assert_eq!(text(&out), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\nabcdefg");

    let mut out = Vec::new();
    let mut body = write_request(&mut out, &head, b"/a b", b"h", Framing::Chunked);
    put(&mut body, &mut out, &[b'x'; 26]).unwrap();
    put(&mut body, &mut out, b"").unwrap();
    out.extend_from_slice(body.end().unwrap());
    assert_eq!(
        text(&out),
        format!(
            "POST /a%20b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1A\r\n{}\r\n0\r\n\r\n",
            "x".repeat(26)
        )
    );
}

fn answer(head: &ResponseHead, version: Version, to_head: bool, keep_alive: bool) -> (String, Framing, bool) {
    let mut out = Vec::new();
    let (body, keeps) = write_response(&mut out, head, Client { version, to_head, keep_alive });
    (text(&out).replace("\r\n", "|"), body.framing, keeps)
}

/// A record says its length in two octets.
#[test]
fn a_record_holds_no_more_than_it_can_say() {
    let mut records = BodyWriter::records();
    let most = records.most();
    assert_eq!(most, 65_535);
    for length in [1, 300, most] {
        let frame = records.frame(length).unwrap();
        assert_eq!(frame.before()[4..6], u16::try_from(length).unwrap().to_be_bytes(), "{length}");
    }
}

#[test]
fn a_response_fits_its_client() {
    let backend = |bytes: &str| {
        let mut buffer = BytesMut::from(bytes.as_bytes());
        ResponseReader::new(Limits::RESPONSE).feed(&mut buffer, false).unwrap().unwrap()
    };
    let chunked =
        backend("HTTP/1.1 200 Fine\r\nA_b.c: 1\r\nConnection: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    let v11 = Version::Http11;
    let v10 = Version::Http10;
    let line = |rest: &str| format!("HTTP/1.1 200 Fine|A_b.c: 1|{rest}|");
    assert_eq!(
        answer(&chunked, v11, false, true),
        (line("Connection: keep-alive|Transfer-Encoding: chunked|"), Framing::Chunked, true)
    );
    assert_eq!(answer(&chunked, v10, false, true), (line("Connection: close|"), Framing::UntilClose, false));
    let kept = line("Connection: keep-alive|");
    assert_eq!(answer(&chunked, v11, true, true), (kept.clone(), Framing::None, true));
    assert_eq!(answer(&chunked, v10, true, true), (kept, Framing::None, true), "its end is known");
    let unknown = backend("HTTP/1.0 200 OK\r\n\r\n");
    assert_eq!(answer(&unknown, v11, false, true).1, Framing::Chunked);
    let known = backend("HTTP/1.1 200 OK\r\nContent-Length: 05\r\n\r\n");
    assert_eq!(
        answer(&known, v10, false, true).0,
        "HTTP/1.1 200 OK|Connection: keep-alive|Content-Length: 5||"
    );
    assert_eq!(answer(&known, v11, true, false).0, "HTTP/1.1 200 OK|Connection: close|Content-Length: 5||");
    let unchanged = backend("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(
        answer(&unchanged, v11, false, true).0,
        "HTTP/1.1 304 Not Modified|Connection: keep-alive|Content-Length: 5||"
    );
    let none = backend("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(answer(&none, v11, false, true).0, "HTTP/1.1 204 No Content|Connection: keep-alive||");
    let switched =
        backend("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    assert_eq!(
        answer(&switched, v11, false, true).0,
        "HTTP/1.1 101 Switching Protocols|Connection: upgrade|Upgrade: websocket||"
    );
    // RFC 9110 section 15.5.22.
    let required = backend(
        "HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.2, HTTP/1.1\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n",
    );
    for (keep_alive, option) in [(true, "keep-alive"), (false, "close")] {
        assert_eq!(
            answer(&required, v11, false, keep_alive).0,
            format!(
                "HTTP/1.1 426 Upgrade Required|Connection: {option}, upgrade|Upgrade: TLS/1.2, HTTP/1.1|Content-Length: 0||"
            )
        );
    }
}

#[test]
fn our_own_responses_say_their_length() {
    let mut page = ResponseHead::new(503);
    page.fields.set("Content-Type", "text/html");
    page.framing = Framing::Length(4);
    assert_eq!(
        answer(&page, Version::Http11, false, false).0,
        "HTTP/1.1 503 Service Temporarily Unavailable|Content-Type: text/html|Connection: close|Content-Length: 4||"
    );
    assert_eq!(
        answer(&ResponseHead::new(200), Version::Http11, false, true).0,
        "HTTP/1.1 200 OK|Connection: keep-alive|Content-Length: 0||"
    );
}

/// Fields as HPACK's decoder gives them.
fn recognised<'a>(fields: &[(&'a [u8], &'a [u8])]) -> impl Iterator<Item = (Known, &'a [u8], &'a [u8])> {
    fields.iter().map(|(name, value)| (Known::of(name), *name, *value))
}

#[test]
fn http2_becomes_the_same_head() {
    let fields: [(&[u8], &[u8]); 6] = [
        (b"cookie", b"a=1"),
        (b"x-a", b" 1 "),
        (b"host", b"other"),
        (b"cookie", b"b=2"),
        (b"te", b"trailers"),
        (b"x_u", b"1"),
    ];
    let head =
        RequestHead::from_h2("GET", b"/p?q", Some(b"A.test"), recognised(&fields), true, Limits::REQUEST)
            .unwrap();
    assert!(head.upgrade.is_none());
    assert_eq!((head.host.name(), head.path(), head.query()), ("a.test", &b"/p"[..], Some(&b"q"[..])));
    assert_eq!(written(&head), "GET /p?q HTTP/1.1\r\nHost: A.test\r\nx-a: 1\r\ncookie: a=1; b=2\r\n\r\n");

    let make = |method: &str, path: &[u8], name: &[u8], value: &[u8], ended: bool| {
        RequestHead::from_h2(method, path, Some(b"a"), recognised(&[(name, value)]), ended, Limits::REQUEST)
    };
    assert_eq!(make("POST", b"/", b"a", b"b", false).unwrap().framing, Framing::Chunked);
    assert_eq!(make("POST", b"/", b"content-length", b"5", false).unwrap().framing, Framing::Length(5));
    for (method, path, name, value, ended) in [
        ("POST", &b"/"[..], &b"content-length"[..], &b"5"[..], true),
        ("POST", b"/", b"content-length", b"+5", false),
        ("POST", b"/", b"transfer-encoding", b"chunked", false),
        ("GET", b"/", b"connection", b"close", true),
        ("GET", b"/", b"upgrade", b"websocket", true),
        ("GET", b"/", b"te", b"gzip", true),
        ("GET", b"/", b"X-Upper", b"1", true),
        ("GET", b"/", b"x y", b"1", true),
        ("GET", b"/", b"", b"1", true),
        ("GET", b"/", b"x", b"1\r\nEvil: 1", true),
        ("GET", b"/ x", b"x", b"1", true),
        ("GET", b"", b"x", b"1", true),
        ("GET", b"http://b/", b"x", b"1", true),
        ("GET / HTTP/1.1\r\n", b"/", b"x", b"1", true),
        ("CONNECT", b"/", b"x", b"1", true),
        ("", b"/", b"x", b"1", true),
    ] {
        assert!(make(method, path, name, value, ended).is_err(), "{method} {} {}", text(path), text(name));
    }
    for name in [&b"trailer"[..], b"http2-settings"] {
        let head = make("GET", b"/", name, b"x", true).unwrap();
        assert_eq!(written(&head), "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "{}", text(name));
    }
    let none: [(&[u8], &[u8]); 0] = [];
    assert!(RequestHead::from_h2("GET", b"/", None, recognised(&none), true, Limits::REQUEST).is_err());
    assert!(
        RequestHead::from_h2("GET", b"/", Some(b"u@a"), recognised(&none), true, Limits::REQUEST).is_err()
    );
    let host: [(&[u8], &[u8]); 1] = [(b"host", b"a")];
    assert!(RequestHead::from_h2("GET", b"/", None, recognised(&host), true, Limits::REQUEST).is_ok());
}

fn any_body() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6)
}

proptest! {
    #[test]
    fn what_is_forwarded_reads_back(bytes in request(), pieces in any_body()) {
        let mut buffer = BytesMut::from(&bytes[..]);
        let Ok(Some(mut head)) = RequestReader::new(Limits::REQUEST).feed(&mut buffer) else { return Ok(()) };
        if head.target() == b"*" || head.host.raw().is_empty() {
            return Ok(());
        }
        head.upgrade = None;
        let mut out = Vec::new();
        let mut writer = write_request(&mut out, &head, head.target(), head.host.raw(), Framing::Chunked);
        for piece in &pieces {
            put(&mut writer, &mut out, piece).unwrap();
        }
        out.extend_from_slice(writer.end().unwrap());
        let (seen, end) = requests([&out[..]]);
        prop_assert_eq!((seen.len(), &end[..]), (1, "idle"), "{}", text(&out));
        let ours = |name: &[u8]| name.eq_ignore_ascii_case(b"host") || name.eq_ignore_ascii_case(b"content-length");
        let sent: Vec<_> = head.fields.iter().filter(|(name, _)| !ours(name)).map(|(n, v)| (text(n), text(v))).collect();
        let got: Vec<_> = seen[0].fields.iter().filter(|(name, _)| !ours(name.as_bytes())).cloned().collect();
        prop_assert_eq!(got, sent);
        prop_assert_eq!(&seen[0].target, &text(head.target()));
        prop_assert_eq!(&seen[0].body, &pieces.concat());
    }

    #[test]
    fn what_is_answered_reads_back(
        status in 200u16..=599,
        framing in prop_oneof![Just(Framing::Chunked), Just(Framing::UntilClose), Just(Framing::Length(0))],
        value in "[ -~]{0,20}",
        pieces in any_body(),
        old in any::<bool>(),
    ) {
        let whole = pieces.concat();
        let mut head = ResponseHead::new(status);
        head.framing = if framing == Framing::Length(0) { Framing::Length(whole.len() as u64) } else { framing };
        head.fields.append("X-Value", Bytes::from(value.trim().to_owned()));
        let version = if old { Version::Http10 } else { Version::Http11 };
        let mut out = Vec::new();
        let (mut writer, keeps) = write_response(&mut out, &head, Client { version, to_head: false, keep_alive: true });
        let bodiless = writer.is_bodiless();
        if !bodiless {
            for piece in &pieces {
                put(&mut writer, &mut out, piece).unwrap();
            }
        }
        out.extend_from_slice(writer.end().unwrap());
        let (got, fields, body, left) = response([&out[..]], false, !keeps).unwrap();
        prop_assert_eq!((got, left), (status, 0));
        prop_assert_eq!(&fields[0], &("X-Value".to_owned(), value.trim().to_owned()));
        prop_assert_eq!(body, if bodiless { Vec::new() } else { whole });
    }
}
