//! Requests with a body that ask to switch protocols, as the API of Docker does to run a command: the tunnel begins
//! behind the body.

use std::io::{Read, Write};
use std::net::TcpStream;

use data_plane::local::Limits;
use shared::policy::LocationPolicy;

use super::harness::*;

const SWITCH: &[u8] = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";

fn asking(framing: &str) -> String {
    format!(
        "POST /exec/1/start HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n{framing}\r\n\r\n"
    )
}

/// Echoes whatever comes.
fn echo(stream: &mut TcpStream) {
    let mut some = [0; 8192];
    while let Ok(count) = stream.read(&mut some) {
        if count == 0 || stream.write_all(&some[..count]).is_err() {
            break;
        }
    }
}

/// Switches once it has the whole request, and echoes.
fn hijacked() -> Origin {
    Origin::raw(|mut stream, number, seen| {
        let Some(request) = read_request(&mut stream, number) else { return };
        seen.lock().unwrap().push(request);
        stream.write_all(&[SWITCH, b"hello "].concat()).unwrap();
        echo(&mut stream);
    })
}

fn serving(origin: &Origin, is_buffered: bool) -> Proxy {
    let mut proxy = Proxy::start();
    let said = LocationPolicy { proxy_request_buffering: Some(is_buffered), ..LocationPolicy::default() };
    proxy.policies(false, &[("/exec", said)]);
    proxy.endpoints("exec", &[origin.address]);
    proxy
}

/// Reads exactly this.
fn hears(client: &mut Client, expected: &str) {
    let mut heard = vec![0; expected.len()];
    client.stream.read_exact(&mut heard).unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), expected);
}

#[test]
fn the_tunnel_begins_behind_the_body() {
    let bodies = [
        ("Content-Length: 11", "{\"a\":\"bcd\"}", "{\"a\":\"bcd\"}"),
        (
            "Transfer-Encoding: chunked",
            "4\r\n{\"a\"\r\n7;x=y\r\n:\"bcd\"}\r\n0\r\nT: x\r\n\r\n",
            "{\"a\":\"bcd\"}",
        ),
        ("Content-Length: 0", "", ""),
    ];
    for is_buffered in [true, false] {
        let origin = hijacked();
        let proxy = serving(&origin, is_buffered);
        for (framing, sent, body) in bodies {
            // All at once, and cut in the middle of the body: what follows it is the tunnel's in any case.
            for cut in [0, asking(framing).len() + sent.len() / 2] {
                let mut client = Client::new(proxy.http);
                let all = format!("{}{sent}early ", asking(framing));
                let (first, rest) = all.split_at(cut);
                client.send(first);
                client.send(rest);
                let answer = client.receive(false).unwrap();
                assert_eq!((answer.status, answer.all("upgrade")), (101, vec!["tcp"]), "{framing} {cut}");
                hears(&mut client, "hello early ");
                client.send("late");
                hears(&mut client, "late");
                let seen = origin.seen().pop().unwrap();
                assert_eq!((seen.all("connection"), seen.all("upgrade")), (vec!["upgrade"], vec!["tcp"]));
                assert_eq!(String::from_utf8_lossy(&seen.body), body);
            }
        }
    }
}

#[test]
fn a_client_that_waits_for_permission_gets_it_first() {
    for is_buffered in [true, false] {
        let origin = hijacked();
        let proxy = serving(&origin, is_buffered);
        let mut client = Client::new(proxy.http);
        client.send(asking("Expect: 100-continue\r\nContent-Length: 4"));
        assert_eq!(client.receive(false).unwrap().status, 100);
        client.send("bodyearly");
        assert_eq!(client.receive(false).unwrap().status, 101);
        hears(&mut client, "hello early");
        assert_eq!(origin.seen()[0].body, b"body");
    }
}

/// A body of this many bytes, which is longer than what the kernel takes at once.
const LONG: usize = 8_000_000;

#[test]
fn a_switch_before_the_body_is_whole_is_no_answer() {
    for (is_buffered, sent) in [(false, 3), (true, LONG)] {
        let origin = Origin::raw(|mut stream, _, _| {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read_exact(&mut byte).is_err() {
                    return;
                }
                head.extend(byte);
            }
            stream.write_all(&[SWITCH, b"hello"].concat()).unwrap();
            // It is not read: what the kernel has no room for stays unsent.
            let _ = stream.set_nonblocking(false);
            std::thread::park_timeout(PATIENCE);
        });
        let proxy = {
            let mut proxy = Proxy::start();
            let said = LocationPolicy {
                proxy_request_buffering: Some(is_buffered),
                proxy_body_size: Some(0),
                ..LocationPolicy::default()
            };
            proxy.policies(false, &[("/exec", said)]);
            proxy.endpoints("exec", &[origin.address]);
            proxy
        };
        let mut client = Client::new(proxy.http);
        client.send(asking(&format!("Content-Length: {LONG}")));
        client.send(vec![b'x'; sent]);
        assert_eq!(client.receive(false).unwrap().status, 502, "{is_buffered}");
        // What comes now is the rest of the body, and no request.
        if sent < LONG {
            client.send("GET /more HTTP/1.1\r\nHost: a.test\r\n\r\n");
        }
        assert_eq!(origin.connections(), 1);
    }
}

#[test]
fn a_refusal_leaves_the_connection_as_any_other_answer() {
    let origin = Origin::new(|seen| match seen.line().starts_with("POST") {
        true => (b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\nno".to_vec(), true),
        false => (ok("next"), true),
    });
    for is_buffered in [true, false] {
        let proxy = serving(&origin, is_buffered);
        let mut client = Client::new(proxy.http);
        let next = "GET /exec/next HTTP/1.1\r\nHost: a.test\r\n\r\n";
        client.send(format!("{}body{next}", asking("Content-Length: 4")));
        let answer = client.receive(false).unwrap();
        assert_eq!((answer.status, answer.text()), (409, "no"));
        assert_eq!(client.receive(false).unwrap().text(), "next");
    }
}

#[test]
fn it_is_sent_to_the_next_endpoint_with_its_body() {
    let origin = hijacked();
    let proxy = Proxy::serving(Limits::default(), &[refusing(), origin.address]);
    for _ in 0..4 {
        let mut client = Client::new(proxy.http);
        client.send(format!("{}bodyearly", asking("Content-Length: 4")));
        assert_eq!(client.receive(false).unwrap().status, 101);
        hears(&mut client, "hello early");
    }
    assert!(origin.seen().iter().all(|seen| seen.body == b"body" && seen.all("upgrade") == ["tcp"]));
}

/// HTTP/1.0 cannot switch, and a switch that nobody asked for is no answer.
#[test]
fn what_may_not_be_asked_for_is_not() {
    let origin = Origin::new(|_| (SWITCH.to_vec(), true));
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    for request in [
        asking("Content-Length: 4").replace("HTTP/1.1", "HTTP/1.0"),
        asking("Content-Length: 4").replace("Upgrade: tcp", "Upgrade: h2c"),
    ] {
        assert_eq!(Client::new(proxy.http).ask(&format!("{request}body")).status, 502);
        assert_eq!(origin.seen().pop().unwrap().all("upgrade"), [""; 0]);
    }
}
