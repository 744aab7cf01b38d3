//! Whose an Ingress is, with the chart's rights on a real API server: by IngressClasses that may not be read, and by the
//! labels of its namespace.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Command;
use std::time::Duration;

use integration_tests::api::Api;
use integration_tests::cluster::Cluster;
use integration_tests::faults::Relay;
use integration_tests::objects::{self, Edit};
use integration_tests::plane::binary;
use integration_tests::{
    ClusterSite, ControlPlane, DataPlane, Question, Source, Traffic, eventually, eventually_within, helm,
};
use serde_json::{Value, json};

/// Who is forbidden asks again each 30 s.
const ASKED_AGAIN: Duration = Duration::from_secs(120);

const OWN: [&str; 2] = ["--pod-namespace", "firth"];

const CLASSES: &str = "/apis/networking.k8s.io/v1/ingressclasses";

/// The role with the right to read the objects at this path, and the same without it.
fn roles(path: &str) -> (Value, Value) {
    let resource = json!(path.rsplit('/').next());
    let has = |rule: &Value| rule["resources"].as_array().is_some_and(|all| all.contains(&resource));
    let mut rights = helm::rights(&[]).into_iter();
    let role = rights.find(|it| {
        it["kind"] == "ClusterRole" && it["rules"].as_array().is_some_and(|rules| rules.iter().any(has))
    });
    let role = role.expect("the chart gives that right");
    let mut without = role.clone();
    for rule in without["rules"].as_array_mut().unwrap() {
        rule["resources"].as_array_mut().unwrap().retain(|it| *it != resource);
    }
    without["rules"].as_array_mut().unwrap().retain(|rule| rule["resources"] != json!([]));
    (role, without)
}

/// Takes the right away, and waits until the API server knows.
async fn forbid(api: &Api, cluster: &Cluster, path: &str) {
    api.apply(&roles(path).1).await;
    let account = Api::new(&cluster.kubeconfig_of_account()).await;
    eventually("they may not be read", || async {
        let read = account.text(path).await;
        if read.is_err() { Ok(()) } else { Err(read) }
    })
    .await;
}

/// Whoever installs with rights of their own learns which one is missing.
#[tokio::test]
async fn readiness_and_status_name_what_may_not_be_read() {
    const SERVICES: &str = "/api/v1/services";
    let (cluster, api) = helm::cluster(&[]).await;
    forbid(&api, &cluster, SERVICES).await;
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let mut control = ControlPlane::spawn(&source, &OWN);
    let denied = "cannot list resource \"services\" in API group \"\" at the cluster scope";
    control.waits_for("waiting for Service. Grant get, list and watch: services is forbidden: User ").await;
    control.waits_for(denied).await;
    let mut firth = Command::new(binary("firth"));
    firth.args(["status", "ingress", "shop/web", "--server", &format!("http://{}", control.listen())]);
    let said = tokio::task::spawn_blocking(move || firth.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains(denied), "{said}");

    api.apply(&roles(SERVICES).0).await;
    control.serves().await;
}

/// The right is taken away by mistake while two replicas are replaced one after the other. One of them knows the classes and goes on;
/// one that starts does not, and is no replacement: proxies keep what they have until somebody gives the right back.
#[tokio::test]
async fn classes_that_may_not_be_read_are_taken_for_absent_by_nobody() {
    let (cluster, api) = helm::cluster(&[]).await;
    let relay = Relay::start(([127, 0, 0, 1], cluster.port()).into()).await;
    let kubeconfig = cluster.kubeconfig_of_account_by(relay.address().port());
    let source = Source::Cluster { kubeconfig, namespace: None };
    let mut site = ClusterSite::start_with(&cluster, "shop", &source, &OWN).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;

    forbid(&api, &cluster, CLASSES).await;
    // Watches are not ended by a right that is taken away. When they end, it matters.
    relay.cut();
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let mut second = ControlPlane::spawn(&source, &OWN);
    second.waits_for("permission to read IngressClasses (forbidden): Ingress shop/").await;
    let both = format!("http://{},http://{}", site.control.listen(), second.listen());
    let proxy = DataPlane::start_with(site.control.listen(), &["--control-plane", &both]).await;
    let traffic = Traffic::start(proxy.http(), 1, &[Question::new("a.test", "/", &["one"])]);

    eventually_within(ASKED_AGAIN, "the first believes that it is forbidden", || async {
        let log = site.control.log();
        if log.contains("reading this kind is forbidden now") { Ok(()) } else { Err(log) }
    })
    .await;
    site.route("more", "more.test", &one).await;
    let problems = site.control.inspect().await.problems().await.unwrap();
    assert!(!problems.iter().any(|it| it.object.contains("web")), "{problems:?}");

    site.control.kill();
    traffic.goes_on("nobody has come in the first one's place", 100).await;
    second.waits_for("permission to read IngressClasses (forbidden)").await;
    proxy.serves("more.test", "/", "one").await;

    api.apply(&roles(CLASSES).0).await;
    second.serves().await;
    second.inspect().await.in_sync(1).await;
    api.apply(&site.ingress("last", "last.test", &[("/", "one")])).await;
    proxy.serves("last.test", "/", "one").await;
    traffic.stop().await.assert_clean();
}

/// ingress-nginx with a Role of one namespace and no ClusterRole: its Ingresses have the annotation, those of others name their class.
#[tokio::test]
async fn where_classes_are_ignored_nobody_asks_for_them() {
    let (cluster, api) = helm::cluster(&["ingressClass.ignored=true"]).await;
    api.apply(&objects::namespace("shop")).await;
    api.apply(&objects::ingress("shop", "another-s", "another.test", &[("/", "one")])).await;
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let flags = [&OWN[..], &["--ignore-ingress-classes", "--ingress-class", "team"]].concat();
    let mut site = ClusterSite::start_with(&cluster, "shop", &source, &flags).await;
    let _one = site.origin("one").await;
    let mut web =
        site.ingress("web", "a.test", &[("/", "one")]).annotated("kubernetes.io/ingress.class", "team");
    web["spec"]["ingressClassName"] = Value::Null;
    api.apply(&web).await;
    site.proxy.serves("a.test", "/", "one").await;
    site.proxy.answers("another.test", "/", 404).await;
    let problems = site.control.inspect().await.problems().await.unwrap();
    assert!(!problems.iter().any(|it| it.object.starts_with("Ingress")), "{problems:?}");
    // A proxy that has something else waits for a list of everything that is read, and of nothing else.
    site.control.kill();
    api.apply(&web.with("/spec/rules/0/http/paths/0/path", "/new".into())).await;
    site.control.resume().await;
    site.proxy.serves("a.test", "/new", "one").await;
    site.control.logs("IngressClasses are not read").await;
    let log = site.control.log();
    assert!(!log.contains("orbidden"), "{log}");
}

async fn label(api: &Api, namespace: &str, team: Value) {
    api.patch(&format!("/api/v1/namespaces/{namespace}"), &json!({"metadata": {"labels": {"team": team}}}))
        .await;
}

/// With the rights that the chart gives for it, and no others.
#[tokio::test]
async fn routes_come_and_go_with_the_labels_of_their_namespaces() {
    let (cluster, api) = helm::cluster(&["watchNamespaceSelector=team=a"]).await;
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let flags = [&OWN[..], &["--watch-namespace-selector=team=a"]].concat();
    let site = ClusterSite::start_with(&cluster, "shop", &source, &flags).await;
    let one = site.origin("one").await;
    let web =
        |namespace: &str| objects::ingress(namespace, "web", &format!("{namespace}.test"), &[("/", "one")]);
    // Its objects, before anything is said of it.
    let open = async |namespace: &str| {
        api.apply(&objects::namespace(namespace)).await;
        api.apply(&objects::service(namespace, "one")).await;
        api.apply(&objects::slice(namespace, "one", "1", &[one.address()])).await;
        api.apply(&web(namespace)).await;
    };
    open("mall").await;
    label(&api, "mall", "a".into()).await;
    site.proxy.serves("mall.test", "/", "one").await;
    let traffic = Traffic::start(site.proxy.http(), 1, &[Question::new("mall.test", "/", &["one"])]);

    api.apply(&web("shop")).await;
    open("late").await;
    for namespace in ["shop", "late"] {
        let host = format!("{namespace}.test");
        site.proxy.answers(&host, "/", 404).await;
        label(&api, namespace, "a".into()).await;
        site.proxy.serves(&host, "/", "one").await;
        label(&api, namespace, "b".into()).await;
        site.proxy.answers(&host, "/", 404).await;
        label(&api, namespace, "a".into()).await;
        site.proxy.serves(&host, "/", "one").await;
        // What is changed while it is not ours is as it is when it is ours again.
        label(&api, namespace, Value::Null).await;
        site.proxy.answers(&host, "/", 404).await;
        let further = web(namespace).with("/spec/rules/0/host", json!(format!("new.{host}")));
        api.apply(&further).await;
        label(&api, namespace, "a".into()).await;
        site.proxy.serves(&format!("new.{host}"), "/", "one").await;
        site.proxy.answers(&host, "/", 404).await;
    }
    // An Ingress of a namespace that is another's is nobody's problem here.
    label(&api, "late", "b".into()).await;
    site.proxy.answers("new.late.test", "/", 404).await;
    let problems = site.control.inspect().await.problems().await.unwrap();
    assert!(!problems.iter().any(|it| it.object.contains("late")), "{problems:?}");

    // Who starts now has the same.
    let fresh = ControlPlane::start_with(&source, &flags).await;
    let roots = async |plane: &ControlPlane| plane.inspect().await.proxies().await.unwrap().version;
    let [here, there] = [roots(&site.control).await, roots(&fresh).await];
    assert_eq!(here, there);
    traffic.stop().await.assert_clean();
    let log = site.control.log();
    assert!(!log.contains("orbidden"), "the API server refuses something:\n{log}");
}
