use std::time::Duration;

use data_plane::worker::Limits;
use shared::resource::{Host, Resource};

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
    assert!(
        lines[0].contains(&format!(" [ns-echo-80] [] {address} 5 0.")),
        "{log}"
    );
    assert!(lines[0].ends_with(" 200"), "{log}");
    assert!(
        lines[1].starts_with("127.0.0.1 - - \"HEAD / HTTP/1.1\" 200 0 \"-\" \"-\" "),
        "{log}"
    );
    assert!(lines[2].starts_with("127.0.0.1 - - \"BAD\" 400 "), "{log}");
    assert!(lines[2].contains(" [-] [] - - - -"), "{log}");
}

#[test]
fn every_try_is_told() {
    let dead = refusing();
    let proxy = Proxy::serving(Limits::default(), &[dead]);
    Client::new(proxy.http).get("/");
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert!(
        log.contains(&format!(" [ns-echo-80] [] {dead}, {dead}, {dead} 0, 0, 0 ")),
        "{log}"
    );
    assert!(log.contains(" 502, 502, 502 "), "{log}");
}
