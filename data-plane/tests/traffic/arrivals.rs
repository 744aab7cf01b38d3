//! What precedes a request: a load balancer's PROXY header, and a ClientHello that is passed through to a backend.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use data_plane::local::{Budgets, Limits};
use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use shared::policy::{HostPolicy, LocationPolicy, TextList};
use shared::resource::{Host, PathType, Resource, Tls};
use socket2::{Domain, Socket, Type};
use test_kit::client::tls::trusting;

use super::harness::*;

const LINE: &str = "PROXY TCP4 192.0.2.7 192.0.2.8 56324 1234\r\n";

/// The same in version 2.
const BINARY: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc0\0\x02\x08\xdc\x04\x04\xd2";

/// `a.test` behind load balancers; peers in these networks are trusted.
fn behind(origin: &Origin, believed: Option<&str>, milliseconds: Option<u32>) -> Proxy {
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let defaults = LocationPolicy {
        use_proxy_protocol: Some(true),
        proxy_protocol_header_timeout: milliseconds,
        proxy_real_ip_cidr: believed.map(|it| TextList { values: vec![it.into()] }),
        ..LocationPolicy::default()
    };
    proxy.defaults(defaults);
    proxy
}

/// What the backend was last told about the client: address, port, scheme.
fn told(origin: &Origin) -> [String; 3] {
    let seen = origin.seen();
    let last = seen.last().unwrap();
    ["x-forwarded-for", "x-forwarded-port", "x-forwarded-proto"].map(|name| last.all(name).join("+"))
}

/// A TLS session after some plain bytes from the client.
fn secure(proxy: &Proxy, before: &[u8], name: &str) -> StreamOwned<ClientConnection, TcpStream> {
    let mut client = Client::new(proxy.https);
    client.send(before);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let session = ClientConnection::new(Arc::new(trusting(&[b"http/1.1"])), name).unwrap();
    StreamOwned::new(session, client.stream)
}

#[test]
fn a_load_balancer_tells_whose_connection_it_is() {
    let origin = Origin::says("in");
    let proxy = behind(&origin, None, None);
    for header in [LINE.as_bytes(), BINARY] {
        let mut client = Client::new(proxy.http);
        client.send(header);
        assert_eq!(client.get("/").status, 200);
        assert_eq!(told(&origin), ["192.0.2.7", "1234", "http"]);
        // It belongs to the connection, not to a request.
        assert_eq!(client.get("/again").status, 200);
        assert_eq!(told(&origin), ["192.0.2.7", "1234", "http"]);
    }
    let mut client = secure(&proxy, LINE.as_bytes(), "a.test");
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(told(&origin), ["192.0.2.7", "1234", "https"]);
    // Termination of TLS at the balancer is indicated by the port (as in ingress-nginx).
    let mut client = Client::new(proxy.http);
    client.send(LINE.replace("1234", "443"));
    client.get("/");
    assert_eq!(told(&origin), ["192.0.2.7", "443", "https"]);
    // The balancer's own request.
    let mut client = Client::new(proxy.http);
    client.send("PROXY UNKNOWN\r\n");
    client.get("/");
    assert_eq!(told(&origin)[0], "127.0.0.1");
}

/// In ingress-nginx' rewrite the header comes after what a request says, and only 443 means anything there.
#[test]
fn the_port_of_tls_overrules_what_a_request_says_of_its_scheme() {
    let origin = Origin::says("in");
    let mut proxy = behind(&origin, None, None);
    let defaults = LocationPolicy {
        use_proxy_protocol: Some(true),
        use_forwarded_headers: Some(true),
        ..LocationPolicy::default()
    };
    proxy.defaults(defaults);
    for (port, said, scheme) in [("443", "http", "https"), ("80", "https", "https"), ("80", "http", "http")] {
        let mut client = Client::new(proxy.http);
        client.send(LINE.replace("1234", port));
        client.ask(&format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-Proto: {said}\r\n\r\n"));
        assert_eq!(told(&origin)[1..], [port, scheme], "{port} {said}");
    }
}

/// As in ingress-nginx, where these count as any other scheme that is not http.
#[test]
fn schemes_that_are_empty_or_in_capitals_are_not_http() {
    let (origin, mut proxy) = (Origin::says("in"), Proxy::start());
    let forced = LocationPolicy { force_ssl_redirect: Some(true), ..LocationPolicy::default() };
    proxy.policies(false, &[("/x", forced)]);
    proxy.endpoints("x", &[origin.address]);
    let defaults = LocationPolicy { use_forwarded_headers: Some(true), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let mut client = Client::new(proxy.http);
    let mut status =
        |said: &str| client.ask(&format!("GET /x HTTP/1.1\r\nHost: a.test\r\n{said}\r\n")).status;
    assert_eq!((status(""), status("X-Forwarded-Proto: http\r\n")), (308, 308));
    assert_eq!((status("X-Forwarded-Proto: HTTP\r\n"), status("X-Forwarded-Proto: Http\r\n")), (200, 200));
    assert_eq!(status("X-Forwarded-Proto:\r\nX-Forwarded-Port:\r\n"), 200);
    let seen = origin.seen().pop().unwrap();
    for name in ["x-forwarded-proto", "x-forwarded-port", "x-forwarded-scheme", "x-scheme"] {
        assert_eq!(seen.all(name), [""; 0], "{name}");
    }
}

#[test]
fn the_log_has_what_it_says_whoever_is_believed() {
    let origin = Origin::says("in");
    for (believed, client) in [(None, "192.0.2.7"), (Some("192.0.2.0/24"), "127.0.0.1")] {
        let mut proxy = behind(&origin, believed, None);
        let format = "$remote_addr $proxy_protocol_addr:$proxy_protocol_port \
                      $proxy_protocol_server_addr:$proxy_protocol_server_port [$full_x_forwarded_for]";
        let defaults = LocationPolicy {
            use_proxy_protocol: Some(true),
            log_format_upstream: Some(format.into()),
            proxy_real_ip_cidr: believed.map(|it| TextList { values: vec![it.into()] }),
            ..LocationPolicy::default()
        };
        proxy.defaults(defaults);
        for header in [LINE, "PROXY UNKNOWN\r\n"] {
            let mut client = Client::new(proxy.http);
            client.send(header);
            assert_eq!(client.get("/").status, 200);
        }
        let log = proxy.stop(Duration::ZERO, PATIENCE);
        let lines: Vec<_> = log.lines().collect();
        let told = format!("{client} 192.0.2.7:56324 192.0.2.8:1234 [192.0.2.7]");
        assert_eq!(lines, [told.as_str(), "127.0.0.1 -:- -:- [127.0.0.1]"]);
    }
}

#[test]
fn a_header_comes_first_and_only_some_are_believed_it() {
    let origin = Origin::says("in");
    let proxy = behind(&origin, Some("192.0.2.0/24"), None);
    let mut client = Client::new(proxy.http);
    client.send(LINE);
    client.get("/");
    assert_eq!(told(&origin)[0], "127.0.0.1", "taken off all the same");
    let mut bare = Client::new(proxy.http);
    bare.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(bare.ended());
    let mut broken = Client::new(proxy.http);
    broken.send("PROXY TCP4 nobody 192.0.2.8 1 2\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(broken.ended());
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn client_without_proxy_header_is_closed_after_the_timeout() {
    let origin = Origin::says("in");
    let proxy = behind(&origin, None, Some(300));
    let begun = std::time::Instant::now();
    for bytes in ["", "PROXY TCP4 192.0.2.7"] {
        let mut client = Client::new(proxy.http);
        client.send(bytes);
        assert!(client.ended(), "{bytes:?}");
    }
    assert!(begun.elapsed() >= Duration::from_millis(600));
    // In time, although slowly.
    let mut client = Client::new(proxy.http);
    for piece in LINE.as_bytes().chunks(20) {
        client.send(piece);
    }
    assert_eq!(client.get("/").status, 200);
}

/// The first bytes of a client that requests a name.
fn hello(name: &str) -> Vec<u8> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut bytes = Vec::new();
    let mut session = ClientConnection::new(Arc::new(trusting(&[b"http/1.1"])), name).unwrap();
    session.write_tls(&mut bytes).unwrap();
    bytes
}

/// A backend that reports how many bytes it has received so far, and says bye at the end of them.
fn counting() -> Origin {
    Origin::raw(|mut stream, _, _| {
        let mut buffer = [0; 4096];
        let mut count = 0;
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break drop(stream.write_all(b"bye")),
                Ok(more) => count += more,
                Err(_) => break,
            }
            stream.write_all(format!("{count}\n").as_bytes()).unwrap();
        }
    })
}

/// TLS passthrough for a host with these paths.
fn passing(limits: Limits, host: &str, paths: &[&str], origin: &Origin) -> Proxy {
    let mut proxy = Proxy::serving(limits, &[origin.address]);
    pass_on(&mut proxy, host, paths, &[origin.address]);
    proxy
}

fn pass_on(proxy: &mut Proxy, host: &str, paths: &[&str], endpoints: &[SocketAddr]) {
    let paths: Vec<_> = paths.iter().map(|path| (*path, PathType::Prefix, "echo")).collect();
    proxy.host(host, true, &paths);
    proxy.endpoints("echo", endpoints);
    let policy = HostPolicy { passthrough: Some(true), ..HostPolicy::default() };
    let passed = Host { policy, tls: Some(Tls::default()), ..Host::default() };
    proxy.config(vec![(host, Resource::Host(passed))]);
}

#[test]
fn tls_for_the_very_name_ends_at_the_backend() {
    let origin = counting();
    let proxy = passing(Limits::default(), "p.test", &["/", "/more"], &origin);
    let hello = hello("p.test");
    let mut client = Client::new(proxy.https);
    // In two pieces, as a ClientHello with large keys arrives.
    client.send(&hello[..100]);
    std::thread::sleep(Duration::from_millis(50));
    client.send(&hello[100..]);
    let mut line = [0; 16];
    let count = client.stream.read(&mut line).unwrap();
    assert_eq!(std::str::from_utf8(&line[..count]).unwrap(), format!("{}\n", hello.len()), "all of it, once");
    // One direction ends, the other continues.
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"bye");
    // TLS of other names is terminated here.
    for name in ["a.test", "x.p.test"] {
        let mut other = secure(&proxy, b"", name);
        other.write_all(b"GET / HTTP/1.1\r\nHost: unknown.test\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = other.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 404"), "{name}: {answer}");
    }
}

/// What is shed waits for its client. This one waits for its endpoint, whose queue is full.
#[test]
fn tls_that_waits_for_its_backend_makes_no_room() {
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    full.set_read_timeout(Some(PATIENCE)).unwrap();
    let listener = TcpListener::from(full);
    let address = listener.local_addr().unwrap();
    let _first = TcpStream::connect(address).unwrap();
    let budgets = Budgets::default().with_connections(1, 100);
    let mut proxy = Proxy::within(Limits::default(), budgets.clone());
    pass_on(&mut proxy, "p.test", &["/"], &[address]);
    let mut client = Client::new(proxy.https);
    client.send(hello("p.test"));
    eventually("it connects", || budgets.descriptors.used() == 2);
    assert!(Client::new(proxy.https).ended(), "there is no place");
    drop(listener.accept().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"here").unwrap();
    let mut line = [0; 4];
    client.stream.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"here");
}

#[test]
fn tls_with_nowhere_to_go_is_closed() {
    let origin = counting();
    let proxy = passing(Limits::default(), "p.test", &["/below"], &origin);
    let mut client = Client::new(proxy.https);
    client.send(hello("p.test"));
    assert!(client.ended());
    let wild = passing(Limits::default(), "*.p.test", &["/"], &origin);
    let mut client = Client::new(wild.https);
    client.send(hello("one.p.test"));
    let mut first = [0];
    client.stream.read_exact(&mut first).unwrap();
    assert_eq!(first, [22], "a wildcard is nobody's very name: TLS ends here");
}

#[test]
fn passthrough_connection_is_closed_after_the_idle_timeout() {
    let origin = counting();
    let limits = Limits { stream_idle: Duration::from_millis(400), ..Limits::default() };
    let proxy = passing(limits, "p.test", &["/"], &origin);
    let mut client = Client::new(proxy.https);
    client.send(hello("p.test"));
    let mut line = [0; 16];
    for _ in 0..3 {
        assert!(client.stream.read(&mut line).unwrap() > 0);
        std::thread::sleep(Duration::from_millis(250));
        client.send("x");
    }
    assert!(client.stream.read(&mut line).unwrap() > 0);
    let begun = std::time::Instant::now();
    assert!(client.ended());
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_hello_has_its_size() {
    let proxy = Proxy::start();
    // Two records, the second of which never ends: a ClientHello of 24 KiB.
    let mut begun = vec![22, 3, 1, 0x3f, 0xff, 1, 0, 0x60, 0];
    begun.resize(16 * 1024 - 1, 0);
    let mut patient = Client::new(proxy.https);
    patient.send(&begun);
    patient.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(patient.stream.read(&mut [0]).is_err(), "the rest is waited for");
    begun.push(0);
    let mut client = Client::new(proxy.https);
    client.send(&begun);
    let waited = std::time::Instant::now();
    client.rest();
    assert!(waited.elapsed() < Duration::from_secs(5), "at once, not when its time is over");
}
