use std::io::Write;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use data_plane::local::Limits;
use data_plane::metrics::Kind;
use data_plane::table::Timeouts;
use shared::policy::{LocationPolicy, TextList};
use shared::resource::{PathType, Resource, Route};

use super::harness::*;

fn request(method: &str) -> String {
    format!("{method} / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody")
}

/// Reads a request and cuts the connection.
fn cutting() -> Origin {
    Origin::new(|_| (Vec::new(), false))
}

#[test]
fn a_refused_connection_goes_to_the_next_endpoint() {
    let origin = Origin::new(|seen| (ok(std::str::from_utf8(&seen.body).unwrap()), true));
    let proxy = Proxy::serving(Limits::default(), &[refusing(), origin.address]);
    let mut client = Client::new(proxy.http);
    for method in ["GET", "POST", "PATCH", "PUT"] {
        for _ in 0..4 {
            assert_eq!(client.ask(&request(method)).text(), "body", "{method}");
        }
    }
    assert!(proxy.metrics.worker(0).failures[Kind::ConnectFailed as usize].value() >= 4);
}

/// As when a Service has addresses of both families and this machine only one. The kernel cannot route TCP to a
/// multicast address, whatever the machine's routes are, and reports that at once.
#[test]
fn an_address_that_there_is_no_way_to_is_no_try() {
    let origin = Origin::says("hello");
    let group = |last: u8| SocketAddr::from(([224, 0, 0, last], 80));
    let proxy = Proxy::serving(Limits::default(), &[group(1), group(2), group(3), group(4), origin.address]);
    let mut client = Client::new(proxy.http);
    (0..20).for_each(|_| assert_eq!(client.get("/").status, 200));
    // Without an alternative it is an error like any other.
    let nobody = Proxy::serving(Limits::default(), &[group(1), group(2)]);
    assert_eq!(Client::new(nobody.http).get("/").status, 502);
}

#[test]
fn refused_connections_are_502_after_three_tries() {
    let proxy = Proxy::serving(Limits::default(), &[refusing()]);
    let mut client = Client::new(proxy.http);
    let response = client.get("/");
    assert_eq!(response.status, 502);
    assert!(response.text().contains("<center><h1>502 Bad Gateway</h1></center>"));
    let failures = &proxy.metrics.worker(0).failures[Kind::ConnectFailed as usize];
    assert_eq!(failures.value(), 3, "tries");
}

#[test]
fn a_cut_connection_is_tried_again_unless_the_method_forbids() {
    let (good, bad) = (Origin::says("good"), cutting());
    let proxy = Proxy::serving(Limits::default(), &[good.address, bad.address]);
    let mut client = Client::new(proxy.http);
    for _ in 0..8 {
        assert_eq!(client.ask(&request("PUT")).text(), "good");
    }
    let before = bad.seen().len();
    assert!(before >= 3);
    let statuses: Vec<u16> = (0..8).map(|_| client.ask(&request("POST")).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 502).count(), bad.seen().len() - before);
    assert_eq!(good.seen().len(), 8 + statuses.iter().filter(|status| **status == 200).count());
}

#[test]
fn all_cut() {
    let origins = [cutting(), cutting(), cutting(), cutting()];
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let proxy = Proxy::serving(Limits::default(), &addresses);
    assert_eq!(Client::new(proxy.http).get("/").status, 502);
    assert_eq!(origins.iter().map(|origin| origin.seen().len()).sum::<usize>(), 3);
}

#[test]
fn a_kept_connection_that_died_costs_nobody_a_request() {
    // Every connection serves one request and ends without announcing that.
    let origin = Origin::new(|_| (ok("once"), false));
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    for _ in 0..20 {
        assert_eq!(client.ask(&request("PUT")).text(), "once");
    }
    assert_eq!(origin.seen().len(), 20);
}

#[test]
fn silence_is_504() {
    let origin = Origin::raw(|_stream, _, _| std::thread::park());
    let limits = Limits {
        timeouts: Timeouts { read: Duration::from_millis(1), ..Timeouts::default() },
        ..Limits::default()
    };
    let proxy = Proxy::serving(limits, &[origin.address]);
    let mut client = Client::new(proxy.http);
    let response = client.get("/");
    assert_eq!(response.status, 504);
    assert!(response.text().contains("<center><h1>504 Gateway Time-out</h1></center>"));
    assert_eq!(proxy.metrics.worker(0).failures[Kind::ReadTimeout as usize].value(), 3);
}

#[test]
fn invalid_response_is_502_without_retry() {
    for nonsense in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\nhello",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let origin = Origin::new(move |_| (nonsense.into(), true));
        let proxy = Proxy::serving(Limits::default(), &[origin.address]);
        assert_eq!(Client::new(proxy.http).get("/").status, 502, "{nonsense}");
        assert_eq!(origin.seen().len(), 1);
    }
}

/// Concurrent clients, each sending this many requests. Returns the number of responses other than 200.
fn at_once(clients: usize, times: usize, method: &str, address: SocketAddr) -> usize {
    let failed = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = Client::new(address);
                let bad = (0..times).filter(|_| client.ask(&request(method)).status != 200).count();
                failed.fetch_add(bad, std::sync::atomic::Ordering::Relaxed);
            });
        }
    });
    failed.into_inner()
}

#[test]
fn however_many_ask_at_once_a_retry_goes_to_an_endpoint_that_was_not_tried() {
    let origins = [Origin::says("one"), Origin::says("two")];
    for good in [&origins[..1], &origins[..]] {
        let addresses: Vec<_> = good.iter().map(|origin| origin.address).chain([refusing()]).collect();
        // Nothing is ejected: each request meets the refusing endpoint in rotation.
        let proxy = Proxy::serving(Limits { eject_after: 0, ..Limits::default() }, &addresses);
        for method in ["GET", "POST"] {
            assert_eq!(at_once(50, 20, method, proxy.http), 0, "{method}, one of {}", addresses.len());
        }
        let failures = &proxy.metrics.worker(0).failures[Kind::ConnectFailed as usize];
        assert!(failures.value() > 100, "it was asked");
    }
}

/// Serves one request per connection; for a second one it sends these bytes and closes. The first `together`
/// connections are served together.
fn once_then(bytes: &'static str, together: usize) -> Origin {
    let barrier = Barrier::new(together);
    Origin::raw(move |mut stream, number, seen| {
        for answer in [ok("once"), bytes.into()] {
            let Some(request) = read_request(&mut stream, number) else { return };
            seen.lock().unwrap().push(request);
            if number < together && !answer.is_empty() {
                barrier.wait();
            }
            stream.write_all(&answer).unwrap();
        }
    })
}

#[test]
fn a_dead_kept_connection_is_no_try_and_after_it_none_is_taken() {
    let origin = once_then("", 2);
    let limits = Limits { timeouts: Timeouts { tries: 1, ..Timeouts::default() }, ..Limits::default() };
    let proxy = Proxy::serving(limits, &[origin.address]);
    // Two of them are kept alive, and both will die.
    let mut clients = [Client::new(proxy.http), Client::new(proxy.http)];
    clients.iter_mut().for_each(|client| client.send(request("PUT")));
    clients.iter_mut().for_each(|client| assert_eq!(client.receive(false).unwrap().status, 200));
    for _ in 0..10 {
        assert_eq!(clients[0].ask(&request("PUT")).text(), "once");
    }
    let metrics = proxy.metrics.worker(0);
    assert_eq!(metrics.failures[Kind::Closed as usize].value(), metrics.reused.value());
    assert_eq!(metrics.connected.value(), 2 + metrics.reused.value());
}

#[test]
fn a_kept_connection_that_dies_within_an_answer_is_a_try() {
    let origin = once_then("HTTP/1.1 20", 1);
    let limits = Limits { timeouts: Timeouts { tries: 1, ..Timeouts::default() }, ..Limits::default() };
    let proxy = Proxy::serving(limits, &[origin.address]);
    let mut client = Client::new(proxy.http);
    let statuses: Vec<u16> = (0..4).map(|_| client.ask(&request("PUT")).status).collect();
    assert_eq!(statuses, [200, 502, 200, 502]);
    assert_eq!(origin.seen().len(), 4);
}

#[test]
fn non_idempotent_request_is_not_retried_after_a_timeout() {
    let silent = Origin::raw(|mut stream, number, seen| {
        while let Some(request) = read_request(&mut stream, number) {
            seen.lock().unwrap().push(request);
        }
    });
    let good = Origin::says("good");
    let limits = Limits {
        timeouts: Timeouts { read: Duration::from_millis(300), ..Timeouts::default() },
        ..Limits::default()
    };
    let proxy = Proxy::serving(limits, &[silent.address, good.address]);
    let mut client = Client::new(proxy.http);
    for method in ["POST", "LOCK", "PATCH"] {
        let before = (silent.seen().len(), good.seen().len());
        let statuses: Vec<u16> = (0..4).map(|_| client.ask(&request(method)).status).collect();
        let of = |status| statuses.iter().filter(|it| **it == status).count();
        assert_eq!((of(504), of(200)), (2, 2), "{method}");
        assert_eq!((silent.seen().len(), good.seen().len()), (before.0 + 2, before.1 + 2), "{method}");
    }
    for _ in 0..2 {
        assert_eq!(client.ask(&request("PUT")).text(), "good");
    }
}

#[test]
fn endpoints_that_all_leave_while_a_body_is_read_are_503() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send("PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.receive(false).unwrap().status, 100, "it is routed");
    proxy.remove_endpoint("echo", 0);
    client.send("body");
    assert_eq!(client.receive(false).unwrap().status, 503);
    assert_eq!(origin.seen().len(), 0);
}

/// A request with a body of this length.
fn long(method: &str, length: usize, more: &str) -> String {
    let body = "x".repeat(length);
    format!("{method} / HTTP/1.1\r\nHost: a.test\r\n{more}Content-Length: {length}\r\n\r\n{body}")
}

#[test]
fn a_body_of_any_length_is_sent_again_from_its_beginning() {
    let dying = once_then("", 1);
    let proxy = Proxy::serving(Limits::default(), &[dying.address, refusing()]);
    let mut client = Client::new(proxy.http);
    for length in [100, 100_000, 1_000_000] {
        for _ in 0..6 {
            assert_eq!(client.ask(&long("PUT", length, "")).text(), "once", "{length}");
        }
    }
    let seen = dying.seen();
    assert!(seen.iter().all(|seen| seen.all("content-length") == [seen.body.len().to_string()]));
}

#[test]
fn a_streamed_body_that_is_partly_gone_is_never_sent_again() {
    // Reads some of the body, and cuts the connection.
    let cutting = Origin::raw(|mut stream, _, seen| {
        let mut some = vec![0; 20_000];
        std::io::Read::read_exact(&mut stream, &mut some).unwrap();
        seen.lock().unwrap().push(Seen { body: some, ..Seen::default() });
    });
    let good = Origin::says("good");
    let streamed = LocationPolicy { proxy_request_buffering: Some(false), ..LocationPolicy::default() };
    let proxy = saying(streamed, &[&cutting, &good]);
    let statuses: Vec<u16> =
        (0..8).map(|_| Client::new(proxy.http).ask(&long("PUT", 500_000, "")).status).collect();
    let of = |status| statuses.iter().filter(|it| **it == status).count();
    assert_eq!((of(502), of(200)), (4, 4));
    assert_eq!((cutting.seen().len(), good.seen().len()), (4, 4));
    assert!(good.seen().iter().all(|seen| seen.body.len() == 500_000));
}

/// Endpoints of a location with this policy.
fn saying(policy: LocationPolicy, origins: &[&Origin]) -> Proxy {
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let mut proxy = Proxy::serving(Limits::default(), &addresses);
    let paths = vec![to("/", PathType::Prefix, "echo")];
    let route = Route { paths, policy, ..Route::default() };
    proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
    proxy
}

fn again_after(words: &str) -> LocationPolicy {
    let values = words.split(' ').map(str::to_owned).collect();
    LocationPolicy { proxy_next_upstream: Some(TextList { values }), ..LocationPolicy::default() }
}

fn unavailable() -> Origin {
    Origin::new(|_| (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy".to_vec(), true))
}

#[test]
fn a_listed_status_is_tried_elsewhere_and_the_last_one_passed_on() {
    let (busy, good) = (unavailable(), Origin::says("good"));
    let proxy = saying(again_after("http_503"), &[&busy, &good]);
    for _ in 0..6 {
        assert_eq!(Client::new(proxy.http).get("/").text(), "good");
    }
    assert!(busy.seen().len() >= 2);
    let alone = unavailable();
    let proxy = saying(again_after("http_503"), &[&alone]);
    let response = Client::new(proxy.http).get("/");
    assert_eq!((response.status, response.text()), (503, "busy"));
    assert_eq!(alone.seen().len(), 3);
}

#[test]
fn a_status_of_a_post_is_its_answer_unless_that_is_asked_for() {
    for (words, times) in [("error http_503", 1), ("http_503 non_idempotent", 3)] {
        let busy = unavailable();
        let proxy = saying(again_after(words), &[&busy]);
        assert_eq!(Client::new(proxy.http).ask(&request("POST")).status, 503);
        assert!(busy.seen().iter().all(|seen| seen.body == b"body"));
        assert_eq!(busy.seen().len(), times, "{words}");
    }
}

#[test]
fn non_idempotent_sends_a_post_again_that_was_cut() {
    let (cut, good) = (cutting(), Origin::says("good"));
    let proxy = saying(again_after("error non_idempotent"), &[&cut, &good]);
    for _ in 0..4 {
        assert_eq!(Client::new(proxy.http).ask(&request("POST")).text(), "good");
    }
}

/// It is noticed at once, although the end of a new connection is not watched from its beginning.
#[test]
fn nothing_is_retried_for_a_client_that_left() {
    let (tell, told) = channel();
    let (cut, may_cut) = channel::<()>();
    let may_cut = Arc::new(Mutex::new(may_cut));
    // Each of them cuts the connection when the client has left.
    let origins = [tell.clone(), tell].map(|tell| {
        let (tell, may_cut) = (Mutex::new(tell), Arc::clone(&may_cut));
        Origin::raw(move |mut stream, number, seen| {
            if let Some(request) = read_request(&mut stream, number) {
                seen.lock().unwrap().push(request);
                tell.lock().unwrap().send(()).unwrap();
                let _ = may_cut.lock().unwrap().recv();
            }
        })
    });
    let proxy = saying(LocationPolicy::default(), &origins.each_ref());
    for round in 1..=10 {
        let mut client = Client::new(proxy.http);
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        told.recv_timeout(PATIENCE).unwrap();
        drop(client);
        cut.send(()).unwrap();
        eventually("the connection is gone", || proxy.metrics.open() == 0);
        assert_eq!(origins.iter().map(|it| it.seen().len()).sum::<usize>(), round);
    }
}

#[test]
fn failure_outside_proxy_next_upstream_is_not_retried() {
    for words in ["off", "http_503", "timeout", "error off"] {
        let cut = cutting();
        let proxy = saying(again_after(words), &[&cut]);
        assert_eq!(Client::new(proxy.http).get("/").status, 502, "{words}");
        assert_eq!(cut.seen().len(), 1, "{words}");
    }
}

#[test]
fn as_many_tries_as_are_said() {
    for (tries, times) in [(1, 1), (4, 4), (0, 5)] {
        let busy: [Origin; 5] = std::array::from_fn(|_| unavailable());
        let policy = LocationPolicy { proxy_next_upstream_tries: Some(tries), ..again_after("http_503") };
        let proxy = saying(policy, &busy.each_ref());
        assert_eq!(Client::new(proxy.http).get("/").status, 503);
        assert_eq!(busy.iter().map(|it| it.seen().len()).sum::<usize>(), times, "{tries}");
    }
}

#[test]
fn no_try_begins_after_the_time() {
    // Each responds, or breaks off, after the time limit.
    for (said, status) in [("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 503), ("", 502)] {
        let slow: [Origin; 3] = std::array::from_fn(|_| {
            Origin::new(move |_| {
                std::thread::sleep(Duration::from_millis(1_200));
                (said.as_bytes().to_vec(), !said.is_empty())
            })
        });
        let policy = LocationPolicy { proxy_next_upstream_timeout: Some(1), ..again_after("error http_503") };
        let proxy = saying(policy, &slow.each_ref());
        assert_eq!(Client::new(proxy.http).get("/").status, status);
        assert_eq!(slow.iter().map(|it| it.seen().len()).sum::<usize>(), 1, "{status}");
    }
}

/// As a connection that was cut.
#[test]
fn statuses_that_are_tried_elsewhere_cost_the_budget() {
    let busy: [Origin; 3] = std::array::from_fn(|_| unavailable());
    let proxy = saying(again_after("http_503"), &busy.each_ref());
    let mut client = Client::new(proxy.http);
    (0..400).for_each(|_| assert_eq!(client.get("/").status, 503));
    assert!(proxy.metrics.worker(0).retries_denied.value() > 0);
}

/// An endpoint that closes its idle connections fails nobody, however often it does.
#[test]
fn connections_that_died_while_they_were_kept_cost_no_budget() {
    let origin = Origin::raw(|mut stream, connection, _| {
        let _ = read_request(&mut stream, connection);
        let _ = stream.write_all(&ok("once"));
        let _ = read_request(&mut stream, connection);
    });
    let proxy = saying(LocationPolicy::default(), &[&origin]);
    let mut client = Client::new(proxy.http);
    (0..400).for_each(|number| assert_eq!(client.get("/").status, 200, "{number}"));
    let worker = proxy.metrics.worker(0);
    assert!(worker.retries.value() > 300 && worker.retries_denied.value() == 0);
}

/// A streamed body is not stored anywhere, so it cannot be sent again.
#[test]
fn a_status_of_a_body_that_was_streamed_is_its_answer() {
    let (busy, good) = (unavailable(), Origin::says("good"));
    let streamed = LocationPolicy { proxy_request_buffering: Some(false), ..again_after("http_503") };
    let proxy = saying(streamed, &[&busy, &good]);
    let ask = |request: &str| [(); 4].map(|()| Client::new(proxy.http).ask(request).status);
    let statuses = ask(&long("PUT", 500_000, ""));
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 2, "{statuses:?}");
    assert_eq!((busy.seen().len(), good.seen().len()), (2, 2));
    // One that came together with its head can (as in nginx).
    assert_eq!(ask(&request("PUT")), [200; 4]);
    assert!(busy.seen().len() > 2, "some were tried again");
    assert_eq!(good.seen().len(), 6);
    assert!(good.seen()[2..].iter().all(|seen| seen.body == b"body"));
}
