use std::time::Duration;

use data_plane::local::Limits;
use shared::resource::{Denial, Host, PathType, Resource, Route};

use super::harness::*;

/// Lines without their time, request time and request id.
fn lines(log: &str) -> Vec<String> {
    let line = |line: &str| {
        let (before, rest) = line.split_once(" [").unwrap();
        let (_, after) = rest.split_once("] ").unwrap();
        let (after, id) = after.rsplit_once(' ').unwrap();
        assert!(id.len() == 32, "{line}");
        format!("{before} {after}")
    };
    log.lines().map(line).collect()
}

#[test]
fn one_line_a_request() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    proxy.config(vec![("_", Resource::Host(Host::default()))]);
    let mut client = Client::new(proxy.http);
    let request = "GET /x?y=\"1\" HTTP/1.1\r\nHost: a.test\r\nUser-Agent: me\r\nReferer: there\r\n\
                   Authorization: Basic dXNlcjpzZWNyZXQ=\r\n\r\n";
    client.ask(request);
    client.ask("GET /quiet HTTP/1.1\r\nHost: nobody.test\r\n\r\n");
    client.ask("HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.ask("BAD\r\n\r\n");
    drop(client);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let lines = lines(&log);
    let address = origin.address;
    assert_eq!(lines.len(), 3, "{log}");
    let expected = format!(
        "127.0.0.1 - user \"GET /x?y=\\x221\\x22 HTTP/1.1\" 200 5 \"there\" \"me\" {} 0.",
        request.len()
    );
    assert!(lines[0].starts_with(&expected), "{log}");
    assert!(lines[0].contains(&format!(" [ns-echo-80] [] {address} 5 0.")), "{log}");
    assert!(lines[0].ends_with(" 200"), "{log}");
    assert!(lines[1].starts_with("127.0.0.1 - - \"HEAD / HTTP/1.1\" 200 0 \"-\" \"-\" "), "{log}");
    assert!(lines[2].starts_with("127.0.0.1 - - \"BAD\" 400 "), "{log}");
    assert!(lines[2].contains(" [-] [] - - - -"), "{log}");
}

#[test]
fn every_try_is_told() {
    let dead = refusing();
    let proxy = Proxy::serving(Limits::default(), &[dead]);
    Client::new(proxy.http).get("/");
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert!(log.contains(&format!(" [ns-echo-80] [] {dead}, {dead}, {dead} 0, 0, 0 ")), "{log}");
    assert!(log.contains(" 502, 502, 502 "), "{log}");
}

#[test]
fn an_upstream_is_named_whatever_is_answered() {
    let mut proxy = Proxy::start();
    proxy.host("tls.test", true, &[("/", PathType::Prefix, "echo")]);
    proxy.host("empty.test", false, &[("/", PathType::Exact, "empty")]);
    let denied = Route {
        paths: vec![to("/", PathType::Prefix, "shut")],
        denied: Some(Denial { reason: "auth-url is not enforced yet".to_owned() }),
        ..Route::default()
    };
    let missing = Route { paths: vec![to("/", PathType::Prefix, "missing")], ..Route::default() };
    proxy.config(vec![
        ("shut.test", Resource::Host(Host::default())),
        ("ingress/ns/web/shut.test", Resource::Route(denied)),
        ("missing.test", Resource::Host(Host::default())),
        ("ingress/ns/web/missing.test", Resource::Route(missing)),
    ]);
    let expected = [
        ("tls.test", "/", 308, "ns-echo-80"),
        ("empty.test", "/", 503, "ns-empty-80"),
        ("shut.test", "/", 503, "ns-shut-80"),
        ("missing.test", "/", 503, "ns-missing-80"),
        ("empty.test", "/other", 404, "upstream-default-backend"),
    ];
    for (host, target, status, _) in expected {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(Client::new(proxy.http).ask(&request).status, status, "{host}");
    }
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    for ((host, .., upstream), line) in expected.iter().zip(log.lines()) {
        assert!(line.contains(&format!(" [{upstream}] [] - - - - ")), "{host}: {line}");
    }
}
