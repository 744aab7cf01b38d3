//! Lists and watches against API servers with other behaviour: without WatchList, with a compacted history.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use integration_tests::cluster::{Authorization, Cluster};
use integration_tests::faults::Relay;
use integration_tests::objects;
use integration_tests::subscriber::{State, Subscriber};
use integration_tests::{ClusterSite, ControlPlane, Question, Source, Traffic, eventually_within};
use shared::kind::Lane;

/// More than 20 % and more than ten: if this many are absent from a list, a second list is needed.
const MANY: usize = 30;

#[tokio::test]
async fn a_server_without_watch_list_is_read_by_plain_lists() {
    let without = ["--feature-gates=WatchList=false"];
    let cluster = Cluster::start_with(Authorization::AlwaysAllow, &without).await;
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig(), namespace: None };
    let api = cluster.api().await;
    // More than one page of a list.
    api.apply(&objects::namespace("many")).await;
    for number in 0..520 {
        api.apply(&objects::service("many", &format!("s{number}"))).await;
    }
    let site = ClusterSite::start_with(&cluster, "plain", &source, &[]).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    // The last of them by name, which is on the last page.
    api.apply(&objects::slice("many", "s99", "1", &[one.address()])).await;
    api.apply(&objects::ingress("many", "web", "many.test", &[("/", "s99")])).await;
    site.proxy.serves("many.test", "/", "one").await;
    api.delete(&objects::ingress("many", "web", "many.test", &[])).await;
    site.proxy.answers("many.test", "/", 404).await;
}

#[tokio::test]
async fn a_lost_history_is_listed_again() {
    let mut cluster = Cluster::start(Authorization::AlwaysAllow).await;
    let relay = Relay::start(([127, 0, 0, 1], cluster.port()).into()).await;
    let site = ClusterSite::start_by(&cluster, "lost", relay.address().port()).await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    let doomed = |number: usize| {
        site.ingress(&format!("doomed-{number}"), &format!("d{number}.test"), &[("/", "one")])
    };
    for number in 0..MANY {
        site.api.apply(&doomed(number)).await;
    }
    site.route("web", "a.test", &one).await;
    site.route("single", "single.test", &one).await;
    site.proxy.serves("d0.test", "/", "one").await;

    relay.refuse(true);
    relay.cut();
    for number in 0..MANY {
        site.api.delete(&doomed(number)).await;
    }
    site.api.delete(&site.ingress("single", "single.test", &[])).await;
    site.api.apply(&site.ingress("web", "a.test", &[("/", two.name())])).await;
    cluster.kill_apiserver();
    cluster.forget_history().await;
    cluster.restart_apiserver().await;
    relay.refuse(false);

    // The change arrives with the new list, at once; so many removals need a second list.
    site.proxy.serves("a.test", "/", "two").await;
    let begun = Instant::now();
    site.proxy.serves("d0.test", "/", "one").await;
    site.proxy.answers("d0.test", "/", 404).await;
    assert!(begun.elapsed() > Duration::from_secs(4), "the second list is five seconds after the first");
    site.proxy.answers("single.test", "/", 404).await;
    site.control.logs("second").await;

    is_as_fresh(&site, &Source::namespace(&cluster, "lost")).await;
}

/// The state is that of a control plane that starts now.
async fn is_as_fresh(site: &ClusterSite, source: &Source) {
    let fresh = ControlPlane::start(source).await;
    let mut contents = Vec::new();
    for address in [site.control.listen(), fresh.listen()] {
        let mut subscriber = Subscriber::connect(address, State::new("judge")).await;
        subscriber.until_idle().await;
        contents.push(Lane::ALL.map(|lane| subscriber.state.contents(lane)));
    }
    assert_eq!(contents[0], contents[1]);
}

/// Revisions go back, and the list is older than what is known: it is the truth, not a stale list.
#[tokio::test]
async fn a_store_that_was_put_back_is_believed() {
    /// A watch that is neither rejected nor sent anything notices that by a probe for the newest revision, once a
    /// minute.
    const FOUND_OUT: Duration = Duration::from_secs(200);
    let mut cluster = Cluster::start(Authorization::AlwaysAllow).await;
    let relay = Relay::start(([127, 0, 0, 1], cluster.port()).into()).await;
    let site = ClusterSite::start_by(&cluster, "restored", relay.address().port()).await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    for (name, host) in [("changes", "changes.test"), ("goes", "goes.test"), ("stays", "stays.test")] {
        site.route(name, host, &one).await;
    }
    cluster.back_up().await;
    let traffic = Traffic::start(site.proxy.http(), 1, &[Question::new("stays.test", "/", &["one"])]);

    // What the backup knows nothing of, and revisions enough that no restart gives so many.
    let changed = site.ingress("changes", "changes.test", &[("/", two.name())]);
    integration_tests::eventually("the API server has found its store again", || async {
        site.api.try_apply(&changed).await.map_err(|error| error.to_string())
    })
    .await;
    site.proxy.serves("changes.test", "/", "two").await;
    site.api.delete(&site.ingress("goes", "goes.test", &[])).await;
    site.proxy.answers("goes.test", "/", 404).await;
    site.route("comes", "comes.test", &one).await;
    for number in 0..300 {
        let noise =
            objects::config_map("restored", "noise", serde_json::json!({"number": number.to_string()}));
        site.api.apply(&noise).await;
    }
    relay.refuse(true);
    relay.cut();
    cluster.restore().await;
    relay.refuse(false);

    eventually_within(FOUND_OUT, "it says that revisions went back", || async {
        let log = site.control.log();
        if log.contains("went back from") { Ok(()) } else { Err(log) }
    })
    .await;
    site.proxy.serves("changes.test", "/", "one").await;
    site.proxy.serves("goes.test", "/", "one").await;
    site.proxy.answers("comes.test", "/", 404).await;
    traffic.stop().await.assert_clean();

    // Changes under revisions that were given before arrive.
    let api = cluster.api().await;
    api.apply(&changed).await;
    site.proxy.serves("changes.test", "/", "two").await;
    api.delete(&site.ingress("goes", "goes.test", &[])).await;
    site.proxy.answers("goes.test", "/", 404).await;
    is_as_fresh(&site, &Source::namespace(&cluster, "restored")).await;
}
