//! The HTTP version of requests to backends.

use std::io::{Read as _, Write as _};

use shared::policy::LocationPolicy;

use super::early_answers::until;
use super::harness::*;

#[test]
fn http_1_0_has_a_length_and_a_connection_of_its_own() {
    let origin = Origin::new(|_| (ok("backend"), true));
    let mut proxy = Proxy::start();
    let old = LocationPolicy {
        proxy_http_version: Some(10),
        proxy_request_buffering: Some(false),
        ..LocationPolicy::default()
    };
    let new = LocationPolicy { proxy_http_version: Some(11), ..LocationPolicy::default() };
    proxy.policies(false, &[("/old", old), ("/new", new)]);
    for service in ["old", "new"] {
        proxy.endpoints(service, &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    let chunks =
        "POST /old HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(client.ask(chunks).text(), "backend");
    assert_eq!(client.get("/old").text(), "backend");
    assert_eq!((client.get("/new").status, client.get("/new").status), (200, 200));
    let seen = origin.seen();
    assert_eq!(seen[0].line(), "POST /old HTTP/1.0");
    assert_eq!((seen[0].all("content-length"), &seen[0].body[..]), (vec!["3"], &b"abc"[..]));
    assert_eq!((seen[0].all("transfer-encoding"), seen[0].all("connection")), (vec![], vec![]));
    assert_eq!(seen[1].line(), "GET /old HTTP/1.0");
    assert_eq!(seen[2].line(), "GET /new HTTP/1.1");
    let connections: Vec<_> = seen.iter().map(|it| it.connection).collect();
    assert_eq!(connections, [0, 1, 2, 2], "one of HTTP/1.0 serves no other request");
}

/// As in nginx: only a body without a length is read first whatever the location says.
#[test]
fn a_body_with_a_length_is_streamed_over_http_1_0() {
    let origin = Origin::raw(|mut stream, _, _| {
        if until(&mut stream, b"\r\n\r\nabc").is_some() {
            stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            // Closed by the proxy.
            let _ = stream.read(&mut [0]);
        }
    });
    let mut proxy = Proxy::start();
    let old = LocationPolicy {
        proxy_http_version: Some(10),
        proxy_request_buffering: Some(false),
        ..LocationPolicy::default()
    };
    proxy.policies(false, &[("/old", old)]);
    proxy.endpoints("old", &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send("POST /old HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\nabc");
    let answer = client.receive(false).unwrap();
    assert_eq!((answer.status, answer.text()), (200, "ok"));
}
