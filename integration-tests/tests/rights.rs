//! Rights that are taken away from running replicas, and given back, on a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use integration_tests::api::Api;
use integration_tests::client::{self, tls};
use integration_tests::faults::Relay;
use integration_tests::objects::{self, Edit};
use integration_tests::{
    ClusterSite, ControlPlane, DataPlane, Source, eventually, eventually_within, helm, ports,
};
use serde_json::{Value, json};
use test_kit::certificates;

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
    // It asks again for a while before it believes that. Until then the other one's watch may have ended, too.
    let refused = "what was allowed is forbidden: configmaps \"ingress-nginx-controller\"";
    eventually_within(BELIEVED, refused, || async {
        if site.control.log().contains(refused) { Ok(()) } else { Err(site.control.log()) }
    })
    .await;
    settings(&api, json!({"denylist-source-range": "127.0.0.1/32"})).await;
    says(&site.control, BELIEVED, "reading this kind is forbidden now").await;
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

/// The chart's roles for the cluster, without the right to get a Secret: they may be listed, and their metadata watched.
fn roles_without_get_of_secrets() -> Vec<Value> {
    let mut roles = helm::rights(&[]);
    roles.retain(|it| it["kind"] == "ClusterRole");
    for rules in roles.iter_mut().map(|role| role["rules"].as_array_mut().unwrap()) {
        for rule in std::mem::take(rules) {
            let (secrets, others): (Vec<Value>, Vec<Value>) =
                rule["resources"].as_array().unwrap().iter().cloned().partition(|it| it == "secrets");
            if !others.is_empty() {
                rules.push(rule.clone().with("/resources", others.into()));
            }
            let mut verbs = rule["verbs"].as_array().unwrap().clone();
            verbs.retain(|verb| verb != "get");
            if !secrets.is_empty() && !verbs.is_empty() {
                rules.push(rule.with("/resources", secrets.into()).with("/verbs", verbs.into()));
            }
        }
    }
    roles
}

fn certificate(name: &str, host: &str) -> Value {
    let (certificate, key) = certificates::self_signed(&[host, &format!("{name}.test")]);
    objects::tls_secret("shop", name, &certificate, &key)
}

/// A proxy presents this Secret's certificate, or that of nobody's Secret.
async fn presents(proxy: &DataPlane, host: &str, name: Option<&str>) {
    eventually_within(SOON, &format!("{host} has the certificate of {name:?}"), || async {
        let (answer, names) = tls::get(proxy.https(), host, "/").await.map_err(|error| error.to_string())?;
        let is_it = match name {
            Some(name) => names.contains(&format!("{name}.test")),
            None => !names.iter().any(|name| name == host),
        };
        if answer.status == 200 && is_it { Ok(()) } else { Err(format!("{} with {names:?}", answer.status)) }
    })
    .await;
}

/// That Secrets may not be read is no reason to serve without them, nor to wait for the others.
#[tokio::test]
async fn certificates_that_may_not_be_read_are_kept_and_who_starts_without_them_is_not_ready() {
    let (cluster, api) = helm::cluster(&[]).await;
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let own = ["--pod-namespace", "firth", "--settle=0s"];
    let mut site = ClusterSite::start_with(&cluster, "shop", &source, &own).await;
    let one = site.origin("one").await;
    let web = |secret: &str| {
        let tls = json!([{"hosts": [HOST], "secretName": secret}]);
        site.ingress("web", HOST, &[("/", "one")]).with("/spec/tls", tls)
    };
    let [first, second] = [web("first"), web("second")];
    // One that is not there is no secret that could not be read.
    let absent = json!([{"hosts": ["absent.test"], "secretName": "absent"}]);
    api.apply_all(&[
        certificate("first", HOST),
        first,
        site.ingress("absent", "absent.test", &[("/", "one")]).with("/spec/tls", absent),
    ])
    .await;
    presents(&site.proxy, HOST, Some("first")).await;
    presents(&site.proxy, "absent.test", None).await;

    api.apply_all(&roles_without_get_of_secrets()).await;
    let account = Api::new(&cluster.kubeconfig_of_account()).await;
    let path = "/api/v1/namespaces/shop/secrets/first";
    eventually("it may not be read any more", || async {
        let read = account.text(path).await;
        if read.is_err() { Ok(()) } else { Err("it may be read") }
    })
    .await;
    // The Host changes and the certificate does not, while it cannot be read; all others go on.
    api.apply_all(&[certificate("second", HOST), second]).await;
    let inspect = site.control.inspect().await;
    eventually_within(SOON, "it is said", || async {
        let problems = inspect.problems().await.map_err(|status| status.to_string())?;
        let words =
            "Secret shop/second could not be read and is retried; its previous certificate stays in use";
        let is_said = problems.iter().any(|it| it.object == "Ingress shop/web" && it.reason.contains(words));
        if is_said { Ok(()) } else { Err(format!("{problems:?}")) }
    })
    .await;
    site.route("more", "more.test", &one).await;
    presents(&site.proxy, HOST, Some("first")).await;
    // A newer version of what it has cannot be read either.
    api.apply(&certificate("first", HOST)).await;

    let mut fresh = ControlPlane::spawn(&source, &own);
    fresh.waits_for("waiting for objects that others refer to: ").await;
    fresh.waits_for("Secret shop/second (").await;
    fresh.waits_for("secrets \"second\" is forbidden").await;
    let mut late = DataPlane::spawn(fresh.listen(), &[]);
    // A proxy of both goes to that one when the first is gone, and keeps what it has.
    let both = format!("http://{},http://{}", site.control.listen(), fresh.listen());
    let proxy = DataPlane::start_with(site.control.listen(), &["--control-plane", &both]).await;
    presents(&proxy, HOST, Some("first")).await;
    site.control.kill();
    proxy.logs(&fresh.listen().to_string()).await;
    for _ in 0..20 {
        presents(&proxy, HOST, Some("first")).await;
        let ready = client::page(&late.health(), "/readyz").await.unwrap();
        assert_eq!((ready.status, late.process().ended()), (503, None), "{}", ready.text());
        fresh.waits_for("waiting for objects that others refer to: ").await;
    }

    api.apply_all(&roles_without(&[])).await;
    // That one Secret is not there keeps nobody waiting.
    fresh.serves().await;
    for proxy in [&proxy, &late] {
        presents(proxy, HOST, Some("second")).await;
        presents(proxy, "absent.test", None).await;
    }
}

/// Neither is one who may not list them, though nothing that is read refers to one.
#[tokio::test]
async fn who_starts_and_may_not_list_secrets_is_not_ready() {
    let (cluster, api) = helm::cluster(&[]).await;
    api.apply_all(&roles_without(&["secrets"])).await;
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let mut control = ControlPlane::spawn(&source, &["--pod-namespace", "firth"]);
    control.waits_for("waiting for Secret. Grant get, list and watch: secrets is forbidden: User ").await;
    api.apply_all(&roles_without(&[])).await;
    control.serves().await;
}
