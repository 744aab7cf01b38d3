//! Versions that are stored, compared, rolled back to and pinned: on real planes, and on a real API server with two
//! replicas.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use integration_tests::cluster::Cluster;
use integration_tests::grpc::Inspect;
use integration_tests::grpcurl::Grpcurl;
use integration_tests::objects::Edit;
use integration_tests::plane::binary;
use integration_tests::site::ingress;
use integration_tests::subscriber::{State, Subscriber};
use integration_tests::{ClusterSite, ControlPlane, FolderSite, Source, eventually};
use serde_json::{Value, json};
use shared::entry::Entry;
use shared::kind::{Lane, ResourceKey};
use test_kit::certificates;
use tonic::Code;

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn firth(server: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary("firth"));
    command.args(arguments).args(["--server", &format!("http://{server}")]);
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

async fn said(server: SocketAddr, arguments: &[&str]) -> String {
    let output = firth(server, arguments).await;
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a newly connected proxy gets from a control plane.
async fn contents(control: &ControlPlane) -> [BTreeMap<ResourceKey, Arc<Entry>>; 2] {
    let mut subscriber = Subscriber::connect(control.listen(), State::new("judge")).await;
    subscriber.until_idle().await;
    Lane::ALL.map(|lane| subscriber.state.contents(lane))
}

async fn pinned(inspect: &Inspect, version: Option<&str>) {
    eventually(&format!("{version:?} is pinned"), || async {
        let answer = inspect.proxies().await.map_err(|status| status.to_string())?;
        let there = answer.pin.as_ref().map(|pin| pin.version.clone());
        if there.as_deref() == version { Ok(()) } else { Err(format!("{:?}", answer.pin)) }
    })
    .await;
}

#[tokio::test]
async fn an_operator_goes_back_and_releases_again() {
    let mut site = FolderSite::start_with(&[], &["--state-dir", "state"], &[]).await;
    let server = site.control.listen();
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", "a.test", &one).await;
    let good = site.control.inspect().await.in_sync(1).await;
    site.folder.apply(&ingress("web", "a.test", &[("/", "two")]).annotated("ssl-redirect", "false"));
    site.proxy.serves("a.test", "/", "two").await;
    let bad = site.control.inspect().await.in_sync(1).await;

    let diff = said(server, &["diff"]).await;
    assert!(
        diff.contains("ssl-redirect") && diff.contains("a.test") && diff.contains("Ingress default/web"),
        "{diff}"
    );
    let old = said(server, &["get", "route", "ingress/default/web/a.test", "--at", &good[..8]]).await;
    assert!(old.contains("default/one/80") && !old.contains("ssl_redirect"), "{old}");

    let told = said(server, &["rollback", &good, "--note", "two is broken"]).await;
    assert!(told.contains(&format!("PINNED at {good}")) && told.contains("two is broken"), "{told}");
    site.proxy.serves("a.test", "/", "one").await;
    // New objects are compiled, shown and not released; endpoints keep changing.
    site.folder.apply(&ingress("new", "b.test", &[("/", "one")]));
    eventually("what is held back is listed", || async {
        let history = said(server, &["history"]).await;
        if history.contains("held back") && history.contains("default/new") { Ok(()) } else { Err(history) }
    })
    .await;
    site.proxy.answers("b.test", "/", 404).await;
    site.folder.apply(&integration_tests::site::slice("one", &[two.address()]));
    site.proxy.serves("a.test", "/", "two").await;
    site.folder.apply(&integration_tests::site::slice("one", &[one.address()]));
    site.proxy.serves("a.test", "/", "one").await;
    for (question, what) in [("proxies", "PINNED at"), ("history", "PINNED at"), ("problems", "not released")]
    {
        let answer = said(server, &[question]).await;
        assert!(answer.contains(what), "{question}: {answer}");
    }
    let metrics = site.control.metrics().await;
    assert_eq!(metrics.sum("firth_control_pinned").to_bits(), 1_f64.to_bits());
    assert!(metrics.sum("firth_control_unreleased_resources") > 0.0);
    site.control.logs("rollback to").await;

    site.control.restart().await;
    let inspect = site.control.inspect().await;
    assert_eq!(inspect.in_sync(1).await, good, "the decision outlives the process");
    site.proxy.serves("a.test", "/", "one").await;
    site.proxy.answers("b.test", "/", 404).await;

    let release = said(server, &["diff"]).await;
    assert!(release.contains("b.test"), "{release}");
    let told = said(server, &["unpin"]).await;
    assert!(told.contains("unpinned"), "{told}");
    site.proxy.serves("a.test", "/", "two").await;
    site.proxy.serves("b.test", "/", "one").await;
    let history = inspect.history().await.unwrap();
    assert!(history[0].cause.starts_with("unpin") && !history[0].held_back, "{history:?}");
    assert_ne!(inspect.in_sync(1).await, bad);
}

#[tokio::test]
async fn a_pin_ends_by_itself_and_nonsense_is_refused() {
    let site = FolderSite::start(&[]).await;
    let server = site.control.listen();
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let inspect = site.control.inspect().await;
    let version = inspect.in_sync(1).await;
    let answer = Grpcurl::new(server)
        .call("firth.inspect.v1.Inspect/Pin", &json!({"lasts": "3s", "note": "why"}))
        .await;
    assert_eq!(answer["pin"]["version"], version, "{answer}");
    site.folder.apply(&ingress("new", "b.test", &[("/", "one")]));
    site.proxy.answers("b.test", "/", 404).await;
    site.proxy.serves("b.test", "/", "one").await;
    pinned(&inspect, None).await;

    for (arguments, complaint) in [
        (&["rollback", "0123456789ab"][..], version.as_str()),
        (&["rollback", "zz"], "hex digits"),
        (&["pin", "--for", "0s"], "1s to 366d"),
    ] {
        let output = firth(server, arguments).await;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.contains(complaint), "{arguments:?}: {words}");
    }
    let output = firth(server, &["unpin"]).await;
    assert!(output.status.success(), "nothing is pinned, as was asked for");
}

#[tokio::test]
async fn two_replicas_offer_the_same_bytes_whatever_they_remember() {
    let cluster = Cluster::shared().await;
    let site = ClusterSite::start(cluster, "history").await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    let (certificate, key) = certificates::self_signed(&["a.test"]);
    site.api.apply(&integration_tests::objects::tls_secret("history", "cert", &certificate, &key)).await;
    let tls = json!([{"hosts": ["a.test"], "secretName": "cert"}]);
    let web = site.ingress("web", "a.test", &[("/", "one")]).annotated("ssl-redirect", "false");
    site.api.apply(&web.with("/spec/tls", tls)).await;
    site.proxy.serves("a.test", "/", "one").await;
    let inspect = site.control.inspect().await;
    let good = inspect.in_sync(1).await;
    // Its certificate may have been read after it was heard of; nobody wrote that.
    let history = inspect.history().await.unwrap();
    assert_eq!((&*history[0].version, &*history[0].object), (&*good, "Ingress history/web"), "{history:?}");

    // Nothing that the old version needs is referenced any more.
    site.api.apply(&site.ingress("web", "a.test", &[("/", "two")])).await;
    site.proxy.serves("a.test", "/", "two").await;
    let history = inspect.history().await.unwrap();
    let entry = &history[0];
    assert_eq!(entry.object, "Ingress history/web", "{history:?}");
    assert!(!entry.resource_version.is_empty(), "{entry:?}");
    // Of two edits within a second, as these may have been, nobody knows who made the second.
    assert!(history.iter().any(|it| !it.manager.is_empty()), "{history:?}");
    let mut second = ControlPlane::start(&Source::namespace(cluster, "history")).await;
    let other = second.inspect().await;

    inspect.rollback(&good, DAY, false).await.unwrap();
    site.proxy.serves("a.test", "/", "one").await;
    pinned(&other, Some(&good)).await;
    site.api.apply(&site.ingress("new", "b.test", &[("/", "two")])).await;
    eventually("both have compiled it", || async {
        for inspect in [&inspect, &other] {
            let history = inspect.history().await.map_err(|status| status.to_string())?;
            let newest = history.first().map(|entry| entry.cause.clone()).unwrap_or_default();
            if !newest.contains("history/new") {
                return Err(newest);
            }
        }
        Ok(())
    })
    .await;
    let first = contents(&site.control).await;
    let offered: Vec<String> = first.iter().flat_map(|lane| lane.keys().map(ToString::to_string)).collect();
    for needed in ["endpoints history/one-1", "certificate history/cert"] {
        assert!(offered.contains(&needed.to_owned()), "LIVE has what the pinned version needs: {offered:?}");
    }
    assert!(!offered.iter().any(|key| key.contains("b.test")), "{offered:?}");
    assert_eq!(first, contents(&second).await, "bit by bit");
    second.restart().await;
    let other = second.inspect().await;
    pinned(&other, Some(&good)).await;
    assert_eq!(first, contents(&second).await, "one that starts now never had that version");

    // A part of the stored pin is lost: replicas that have the pin write it again, and a new one reads it.
    let parts = site.api.list("/api/v1/namespaces/history/secrets").await.unwrap();
    let name = |secret: &Value| secret["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let part = parts.iter().map(name).find(|name| name.starts_with("firth-pin-")).unwrap();
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "history", "name": name}});
    site.api.delete(&secret(&part)).await;
    eventually("the record is written again", || async {
        let secrets =
            site.api.list("/api/v1/namespaces/history/secrets").await.map_err(|it| it.to_string())?;
        let names: Vec<_> = secrets.iter().map(name).filter(|name| name.starts_with("firth-pin-")).collect();
        if !names.is_empty() && !names.contains(&part) { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    second.restart().await;
    let other = second.inspect().await;
    pinned(&other, Some(&good)).await;
    assert_eq!(first, contents(&second).await);
    site.proxy.serves("a.test", "/", "one").await;

    // It has the versions that it offers and compiled since its start, and lists them.
    let status = other.rollback("0123456789ab", DAY, true).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains(&good), "{}", status.message());

    other.unpin().await.unwrap();
    site.proxy.serves("a.test", "/", "two").await;
    site.proxy.serves("b.test", "/", "two").await;
    pinned(&inspect, None).await;
    let left = contents(&site.control).await;
    assert_eq!(left, contents(&second).await);
    let left: Vec<String> = left.iter().flat_map(|lane| lane.keys().map(ToString::to_string)).collect();
    assert!(!left.contains(&"endpoints history/one-1".to_owned()), "nothing is left behind: {left:?}");
    drop((one, two));
}

#[tokio::test]
async fn of_two_operators_at_two_replicas_one_wins_and_deleting_the_record_unpins() {
    let cluster = Cluster::shared().await;
    let site = ClusterSite::start(cluster, "operators").await;
    let one = site.origin("one").await;
    let second = ControlPlane::start(&Source::namespace(cluster, "operators")).await;
    let (left, right) = (site.control.inspect().await, second.inspect().await);
    site.route("first", "a.test", &one).await;
    let a = left.in_sync(1).await;
    site.route("second", "b.test", &one).await;
    let b = left.in_sync(1).await;
    eventually("both replicas remember both", || async {
        let history = right.history().await.map_err(|status| status.to_string())?;
        let has = |version: &String| history.iter().any(|entry| entry.version == *version);
        if has(&a) && has(&b) { Ok(()) } else { Err(format!("{history:?}")) }
    })
    .await;

    let (mine, yours) = tokio::join!(left.rollback(&a, DAY, false), right.rollback(&b, DAY, false));
    let (won, lost) = match (mine, yours) {
        (Ok(()), Err(status)) => (a.clone(), status),
        (Err(status), Ok(())) => (b.clone(), status),
        both => panic!("expected one of them to win, got {both:?}"),
    };
    assert!(matches!(lost.code(), Code::Aborted | Code::FailedPrecondition), "{lost:?}");
    for inspect in [&left, &right] {
        pinned(inspect, Some(&won)).await;
    }
    let loser = if won == a { &b } else { &a };
    assert_eq!(right.rollback(loser, DAY, false).await.unwrap_err().code(), Code::FailedPrecondition);
    right.rollback(loser, DAY, true).await.unwrap();
    pinned(&left, Some(loser)).await;

    // The last resort.
    let record = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "operators", "name": "firth-pin"}});
    site.api.delete(&record).await;
    for inspect in [&left, &right] {
        pinned(inspect, None).await;
    }
    site.proxy.serves("b.test", "/", "one").await;
}

/// As when a new pod starts next to the old one, with the same volume: the second process reports at once which one has
/// the lock, and leaves its files alone.
#[tokio::test]
async fn one_control_plane_keeps_a_state_folder() {
    let state = tempfile::tempdir().unwrap();
    let flags = ["--state-dir", state.path().to_str().unwrap()];
    let mut site = FolderSite::start_with(&[], &flags, &[]).await;
    let origin = site.origin("one").await;
    site.route("web", "a.test", &origin).await;
    let source = Source::folder(&site.folder);
    let mut second = ControlPlane::spawn(&source, &flags);
    let status = second.process().wait(Duration::from_secs(60)).await;
    let (log, first) = (second.log(), site.control.process().id());
    assert!(!status.success(), "{log}");
    let named = format!("another process keeps its state in {}: process {first}", state.path().display());
    assert!(log.contains("--state-dir") && log.contains(&named), "{log}");
    // A killed process leaves nothing behind that blocks the next one.
    let before = site.control.inspect().await.history().await.unwrap();
    site.control.restart().await;
    site.control.inspect().await.in_sync(1).await;
    let after = site.control.inspect().await.history().await.unwrap();
    assert_eq!(after.len(), before.len(), "{after:?}");
    site.control.kill();

    // Other manifests: their history is separate, and the previous one is not lost.
    let other = FolderSite::folder(&[ingress("web", "b.test", &[("/", "one")])]);
    let control = ControlPlane::start_with(&Source::folder(&other), &flags).await;
    let history = control.inspect().await.history().await.unwrap();
    assert_eq!(history.len(), 1, "{history:?}");
    eventually("the other folder's history is put aside", || async {
        state.path().join("history.foreign").is_file().then_some(()).ok_or("it is not there")
    })
    .await;
    control.logs("history.foreign").await;
}
