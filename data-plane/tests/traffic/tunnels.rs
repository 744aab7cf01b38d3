use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use data_plane::local::Limits;
use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use shared::policy::{ConnectionHeader, LocationPolicy};
use shared::resource::PathType;
use test_kit::client::tls::trusting;
use test_kit::client::websocket;

use super::harness::*;

const UPGRADE: &str =
    "GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n";
const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-A: b\r\n\r\n";

/// Accepts the upgrade, sends hello with it, echoes, and sends bye at the end.
fn echo() -> Origin {
    Origin::raw(|mut stream, number, seen| {
        let Some(request) = read_request(&mut stream, number) else {
            return;
        };
        seen.lock().unwrap().push(request);
        stream.write_all(&[SWITCH, b"hello"].concat()).unwrap();
        let mut some = [0; 8192];
        while let Ok(count) = stream.read(&mut some) {
            if count == 0 {
                break;
            }
            stream.write_all(&some[..count]).unwrap();
        }
        let _ = stream.write_all(b"bye");
    })
}

#[test]
fn bytes_pass_both_ways_after_the_switch() {
    let origin = echo();
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    // Bytes sent right after the request belong to the tunnel, too.
    client.send(format!("{UPGRADE}early,"));
    let response = client.receive(false).unwrap();
    assert_eq!(response.status, 101);
    assert_eq!((response.all("upgrade"), response.all("x-a")), (vec!["websocket"], vec!["b"]));
    let blob = "x".repeat(300_000);
    let mut writer = client.stream.try_clone().unwrap();
    let sent = blob.clone();
    let sending = std::thread::spawn(move || {
        writer.write_all(sent.as_bytes()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let all = String::from_utf8(client.rest()).unwrap();
    sending.join().unwrap();
    assert!(all == format!("helloearly,{blob}bye"));
    let seen = &origin.seen()[0];
    assert_eq!((seen.all("connection"), seen.all("upgrade")), (vec!["upgrade"], vec!["websocket"]));
    eventually("the tunnel is gone", || proxy.metrics.open() == 0);
}

/// As in ingress-nginx, whose Upgrade field does not depend on it.
#[test]
fn an_upgrade_is_passed_on_beside_the_connection_of_its_location() {
    let origin = echo();
    let mut proxy = Proxy::start();
    let keeping = LocationPolicy {
        connection_proxy_header: Some(ConnectionHeader::KeepAlive.into()),
        ..LocationPolicy::default()
    };
    proxy.policies(false, &[("/chat", keeping)]);
    proxy.endpoints("chat", &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(UPGRADE);
    assert_eq!(client.receive(false).unwrap().status, 101);
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"hellobye");
    let seen = &origin.seen()[0];
    assert_eq!((seen.all("connection"), seen.all("upgrade")), (vec!["keep-alive"], vec!["websocket"]));
}

#[test]
fn a_refusal_is_an_answer_like_any_other() {
    let origin = Origin::new(|_| (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_vec(), true));
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    let response = client.ask(&UPGRADE.replace(", close", ""));
    assert_eq!((response.status, response.text()), (403, "no"));
    assert_eq!(client.get("/").status, 403);
}

#[test]
fn when_the_backend_ends_so_does_the_client() {
    let origin = Origin::raw(|mut stream, number, _| {
        read_request(&mut stream, number);
        stream.write_all(SWITCH).unwrap();
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(UPGRADE);
    assert_eq!(client.receive(false).unwrap().status, 101);
    assert!(client.ended());
}

/// As in nginx, the location's read timeout applies to the tunnel, in both directions.
#[test]
fn a_tunnel_ends_when_nobody_has_said_anything_for_the_location_s_time() {
    let origin = echo();
    let mut proxy = Proxy::with(Limits::default());
    let policy = LocationPolicy { proxy_read_timeout: Some(1), ..LocationPolicy::default() };
    proxy.policies(false, &[("/chat", policy)]);
    proxy.endpoints("chat", &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(UPGRADE);
    assert_eq!(client.receive(false).unwrap().status, 101);
    let mut hello = [0; 5];
    client.stream.read_exact(&mut hello).unwrap();
    // For longer than the timeout in total, with shorter pauses.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_500) {
        client.send("x");
        client.stream.read_exact(&mut [0]).unwrap();
        std::thread::yield_now();
    }
    let silent = Instant::now();
    assert!(client.ended());
    let took = silent.elapsed();
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(10), "{took:?}");
    eventually("the tunnel is gone", || proxy.metrics.open() == 0);
}

/// A backend that has sent everything still receives what the client sends.
#[test]
fn a_tunnel_may_be_closed_by_halves() {
    let heard: Arc<Mutex<String>> = Arc::default();
    let list = Arc::clone(&heard);
    let origin = Origin::raw(move |mut stream, number, _| {
        read_request(&mut stream, number);
        stream.write_all(&[SWITCH, b"all"].concat()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        *list.lock().unwrap() = text;
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(UPGRADE);
    assert_eq!(client.receive(false).unwrap().status, 101);
    assert_eq!(client.rest(), b"all");
    client.send("what is left");
    client.stream.shutdown(Shutdown::Write).unwrap();
    eventually("the backend has heard it", || *heard.lock().unwrap() == "what is left");
}

#[test]
fn http2_in_clear_text_is_not_asked_of_backends() {
    let origin = Origin::says("plain");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    let response = client.ask(
        "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
    );
    assert_eq!(response.text(), "plain");
    let seen = &origin.seen()[0];
    for gone in ["upgrade", "connection", "http2-settings"] {
        assert_eq!(seen.all(gone), [""; 0], "{gone}");
    }
}

#[test]
fn a_tunnel_that_is_cut_at_the_deadline_is_logged_with_its_bytes() {
    let origin = Origin::raw(|mut stream, number, _| {
        read_request(&mut stream, number);
        stream.write_all(SWITCH).unwrap();
        stream.write_all(&[b'x'; 100_000]).unwrap();
        std::thread::park();
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(UPGRADE);
    assert_eq!(client.receive(false).unwrap().status, 101);
    client.stream.read_exact(&mut vec![0; 100_000]).unwrap();
    let log = proxy.stop(Duration::ZERO, Duration::ZERO);
    assert!(log.contains("\" 101 100000 "), "{log}");
}

#[test]
fn a_switch_to_what_was_not_asked_for_is_no_answer() {
    let origin = Origin::new(|_| {
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
        (switch.into(), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(UPGRADE);
    assert_eq!(client.receive(false).unwrap().status, 502);
    // Another draft of HTTP/2 is HTTP/2.
    let response = client_asking(&proxy, "h2c-14");
    assert_eq!(response.status, 502, "an unasked switch");
    assert_eq!(origin.seen()[1].all("upgrade"), [""; 0]);
}

fn client_asking(proxy: &Proxy, protocol: &str) -> Answer {
    let request =
        format!("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
    Client::new(proxy.http).ask(&request)
}

#[test]
fn a_websocket_passes_over_tls() {
    let origin = Origin::raw(|mut stream, number, _| {
        read_request(&mut stream, number).unwrap();
        stream.write_all(SWITCH).unwrap();
        while let Ok(text) = websocket::read_blocking(&mut stream) {
            stream.write_all(&websocket::server_frame(&format!("echo {text}"))).unwrap();
        }
    });
    let mut proxy = Proxy::start();
    proxy.host("a.test", true, &[("/", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    let name = ServerName::try_from("a.test").unwrap();
    let session = ClientConnection::new(Arc::new(trusting(&[b"http/1.1"])), name).unwrap();
    let mut secured = StreamOwned::new(session, Client::new(proxy.https).stream);
    secured.write_all(UPGRADE.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        secured.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    for text in ["one", "two", "three"] {
        secured.write_all(&websocket::client_frame(text)).unwrap();
        assert_eq!(websocket::read_blocking(&mut secured).unwrap(), format!("echo {text}"));
    }
}
