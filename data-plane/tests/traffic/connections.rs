use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use data_plane::local::{Budgets, Limits};
use shared::budget::Budget;
use shared::policy::{BackendProtocol, ExternalAuth, LocationPolicy};
use shared::resource::{Backend, Host, Path, PathType, PortRule, Resource, Route};

use super::client_certs::{self, Secure};
use super::harness::*;

#[test]
fn requests_on_one_connection_are_answered_in_order() {
    let origin = Origin::new(|seen| (ok(seen.line()), true));
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    let all: String = (0..5).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a.test\r\n\r\n")).collect();
    client.send(all);
    for n in 0..5 {
        let response = client.receive(false).unwrap();
        assert_eq!(response.text(), format!("GET /{n} HTTP/1.1"));
    }
    assert!(origin.seen().iter().all(|seen| seen.connection == 0), "one kept connection");
    let metrics = proxy.metrics.worker(0);
    assert_eq!((metrics.connected.value(), metrics.reused.value()), (1, 4));
    assert_eq!(metrics.routed.value(), 5);
    let bodies = 5 * "GET /0 HTTP/1.1".len() as u64;
    eventually("all of their bodies are counted", || metrics.sent.value() == bodies);
}

#[test]
fn a_head_in_single_bytes_is_a_head() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    for byte in b"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: b\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.receive(false).unwrap().text(), "hello");
}

#[test]
fn the_connection_ends_when_the_client_says_so() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    for (request, kept) in [
        ("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", true),
        ("GET / HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n", true),
    ] {
        let mut client = Client::new(proxy.http);
        let response = client.ask(request);
        assert_eq!(response.text(), "hello");
        if kept {
            assert_eq!(response.all("connection"), ["keep-alive"]);
            assert_eq!(client.get("/").status, 200);
        } else {
            assert_eq!(response.all("connection"), ["close"]);
            assert!(client.ended());
        }
    }
}

#[test]
fn a_refused_request_is_answered_and_ends_the_connection() {
    let proxy = Proxy::start();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\nabc", 400),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ] {
        let mut client = Client::new(proxy.http);
        client.send(request);
        client.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.receive(false).unwrap_or_else(|| panic!("no answer to {request:?}"));
        assert_eq!((response.status, response.all("connection")), (status, vec!["close"]), "{request}");
        assert!(client.ended(), "nothing behind it is read");
    }
}

#[test]
fn a_slow_head_is_cut_and_an_idle_connection_closed() {
    let origin = Origin::says("hello");
    let limits =
        Limits { head: Duration::from_millis(1), idle: Duration::from_millis(1), ..Limits::default() };
    let proxy = Proxy::serving(limits, &[origin.address]);
    let mut slow = Client::new(proxy.http);
    slow.send("GET / HTTP/1.1\r\nHo");
    assert!(slow.ended());
    let mut idle = Client::new(proxy.http);
    assert_eq!(idle.get("/").status, 200);
    assert!(idle.ended());
}

/// Budgets for this many clients, and descriptors for this many connections of both sides.
fn places(connections: usize, descriptors: usize) -> Budgets {
    Budgets {
        connections: Budget::new(connections),
        descriptors: Budget::new(descriptors),
        ..Budgets::default()
    }
}

#[test]
fn a_full_table_lets_the_newest_in_for_the_longest_idle() {
    let budgets = places(100, 1_000);
    let proxy = Proxy::within(Limits::default(), budgets.clone());
    // Some have sent a request, some have not, some have sent part of one.
    let mut idle: Vec<Client> = (0..100).map(|_| Client::new(proxy.http)).collect();
    for (number, client) in idle.iter_mut().enumerate() {
        match number % 3 {
            0 => assert_eq!(client.get("/").status, 404),
            1 => client.send("GET / HTTP/1.1\r\nHo"),
            _ => {}
        }
    }
    eventually("all are in", || proxy.metrics.open() == 100);
    for _ in 0..300 {
        assert_eq!(Client::new(proxy.http).get("/").status, 404, "nobody is locked out");
    }
    let metrics = proxy.metrics.worker(0);
    assert_eq!(metrics.refused.value(), 0);
    assert!(metrics.shed.value() > 0);
    drop(idle);
    eventually("all are gone", || proxy.metrics.open() == 0);
    assert_eq!((budgets.connections.used(), budgets.descriptors.used()), (0, 0), "every place is free again");
}

/// Each has the memory of a connection and of a small buffer.
#[test]
fn heads_that_do_not_end_make_room_where_memory_is_short() {
    let budgets = Budgets::of_memory(2 << 20);
    let proxy = Proxy::within(Limits::default(), budgets.clone());
    let slow: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut client = TcpStream::connect(proxy.http).unwrap();
            // It may have been closed for the next one.
            let _ = client.write_all(b"GET / HTTP/1.1\r\nHo");
            client
        })
        .collect();
    let metrics = proxy.metrics.worker(0);
    eventually("all have come", || metrics.accepted.value() >= 300);
    eventually("there is memory for those that stay", || proxy.metrics.open() <= 1024 / 5);
    eventually("somebody else is served", || {
        let mut client = TcpStream::connect(proxy.http).unwrap();
        let mut answer = String::new();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").is_ok()
            && client.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 404 ")
    });
    assert!(metrics.shed.value() > 0);
    drop(slow);
    eventually("all are gone", || proxy.metrics.open() == 0);
    eventually("all of the memory is free again", || budgets.bytes.used() == 0);
}

/// A client that sends one request after another is idle between two of them only briefly.
#[test]
fn connection_between_requests_is_not_shed() {
    let proxy = Proxy::within(Limits::default(), places(10, 100));
    let mut busy = Client::new(proxy.http);
    let mut idle: Vec<Client> = Vec::new();
    for _ in 0..200 {
        assert_eq!(busy.get("/").status, 404);
        idle.push(Client::new(proxy.http));
    }
    assert_eq!(busy.get("/").status, 404);
    assert!(proxy.metrics.worker(0).shed.value() > 0);
}

#[test]
fn a_client_with_a_request_does_not_make_room() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::new(move |_| {
        let _ = wait.lock().unwrap().recv();
        (ok("done"), true)
    });
    let mut proxy = Proxy::within(Limits::default(), places(1, 10));
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    let mut busy = Client::new(proxy.http);
    busy.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    eventually("the backend has it", || origin.seen().len() == 1);
    assert!(Client::new(proxy.http).ended());
    assert_eq!(proxy.metrics.worker(0).refused.value(), 1);
    go.send(()).unwrap();
    assert_eq!(busy.receive(false).unwrap().text(), "done");
}

#[test]
fn places_are_those_of_all_workers_together() {
    let budgets = places(2, 10);
    let proxies = [(); 2].map(|()| Proxy::within(Limits::default(), budgets.clone()));
    let clients = proxies.each_ref().map(|proxy| Client::new(proxy.http));
    eventually("both are in", || budgets.connections.used() == 2);
    let mut third = Client::new(proxies[0].http);
    assert_eq!(third.get("/").status, 404);
    eventually("one made room", || budgets.connections.used() == 2 && proxies[0].metrics.open() == 1);
    drop(clients);
}

#[test]
fn endpoints_without_a_descriptor_are_503_and_kept_ones_make_room() {
    let origins = [Origin::says("one"), Origin::says("two")];
    let budgets = places(10, 2);
    let mut proxy = Proxy::within(Limits::default(), budgets.clone());
    for (host, origin) in ["a.test", "b.test"].into_iter().zip(&origins) {
        proxy.host(host, false, &[("/", PathType::Prefix, host)]);
        proxy.endpoints(host, &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "one");
        // The idle connection to the other one is closed.
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n").text(), "two");
    }
    let held = budgets.descriptors.take(1);
    assert!(held.is_none(), "both are in use: the client's, and one that is kept");
}

#[test]
fn connections_of_an_endpoint_that_left_are_closed() {
    let origins = [Origin::says("one"), Origin::says("two")];
    let mut proxy = Proxy::serving(Limits::default(), &[origins[0].address, origins[1].address]);
    let mut client = Client::new(proxy.http);
    for _ in 0..4 {
        client.get("/");
    }
    proxy.remove_endpoint("echo", 0);
    for _ in 0..6 {
        assert_eq!(client.get("/").text(), "two");
    }
}

#[test]
fn draining_waits_for_requests_and_not_for_idle_connections() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::new(move |seen| {
        if seen.line().contains("/slow") {
            let _ = wait.lock().unwrap().recv();
        }
        (ok("done"), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let (http, metrics) = (proxy.http, proxy.metrics.clone());
    let mut idle = Client::new(http);
    assert_eq!(idle.get("/").all("connection"), ["keep-alive"]);
    let mut busy = Client::new(http);
    busy.send("GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
    eventually("the backend has it", || origin.seen().len() == 2);
    let stopping = std::thread::spawn(move || proxy.stop(Duration::ZERO, PATIENCE));
    assert!(idle.ended());
    eventually("one is left", || metrics.open() == 1);
    go.send(()).unwrap();
    let response = busy.receive(false).unwrap();
    assert_eq!((response.text(), response.all("connection")), ("done", vec!["close"]));
    assert!(busy.ended());
    stopping.join().unwrap();
    assert!(TcpStream::connect(http).is_err());
}

/// A request on a new connection is probably on its way. For one that was served that is unknown.
#[test]
fn a_drain_closes_at_once_who_was_served() {
    let proxy = Proxy::with(Limits { linger: 20 * PATIENCE, ..Limits::default() });
    let mut idle = Client::new(proxy.http);
    assert_eq!(idle.get("/").status, 404);
    let begun = Instant::now();
    proxy.stop(Duration::ZERO, PATIENCE);
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    assert!(idle.ended());
}

#[test]
fn forwarded_fields_and_no_others() {
    let origin = Origin::new(|_| {
        let head = "HTTP/1.1 418 Tea\r\nServer: x\r\nX-Accel-Expires: 0\r\nKeep-Alive: timeout=5\r\n\
                    Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nDate: today\r\n\
                    ETag: \"e\"\r\nContent-Length: 0\r\n\r\n";
        (head.into(), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    let response = client.ask(
        "GET /x?y HTTP/1.1\r\nHost: A.test:8080\r\nX-Mine: 1\r\nX_Under: 1\r\nTE: gzip\r\nConnection: close, X-Nominated\r\n\
         X-Nominated: 1\r\nX-Forwarded-For: 6.6.6.6\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(response.status, 418);
    assert_eq!(response.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(response.all("etag"), ["\"e\""]);
    assert!(response.all("date")[0].ends_with(" GMT"), "as nginx, ours alone");
    for gone in ["server", "x-accel-expires", "keep-alive", "x-hop"] {
        assert_eq!(response.all(gone), [""; 0], "{gone}");
    }
    let seen = &origin.seen()[0];
    let mut names: Vec<String> = seen
        .head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, _)| name.to_lowercase())
        .collect();
    names.sort();
    let expected = "host x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto x-forwarded-scheme x-mine \
                    x-original-forwarded-for x-real-ip x-request-id x-scheme";
    assert_eq!(names.join(" "), expected);
    for (name, value) in [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "A.test:8080"),
        ("x-mine", "1"),
    ] {
        assert_eq!(seen.all(name), [value], "{name}");
    }
    assert_eq!(seen.all("x-request-id").iter().map(|id| id.len()).collect::<Vec<_>>(), [32]);
    assert_eq!(seen.all("x-forwarded-port"), [proxy.http.port().to_string()]);
}

#[test]
fn a_client_that_goes_leaves_no_trace() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    for begun in ["", "GET / HT", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nabc"] {
        let mut client = Client::new(proxy.http);
        client.stream.write_all(begun.as_bytes()).unwrap();
        drop(client);
    }
    eventually("all are gone", || proxy.metrics.worker(0).accepted.value() == 3 && proxy.metrics.open() == 0);
    assert_eq!(proxy.metrics.worker(0).panics.value(), 0);
    assert!(origin.seen().is_empty());
}

/// Reads a request, may begin a response, and waits for the end of the connection.
fn waiting(begin: &'static [u8]) -> (Origin, std::sync::Arc<AtomicBool>) {
    let ended = std::sync::Arc::new(AtomicBool::new(false));
    let tell = std::sync::Arc::clone(&ended);
    let origin = Origin::raw(move |mut stream, number, seen| {
        let Some(request) = read_request(&mut stream, number) else {
            return;
        };
        stream.write_all(begin).unwrap();
        seen.lock().unwrap().push(request);
        // Ready when the proxy has closed its end.
        let _ = stream.read(&mut [0]);
        tell.store(true, Relaxed);
    });
    (origin, ended)
}

#[test]
fn a_client_that_leaves_takes_its_request_along() {
    for begin in [&b""[..], b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent"] {
        let (origin, ended) = waiting(begin);
        let proxy = Proxy::serving(Limits::default(), &[origin.address]);
        let mut client = Client::new(proxy.http);
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        eventually("the backend has it", || origin.seen().len() == 1);
        drop(client);
        eventually("the backend is let go", || ended.load(Relaxed));
        eventually("the connection is gone", || proxy.metrics.open() == 0);
        let log = proxy.stop(Duration::ZERO, PATIENCE);
        if begin.is_empty() {
            assert!(log.contains("\"GET / HTTP/1.1\" 499 0 "), "{log}");
        }
    }
}

/// As `socat - OPENSSL:...` does behind its last line: it has nothing more to say, and waits (RFC 8446 section 6.1).
#[test]
fn a_client_that_ends_its_half_of_tls_alone_is_answered() {
    let origin = Origin::new(|_| {
        std::thread::park_timeout(Duration::from_millis(200));
        (ok("late"), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Secure::new(&proxy, &client_certs::client(None), "a.test");
    client.0.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    client.0.conn.send_close_notify();
    client.0.flush().unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"late") {
        let mut one = [0];
        client.0.read_exact(&mut one).unwrap();
        answer.extend(one);
    }
    // One that closes the connection itself has gone.
    let mut client = Secure::new(&proxy, &client_certs::client(None), "a.test");
    client.0.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    client.0.conn.send_close_notify();
    client.0.flush().unwrap();
    client.0.sock.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(!matches!(client.0.read(&mut [0]), Ok(1..)), "as in nginx");
}

/// Each is sent once, reaches one endpoint, and is answered by that one; and those that are sent after a change do not
/// reach who has left.
#[test]
fn no_request_is_lost_while_endpoints_change() {
    const ALL: [&str; 3] = ["one", "two", "three"];
    // The first slice gets the address of one of them in turn, and the slice after that one's is removed.
    const LEFT: [&[&str]; 3] = [&["one", "three"], &["two"], &["two", "three"]];
    let origins = ALL.map(Origin::says);
    let addresses = origins.each_ref().map(|origin| origin.address);
    let mut proxy = Proxy::serving(Limits::default(), &addresses);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::new(proxy.http)).collect();
    let mut ledger = Vec::new();
    for round in 0..300 {
        let target = |number: usize| format!("/{round}/{number}");
        let send = |client: &mut Client, number| {
            client.send(format!(
                "POST {} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi",
                target(number)
            ));
        };
        // Half of them are under way while it changes.
        let (early, late) = clients.split_at_mut(2);
        early.iter_mut().enumerate().for_each(|(number, client)| send(client, number));
        proxy.endpoints("echo", &[addresses[round % 3]]);
        proxy.remove_endpoint("echo", (round + 1) % 3);
        late.iter_mut().enumerate().for_each(|(number, client)| send(client, 2 + number));
        for (number, client) in clients.iter_mut().enumerate() {
            let response = client.receive(false).unwrap_or_else(|| panic!("no answer to {}", target(number)));
            assert_eq!(response.status, 200, "{}", target(number));
            let permitted = if number < 2 { &ALL } else { LEFT[round % 3] };
            assert!(permitted.contains(&response.text()), "{}: {}", target(number), response.text());
            ledger.push((target(number), response.text().to_owned()));
        }
        proxy.endpoints("echo", &addresses);
    }
    let mut seen = BTreeMap::<String, Vec<&str>>::new();
    for (origin, name) in origins.iter().zip(ALL) {
        for request in origin.seen() {
            assert_eq!(request.body, b"hi");
            seen.entry(request.target).or_default().push(name);
        }
    }
    for (target, by) in ledger {
        assert_eq!(seen.remove(&target), Some(vec![&*by]), "{target}");
    }
    assert_eq!(seen, BTreeMap::new(), "seen, and never sent");
}

/// The end of a new connection is not watched at once.
#[test]
fn who_gives_up_on_the_first_request_is_noticed() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let tell = std::sync::Mutex::new(tell);
    let origin = Origin::raw(move |mut stream, number, _| {
        read_request(&mut stream, number);
        // The proxy hangs up, because there is nobody to respond to.
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
        tell.lock().unwrap().send(()).unwrap();
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    eventually("it is connected", || proxy.metrics.worker(0).connected.value() == 1);
    drop(client);
    told.recv_timeout(PATIENCE).unwrap();
}

/// An endpoint of one Service is the proxy itself: each request makes another one, until there are no more connections.
/// Others are served while 30 clients ask for `loop.test`, whose backend is the proxy itself.
fn others_are_served_beside_a_loop(budgets: Budgets, protocol: BackendProtocol) {
    let mut proxy = Proxy::within(Limits::default(), budgets);
    let origin = Origin::says("well");
    for (host, address, protocol) in
        [("loop.test", proxy.http, protocol), ("well.test", origin.address, BackendProtocol::Http)]
    {
        let policy = LocationPolicy { backend_protocol: Some(protocol.into()), ..Default::default() };
        let route = Route { paths: vec![to("/", PathType::Prefix, host)], policy, ..Route::default() };
        proxy.config(vec![
            (host, Resource::Host(Host::default())),
            (&format!("ingress/ns/i/{host}"), Resource::Route(route)),
        ]);
        proxy.service(host, Backend::default());
        proxy.endpoints(host, &[address]);
    }
    let (http, metrics) = (proxy.http, proxy.metrics.worker(0));
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..30 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    let response = Client::new(http).ask("GET / HTTP/1.1\r\nHost: loop.test\r\n\r\n");
                    assert_eq!(response.status, 503);
                    answered.fetch_add(1, Relaxed);
                }
            });
        }
        eventually("all have gone round", || answered.load(Relaxed) > 100);
        let others = (0..100).map(|_| {
            let response = Client::new(http).ask("GET / HTTP/1.1\r\nHost: well.test\r\n\r\n");
            (response.status, response.text().to_owned())
        });
        let others: Vec<_> = others.collect();
        is_over.store(true, Relaxed);
        assert_eq!(others, vec![(200, "well".to_owned()); 100]);
    });
    assert_eq!((metrics.refused.value(), metrics.panics.value()), (0, 0));
}

#[test]
fn a_backend_that_leads_back_leaves_connections_to_others() {
    const CLIENTS: usize = 300;
    let budgets = Budgets::default().with_connections(CLIENTS, 3 * CLIENTS);
    others_are_served_beside_a_loop(budgets, BackendProtocol::Http);
}

/// Its calls share connections, but each holds memory.
#[test]
fn a_grpc_backend_that_leads_back_leaves_memory_to_others() {
    others_are_served_beside_a_loop(Budgets::of_memory(8 << 20), BackendProtocol::Grpc);
}

/// Requests that wait for an auth service are as many as may wait for the endpoints behind it.
#[test]
fn an_auth_service_that_does_not_respond_leaves_connections_to_others() {
    const CLIENTS: usize = 20;
    let budgets = Budgets::default().with_connections(CLIENTS, 3 * CLIENTS);
    let mut proxy = Proxy::within(Limits::default(), budgets);
    let (well, (silent, _)) = (Origin::says("well"), waiting(b""));
    let url = format!("http://{}/", silent.address);
    let asking = LocationPolicy {
        external_auth: Some(ExternalAuth { url, ..ExternalAuth::default() }),
        ..LocationPolicy::default()
    };
    proxy.policies(false, &[("/asking", asking), ("/well", LocationPolicy::default())]);
    ["asking", "well"].iter().for_each(|service| proxy.endpoints(service, &[well.address]));
    let waiting: Vec<Client> = (0..16)
        .map(|number| {
            let mut client = Client::new(proxy.http);
            client.send("GET /asking HTTP/1.1\r\nHost: a.test\r\n\r\n");
            eventually("it is asked for", || silent.seen().len() > number);
            client
        })
        .collect();
    let mut client = Client::new(proxy.http);
    for (path, status) in [("/asking", 503), ("/well", 200), ("/asking", 503)] {
        assert_eq!(client.get(path).status, status, "{path}");
    }
    drop(waiting);
}

/// The endpoints of three Services do not respond. One is asked after the other, each until it is refused.
#[test]
fn backends_of_a_namespace_leave_connections_to_other_namespaces() {
    const CLIENTS: usize = 50;
    let budgets = Budgets::default().with_connections(CLIENTS, 3 * CLIENTS);
    let mut proxy = Proxy::within(Limits::default(), budgets);
    let (well, (silent, _)) = (Origin::says("well"), waiting(b""));
    let services = ["one.test", "two.test", "three.test"];
    let all = services.map(|host| ("silent", host, &silent));
    for (namespace, host, origin) in all.into_iter().chain([("ns", "well.test", &well)]) {
        let backend = format!("{namespace}/{host}/80");
        let paths = vec![Path { backend: Some(backend.clone()), ..to("/", PathType::Prefix, host) }];
        proxy.config(vec![
            (host, Resource::Host(Host::default())),
            (&format!("ingress/{namespace}/i/{host}"), Resource::Route(Route { paths, ..Route::default() })),
            (&backend, Resource::Backend(Backend { port: Some(PortRule::default()), ..Backend::default() })),
        ]);
        proxy.endpoints_in(namespace, host, &[origin.address]);
    }
    let mut waiting = Vec::new();
    let taken = services.map(|host| {
        let before = waiting.len();
        loop {
            let mut client = Client::new(proxy.http);
            client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            client.stream.set_nonblocking(true).unwrap();
            let is_taken = || silent.seen().len() > waiting.len();
            eventually("it is taken or refused", || is_taken() || client.stream.peek(&mut [0]).is_ok());
            if !is_taken() {
                return waiting.len() - before;
            }
            waiting.push(client);
        }
    });
    assert_eq!(taken, [40, 7, 1]);
    let response = Client::new(proxy.http).ask("GET / HTTP/1.1\r\nHost: well.test\r\n\r\n");
    assert_eq!(response.text(), "well");
}

#[test]
fn a_backend_at_its_share_leaves_idle_connections_to_others() {
    const CLIENTS: usize = 20;
    let budgets = Budgets::default().with_connections(CLIENTS, 3 * CLIENTS);
    let mut proxy = Proxy::within(Limits::default(), budgets);
    let (well, (silent, _)) = (Origin::says("well"), waiting(b""));
    for (host, origin) in [("well.test", &well), ("silent.test", &silent)] {
        proxy.host(host, false, &[("/", PathType::Prefix, host)]);
        proxy.endpoints(host, &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    let mut ask = |host: &str| client.ask(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).status;
    assert_eq!(ask("well.test"), 200);
    let waiting: Vec<Client> = (0..16)
        .map(|number| {
            let mut client = Client::new(proxy.http);
            client.send("GET / HTTP/1.1\r\nHost: silent.test\r\n\r\n");
            eventually("its endpoint has it", || silent.seen().len() > number);
            client
        })
        .collect();
    assert_eq!([(); 8].map(|()| ask("silent.test")), [503; 8]);
    assert_eq!([(); 2].map(|()| ask("well.test")), [200; 2]);
    let connections: Vec<usize> = well.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0; 3]);
    drop(waiting);
}
