//! The status of Ingresses on a real API server: written by one of the replicas, only if it differs, and never by a
//! replica that may have lost the Lease.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use integration_tests::api::Api;
use integration_tests::cluster::{Authorization, Cluster};
use integration_tests::objects;
use integration_tests::process::Signal;
use integration_tests::{ClusterSite, ControlPlane, Source, eventually};
use serde_json::{Value, json};

/// For a quick takeover.
const QUICK: &[&str] = &["--election-ttl", "4s", "--status-update-interval", "1s"];

/// A Service of type LoadBalancer, without an address.
fn balancer(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": "edge"},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}]},
    })
}

/// What a cloud gives it.
async fn give(api: &Api, namespace: &str, entries: Value) {
    let path = format!("/api/v1/namespaces/{namespace}/services/edge/status");
    api.patch(&path, &json!({"status": {"loadBalancer": {"ingress": entries}}})).await;
}

async fn status(api: &Api, namespace: &str, name: &str) -> Value {
    let ingress = api.read(&objects::ingress(namespace, name, "any.test", &[])).await.expect("it is there");
    ingress["status"]["loadBalancer"]["ingress"].clone()
}

async fn becomes(api: &Api, namespace: &str, name: &str, expected: &Value) {
    eventually(&format!("{name} is to be reached at {expected}"), || async {
        let found = status(api, namespace, name).await;
        if found == *expected { Ok(()) } else { Err(found) }
    })
    .await;
}

/// A site whose control plane publishes that Service, with further flags.
async fn site(namespace: &str, further: &[&str]) -> ClusterSite {
    let cluster = Cluster::shared().await;
    let api = cluster.api().await;
    api.apply(&objects::namespace(namespace)).await;
    api.apply(&balancer(namespace)).await;
    let service = format!("--publish-service={namespace}/edge");
    let flags: Vec<&str> = [&[&service as &str], QUICK, further].concat();
    ClusterSite::start_with(cluster, namespace, &Source::namespace(cluster, namespace), &flags).await
}

/// Those who hold the Lease, and how often that changed.
async fn lease(api: &Api, namespace: &str) -> Value {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/firth-leader");
    serde_json::from_str(&api.text(&path).await.expect("a Lease")).unwrap()
}

async fn writes(control: &ControlPlane) -> bool {
    let metrics = control.metrics().await;
    metrics.sum("nginx_ingress_controller_leader_election_status") == 1.0
}

#[tokio::test]
async fn an_ingress_has_the_addresses_of_the_load_balancer_and_follows_them() {
    let name = "status-follows";
    let site = site(name, &[]).await;
    let origin = site.origin("one").await;
    let mut foreign = site.ingress("foreign", "b.test", &[("/", "one")]);
    foreign["spec"]["ingressClassName"] = "somebody-else".into();
    site.api.apply(&foreign).await;
    site.route("web", "a.test", &origin).await;
    give(&site.api, name, json!([{"ip": "192.0.2.7"}])).await;
    becomes(&site.api, name, "web", &json!([{"ip": "192.0.2.7"}])).await;
    // As AWS has them; more than one, in order.
    give(&site.api, name, json!([{"hostname": "lb.example.test"}, {"ip": "192.0.2.8"}])).await;
    let both = json!([{"hostname": "lb.example.test"}, {"ip": "192.0.2.8"}]);
    becomes(&site.api, name, "web", &both).await;
    site.route("api", "c.test", &origin).await;
    becomes(&site.api, name, "api", &both).await;
    assert_eq!(status(&site.api, name, "foreign").await, Value::Null, "somebody else's");

    // Neither an edit of the object nor repeated reading of the addresses causes a write.
    let read = || async { site.api.read(&site.ingress("web", "a.test", &[])).await.unwrap() };
    let before = read().await["metadata"]["resourceVersion"].clone();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(read().await["metadata"]["resourceVersion"], before, "nothing differs, so nothing is written");

    // A foreign change is corrected, once.
    let path = format!("/apis/networking.k8s.io/v1/namespaces/{name}/ingresses/web/status");
    let wrong = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.9"}]}}});
    site.api.patch(&path, &wrong).await;
    becomes(&site.api, name, "web", &both).await;

    // The Service is deleted: the known addresses stay.
    site.api.delete(&balancer(name)).await;
    site.control.logs("cannot be read").await;
    assert_eq!(status(&site.api, name, "web").await, both);
}

#[tokio::test]
async fn of_two_replicas_one_writes_and_the_other_takes_over() {
    let name = "status-replicas";
    let mut site = site(name, &[]).await;
    let origin = site.origin("one").await;
    site.route("web", "a.test", &origin).await;
    give(&site.api, name, json!([{"ip": "192.0.2.1"}])).await;
    becomes(&site.api, name, "web", &json!([{"ip": "192.0.2.1"}])).await;
    // The second one has other addresses, and does not write them while the first one leads.
    let source = Source::namespace(Cluster::shared().await, name);
    let said = [&["--publish-status-address=198.51.100.2"] as &[&str], QUICK].concat();
    let other = ControlPlane::start_with(&source, &said).await;
    let version = || async {
        site.api.read(&objects::ingress(name, "web", "a.test", &[])).await.unwrap()["metadata"]["resourceVersion"].clone()
    };
    let before = version().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(writes(&site.control).await && !writes(&other).await);
    assert_eq!(version().await, before, "they do not fight");

    // The first one is frozen for longer than its hold: the second takes over, and the first does not write outdated
    // addresses when it continues.
    site.control.process().signal(Signal::Stop);
    becomes(&site.api, name, "web", &json!([{"ip": "198.51.100.2"}])).await;
    site.control.process().signal(Signal::Cont);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(status(&site.api, name, "web").await, json!([{"ip": "198.51.100.2"}]));
    assert!(!writes(&site.control).await && writes(&other).await);
    let held = lease(&site.api, name).await;
    assert_eq!(held["spec"]["leaseTransitions"], 1, "{held}");

    // A replica that ends releases the Lease: the other need not wait for its expiry. A proxy keeps serving, so nothing
    // is cleared.
    let (mut other, begun) = (other, Instant::now());
    assert!(other.terminate().await.success());
    becomes(&site.api, name, "web", &json!([{"ip": "192.0.2.1"}])).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn at_the_end_it_is_emptied_where_all_proxies_said_goodbye() {
    let (name, kept) = ("status-end", json!([{"ip": "192.0.2.1"}]));
    let mut site = site(name, &["--settle", "1s"]).await;
    let origin = site.origin("one").await;
    site.route("web", "a.test", &origin).await;
    give(&site.api, name, kept.clone()).await;
    becomes(&site.api, name, "web", &kept).await;
    // The data plane outlives the control plane, and what leads to it stays.
    assert!(site.control.terminate().await.success());
    assert_eq!(status(&site.api, name, "web").await, kept);

    // Disconnected, as far as the control plane can tell: none of them ever connects.
    site.proxy.process().signal(Signal::Stop);
    site.control.resume().await;
    knows(&site.control).await;
    assert!(site.control.terminate().await.success());
    assert_eq!(status(&site.api, name, "web").await, kept);

    site.proxy.process().signal(Signal::Cont);
    site.control.resume().await;
    knows(&site.control).await;
    eventually("the proxy is back", || async {
        let there = site.control.log().matches("proxy connected").count();
        if there > 1 { Ok(()) } else { Err(there) }
    })
    .await;
    site.proxy.terminate().await;
    // Longer than others would have to come back.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(site.control.terminate().await.success());
    assert!(status(&site.api, name, "web").await.as_array().is_none_or(Vec::is_empty));
}

/// Waits until a control plane knows which addresses there are, and may write them.
async fn knows(control: &ControlPlane) {
    eventually("it writes again", || async {
        let said = control.log().matches("writing these addresses to the status of Ingresses").count();
        if writes(control).await && said > 0 { Ok(()) } else { Err(said) }
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_cannot_be_had_holds_up_nothing_else() {
    let cluster = Cluster::shared().await;
    let (name, api) = ("status-no-lease", cluster.api().await);
    api.apply(&objects::namespace(name)).await;
    let source = Source::namespace(cluster, name);
    // Nobody may look a Service up that is not there, and the Lease is of a name that no server takes.
    let flags = ["--publish-service=nowhere/edge", "--election-id=not..a-name"];
    let flags: Vec<&str> = [&flags as &[&str], QUICK].concat();
    let site = ClusterSite::start_with(cluster, name, &source, &flags).await;
    let origin = site.origin("one").await;
    site.route("web", "a.test", &origin).await;
    site.control.logs("cannot find out which replica writes").await;
    site.route("api", "b.test", &origin).await;
    assert_eq!(status(&api, name, "web").await, Value::Null);
}

#[tokio::test]
async fn where_a_status_may_not_be_written_it_is_said_once_and_all_else_goes_on() {
    let cluster = Cluster::start(Authorization::Rbac).await;
    let api = cluster.api().await;
    for namespace in ["firth", "ingress-nginx"] {
        api.apply(&objects::namespace(namespace)).await;
    }
    for mut right in integration_tests::helm::rights(&[]) {
        if let Some(rules) = right["rules"].as_array_mut() {
            rules.retain(|rule| rule["resources"] != json!(["ingresses/status"]));
        }
        api.apply(&right).await;
    }
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let flags = ["--pod-namespace", "firth", "--publish-status-address=192.0.2.1"];
    let site = ClusterSite::start_with(&cluster, "shop", &source, &flags).await;
    let origin = site.origin("one").await;
    for at in 0..5 {
        site.route(&format!("web{at}"), &format!("{at}.test"), &origin).await;
    }
    let said = || site.control.log().matches("its status may not be written").count();
    eventually("it is said", || async { if said() > 0 { Ok(()) } else { Err(()) } }).await;
    site.route("api", "b.test", &origin).await;
    assert_eq!(said(), 1, "{}", site.control.log());
}
