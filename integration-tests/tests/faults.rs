//! On a real API server: invalid objects affect no others, and failures lose nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use integration_tests::cluster::{Authorization, Cluster};
use integration_tests::faults::Relay;
use integration_tests::grpc::Inspect;
use integration_tests::objects::{self, Edit};
use integration_tests::subscriber::{State, Subscriber};
use integration_tests::{
    ClusterSite, ControlPlane, DataPlane, FolderSite, Ledger, Question, Source, Traffic, eventually,
};
use serde_json::{Value, json};
use shared::kind::Lane;
use test_kit::certificates;

/// An Ingress that the API server accepts and ingress-nginx rejects (its deep inspection).
fn refused(good: Value) -> Value {
    good.with("/spec/rules/0/http/paths/0/path", json!("/etc/passwd"))
}

/// An object in etcd that no current API server would accept.
fn undecodable(good: Value) -> Value {
    good.with("/spec/rules/0/http/paths/0/pathType", json!("FromTheFuture"))
        .with("/metadata/uid", json!("00000000-0000-0000-0000-00000000000f"))
        .with("/metadata/creationTimestamp", json!("2020-01-01T00:00:00Z"))
}

async fn rejected(inspect: &Inspect, object: &str) {
    eventually(&format!("{object} is reported as rejected"), || async {
        let problems = inspect.problems().await.map_err(|status| status.to_string())?;
        let found = problems.iter().any(|it| it.object == object && it.severity == "rejected");
        if found { Ok(()) } else { Err(format!("{problems:?}")) }
    })
    .await;
}

#[tokio::test]
async fn an_undecodable_ingress_harms_no_neighbour() {
    let cluster = Cluster::shared().await;
    let site = ClusterSite::shared("undecodable").await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", "a.test", &one).await;

    let broken = undecodable(site.ingress("broken", "broken.test", &[("/", "one")]));
    let ledger = Ledger::new();
    [&one, &two].iter().for_each(|origin| ledger.endpoints(origin.name(), &[origin.name()]));
    ledger.routes("a.test", "one");
    let traffic = Traffic::start_on(ledger, site.proxy.http(), 1, &[Question::moving("a.test", "/")]);
    cluster.put_into_etcd("/registry/ingress/undecodable/broken", &broken).await;
    rejected(&site.control.inspect().await, "Ingress undecodable/broken").await;
    site.proxy.answers("broken.test", "/", 404).await;

    // The watch lives: the neighbour is still served, and its changes arrive.
    traffic.ledger().routes("a.test", "two");
    site.route("web", "a.test", &two).await;
    traffic.shows("a.test").await;
    traffic.goes_on("nobody is sent to the one before", 50).await;
    traffic.stop().await.assert_clean();
    // Nor does it prevent a control plane from starting.
    let fresh = ControlPlane::start(&Source::namespace(cluster, "undecodable")).await;
    let proxy = DataPlane::start(fresh.listen()).await;
    proxy.serves("a.test", "/", "two").await;
}

#[tokio::test]
async fn a_good_ingress_made_bad_keeps_its_last_good_version() {
    let mut site = ClusterSite::shared("made-bad").await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", "a.test", &one).await;
    site.route("neighbour", "b.test", &two).await;

    // From here to the good version nothing else may be visible, including during the restart.
    let traffic = Traffic::start(site.proxy.http(), 2, &[Question::new("a.test", "/", &["one"])]);
    let bad = refused(site.ingress("web", "a.test", &[("/", "two")]));
    site.api.apply(&bad).await;
    rejected(&site.control.inspect().await, "Ingress made-bad/web").await;
    site.proxy.serves("a.test", "/", "one").await;
    site.route("neighbour", "b.test", &one).await;
    site.proxy.serves("a.test", "/", "one").await;

    // The hold is stored where another process finds it: in a Secret or ConfigMap of our namespace.
    let holds = "/api/v1/namespaces/made-bad/configmaps?labelSelector=firth.dev%2Fdecision";
    eventually("the hold is on record", || async {
        let held = site.api.list(holds).await.map_err(|error| error.to_string())?;
        if held.len() == 1 { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
    site.control.restart().await;
    site.control.inspect().await.in_sync(1).await;
    site.proxy.serves("a.test", "/", "one").await;
    let fresh = DataPlane::start(site.control.listen()).await;
    fresh.serves("a.test", "/", "one").await;

    traffic.goes_on("requests go on under the hold", 100).await;
    traffic.stop().await.assert_clean();
    // A good version ends the hold.
    site.route("web", "a.test", &two).await;
    eventually("the hold is erased", || async {
        let held = site.api.list(holds).await.map_err(|error| error.to_string())?;
        if held.is_empty() { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
}

#[tokio::test]
async fn an_object_that_is_deleted_while_held_is_gone() {
    let site = ClusterSite::shared("held-deleted").await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let bad = refused(site.ingress("web", "a.test", &[("/", "one")]));
    site.api.apply(&bad).await;
    rejected(&site.control.inspect().await, "Ingress held-deleted/web").await;
    site.api.delete(&bad).await;
    site.proxy.answers("a.test", "/", 404).await;
    // Created again with faults, it is another object: the hold does not apply to it.
    site.api.apply(&bad).await;
    rejected(&site.control.inspect().await, "Ingress held-deleted/web").await;
    site.proxy.answers("a.test", "/", 404).await;
}

#[tokio::test]
async fn a_dead_api_server_loses_nothing() {
    let mut cluster = Cluster::start(Authorization::AlwaysAllow).await;
    let site = ClusterSite::start(&cluster, "restart").await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", "a.test", &one).await;
    site.route("other", "b.test", &one).await;
    let before = site.control.inspect().await.in_sync(1).await;
    let traffic = Traffic::start(site.proxy.http(), 2, &[Question::new("a.test", "/", &["one"])]);

    for _ in 0..2 {
        cluster.kill_apiserver();
        traffic.goes_on("requests go on without an API server", 100).await;
        cluster.restart_apiserver().await;
    }
    traffic.stop().await.assert_clean();
    assert_eq!(site.control.inspect().await.in_sync(1).await, before, "nothing has changed");

    // And its watches live on.
    let api = cluster.api().await;
    api.apply(&site.ingress("web", "a.test", &[("/", "two")])).await;
    site.proxy.serves("a.test", "/", two.name()).await;
    api.delete(&site.ingress("other", "b.test", &[])).await;
    site.proxy.answers("b.test", "/", 404).await;
}

#[tokio::test]
async fn what_happens_while_the_watch_is_cut_arrives() {
    let cluster = Cluster::shared().await;
    let relay = Relay::start(([127, 0, 0, 1], cluster.port()).into()).await;
    let by = relay.address().port();
    let site = ClusterSite::start_by(cluster, "cut", by).await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    for (name, host) in [("stays", "a.test"), ("changes", "b.test"), ("goes", "c.test")] {
        site.api.apply(&site.ingress(name, host, &[("/", one.name())])).await;
        site.proxy.serves(host, "/", "one").await;
    }
    for round in 0..3 {
        relay.refuse(true);
        relay.cut();
        let (from, to) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        site.api.apply(&site.ingress("changes", "b.test", &[("/", to.name())])).await;
        site.api.delete(&site.ingress("goes", "c.test", &[])).await;
        let new = site.ingress(&format!("comes-{round}"), &format!("new-{round}.test"), &[("/", to.name())]);
        site.api.apply(&new).await;
        site.proxy.serves("a.test", "/", "one").await;
        site.proxy.serves("b.test", "/", from.name()).await;
        relay.refuse(false);
        site.proxy.serves("b.test", "/", to.name()).await;
        site.proxy.serves(&format!("new-{round}.test"), "/", to.name()).await;
        site.proxy.answers("c.test", "/", 404).await;
        site.api.apply(&site.ingress("goes", "c.test", &[("/", one.name())])).await;
        site.proxy.serves("c.test", "/", "one").await;
    }
}

#[tokio::test]
async fn two_control_planes_have_the_same_roots_and_bytes() {
    let cluster = Cluster::shared().await;
    let site = ClusterSite::shared("two-planes").await;
    let one = site.origin("one").await;
    let (certificate, key) = certificates::self_signed(&["a.test"]);
    site.api.apply(&objects::tls_secret("two-planes", "cert", &certificate, &key)).await;
    let tls = json!([{"hosts": ["a.test"], "secretName": "cert"}]);
    site.api.apply(&site.ingress("web", "a.test", &[("/", "one")]).with("/spec/tls", tls)).await;
    // A history that only the first one has seen.
    for number in 0..20 {
        let name = format!("passing-{}", number % 5);
        let canary = number % 3 == 0;
        let passing = site.ingress(&name, &format!("h{}.test", number % 7), &[("/", "one"), ("/x", "two")]);
        let passing = if canary { passing.annotated("canary", "true") } else { passing };
        site.api.apply(&passing).await;
        if number % 4 == 3 {
            site.api.delete(&passing).await;
        }
    }
    site.route("last", "last.test", &one).await;
    let second = ControlPlane::start(&Source::namespace(cluster, "two-planes")).await;

    let expected = site.control.inspect().await.in_sync(1).await;
    let newest = second.inspect().await.proxies().await.unwrap().version;
    assert_eq!(newest, expected, "the CONFIG roots of the same cluster");
    let mut contents = Vec::new();
    for address in [site.control.listen(), second.listen()] {
        let mut subscriber = Subscriber::connect(address, State::new("judge")).await;
        subscriber.until_idle().await;
        contents.push(Lane::ALL.map(|lane| (subscriber.state.root(lane), subscriber.state.contents(lane))));
    }
    assert_eq!(contents[0], contents[1]);
    assert!(contents[0].iter().all(|(_, resources)| !resources.is_empty()));

    // Both see later changes, and stay equal; a proxy may move between them without being sent more.
    site.route("last", "moved.test", &one).await;
    let mut subscriber = Subscriber::connect(site.control.listen(), State::new("judge")).await;
    subscriber.until_idle().await;
    let state = subscriber.state.clone();
    drop(subscriber);
    eventually("the second one has caught up", || async {
        let (first, second) = (site.control.inspect().await, second.inspect().await);
        let (first, second) = (first.proxies().await.unwrap(), second.proxies().await.unwrap());
        if first.version == second.version { Ok(()) } else { Err((first.version, second.version)) }
    })
    .await;
    let mut elsewhere = Subscriber::connect(second.listen(), state).await;
    elsewhere.until_idle().await;
    assert_eq!(elsewhere.received, [], "equal roots: nothing is sent");
}

/// A proxy without a goodbye counts as one that may still serve: the status of Ingresses stays for its sake.
#[tokio::test]
async fn a_proxy_that_ends_while_it_connects_says_goodbye_all_the_same() {
    let folder = FolderSite::folder(&[]);
    let control = ControlPlane::start(&Source::folder(&folder)).await;
    let relay = Relay::start(control.listen()).await;
    relay.delay(Duration::from_millis(200));
    let mut proxy = DataPlane::spawn(relay.address(), &["--drain-grace", "0"]);
    eventually("it is connected, and does not know yet", || async {
        if control.log().contains("proxy connected") { Ok(()) } else { Err(control.log()) }
    })
    .await;
    assert!(proxy.terminate().await.success());
    eventually("its goodbye arrives", || async {
        if control.log().contains("proxy says goodbye") { Ok(()) } else { Err(control.log()) }
    })
    .await;
}
