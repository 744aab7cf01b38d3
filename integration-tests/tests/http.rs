//! HTTP behaviour that needs both planes: missing Services, certificates of Secrets, IPv6, the shutdown of a process,
//! its log. Tests of the proxy alone are in `data-plane/tests/traffic`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use integration_tests::client::{self, Connection, tls};
use integration_tests::objects::{self, Edit};
use integration_tests::origin::Script;
use integration_tests::process::Signal;
use integration_tests::site::{NAMESPACE, ingress, slice};
use integration_tests::{FolderSite, Origin, Protocol, Question, Traffic, eventually, ports};
use serde_json::json;
use test_kit::certificates;

async fn site() -> (FolderSite, Origin) {
    let site = FolderSite::start(&[]).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    (site, one)
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
    let six = Origin::at("six", Ipv6Addr::LOCALHOST.into());
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
async fn ending_loses_no_request() {
    let mut site = FolderSite::start_with(&[], &[], &["--drain-grace", "0"]).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    one.script(Script::Delay(Duration::from_millis(300)));
    let mut idle = Connection::open(site.proxy.http()).await.unwrap();
    assert_eq!(idle.get("a.test", "/").await.unwrap().status, 200);
    let mut busy = Connection::open(site.proxy.http()).await.unwrap();
    busy.send("GET /busy HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    eventually("the origin has the request", || async {
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
    // The grace is 10 s where nobody asks for another.
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}

/// Clients with a connection for each request have nothing open between two of them, and are served nevertheless; so
/// are those that keep connections open, over both protocols and with bodies.
#[tokio::test]
async fn leaving_serves_new_connections_for_its_whole_grace() {
    let grace = Duration::from_secs(5);
    let mut site = FolderSite::start_with(&[], &[], &["--drain-grace", "5"]).await;
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
    let served_until = async |end: Duration| {
        let mut served = 0;
        loop {
            let answer = client::get(address, "a.test", "/").await;
            // What ends later may have been too late, whatever kept it.
            if began.elapsed() >= end {
                break;
            }
            let status = answer.map(|answer| answer.status).map_err(|error| error.to_string());
            assert_eq!(status, Ok(200), "{served} served");
            served += 1;
        }
    };
    served_until(grace / 2).await;
    // Each was sent once, seen once and answered, and they did not stop when the end was asked for.
    let summary = traffic.stop().await;
    assert!(began.elapsed() < grace, "this machine is too slow for that: {summary:?}");
    summary.assert_clean();
    assert!(summary.answered > before + 20, "{summary:?}");
    served_until(grace).await;
    let ended = site.proxy.terminate().await;
    assert!(ended.success() && began.elapsed() >= grace, "{ended} after {:?}", began.elapsed());
}

#[tokio::test]
async fn the_access_log_has_a_line_a_request() {
    let (site, _one) = site().await;
    client::get(site.proxy.http(), "a.test", "/in-the-log?q=1").await.unwrap();
    eventually("the line is written", || async {
        let log = site.proxy.access_log();
        let line = log.lines().find(|line| line.contains("\"GET /in-the-log?q=1 HTTP/1.1\" 200 "));
        line.map(str::to_owned).ok_or_else(|| log.clone())
    })
    .await;
}

/// As logrotate does it. No line is lost, whichever of both files it is in.
#[tokio::test]
async fn a_renamed_access_log_is_opened_again_by_a_signal() {
    let folder = tempfile::TempDir::new().unwrap();
    let [log, renamed] = ["access.log", "access.log.1"].map(|name| folder.path().join(name));
    let mut site = FolderSite::start_with(&[], &[], &["--access-log", log.to_str().unwrap()]).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let http = site.proxy.http();
    let ask = async |path: &str| assert_eq!(client::get(http, "a.test", path).await.unwrap().status, 200);
    // How often a request is in a file.
    let lines = |file: &Path, path: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.matches(&format!("\"GET {path} HTTP/1.1\" 200 ")).count()
    };
    ask("/before").await;
    fs::rename(&log, &renamed).unwrap();
    ask("/renamed").await;
    eventually("both are in the renamed file", || async {
        let both = ["/before", "/renamed"].map(|path| lines(&renamed, path));
        if both == [1, 1] { Ok(()) } else { Err(both) }
    })
    .await;
    assert!(!log.exists(), "nobody has asked for a new one");
    site.proxy.process().signal(Signal::Usr1);
    let asked = AtomicUsize::new(0);
    let path = |number: usize| format!("/after-{number}");
    eventually("a new file has the newest line", || async {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        ask(&path(number)).await;
        if lines(&log, &path(number)) == 1 { Ok(()) } else { Err(number) }
    })
    .await;
    assert_eq!(site.proxy.process().ended(), None);
    eventually("each line is in one of both", || async {
        let all = (0..asked.load(Ordering::Relaxed))
            .map(|number| lines(&log, &path(number)) + lines(&renamed, &path(number)));
        let all: Vec<_> = all.collect();
        if all.iter().all(|times| *times == 1) { Ok(()) } else { Err(all) }
    })
    .await;
}
