//! How many proxies serve an object: with real planes, a proxy that refuses, one that is stopped, and one that left.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use integration_tests::eventually::PATIENCE;
use integration_tests::objects::Edit;
use integration_tests::plane::binary;
use integration_tests::process::Signal;
use integration_tests::site::ingress;
use integration_tests::subscriber::{State, Subscriber};
use integration_tests::{DataPlane, FolderSite, eventually, eventually::same};
use serde_json::Value;

const ROUTE: &str = "ingress/default/web/a.test";

async fn firth(server: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary("firth"));
    command.args(arguments).args(["--server", &format!("http://{server}")]);
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

/// The output of `firth status` for the Ingress, and its exit code.
async fn status(server: SocketAddr, further: &[&str]) -> (Value, i32) {
    let arguments = [&["status", "ingress", "default/web", "-o", "json"][..], further].concat();
    let output = firth(server, &arguments).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (json, output.status.code().unwrap())
}

/// Its state, and on how many of how many proxies it is.
fn told(status: &Value) -> (&str, u64, u64) {
    let count = |field: &str| status[field].as_u64().unwrap();
    (status["state"].as_str().unwrap(), count("programmed"), count("total"))
}

async fn site() -> FolderSite {
    FolderSite::start_with(&[], &["--settle=0s"], &[]).await
}

#[tokio::test]
async fn one_that_refuses_is_named_with_its_reason_and_one_that_left_is_not_counted() {
    let site = site().await;
    let server = site.control.listen();
    let origin = site.origin("one").await;
    site.route("web", "a.test", &origin).await;
    let mut other = DataPlane::start(server).await;
    let mut judge = Subscriber::connect(server, State::new("judge-0123456789abcdef")).await;
    judge.until_idle().await;
    let (all, code) = status(server, &["--wait"]).await;
    assert_eq!((told(&all), code), (("programmed", 3, 3), 0), "{all}");
    assert_eq!(all["version"], site.control.inspect().await.in_sync(3).await);

    eventually("that is counted", || async {
        let metrics = site.control.metrics().await;
        let of_all =
            metrics.sum_where("firth_proxy_version_info", "version", all["version"].as_str().unwrap());
        same((of_all, metrics.sum("firth_control_behind_seconds")), (3.0, 0.0))?;
        same(metrics.sum("firth_control_convergence_seconds_count") >= 1.0, true)?;
        same(metrics.sum("firth_control_convergence_given_up"), 0.0)
    })
    .await;

    judge.refuses.insert(ROUTE.to_owned(), "expected another path".to_owned());
    site.folder.apply(&ingress("web", "a.test", &[("/", "one")]).annotated("proxy-read-timeout", "7"));
    let place = judge.state.lane(shared::kind::Lane::Config).seq;
    judge.until("the edit is there", |state| state.lane(shared::kind::Lane::Config).seq > place).await;
    let (refused, code) = status(server, &["--wait"]).await;
    assert_eq!((told(&refused), code), (("refused", 2, 3), 4), "{refused}");
    let one = &refused["refused"][0];
    assert_eq!((&one["id"], &one["node"]), (&"judge-0123456789abcdef".into(), &"node-of-the-tests".into()));
    assert_eq!(one["refused"][0]["key"], ROUTE);
    assert_eq!(one["refused"][0]["reason"], "expected another path");
    let metrics = site.control.metrics().await;
    assert_eq!(metrics.sum_where("firth_proxy_refusals", "code", "invalid"), 1.0);
    assert_eq!(metrics.sum_where("firth_proxy_version_info", "node", "node-of-the-tests"), 1.0);
    let text = firth(server, &["status", "ingress", "default/web"]).await;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("programmed on 2 of 3 proxies"), "{text}");
    assert!(
        text.contains("node-of-the-tests (judge-0123456789abcdef)\n    route ingress/default/web/a.test: "),
        "{text}"
    );

    // A goodbye is noticed, and a proxy that said it is not waited for.
    other.terminate().await;
    eventually("it is not counted", || async { same(told(&status(server, &[]).await.0), ("refused", 1, 2)) })
        .await;

    // It takes back what it refuses, and the next edit is everywhere.
    judge.refuses.clear();
    let follow = async {
        judge
            .until("the next edit is there", |state| state.lane(shared::kind::Lane::Config).seq > place + 1)
            .await;
    };
    site.folder.apply(&ingress("web", "a.test", &[("/", "one")]).annotated("proxy-read-timeout", "8"));
    let (_, (mended, code)) = tokio::join!(follow, status(server, &["--wait", "--timeout=20s"]));
    assert_eq!((told(&mended), code), (("programmed", 2, 2), 0), "{mended}");
}

#[tokio::test]
async fn one_that_is_stopped_is_behind_then_silent_and_never_one_of_all() {
    let site = site().await;
    let server = site.control.listen();
    let origin = site.origin("one").await;
    site.route("web", "a.test", &origin).await;
    let mut frozen = DataPlane::start(server).await;
    frozen.serves("a.test", "/", "one").await;
    frozen.process().signal(Signal::Stop);
    site.folder.apply(&ingress("web", "a.test", &[("/", "one"), ("/x", "one")]));
    site.proxy.serves("a.test", "/x", "one").await;
    let stopped = Instant::now();
    // It is waited to the end; and a busy machine takes its time until `firth` has an answer at all.
    let (behind, code) = status(server, &["--wait", "--timeout=8s"]).await;
    assert_eq!((told(&behind), code), (("behind", 1, 2), 3), "{behind}");
    assert!(behind["behind"][0]["behind_seconds"].as_f64().unwrap() >= 1.0, "{behind}");
    let metrics = site.control.metrics().await;
    assert!(metrics.sum("firth_control_behind_seconds") >= 1.0, "{metrics:?}");
    assert_eq!(metrics.sum_where("firth_control_proxies", "state", "behind"), 1.0);

    // It is given up 30 s after it was sent something.
    let mut said = behind;
    while told(&said).0 != "silent" {
        assert!(stopped.elapsed() < 4 * PATIENCE, "{said}");
        assert_eq!(told(&said), ("behind", 1, 2), "never all: {said}");
        tokio::time::sleep(Duration::from_millis(200)).await;
        said = status(server, &[]).await.0;
    }
    assert_eq!(told(&said), ("silent", 1, 2), "{said}");
    let proxies = firth(server, &["proxies"]).await;
    let proxies = String::from_utf8_lossy(&proxies.stdout).into_owned();
    assert!(proxies.contains("SILENT for "), "{proxies}");

    // The edit has converged when it has arrived there too, or has not within a minute.
    let converged = async || {
        let metrics = site.control.metrics().await;
        (
            metrics.sum("firth_control_convergence_seconds_sum"),
            metrics.sum("firth_control_convergence_given_up"),
        )
    };
    let (before, _) = converged().await;
    let stood = stopped.elapsed().as_secs_f64();
    frozen.process().signal(Signal::Cont);
    let (back, code) = status(server, &["--wait", "--timeout=30s"]).await;
    assert_eq!((told(&back), code), (("programmed", 2, 2), 0), "{back}");
    eventually("how long that took is counted", || async {
        let (sum, given_up) = converged().await;
        if sum >= before + stood || given_up == 1.0 { Ok(()) } else { Err((before, stood, sum, given_up)) }
    })
    .await;
    assert_eq!(site.control.metrics().await.sum("firth_control_behind_seconds"), 0.0);
}

#[tokio::test]
async fn what_is_not_served_is_on_no_proxy_and_nobody_heard_is_unknown() {
    let mut site = site().await;
    let server = site.control.listen();
    let origin = site.origin("one").await;
    site.route("web", "a.test", &origin).await;
    site.folder.apply(&ingress("web", "a.test", &[("/etc/nginx", "one")]));
    eventually("it is rejected", || async {
        let (said, code) = status(server, &[]).await;
        if (told(&said), code) == (("rejected", 0, 1), 4) { Ok(()) } else { Err(said) }
    })
    .await;
    let (said, _) = status(server, &[]).await;
    assert_eq!(said["problems"][0]["field"], "spec.rules[0].http.paths[0].path", "{said}");
    site.folder.apply(&ingress("web", "a.test", &[("/", "one")]));
    assert_eq!(status(server, &["--wait"]).await.1, 0);
    let missing = firth(server, &["status", "ingress", "default/other"]).await;
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("Ingress default/other is not served here"));
    let unheard = firth(test_kit::ports::free(), &["status", "ingress", "default/web"]).await;
    assert_eq!(unheard.status.code(), Some(2), "nothing is known of it: {unheard:?}");
    site.proxy.terminate().await;
    let (nobody, code) = status(server, &[]).await;
    assert_eq!((told(&nobody), code), (("unknown", 0, 0), 3), "{nobody}");
}
