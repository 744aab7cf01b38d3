//! Rights that are taken away from running replicas, and given back, on a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use integration_tests::api::Api;
use integration_tests::faults::Relay;
use integration_tests::{
    ClusterSite, ControlPlane, DataPlane, Source, client, eventually_within, helm, ports,
};
use serde_json::{Value, json};

const HOST: &str = "a.test";
/// What was allowed is taken for forbidden after 30 s, and its watches are retried for some seconds before.
const BELIEVED: Duration = Duration::from_secs(90);
/// A replica asks the others each 5 s, and for what is forbidden each 3 s.
const SOON: Duration = Duration::from_secs(20);

/// The chart's roles for the cluster, without the right to some resources.
fn roles_without(resources: &[&str]) -> Vec<Value> {
    let mut roles = helm::rights(&[]);
    roles.retain(|it| it["kind"] == "ClusterRole");
    for role in &mut roles {
        let rules = role["rules"].as_array_mut().unwrap();
        for rule in rules.iter_mut() {
            let named = rule["resources"].as_array_mut().unwrap();
            named.retain(|it| !resources.iter().any(|resource| it == resource));
        }
        rules.retain(|rule| rule["resources"] != json!([]));
    }
    roles
}

async fn settings(api: &Api, data: Value) {
    let name = json!({"namespace": "ingress-nginx", "name": "ingress-nginx-controller"});
    api.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data})).await;
}

async fn says(plane: &ControlPlane, within: Duration, words: &str) {
    eventually_within(within, words, || async {
        let log = plane.log();
        if log.contains(words) { Ok(()) } else { Err(log) }
    })
    .await;
}

/// The watch of one replica ends, and that of the other one goes on.
#[tokio::test]
async fn no_proxy_gets_older_settings_where_one_replica_loses_a_right_before_the_other() {
    let (cluster, api) = helm::cluster(&[]).await;
    settings(&api, json!({})).await;
    let relay = Relay::start(([127, 0, 0, 1], cluster.port()).into()).await;
    let listen = [ports::free(), ports::free()].map(|address| address.to_string());
    let peers = listen.join(",");
    let flags =
        |at: usize| ["--pod-namespace", "firth", "--listen", &*listen[at], "--peers", &*peers, "--settle=0s"];
    let by_relay = cluster.kubeconfig_of_account_by(relay.address().port());
    let first = Source::Cluster { kubeconfig: by_relay, namespace: None };
    let site = ClusterSite::start_with(&cluster, "shop", &first, &flags(0)).await;
    let urls = listen.each_ref().map(|address| format!("http://{address}")).join(",");
    let proxy = DataPlane::start_with(site.control.listen(), &["--control-plane", &urls]).await;
    let one = site.origin("one").await;
    site.route("web", HOST, &one).await;
    proxy.serves(HOST, "/", "one").await;
    let direct = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let other = ControlPlane::start_with(&direct, &flags(1)).await;

    api.apply_all(&roles_without(&["configmaps"])).await;
    relay.cut();
    says(&site.control, BELIEVED, "reading this kind is forbidden now").await;
    settings(&api, json!({"denylist-source-range": "127.0.0.1/32"})).await;
    // The others know more at once: one that may still read is ahead whatever it has heard.
    says(&site.control, SOON, "another replica knows more of what may not be listed here").await;
    eventually_within(BELIEVED, "it has what the other one read", || async {
        match proxy.log().contains("moved to another replica") {
            true => Ok(()),
            false => Err(proxy.log()),
        }
    })
    .await;
    // The other one finds out that it may not list them either.
    says(&other, BELIEVED, "reading this kind is forbidden now").await;
    proxy.answers(HOST, "/", 403).await;
    // One that comes is not accepted by the first.
    let late = DataPlane::start_with(site.control.listen(), &["--control-plane", &urls]).await;
    late.answers(HOST, "/", 403).await;
    for plane in [&proxy, &late] {
        for _ in 0..20 {
            plane.answers(HOST, "/", 403).await;
        }
    }
    let replicas = other.inspect().await.proxies().await.unwrap().replicas;
    let said: Vec<_> = replicas.iter().map(|it| &*it.unread).collect();
    assert!(said.iter().any(|it| it.ends_with("what it knows of it stays in use")), "{said:?}");
    assert!(said.iter().any(|it| it.contains("sends its proxies to a replica")), "{said:?}");
    let metrics = other.metrics().await;
    assert!(metrics.sum_where("firth_control_source_forbidden", "kind", "ConfigMap") > 0.0);

    api.apply_all(&roles_without(&[])).await;
    says(&site.control, SOON, "may be read again").await;
    says(&site.control, SOON, "proxies are accepted").await;
    settings(&api, json!({})).await;
    proxy.serves(HOST, "/", "one").await;
    late.serves(HOST, "/", "one").await;
}

/// Decisions are in the namespace of the control plane, with a Role of their own.
#[tokio::test]
async fn decisions_that_may_not_be_read_stop_nothing_and_that_is_said() {
    let (cluster, api) = helm::cluster(&[]).await;
    let relay = Relay::start(([127, 0, 0, 1], cluster.port()).into()).await;
    let by_relay = cluster.kubeconfig_of_account_by(relay.address().port());
    let source = Source::Cluster { kubeconfig: by_relay, namespace: None };
    let site = ClusterSite::start_with(&cluster, "shop", &source, &["--pod-namespace", "firth"]).await;
    let one = site.origin("one").await;
    site.route("web", HOST, &one).await;

    let mut without = helm::rights(&[]);
    without.retain(|it| it["kind"] != "ServiceAccount" && it["kind"] != "RoleBinding");
    let is_decisions = |it: &Value| it["metadata"]["name"] == "firth-control-plane-decisions";
    let mut decisions = without.iter().find(|it| is_decisions(it)).unwrap().clone();
    for rule in decisions["rules"].as_array_mut().unwrap() {
        rule["resources"].as_array_mut().unwrap().retain(|it| it != "secrets" && it != "configmaps");
    }
    decisions["rules"].as_array_mut().unwrap().retain(|rule| rule["resources"] != json!([]));
    // Those of all namespaces include this one.
    api.apply_all(&roles_without(&["secrets"])).await;
    api.apply(&decisions).await;
    relay.cut();
    says(&site.control, BELIEVED, "stored decisions may not be read any more").await;
    let log = site.control.log();
    let right = "Grant get, list and watch of secrets in the namespace firth: secrets is forbidden: User \
                 \"system:serviceaccount:firth:firth-control-plane\" cannot list resource \"secrets\"";
    assert!(log.replace("\\\"", "\"").contains(right), "{log}");
    assert!(!log.contains("serves nothing before") && !log.contains("nothing is served without"), "{log}");
    site.route("more", "more.test", &one).await;
    site.proxy.serves("more.test", "/", "one").await;
    let ready = client::page(&site.control.admin(), "/readyz").await.unwrap();
    assert!(ready.status == 200 && ready.text().contains("secrets is forbidden"), "{}", ready.text());
}
