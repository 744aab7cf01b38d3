//! Random requests, most of them almost valid.

use proptest::prelude::*;
use proptest::sample::select;

fn start_line() -> impl Strategy<Value = String> {
    let method =
        select(vec!["GET", "POST", "HEAD", "OPTIONS", "M-SEARCH", "DELETE", "TRACE", "get", "G(", ""]);
    let target = select(vec![
        "/",
        "/a?b=c",
        "/%2e%2e/x",
        "*",
        "http://b.test/y",
        "https://b.test?q",
        "HTTP://B.test",
        "http://u@b.test/",
        "x",
        "/a b",
        "/#f",
        "/\u{7f}",
        "http:///x",
        "ftp://b.test/",
    ]);
    let version = select(vec![
        "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1",
    ]);
    (method, target, version, select(vec![" ", " ", " ", " ", "  ", "\t"]))
        .prop_map(|(method, target, version, gap)| format!("{method}{gap}{target} {version}"))
}

fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => select(vec![
            "Host: a.test", "Host: A.test:80", "X-One: 1", "x-two:", "X-Three:\t3 \t", "Accept: */*", "X_Under: 1",
            "X.Dot: 1", "Cookie: a=1", "Content-Length: 3", "Content-Length: 0", "Transfer-Encoding: chunked",
            "Connection: close", "Connection: keep-alive, X-One", "Connection: Host, X-Forwarded-For", "Keep-Alive: 5",
            "TE: trailers", "Upgrade: websocket", "Upgrade: h2c", "HTTP2-Settings: AA", "Expect: 100-continue",
            "Proxy: http://evil", "X-Forwarded-For: 1.2.3.4", "X-Bytes: h\u{e9}",
            "Authorization: Basic YTpi",
        ]).prop_map(str::to_owned),
        1 => select(vec![
            "Host: b.test", "Host: a.test, b.test", "Host: ", "Content-Length: 5, 5", "Content-Length: +3",
            "Content-Length: 99999999999999999999", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, chunked",
            "transfer-encoding: CHUNKED", "Transfer-Encoding : chunked", " folded", "\tfolded", "no colon", ": v", "X(: 1",
            "X-Cr: a\rb", "X-Nul: a\0b", "X-Del: a\u{7f}", "X-Lf: a\nb", "Content-Length\t: 3", "Content-Length: 03",
        ]).prop_map(str::to_owned),
    ]
}

fn body() -> impl Strategy<Value = String> {
    select(vec![
        "",
        "abc",
        "3\r\nabc\r\n0\r\n\r\n",
        "3;a=b\r\nabc\r\n0\r\nT: v\r\n\r\n",
        "0\r\n\r\n",
        "1\r\na\r\n2 ;x=\"q\\\"\"\r\nbc\r\n00\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nabc",
        "3;\r\nabc\r\n0\r\n\r\n",
        "3;a=\"b\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nbad\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "0000000000000003\r\nabc\r\n0\r\n\r\n",
        "00000000000000003\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\n X: folded\r\n\r\n",
    ])
    .prop_map(str::to_owned)
}

/// The bytes of one request, in Latin-1.
pub(super) fn request() -> impl Strategy<Value = Vec<u8>> {
    let host = prop_oneof![9 => Just("Host: a.test\r\n"), 1 => Just("")];
    let fields = prop::collection::vec(
        (field(), select(vec!["\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n"])),
        0..6,
    );
    (start_line(), host, fields, body()).prop_map(|(line, host, fields, body)| {
        let mut whole = format!("{line}\r\n{host}");
        for (field, end) in fields {
            whole.push_str(&field);
            whole.push_str(end);
        }
        whole.push_str("\r\n");
        whole.push_str(&body);
        whole.chars().map(|c| c as u8).collect()
    })
}

/// The bytes of a connection: a few requests in a row.
pub(super) fn connection() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(request(), 1..4).prop_map(|all| all.concat())
}
