//! Requests through the real proxy, byte for byte: the versions of HTTP, bodies, redirects, errors, TLS, WebSocket.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::Ipv6Addr;
use std::time::Duration;

use integration_tests::client::{self, Connection, h2, tls, websocket};
use integration_tests::objects::{self, Edit};
use integration_tests::origin::Script;
use integration_tests::process::Signal;
use integration_tests::site::{NAMESPACE, ingress, slice};
use integration_tests::{FolderSite, Origin, Protocol, Question, Traffic, ports};
use serde_json::{Value, json};
use test_kit::certificates;

async fn site() -> (FolderSite, Origin) {
    let site = FolderSite::start(&[]).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    (site, one)
}

fn raw_text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn one_connection_carries_many_requests_in_order() {
    let (site, _one) = site().await;
    let mut connection = Connection::open(site.proxy.http()).await.unwrap();
    for number in 0..5 {
        let answer = connection.get("a.test", &format!("/{number}")).await.unwrap();
        assert_eq!((answer.status, answer.version.as_str()), (200, "HTTP/1.1"));
        assert_eq!(answer.json()["target"], format!("/{number}"));
    }
    let pipelined: String =
        (0..5).map(|number| format!("GET /p{number} HTTP/1.1\r\nHost: a.test\r\n\r\n")).collect();
    connection.send(pipelined).await.unwrap();
    for number in 0..5 {
        let answer = connection.answer("GET").await.unwrap();
        assert_eq!(answer.json()["target"], format!("/p{number}"));
    }
    connection.send("HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    assert_eq!(connection.answer("HEAD").await.unwrap().status, 200);
    assert_eq!(connection.get("a.test", "/after").await.unwrap().json()["target"], "/after");
}

#[tokio::test]
async fn a_request_may_come_one_byte_at_a_time() {
    let (site, _one) = site().await;
    let mut connection = Connection::open(site.proxy.http()).await.unwrap();
    let request = b"POST /slow HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    for byte in request {
        connection.send([*byte]).await.unwrap();
    }
    assert_eq!(connection.answer("POST").await.unwrap().json()["body"], "abcde");
}

#[tokio::test]
async fn an_answer_may_come_one_byte_at_a_time_or_break() {
    let (site, one) = site().await;
    one.script(Script::ByteByByte);
    let answer = client::get(site.proxy.http(), "a.test", "/").await.unwrap();
    assert_eq!((answer.status, answer.origin()), (200, Some("one")));
    one.script(Script::CutBody);
    let broken = client::get(site.proxy.http(), "a.test", "/").await;
    assert!(broken.is_err(), "half an answer must not look whole: {broken:?}");
    one.script(Script::Exactly(b"no such thing as HTTP\r\n\r\n".to_vec()));
    assert_eq!(client::get(site.proxy.http(), "a.test", "/").await.unwrap().status, 502);
    one.script(Script::Silent);
    assert_eq!(client::get(site.proxy.http(), "a.test", "/").await.unwrap().status, 502);
    one.script(Script::Echo);
    assert_eq!(client::get(site.proxy.http(), "a.test", "/").await.unwrap().status, 200);
}

#[tokio::test]
async fn answers_with_every_framing_pass() {
    let (site, one) = site().await;
    let http = site.proxy.http();
    let head = "HTTP/1.1 200 OK\r\nX-Origin: one\r\n";
    for (rest, body) in [
        ("Content-Length: 5\r\n\r\nhello", "hello"),
        ("Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "hello"),
        ("Connection: close\r\n\r\nuntil the end", "until the end"),
        ("Content-Length: 0\r\n\r\n", ""),
    ] {
        one.script(Script::Exactly(format!("{head}{rest}").into_bytes()));
        let answer = client::get(http, "a.test", "/").await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, body), "{rest:?}");
    }
    one.script(Script::Exactly(b"HTTP/1.1 204 No Content\r\nX-Origin: one\r\n\r\n".to_vec()));
    assert_eq!(client::get(http, "a.test", "/").await.unwrap().status, 204);
    // Two lengths, or a length and chunks, could be read in two ways.
    for rest in ["Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "Content-Length: 5x\r\n\r\nhello"] {
        one.script(Script::Exactly(format!("{head}{rest}").into_bytes()));
        assert_eq!(client::get(http, "a.test", "/").await.unwrap().status, 502, "{rest:?}");
    }
}

#[tokio::test]
async fn old_clients_are_served() {
    let (site, one) = site().await;
    let http = site.proxy.http();
    let answer = raw_text(client::raw(http, "GET /old HTTP/1.0\r\nHost: a.test\r\n\r\n").await.unwrap());
    assert!(answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200"), "{answer}");
    assert!(answer.contains("/old"), "{answer}");
    one.script(Script::Exactly(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec(),
    ));
    let answer = raw_text(client::raw(http, "GET / HTTP/1.0\r\nHost: a.test\r\n\r\n").await.unwrap());
    assert!(!answer.to_ascii_lowercase().contains("transfer-encoding"), "1.0 knows no chunks: {answer}");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
}

#[tokio::test]
async fn bodies_of_all_sizes_arrive_whole() {
    let (site, one) = site().await;
    let http = site.proxy.http();
    for size in [0, 1, 1000, 64 * 1024, 64 * 1024 + 1, 1 << 20] {
        let body = vec![b'x'; size];
        let answer = client::request(http, "POST", "a.test", "/", &[], &body).await.unwrap();
        assert_eq!(answer.status, 200, "{size}");
        assert_eq!(one.seen().last().unwrap().body.len(), size);
    }
    let mut connection = Connection::open(http).await.unwrap();
    let head = "POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    connection.send(head).await.unwrap();
    let go_on = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(connection.exactly(go_on.len()).await.unwrap(), go_on);
    connection.send("hello").await.unwrap();
    assert_eq!(connection.answer("POST").await.unwrap().json()["body"], "hello");
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let (site, one) = site().await;
    let before = one.seen().len();
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400"),
        ("nonsense\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a.test\r\nX : y\r\n\r\n", "400"),
        (
            "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "400",
        ),
        ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: -3\r\n\r\nabc", "400"),
        (
            "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
            "400",
        ),
    ] {
        let answer = raw_text(client::raw(site.proxy.http(), request).await.unwrap());
        let line = answer.lines().next().unwrap_or_default();
        assert!(line.contains(status), "{request:?}: {line:?}");
    }
    let large = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX: {}\r\n\r\n", "x".repeat(80 * 1024));
    // The answer comes before the request is read, and a reset may follow it.
    let mut connection = Connection::open(site.proxy.http()).await.unwrap();
    connection.send(large).await.unwrap();
    assert_eq!(connection.answer("GET").await.unwrap().status, 400);
    assert_eq!(client::get(site.proxy.http(), "a.test", "/").await.unwrap().status, 200, "the proxy lives");
    let forwarded: Vec<_> = one.seen()[before..].iter().map(|seen| seen.target.clone()).collect();
    assert_eq!(forwarded, ["/"], "none of it reached the origin but the last");
}

#[tokio::test]
async fn hosts_and_paths_without_anybody_have_plain_answers() {
    let (site, _one) = site().await;
    let http = site.proxy.http();
    site.folder.apply(&objects::service(NAMESPACE, "empty"));
    site.folder.apply(&ingress(
        "empty",
        "empty.test",
        &[("/deep/", "one"), ("/e", "empty"), ("/n", "nothing")],
    ));
    site.proxy.serves("empty.test", "/deep/x", "one").await;
    for (host, path, status) in [
        ("unknown.test", "/", 404),
        ("empty.test", "/", 404),
        ("empty.test", "/e", 503),
        ("empty.test", "/n", 503),
    ] {
        let answer = client::get(http, host, path).await.unwrap();
        assert_eq!(answer.status, status, "{host}{path}");
        assert!(answer.text().contains(&format!("<center><h1>{status} ")), "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("text/html"));
        assert_eq!(answer.header("server"), None);
    }
    let slash = client::get(http, "empty.test", "/deep?q=1").await.unwrap();
    assert_eq!((slash.status, slash.header("location")), (301, Some("http://empty.test/deep/?q=1")));
}

#[tokio::test]
async fn the_origin_sees_where_a_request_came_from() {
    let (site, one) = site().await;
    let forged = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-Proto", "https"),
        ("X-Real-IP", "6.6.6.6"),
        ("X_Forwarded_For", "6.6.6.6"),
        ("Connection", "close, X-Secret"),
        ("X-Secret", "hop by hop"),
        ("X-Kept", "kept"),
    ];
    client::request(site.proxy.http(), "GET", "A.test:8080", "/p?q=1", &forged, b"").await.unwrap();
    let seen = one.seen().pop().unwrap();
    let header = |name: &str| seen.header(name).map(str::to_owned);
    assert_eq!(header("x-real-ip").as_deref(), Some("127.0.0.1"));
    assert_eq!(header("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    assert_eq!(header("x-forwarded-proto").as_deref(), Some("http"));
    assert_eq!(header("x-forwarded-host").as_deref(), Some("A.test:8080"));
    assert_eq!(header("x-kept").as_deref(), Some("kept"));
    assert_eq!((header("x-secret"), header("x_forwarded_for")), (None, None));
    assert_eq!(header("x-request-id").map(|id| id.len()), Some(32));
    assert_eq!(seen.target, "/p?q=1");
}

#[tokio::test]
async fn http_2_works_over_tls_and_by_prior_knowledge() {
    let (site, _one) = site().await;
    for connection in [
        h2::Connection::plain(site.proxy.http()).await.unwrap(),
        h2::Connection::tls(site.proxy.https(), "a.test").await.unwrap(),
    ] {
        let (first, second) = tokio::join!(connection.get("a.test", "/1"), connection.get("a.test", "/2"));
        for (answer, target) in [(first.unwrap(), "/1"), (second.unwrap(), "/2")] {
            assert_eq!((answer.status, answer.origin()), (200, Some("one")));
            assert_eq!(answer.json()["target"], target);
        }
        let answer =
            connection.request("POST", "a.test", "/", &[("cookie", "a=1"), ("cookie", "b=2")], b"hello");
        let answer = answer.await.unwrap().json();
        assert_eq!(answer["body"], "hello");
        let cookies: Vec<&Value> =
            answer["headers"].as_array().unwrap().iter().filter(|it| it[0] == "cookie").collect();
        assert_eq!(cookies, [&json!(["cookie", "a=1; b=2"])], "RFC 9113 8.2.3");
        assert_eq!(connection.get("unknown.test", "/").await.unwrap().status, 404);
    }
}

#[tokio::test]
async fn a_websocket_passes_in_both_directions() {
    let (site, _one) = site().await;
    let mut plain = Connection::open(site.proxy.http()).await.unwrap();
    let answer = websocket::handshake(&mut plain, "a.test", "/ws").await.unwrap();
    assert_eq!((answer.status, answer.header("sec-websocket-accept")), (101, Some(websocket::ACCEPT)));
    let mut secured = tls::open(site.proxy.https(), "a.test", &[b"http/1.1"]).await.unwrap().connection;
    assert_eq!(websocket::handshake(&mut secured, "a.test", "/ws").await.unwrap().status, 101);
    for text in ["one", "two", "three"] {
        plain.send(websocket::client_frame(text)).await.unwrap();
        assert_eq!(websocket::read(&mut plain).await.unwrap(), format!("one: {text}"));
        secured.send(websocket::client_frame(text)).await.unwrap();
        assert_eq!(websocket::read(&mut secured).await.unwrap(), format!("one: {text}"));
    }
}

#[tokio::test]
async fn the_certificate_follows_the_server_name() {
    let (one_pem, one_key) = certificates::self_signed(&["one.test"]);
    let (wild_pem, wild_key) = certificates::self_signed(&["*.wild.test"]);
    let (fallback_pem, fallback_key) = certificates::self_signed(&["fallback.test"]);
    let secrets = [
        objects::tls_secret(NAMESPACE, "one", &one_pem, &one_key),
        objects::tls_secret(NAMESPACE, "wild", &wild_pem, &wild_key),
        objects::tls_secret(NAMESPACE, "fallback", &fallback_pem, &fallback_key),
    ];
    let default = ["--default-ssl-certificate", "default/fallback"];
    let site = FolderSite::start_with(&secrets, &default, &[]).await;
    let _one = site.origin("one").await;
    for (host, secret) in [("one.test", "one"), ("*.wild.test", "wild")] {
        let tls = json!([{"hosts": [host], "secretName": secret}]);
        site.folder.apply(&ingress(secret, host, &[("/", "one")]).with("/spec/tls", tls));
        site.proxy.answers(&host.replace('*', "x"), "/", 308).await;
    }
    for (host, name) in [
        ("one.test", "one.test"),
        ("ONE.test", "one.test"),
        ("x.wild.test", "*.wild.test"),
        ("x.y.wild.test", "fallback.test"),
        ("unknown.test", "fallback.test"),
    ] {
        let (_, names) = tls::get(site.proxy.https(), host, "/").await.unwrap();
        assert_eq!(names, [name], "{host}");
    }
    let redirect = client::get(site.proxy.http(), "one.test", "/p?q=1").await.unwrap();
    assert_eq!((redirect.status, redirect.header("location")), (308, Some("https://one.test/p?q=1")));
    let (answer, _) = tls::get(site.proxy.https(), "one.test", "/").await.unwrap();
    assert_eq!(answer.origin(), Some("one"));
}

#[tokio::test]
async fn ipv6_carries_requests_on_both_sides() {
    let here = ports::free_at(Ipv6Addr::LOCALHOST.into());
    let site = FolderSite::start_with(&[], &[], &["--http", &here.to_string()]).await;
    let six = Origin::at("six", Ipv6Addr::LOCALHOST.into()).await;
    site.folder.apply(&objects::service(NAMESPACE, "six"));
    site.folder.apply(&slice("six", &[six.address()]));
    site.folder.apply(&ingress("six", "a.test", &[("/", "six")]));
    site.proxy.serves("a.test", "/", "six").await;
    let traffic = Traffic::start(here, 2, &[Question::new("a.test", "/", &["six"]).posting(1000)]);
    traffic.goes_on("requests are carried", 50).await;
    traffic.stop().await.assert_clean();
    let seen = six.seen().pop().unwrap();
    assert_eq!((seen.header("x-forwarded-for"), seen.header("x-real-ip")), (Some("::1"), Some("::1")));
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_passed_over() {
    let (site, one) = site().await;
    let dead = {
        let gone = Origin::start("gone").await;
        gone.address()
    };
    site.folder.apply(&objects::slice(NAMESPACE, "one", "2", &[dead]));
    site.control.inspect().await.in_sync(1).await;
    for number in 0..20 {
        let answer = client::get(site.proxy.http(), "a.test", &format!("/{number}")).await.unwrap();
        assert_eq!((answer.status, answer.origin()), (200, Some(one.name())));
    }
    site.folder.apply(&slice("one", &[]));
    site.proxy.answers("a.test", "/", 502).await;
}

#[tokio::test]
async fn all_endpoints_get_their_share() {
    let (site, one) = site().await;
    let two = Origin::start("two").await;
    site.folder.apply(&objects::slice(NAMESPACE, "one", "2", &[two.address()]));
    site.proxy.serves("a.test", "/", "two").await;
    let before = (one.seen().len(), two.seen().len());
    for _ in 0..100 {
        client::get(site.proxy.http(), "a.test", "/").await.unwrap();
    }
    let after = (one.seen().len() - before.0, two.seen().len() - before.1);
    // Each worker goes round on its own.
    assert!(after.0 >= 45 && after.1 >= 45, "{after:?}");
}

#[tokio::test]
async fn ending_loses_no_request() {
    let mut site = FolderSite::start_with(&[], &[], &["--drain-grace", "0"]).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    one.script(Script::Delay(Duration::from_millis(300)));
    let mut idle = Connection::open(site.proxy.http()).await.unwrap();
    assert_eq!(idle.get("a.test", "/").await.unwrap().status, 200);
    let mut busy = Connection::open(site.proxy.http()).await.unwrap();
    busy.send("GET /busy HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    integration_tests::eventually("the origin has the request", || async {
        if one.seen().last().is_some_and(|seen| seen.target == "/busy") { Ok(()) } else { Err("not yet") }
    })
    .await;
    let ended = site.proxy.terminate().await;
    assert!(ended.success(), "{ended}");
    let answer = busy.answer("GET").await.unwrap();
    assert_eq!((answer.status, answer.origin()), (200, Some("one")));
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(idle.rest().await.unwrap(), b"", "the idle connection was closed");
}

#[tokio::test]
async fn ending_with_nothing_open_is_quick_where_no_grace_is_asked_for() {
    let mut site = FolderSite::start_with(&[], &[], &["--drain-grace", "0"]).await;
    let begun = std::time::Instant::now();
    assert!(site.proxy.terminate().await.success());
    assert!(site.control.terminate().await.success());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// Clients with a connection for each request have nothing open between two of them, and are served all the same; so are
/// those that keep theirs, over both protocols and with bodies.
#[tokio::test]
async fn leaving_serves_new_connections_for_its_whole_grace() {
    let grace = Duration::from_secs(2);
    let mut site = FolderSite::start_with(&[], &[], &["--drain-grace", "2"]).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let address = site.proxy.http();
    let questions =
        [Question::new("a.test", "/", &["one"]), Question::new("a.test", "/up", &["one"]).posting(50_000)];
    let mut traffic = Traffic::start(address, 2, &questions);
    traffic.join(address, 2, Protocol::Http2, &questions);
    traffic.goes_on("requests before the end", 20).await;
    let began = std::time::Instant::now();
    site.proxy.process().signal(Signal::Term);
    let before = traffic.asked();
    let mut served = 0;
    while began.elapsed() < grace - Duration::from_millis(200) {
        let answer = client::get(address, "a.test", "/").await;
        assert_eq!(
            answer.map(|answer| answer.status).map_err(|error| error.to_string()),
            Ok(200),
            "{served} served"
        );
        served += 1;
    }
    // Each was sent once, seen once and answered, and they did not stop when the end was asked for.
    let summary = traffic.stop().await;
    summary.assert_clean();
    assert!(summary.answered > before + 20, "{summary:?}");
    let ended = site.proxy.terminate().await;
    assert!(ended.success() && began.elapsed() >= grace, "{ended} after {:?}", began.elapsed());
}

#[tokio::test]
async fn the_access_log_has_a_line_a_request() {
    let (site, _one) = site().await;
    client::get(site.proxy.http(), "a.test", "/in-the-log?q=1").await.unwrap();
    integration_tests::eventually("the line is written", || async {
        let log = site.proxy.access_log();
        let line = log.lines().find(|line| line.contains("\"GET /in-the-log?q=1 HTTP/1.1\" 200 "));
        line.map(str::to_owned).ok_or_else(|| log.clone())
    })
    .await;
}
