use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex};

use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use shared::policy::{LocationPolicy, TextList};
use shared::resource::{Backend, Host, Path, PathType, Resource, Route};

use super::harness::*;

/// Hosts of one Ingress, all served by `echo` except `/none`, which has the default backend.
fn limited(proxy: &mut Proxy, hosts: &[&str], policy: &LocationPolicy) {
    for name in hosts {
        let none = Path { path: "/none".into(), kind: PathType::Prefix, backend: None, after_exact: false };
        let route = Route {
            paths: vec![to("/", PathType::Prefix, "echo"), none],
            policy: policy.clone(),
            ..Route::default()
        };
        let key = format!("ingress/ns/web/{name}");
        proxy.config(vec![(name, Resource::Host(Host::default())), (&key, Resource::Route(route))]);
    }
    proxy.service("echo", Backend::default());
}

fn a_minute(count: u32) -> LocationPolicy {
    LocationPolicy {
        limit_rpm: Some(count),
        limit_burst_multiplier: Some(3),
        limit_req_status_code: Some(429),
        ..LocationPolicy::default()
    }
}

fn at_once(count: u32) -> LocationPolicy {
    LocationPolicy {
        limit_connections: Some(count),
        limit_conn_status_code: Some(420),
        ..LocationPolicy::default()
    }
}

/// Clients with the same address are distinguished by the configured key, and not counted if it is empty.
#[test]
fn clients_are_told_apart_by_what_the_fleet_says() {
    let origin = Origin::says("x");
    let mut proxy = Proxy::start();
    let key = Some("$http_x_key$cookie_k".to_owned());
    limited(&mut proxy, &["a.test"], &LocationPolicy { limit_conn_zone_variable: key, ..a_minute(1) });
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    let mut passed = |said: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{said}\r\n");
        (0..9).filter(|_| client.ask(&head).status == 200).count()
    };
    assert_eq!([passed("X-Key: a\r\n"), passed("X-Key: b\r\n"), passed("X-Key: a\r\n")], [4, 4, 0]);
    assert_eq!([passed("Cookie: k=c\r\n"), passed(""), passed("")], [4, 9, 9]);
}

#[test]
fn a_rate_is_an_ingress_own_and_outlives_changes() {
    let origin = Origin::says("x");
    let mut proxy = Proxy::start();
    limited(&mut proxy, &["a.test", "b.test"], &a_minute(1));
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    let other = "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n";
    assert_eq!([client.get("/").status, client.ask(other).status], [200, 200]);
    // The route to the default backend is protected, too, and counts.
    assert_eq!(client.get("/none").status, 404);
    let sent = origin.seen().len();
    // A new version of its Routes, with another burst, does not reset the counters.
    limited(
        &mut proxy,
        &["a.test", "b.test"],
        &LocationPolicy { limit_burst_multiplier: Some(4), ..a_minute(1) },
    );
    assert_eq!([client.get("/").status, client.get("/").status], [200, 200]);
    let refused = client.get("/");
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("<center><h1>429 Too Many Requests</h1></center>"));
    assert_eq!([client.ask(other).status, client.get("/none").status], [429, 429]);
    assert_eq!(origin.seen().len(), sent + 2);
    // Without a limit no request is refused.
    limited(&mut proxy, &["a.test", "b.test"], &LocationPolicy::default());
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn without_endpoints_nothing_is_counted() {
    let mut proxy = Proxy::start();
    limited(&mut proxy, &["a.test"], &a_minute(1));
    let mut client = Client::new(proxy.http);
    for _ in 0..9 {
        assert_eq!(client.get("/").status, 503);
    }
}

/// Responds to `/slow` with a head and half of a body, and sends the rest when told to.
fn slow() -> (Origin, Arc<(Mutex<bool>, Condvar)>) {
    let gate: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let opened = Arc::clone(&gate);
    let origin = Origin::raw(move |mut stream, number, seen| {
        while let Some(request) = read_request(&mut stream, number) {
            seen.lock().unwrap().push(request.clone());
            if !request.line().contains("/slow") {
                stream.write_all(&ok("ab")).unwrap();
                continue;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na").unwrap();
            let (open, changed) = &*opened;
            drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            if stream.write_all(b"b").is_err() {
                break;
            }
        }
    });
    (origin, gate)
}

/// Requests `/slow`, and reads up to the first byte of the body.
fn begin(proxy: &Proxy) -> Client {
    let mut client = Client::new(proxy.http);
    client.send("GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\na") {
        let mut byte = [0];
        client.stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    client
}

#[test]
fn a_request_is_in_progress_until_the_last_byte_of_its_answer() {
    let (origin, gate) = slow();
    let mut proxy = Proxy::start();
    limited(&mut proxy, &["a.test"], &at_once(1));
    proxy.endpoints("echo", &[origin.address]);
    let mut held = begin(&proxy);
    let mut client = Client::new(proxy.http);
    let refused = client.get("/");
    assert_eq!((refused.status, refused.text()), (420, ""));
    assert_eq!(refused.all("content-type"), [""; 0]);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let mut rest = [0];
    held.stream.read_exact(&mut rest).unwrap();
    assert_eq!(rest, *b"b");
    // The next request on either connection passes: the previous one has ended.
    assert_eq!(held.get("/").status, 200);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn a_client_that_goes_is_in_progress_no_longer() {
    let (origin, _gate) = slow();
    let mut proxy = Proxy::start();
    limited(&mut proxy, &["a.test"], &at_once(1));
    proxy.endpoints("echo", &[origin.address]);
    for _ in 0..3 {
        let held = begin(&proxy);
        assert_eq!(Client::new(proxy.http).get("/").status, 420);
        held.stream.shutdown(Shutdown::Both).unwrap();
        drop(held);
        eventually("its place is free", || Client::new(proxy.http).get("/").status == 200);
    }
}

#[test]
fn a_tunnel_is_in_progress_as_long_as_it_lasts() {
    let origin = Origin::raw(|mut stream, number, _| {
        if read_request(&mut stream, number).is_some_and(|request| !request.all("upgrade").is_empty()) {
            let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
            stream.write_all(switch).unwrap();
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        } else {
            let _ = stream.write_all(&ok(""));
        }
    });
    let mut proxy = Proxy::start();
    limited(&mut proxy, &["a.test"], &at_once(1));
    proxy.endpoints("echo", &[origin.address]);
    let mut tunnel = Client::new(proxy.http);
    tunnel.send("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    assert_eq!(tunnel.receive(false).unwrap().status, 101);
    assert_eq!(Client::new(proxy.http).get("/").status, 420);
    tunnel.stream.shutdown(Shutdown::Write).unwrap();
    assert!(tunnel.ended());
    eventually("its place is free", || Client::new(proxy.http).get("/").status == 200);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
fn each_stream_of_http2_counts() {
    let (origin, _gate) = slow();
    let mut proxy = Proxy::start();
    limited(&mut proxy, &["a.test"], &at_once(2));
    proxy.endpoints("echo", &[origin.address]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = async {
        let stream = tokio::net::TcpStream::connect(proxy.http).await.unwrap();
        let connecting = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = connecting.await.unwrap();
        tokio::spawn(connection);
        let mut ask = |path| {
            let uri = format!("http://a.test{path}");
            let request = http::Request::get(uri).body(Empty::<bytes::Bytes>::new()).unwrap();
            sender.send_request(request)
        };
        let (one, two) = (ask("/slow").await.unwrap(), ask("/slow").await.unwrap());
        assert_eq!((one.status().as_u16(), two.status().as_u16()), (200, 200));
        assert_eq!(ask("/").await.unwrap().status().as_u16(), 420);
        // Resetting a stream ends its request.
        drop(one);
        while ask("/").await.unwrap().status().as_u16() != 200 {
            tokio::task::yield_now().await;
        }
        drop(two);
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.unwrap() });
}

/// As in nginx: the rate limit applies before authentication.
#[test]
fn refused_requests_count_for_the_rate_limit() {
    let origin = Origin::says("x");
    let mut proxy = Proxy::start();
    let everybody = TextList { values: vec!["127.0.0.0/8".to_owned()] };
    let policy = LocationPolicy { denylist_source_range: Some(everybody), ..a_minute(1) };
    limited(&mut proxy, &["a.test"], &policy);
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!([(); 5].map(|()| client.get("/").status), [403, 403, 403, 403, 429]);
}

#[test]
fn who_is_exempt_is_not_counted() {
    let origin = Origin::says("x");
    for (list, expected) in [("127.0.0.0/8", 9), ("192.0.2.0/24", 4)] {
        let mut proxy = Proxy::start();
        let exempt = Some(TextList { values: vec![list.to_owned()] });
        limited(&mut proxy, &["a.test"], &LocationPolicy { limit_allowlist: exempt, ..a_minute(1) });
        proxy.endpoints("echo", &[origin.address]);
        let mut client = Client::new(proxy.http);
        assert_eq!((0..9).filter(|_| client.get("/").status == 200).count(), expected, "{list}");
    }
}

#[test]
fn a_limit_may_close_connections_without_a_word() {
    let origin = Origin::says("x");
    let mut proxy = Proxy::start();
    let silent = LocationPolicy { limit_req_status_code: Some(444), ..a_minute(1) };
    limited(&mut proxy, &["a.test"], &silent);
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    let passed = (0..4).filter(|_| client.get("/").status == 200).count();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(passed == 4 && client.ended());
}
