//! TLS towards endpoints: if it is configured, nothing goes in plain text.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use data_plane::local::Limits;
use data_plane::tls::own;
use rustls::{ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::ServerName;
use shared::policy::{BackendProtocol, LocationPolicy};
use shared::resource::{Path, PathType, Resource, Route, Tls};
use test_kit::client::tls::trusting;

use super::harness::*;

fn said(protocol: BackendProtocol) -> LocationPolicy {
    LocationPolicy { backend_protocol: Some(protocol.into()), ..LocationPolicy::default() }
}

/// A Route of `a.test`.
fn route(paths: Vec<Path>, policy: LocationPolicy) -> Resource {
    Resource::Route(Route { paths, policy, ..Route::default() })
}

/// `a.test`, with this protocol towards all endpoints.
fn proxy(protocol: BackendProtocol, origins: &[&Origin]) -> Proxy {
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let mut proxy = Proxy::serving(Limits::default(), &addresses);
    let paths = vec![to("/", PathType::Prefix, "echo")];
    proxy.config(vec![("ingress/ns/web/a.test", route(paths, said(protocol)))]);
    proxy
}

pub(crate) fn server() -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = Arc::unwrap_or_clone(Arc::clone(own::Own::generate().unwrap().usual()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key)));
    Arc::new(config)
}

/// Responds `plain` to plain connections, and over TLS with details of the handshake.
fn both() -> Origin {
    let config = server();
    Origin::raw(move |mut stream, number, seen| {
        if !begins_with_tls(&stream) {
            return answer(&mut stream, number, seen, |_| ok("plain"));
        }
        let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
        if session.complete_io(&mut stream).is_err() {
            return;
        }
        let (name, alpn) = (session.server_name().is_some(), session.alpn_protocol().is_some());
        let text = format!("tls, name: {name}, protocols: {alpn}");
        answer(&mut StreamOwned::new(session, stream), number, seen, |_| ok(&text));
    })
}

/// The server name of each connection over TLS.
pub(super) type Names = Arc<Mutex<Vec<Option<String>>>>;

/// Speaks TLS alone, and responds by `script`.
pub(super) fn encrypted(script: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static) -> (Origin, Names) {
    let (config, names) = (server(), Names::default());
    let list = Arc::clone(&names);
    let origin = Origin::raw(move |mut stream, number, seen| {
        let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
        if session.complete_io(&mut stream).is_err() {
            return;
        }
        list.lock().unwrap().push(session.server_name().map(str::to_owned));
        answer(&mut StreamOwned::new(session, stream), number, seen, &script);
    });
    (origin, names)
}

fn begins_with_tls(stream: &TcpStream) -> bool {
    let mut first = [0];
    stream.peek(&mut first).is_ok_and(|count| count == 1) && first[0] == 22
}

fn answer(
    stream: &mut (impl Read + Write),
    number: usize,
    seen: &Mutex<Vec<Seen>>,
    script: impl Fn(&Seen) -> Vec<u8>,
) {
    while let Some(request) = read_request(stream, number) {
        let bytes = script(&request);
        seen.lock().unwrap().push(request);
        if stream.write_all(&bytes).and_then(|()| stream.flush()).is_err() {
            break;
        }
    }
}

/// Closes as soon as something arrives, and remembers its first byte.
fn closing() -> (Origin, Arc<Mutex<Vec<u8>>>) {
    let firsts: Arc<Mutex<Vec<u8>>> = Arc::default();
    let list = Arc::clone(&firsts);
    let origin = Origin::raw(move |mut stream, _, _| {
        let mut first = [0];
        if stream.read(&mut first).is_ok_and(|count| count == 1) {
            list.lock().unwrap().push(first[0]);
        }
    });
    (origin, firsts)
}

const SPOKEN: &str = "tls, name: false, protocols: false";

#[test]
fn https_is_tls_that_verifies_nobody_and_says_no_name() {
    let origin = both();
    let proxy = proxy(BackendProtocol::Https, &[&origin]);
    let mut client = Client::new(proxy.http);
    for request in [
        "GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "POST /b HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc",
        "GET /c HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ] {
        assert_eq!(client.ask(request).text(), SPOKEN);
    }
    let seen = origin.seen();
    assert_eq!(seen.iter().map(|it| it.connection).collect::<Vec<_>>(), [0, 0, 0], "it is kept");
    assert_eq!(seen[0].all("host"), ["a.test"]);
    assert_eq!(seen[0].all("x-forwarded-proto"), ["http"]);
    assert_eq!(seen[1].body, b"abc");
}

#[test]
fn auto_http_is_what_the_client_speaks() {
    let origin = both();
    let mut proxy = proxy(BackendProtocol::AutoHttp, &[&origin]);
    let redirects = LocationPolicy { ssl_redirect: Some(false), ..said(BackendProtocol::AutoHttp) };
    let host = shared::resource::Host { tls: Some(Tls::default()), ..shared::resource::Host::default() };
    proxy.config(vec![
        ("a.test", Resource::Host(host)),
        ("ingress/ns/web/a.test", route(vec![to("/", PathType::Prefix, "echo")], redirects)),
    ]);
    for _ in 0..2 {
        assert_eq!(Client::new(proxy.http).get("/").text(), "plain");
        assert_eq!(over_tls(&proxy), SPOKEN);
    }
}

/// The response for a client over TLS.
fn over_tls(proxy: &Proxy) -> String {
    let name = ServerName::try_from("a.test").unwrap();
    let session = ClientConnection::new(Arc::new(trusting(&[b"http/1.1"])), name).unwrap();
    let mut stream = StreamOwned::new(session, TcpStream::connect(proxy.https).unwrap());
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn paths_to_one_endpoint_share_no_connection_between_protocols() {
    let origin = both();
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let path = |path| vec![to(path, PathType::Prefix, "echo")];
    proxy.config(vec![
        ("ingress/ns/web/a.test", route(path("/plain"), said(BackendProtocol::Http))),
        ("ingress/ns/tls/a.test", route(path("/tls"), said(BackendProtocol::Https))),
    ]);
    let mut client = Client::new(proxy.http);
    for _ in 0..3 {
        assert_eq!(client.get("/plain").text(), "plain");
        assert_eq!(client.get("/tls").text(), SPOKEN);
    }
    let tls = origin.seen().into_iter().filter(|it| it.line().starts_with("GET /tls"));
    assert_eq!(tls.map(|it| it.connection).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn a_plain_endpoint_is_502_and_sees_no_request() {
    let (origin, firsts) = closing();
    let proxy = proxy(BackendProtocol::Https, &[&origin]);
    for method in ["GET", "POST"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(Client::new(proxy.http).ask(&request).status, 502);
    }
    let firsts = firsts.lock().unwrap();
    assert_eq!(*firsts, [22; 6], "three tries each, and each a ClientHello");
}

#[test]
fn a_handshake_that_fails_is_tried_elsewhere_whatever_the_method() {
    let (broken, _) = closing();
    let origin = both();
    let proxy = proxy(BackendProtocol::Https, &[&broken, &origin]);
    for _ in 0..4 {
        let request = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(Client::new(proxy.http).ask(request).text(), SPOKEN);
    }
    assert_eq!(origin.seen().len(), 4);
}

#[test]
fn tunnels_go_over_tls_as_well() {
    let config = server();
    let origin = Origin::raw(move |mut stream, number, _| {
        let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
        session.complete_io(&mut stream).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        read_request(&mut stream, number).unwrap();
        let head =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello";
        stream.write_all(head.as_bytes()).unwrap();
        stream.flush().unwrap();
        let mut said = [0; 4];
        stream.read_exact(&mut said).unwrap();
        stream.write_all(&said).unwrap();
        stream.flush().unwrap();
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    let proxy = proxy(BackendProtocol::Https, &[&origin]);
    let mut client = Client::new(proxy.http);
    client.send("GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.receive(false).unwrap().status, 101);
    let mut hello = [0; 5];
    client.stream.read_exact(&mut hello).unwrap();
    client.send("ping");
    assert_eq!((&hello, client.rest().as_slice()), (b"hello", &b"ping"[..]));
}
