//! Responses that their endpoint does not complete: nobody takes them for complete, and nothing else is lost with them.
//! And long ones after which the connection ends.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use data_plane::local::Limits;
use data_plane::metrics::Kind;
use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use shared::resource::PathType;
use socket2::{Domain, Socket, Type};
use test_kit::blocking::eventually;
use test_kit::client::tls::trusting;

use super::harness::*;

/// An endpoint whose chunked response breaks off.
fn breaking() -> Origin {
    Origin::new(|_| (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n".to_vec(), false))
}

/// A client whose kernel takes little.
fn narrow(proxy: &Proxy) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&proxy.http.into()).unwrap();
    socket.into()
}

/// What came before the connection ended, and how that was.
fn read_all(stream: &mut impl Read) -> (Vec<u8>, Option<ErrorKind>) {
    let mut all = Vec::new();
    let end = stream.read_to_end(&mut all);
    (all, end.err().map(|error| error.kind()))
}

#[test]
fn a_cut_response_that_ends_with_its_connection_resets_it() {
    let origin = breaking();
    let mut proxy = Proxy::with(Limits::default());
    for (host, tls) in [("a.test", false), ("tls.test", true)] {
        proxy.host(host, tls, &[("/", PathType::Prefix, "echo")]);
    }
    proxy.endpoints("echo", &[origin.address]);
    let request = |host| format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n");
    let mut plain = TcpStream::connect(proxy.http).unwrap();
    plain.write_all(request("a.test").as_bytes()).unwrap();
    assert_eq!(read_all(&mut plain).1, Some(ErrorKind::ConnectionReset));

    let name = ServerName::try_from("tls.test").unwrap();
    let session = ClientConnection::new(Arc::new(trusting(&[b"http/1.1"])), name).unwrap();
    let mut secured = StreamOwned::new(session, TcpStream::connect(proxy.https).unwrap());
    secured.write_all(request("tls.test").as_bytes()).unwrap();
    assert_eq!(read_all(&mut secured).1, Some(ErrorKind::ConnectionReset));
}

#[test]
fn responses_before_one_that_breaks_off_arrive() {
    let whole = "x".repeat(40_000);
    let (response, broken) = (ok(&whole), breaking());
    let origin = Origin::new(move |_| (response.clone(), true));
    let mut proxy = Proxy::with(Limits::default());
    let paths = [("/whole", PathType::Prefix, "whole"), ("/broken", PathType::Prefix, "broken")];
    proxy.host("a.test", false, &paths);
    proxy.endpoints("whole", &[origin.address]);
    proxy.endpoints("broken", &[broken.address]);

    // The kernel of the proxy still has most of the first response when the second one breaks off.
    let mut client = narrow(&proxy);
    let get = |path| format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.write_all((get("/whole") + &get("/broken")).as_bytes()).unwrap();
    let failures = &proxy.metrics.worker(0).failures[Kind::Closed as usize];
    eventually("the second response breaks off", || failures.value() == 1);
    client.write_all(get("/whole").as_bytes()).unwrap();
    let (all, error) = read_all(&mut client);
    let rest = String::from_utf8(all).unwrap();
    let (_, rest) = rest.split_once(&whole).expect("the first response is whole");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("4\r\nhalf\r\n"), "{rest}");
    assert_eq!((error, broken.seen().len(), origin.seen().len()), (None, 1, 1));
}

#[test]
fn a_long_last_response_arrives_although_the_next_request_comes_late() {
    let whole = "x".repeat(40_000);
    let response = ok(&whole);
    let origin = Origin::new(move |_| (response.clone(), true));
    let proxy = Proxy::serving(Limits { requests: 1, ..Limits::default() }, &[origin.address]);
    let mut client = narrow(&proxy);
    let get = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    client.write_all(get).unwrap();
    eventually("it is answered", || proxy.metrics.answered() == 1);
    client.write_all(get).unwrap();
    let (all, error) = read_all(&mut client);
    assert!(all.ends_with(whole.as_bytes()), "{} bytes", all.len());
    assert_eq!((error, origin.seen().len()), (None, 1));
}
