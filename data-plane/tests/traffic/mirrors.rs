//! Mirrored requests: what a mirror gets, and that requests lose nothing by it.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use data_plane::local::{Budgets, KnownNames, Limits, MirrorBudget};
use shared::policy::{ExternalAuth, Header, HeaderList, LocationPolicy, TextList};

use super::backend_tls::encrypted;
use super::harness::*;

fn mirrored(target: String) -> LocationPolicy {
    LocationPolicy { mirror_target: Some(target), ..LocationPolicy::default() }
}

/// `/echo` of `a.test`, with this policy.
fn serving(origin: &Origin, said: LocationPolicy, budgets: Budgets) -> Proxy {
    let mut proxy = Proxy::within(Limits::default(), budgets);
    proxy.policies(false, &[("/echo", said)]);
    proxy.endpoints("echo", &[origin.address]);
    proxy
}

fn at(address: SocketAddr, rest: &str) -> String {
    format!("http://{address}{rest}")
}

fn post(body: &str) -> String {
    format!(
        "POST /echo/b?x=1 HTTP/1.1\r\nHost: a.test\r\nX-Test: t\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn lost(proxy: &Proxy) -> u64 {
    proxy.metrics.worker(0).copies_lost.value()
}

fn copied(proxy: &Proxy) -> u64 {
    proxy.metrics.worker(0).copied.value()
}

#[test]
fn a_mirror_gets_what_the_endpoint_gets_and_its_answer_goes_nowhere() {
    let origin = Origin::says("backend");
    let mirror =
        Origin::new(|_| (b"HTTP/1.1 500 No\r\nX-Shadow: 1\r\nContent-Length: 2\r\n\r\nno".to_vec(), true));
    let proxy = serving(&origin, mirrored(at(mirror.address, "$request_uri")), Budgets::default());
    let answer = Client::new(proxy.http).ask(&post("hello"));
    assert_eq!((answer.status, answer.text(), answer.all("x-shadow")), (200, "backend", vec![]));
    eventually("a copy", || copied(&proxy) == 1);
    let (copy, real) = (&mirror.seen()[0], &origin.seen()[0]);
    assert_eq!((copy.line(), &copy.body[..]), ("POST /echo/b?x=1 HTTP/1.1", &b"hello"[..]));
    assert_eq!((copy.all("host"), copy.all("connection")), (vec!["127.0.0.1"], vec!["close"]));
    for name in ["x-test", "content-length"] {
        assert_eq!(copy.all(name), real.all(name), "{name}");
    }
    for name in
        ["x-request-id", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-scheme"]
    {
        assert_eq!(
            (copy.all(name).len(), real.all(name).len()),
            (0, 1),
            "{name}: nginx tells a mirror nothing"
        );
    }
    assert_eq!((real.all("host"), real.all("connection")), (vec!["a.test"], vec![]));
}

#[test]
fn a_mirror_at_an_https_url_is_sent_its_copy_over_tls() {
    let origin = Origin::says("backend");
    let (mirror, names) = encrypted(|_| ok("mirror"));
    let target = format!("https://localhost:{}$request_uri", mirror.address.port());
    let proxy = serving(&origin, mirrored(target), Budgets::default());
    assert_eq!(Client::new(proxy.http).ask(&post("hello")).text(), "backend");
    eventually("an outcome", || copied(&proxy) + lost(&proxy) == 1);
    assert_eq!(lost(&proxy), 0);
    let copy = &mirror.seen()[0];
    assert_eq!((copy.line(), &copy.body[..]), ("POST /echo/b?x=1 HTTP/1.1", &b"hello"[..]));
    assert_eq!(*names.lock().unwrap(), [Some("localhost".to_owned())]);
}

/// The copy is an ordinary request, of which the tunnel knows nothing.
#[test]
fn an_upgrade_passes_a_location_with_a_mirror() {
    let origin = Origin::raw(|mut stream, number, seen| {
        let Some(request) = read_request(&mut stream, number) else { return };
        seen.lock().unwrap().push(request);
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let _ = stream.write_all(switch.as_bytes());
        let _ = stream.read(&mut [0]);
    });
    let mirror = Origin::says("mirror");
    let proxy = serving(&origin, mirrored(at(mirror.address, "$request_uri")), Budgets::default());
    let mut client = Client::new(proxy.http);
    client.send("GET /echo HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.receive(false).unwrap().status, 101);
    eventually("a copy", || copied(&proxy) == 1);
    let told = |seen: &Seen| ["connection", "upgrade"].map(|name| seen.all(name).concat());
    assert_eq!(told(&origin.seen()[0]), ["upgrade", "websocket"]);
    assert_eq!(told(&mirror.seen()[0]), ["close", ""]);
}

/// It has no body, whatever its length says.
#[test]
fn the_copy_of_a_head_request_ends_with_the_head_of_its_answer() {
    let answer = |_: &Seen| (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec(), true);
    let (origin, mirror) = (Origin::new(answer), Origin::new(answer));
    let proxy = serving(&origin, mirrored(at(mirror.address, "$request_uri")), Budgets::default());
    let head = Client::new(proxy.http).ask("HEAD /echo HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((head.status, head.all("content-length")), (200, vec!["9"]));
    eventually("a copy", || copied(&proxy) == 1);
    assert_eq!((mirror.seen()[0].line(), lost(&proxy)), ("HEAD /echo HTTP/1.1", 0));
}

/// What the location says to its backend is not said to the mirror. What only a proxy may say, or an auth service, is not
/// said by a client to either.
#[test]
fn a_mirror_gets_the_headers_of_the_client() {
    let (origin, mirror) = (Origin::says("backend"), Origin::says("mirror"));
    let own = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let said = LocationPolicy {
        request_headers: Some(HeaderList { headers: vec![own("X-Said", "so"), own("X-Both", "proxy")] }),
        enable_underscores_in_headers: Some(true),
        ..mirrored(at(mirror.address, "$request_uri"))
    };
    let sent = [
        ("x-both", "client"),
        ("x_under", "1"),
        ("x-request-id", "mine"),
        ("x-forwarded-for", "1.1.1.1"),
        ("x-forwarded-proto", "https"),
        ("x-original-url", "/admin"),
        ("x-rewrite-url", "/admin"),
        ("ssl-client-verify", "SUCCESS"),
        ("proxy", "evil"),
        ("x-hop", "1"),
    ];
    let lines: String = sent.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("GET /echo HTTP/1.1\r\nHost: a.test\r\n{lines}Connection: x-hop\r\n\r\n");
    for (believes, passed) in [(false, &sent[..3]), (true, &sent[..8])] {
        let said = LocationPolicy { use_forwarded_headers: Some(believes), ..said.clone() };
        let mut proxy = serving(&origin, said.clone(), Budgets::default());
        proxy.defaults(LocationPolicy { mirror_target: None, request_headers: None, ..said });
        assert_eq!(Client::new(proxy.http).ask(&request).status, 200);
        eventually("a copy", || copied(&proxy) == 1);
        let (copy, real) = (mirror.seen().pop().unwrap(), origin.seen().pop().unwrap());
        assert_eq!((real.all("x-said"), real.all("x-both")), (vec!["so"], vec!["proxy"]));
        assert!(copy.all("x-said").is_empty());
        for (name, value) in sent {
            let expected = if passed.contains(&(name, value)) { vec![value] } else { vec![] };
            assert_eq!(copy.all(name), expected, "{name} {believes}");
        }
    }
}

#[test]
fn host_path_and_body_are_as_the_location_says() {
    let (origin, mirror) = (Origin::says("backend"), Origin::says("mirror"));
    let said = |rest: &str| LocationPolicy {
        mirror_request_body: Some(false),
        mirror_host: Some("shadow.test".into()),
        ..mirrored(at(mirror.address, rest))
    };
    for (rest, line) in [
        ("", "POST /echo/b?x=1 HTTP/1.1"),
        ("/other", "POST /other?x=1 HTTP/1.1"),
        ("/other?y=2", "POST /other?y=2 HTTP/1.1"),
        ("/v$uri", "POST /v/echo/b HTTP/1.1"),
    ] {
        let proxy = serving(&origin, said(rest), Budgets::default());
        assert_eq!(Client::new(proxy.http).ask(&post("hello")).status, 200);
        eventually("a copy", || copied(&proxy) == 1);
        let copy = mirror.seen().pop().unwrap();
        assert_eq!((copy.line(), &copy.body[..]), (line, &b""[..]));
        assert_eq!((copy.all("host"), copy.all("content-length")), (vec!["shadow.test"], vec![]));
    }
    assert!(origin.seen().iter().all(|seen| seen.body == b"hello" && seen.all("host") == ["a.test"]));
}

#[test]
fn a_mirror_that_leads_to_itself_makes_a_few_copies_and_no_more() {
    let origin = Origin::says("backend");
    let mut proxy = serving(&origin, LocationPolicy::default(), Budgets::default());
    let said =
        LocationPolicy { mirror_host: Some("a.test".into()), ..mirrored(at(proxy.http, "$request_uri")) };
    proxy.policies(false, &[("/echo", said)]);
    assert_eq!(Client::new(proxy.http).ask(&post("hello")).status, 200);
    eventually("the last copy makes none", || lost(&proxy) == 1);
    eventually("all are delivered", || copied(&proxy) == 4);
    assert_eq!(origin.seen().len(), 5);
}

#[test]
fn cdn_loop_of_a_client_neither_evades_a_mirror_nor_fails_authentication() {
    let (origin, own) = (Origin::says("backend"), Origin::says("own"));
    let url = at(own.address, "/check");
    let said = LocationPolicy {
        external_auth: Some(ExternalAuth { url, ..ExternalAuth::default() }),
        ..mirrored(at(own.address, "$request_uri"))
    };
    let proxy = serving(&origin, said, Budgets::default());
    let from_client = "firth, firth, firth, firth, firth";
    let request = format!("GET /echo HTTP/1.1\r\nHost: a.test\r\nCDN-Loop: {from_client}\r\n\r\n");
    assert_eq!(Client::new(proxy.http).ask(&request).status, 200);
    eventually("a copy", || copied(&proxy) == 1);
    assert_eq!(origin.seen()[0].all("cdn-loop"), [from_client]);
    for (seen, target) in own.seen().iter().zip(["/check", "/echo"]) {
        assert_eq!(seen.target, target);
        assert!(seen.all("cdn-loop").concat().contains("firth;by="), "{}", seen.head);
    }
}

#[test]
fn a_large_body_and_a_streamed_one_are_read_to_their_end_first() {
    let (origin, mirror) = (Origin::says("backend"), Origin::says("mirror"));
    let said = LocationPolicy {
        proxy_request_buffering: Some(false),
        ..mirrored(at(mirror.address, "$request_uri"))
    };
    let proxy = serving(&origin, said, Budgets::default());
    let mut client = Client::new(proxy.http);
    let large: String = (0..70_000).map(|n| format!("{n:010}")).collect();
    assert_eq!(client.ask(&post(&large)).status, 200);
    let chunks = "POST /echo HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert_eq!(client.ask(chunks).status, 200);
    eventually("two copies", || copied(&proxy) == 2);
    for side in [origin.seen(), mirror.seen()] {
        let mut bodies: Vec<_> = side.into_iter().map(|seen| seen.body).collect();
        bodies.sort_by_key(Vec::len);
        assert!(bodies == [b"abcde".to_vec(), large.clone().into_bytes()]);
    }
}

#[test]
fn a_mirror_that_never_answers_holds_up_nobody_and_no_more_than_its_budget() {
    let origin = Origin::says("backend");
    let held = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&held);
    let mirror = Origin::raw(move |mut stream, _, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    // Three copies at a time.
    let copies = MirrorBudget::of_memory(1 << 30).with_descriptors(48);
    let budgets = Budgets { mirror_budget: copies.clone(), ..Budgets::default() };
    let proxy = serving(&origin, mirrored(at(mirror.address, "$request_uri")), budgets);
    let mut client = Client::new(proxy.http);
    let begun = Instant::now();
    for _ in 0..50 {
        assert_eq!(client.ask(&post("hello")).text(), "backend");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!((lost(&proxy), copies.used()), (47, 3));
    eventually("three copies", || held.load(Ordering::SeqCst) == 3);
}

#[test]
fn a_body_that_a_copy_has_no_memory_for_reaches_the_endpoint_all_the_same() {
    let (origin, mirror) = (Origin::says("backend"), Origin::says("mirror"));
    let budgets = Budgets { mirror_budget: MirrorBudget::of_memory(16 * 2_000), ..Budgets::default() };
    let proxy = serving(&origin, mirrored(at(mirror.address, "$request_uri")), budgets);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.ask(&post(&"x".repeat(3_000))).status, 200);
    assert_eq!((lost(&proxy), origin.seen()[0].body.len()), (1, 3_000));
    assert_eq!(client.ask(&post("hello")).status, 200);
    eventually("a copy", || copied(&proxy) == 1);
    assert_eq!(mirror.seen().len(), 1);
}

#[test]
fn a_mirror_that_is_gone_costs_a_copy() {
    let origin = Origin::says("backend");
    let proxy = serving(&origin, mirrored(at(refusing(), "$request_uri")), Budgets::default());
    let mut client = Client::new(proxy.http);
    assert_eq!((client.get("/echo").status, client.get("/echo").status), (200, 200));
    eventually("two lost ones", || lost(&proxy) == 2);
    let nowhere = serving(&origin, mirrored("http://$http_x_none/".into()), Budgets::default());
    assert_eq!(Client::new(nowhere.http).get("/echo").status, 200);
    assert_eq!(lost(&nowhere), 1, "a URL without a host");
}

#[test]
fn a_copy_is_delivered_once_it_is_answered() {
    let origin = Origin::says("backend");
    let replies: [(&str, bool); 4] = [
        ("", false),
        ("HTTP/1.1 103 Early Hints\r\n\r\n", false),
        ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", true),
        ("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", true),
    ];
    for (reply, is_copied) in replies {
        let mirror = Origin::new(move |_| (reply.as_bytes().to_vec(), false));
        let said =
            LocationPolicy { mirror_host: Some("$http_x_none".into()), ..mirrored(at(mirror.address, "/")) };
        let proxy = serving(&origin, said, Budgets::default());
        assert_eq!(Client::new(proxy.http).get("/echo").status, 200);
        eventually("an outcome", || lost(&proxy) + copied(&proxy) == 1);
        assert_eq!(copied(&proxy) == 1, is_copied, "{reply:?}");
        assert_eq!(mirror.seen()[0].all("host"), ["127.0.0.1"], "a name that is empty is none");
    }
}

#[test]
fn a_mirror_that_never_ends_is_not_listened_to() {
    let origin = Origin::says("backend");
    let sent = Arc::new(AtomicUsize::new(0));
    let (counter, ended) = (Arc::clone(&sent), Arc::new(AtomicUsize::new(0)));
    let end = Arc::clone(&ended);
    let mirror = Origin::raw(move |mut stream, number, _| {
        let _ = read_request(&mut stream, number);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 4096]).is_ok() {
            counter.fetch_add(4096, Ordering::SeqCst);
        }
        end.fetch_add(1, Ordering::SeqCst);
    });
    let proxy = serving(&origin, mirrored(at(mirror.address, "$request_uri")), Budgets::default());
    assert_eq!(Client::new(proxy.http).get("/echo").text(), "backend");
    eventually("the end of it", || ended.load(Ordering::SeqCst) == 1);
    assert_eq!(copied(&proxy), 1, "the request was taken");
    // What both kernels buffer is added to what was read.
    assert!(sent.load(Ordering::SeqCst) < 16 << 20, "{sent:?}");
}

#[test]
fn refused_request_is_not_mirrored() {
    let (origin, mirror) = (Origin::says("backend"), Origin::says("mirror"));
    let said = LocationPolicy {
        denylist_source_range: Some(TextList { values: vec!["127.0.0.1".into()] }),
        ..mirrored(at(mirror.address, "$request_uri"))
    };
    let proxy = serving(&origin, said, Budgets::default());
    assert_eq!(Client::new(proxy.http).get("/echo").status, 403);
    assert_eq!((copied(&proxy) + lost(&proxy), mirror.seen().len()), (0, 0));
}

#[test]
fn a_place_of_the_proxys_own_machine_gets_no_copy() {
    let (origin, mirror) = (Origin::says("backend"), Origin::says("mirror"));
    let mut proxy = Proxy::reaching(KnownNames::default(), &[]);
    proxy.policies(false, &[("/echo", mirrored(at(mirror.address, "/")))]);
    proxy.endpoints("echo", &[origin.address]);
    let answer = Client::new(proxy.http).ask(&post("hello"));
    assert_eq!((answer.status, answer.text()), (200, "backend"));
    eventually("it is lost", || lost(&proxy) == 1);
    assert!(mirror.seen().is_empty() && copied(&proxy) == 0);
}
