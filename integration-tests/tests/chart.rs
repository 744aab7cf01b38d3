//! The chart's permissions on a real API server: enough for the control plane, and no more than it needs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use integration_tests::api::Api;
use integration_tests::client::tls;
use integration_tests::grpc::{Inspect, call};
use integration_tests::identity::{self, Peer};
use integration_tests::objects::{self, Edit};
use integration_tests::plane::binary;
use integration_tests::process::Signal;
use integration_tests::{ClusterSite, ControlPlane, DataPlane, Source, eventually, helm};
use serde_json::{Value, json};
use shared::proto::identity::enrol_request::Proof;
use shared::proto::identity::{Issued, RenewRequest};
use shared::tls::Trust;
use test_kit::certificates;
use tonic::client::Grpc;
use tonic::{Code, Status};

#[tokio::test]
async fn the_control_plane_gets_along_with_the_chart_s_rights() {
    let (cluster, api) = helm::cluster(&[]).await;
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let own = ["--pod-namespace", "firth"];
    let site = ClusterSite::start_with(&cluster, "shop", &source, &own).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;

    // Secrets are read, settings too.
    let (certificate, key) = certificates::self_signed(&["b.test"]);
    api.apply(&objects::tls_secret("shop", "cert", &certificate, &key)).await;
    let tls = json!([{"hosts": ["b.test"], "secretName": "cert"}]);
    api.apply(&site.ingress("secured", "b.test", &[("/", "one")]).with("/spec/tls", tls)).await;
    let settings = json!({"ssl-redirect": "false"});
    api.apply(&objects::config_map("ingress-nginx", "ingress-nginx-controller", settings)).await;
    site.proxy.serves("b.test", "/", "one").await;
    eventually("the certificate is shown", || async {
        let (_, names) =
            tls::get(site.proxy.https(), "b.test", "/").await.map_err(|error| error.to_string())?;
        if names == ["b.test"] { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;

    // A hold is stored and deleted again.
    let held = "/api/v1/namespaces/firth/configmaps?labelSelector=firth.dev%2Fdecision";
    for (path, count) in [("/etc/passwd", 1), ("/fine", 0)] {
        let web = site.ingress("web", "a.test", &[(path, "one")]);
        api.apply(&web).await;
        eventually(&format!("{count} holds are on record"), || async {
            let held = api.list(held).await.map_err(|error| error.to_string())?;
            if held.len() == count { Ok(()) } else { Err(format!("{held:?}")) }
        })
        .await;
    }
    site.api.apply(&site.ingress("web", "a.test", &[("/etc/passwd", "one")])).await;
    let events = "/apis/events.k8s.io/v1/namespaces/shop/events";
    eventually("Events are written", || async {
        let told = api.list(events).await.map_err(|error| error.to_string())?;
        if told.iter().any(|event| event["reason"] == "Rejected") { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    let log = site.control.log();
    assert!(!log.contains("orbidden"), "the API server refuses something:\n{log}");

    // It cannot read what it has no rights for.
    let account = Api::new(&cluster.kubeconfig_of_account()).await;
    for path in [
        "/api/v1/pods",
        "/api/v1/namespaces",
        "/api/v1/namespaces/shop/serviceaccounts",
        "/apis/apps/v1/deployments",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ] {
        let refused = account.text(path).await;
        assert!(refused.is_err(), "the account may read {path}");
    }
}

/// Flags of the control plane and volumes of the proxy as the chart has them.
fn accounts() -> String {
    let rendered = helm::render(&[]);
    let deployment = rendered.iter().find(|it| it["kind"] == "Deployment").unwrap();
    let said = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    let accounts = said.iter().filter_map(|flag| flag.as_str()?.strip_prefix("--account="));
    accounts.collect::<Vec<_>>().join(",")
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "firth", "name": name},
        "spec": {"serviceAccountName": "firth-data-plane", "containers": [{"name": "x", "image": "x"}]},
    })
}

#[tokio::test]
async fn proxies_enrol_with_the_tokens_of_their_pods_and_replicas_agree() {
    let (cluster, api) = helm::cluster(&[]).await;
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let accounts = accounts();
    let flags = ["--pod-namespace", "firth", "--account", &accounts];
    // At the same time, so that both find no authority.
    let (one, other) =
        tokio::join!(ControlPlane::start_with(&source, &flags), ControlPlane::start_with(&source, &flags));
    let published = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "firth", "name": "firth-ca"}});
    let roots =
        eventually("the roots are published", || api.read(&published)).await["data"]["ca.pem"].clone();
    let roots = roots.as_str().unwrap();
    let trust = Trust::Roots(shared::pem::certificates(roots.as_bytes()).unwrap());

    let dir = tempfile::tempdir().unwrap();
    let [token, ca] = ["token", "ca.pem"].map(|name| dir.path().join(name));
    api.apply(&pod("edge-1")).await;
    let of_pod = api.token("firth", "firth-data-plane", "firth.dev", Some("edge-1")).await;
    std::fs::write(&token, &of_pod).unwrap();
    std::fs::write(&ca, roots).unwrap();
    let flags = ["--token-file", token.to_str().unwrap(), "--ca", ca.to_str().unwrap()];
    let _proxy = DataPlane::start_with(one.listen(), &flags).await;

    // A user who may create tokens for the reader's account may run queries, at either replica.
    let reader = api.token("firth", "firth-reader", "firth.dev", None).await;
    let reader = Peer::enrol(other.listen(), &trust, Proof::AccountToken(reader), "").await.unwrap();
    let asked = Inspect::over(reader.channel(one.listen()).await.unwrap());
    asked.in_sync(1).await;
    let listed = asked.proxies().await.unwrap().proxies;
    assert!(listed[0].id.starts_with("edge-1-"), "it is called as its pod is: {listed:?}");

    for (token, why) in [
        (
            api.token("firth", "firth-data-plane", "https://kubernetes.default.svc", Some("edge-1")).await,
            "for the API server",
        ),
        (api.token("firth", "firth-control-plane", "firth.dev", None).await, "of an account without a role"),
        ("nonsense".to_owned(), "made up"),
        (String::new(), "none"),
    ] {
        let refused = Peer::enrol(one.listen(), &trust, Proof::AccountToken(token), "edge-1").await;
        assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied, "{why}");
    }

    // The certificate of a deleted pod is not renewed; that of an existing one is.
    let peer = Peer::enrol(one.listen(), &trust, Proof::AccountToken(of_pod.clone()), "").await.unwrap();
    let renew = async |token: &str| {
        let channel = peer.channel(one.listen()).await.unwrap();
        let request = identity::request(&rcgen::KeyPair::generate().unwrap());
        let asked = RenewRequest { request, account_token: token.to_owned() };
        let renewed: Result<Issued, Status> =
            call(Grpc::new(channel), "firth.identity.v1.Identity/Renew", asked).await;
        renewed.map(|_| ()).map_err(|status| status.code())
    };
    assert_eq!((renew(&of_pod).await, renew("").await), (Ok(()), Err(Code::PermissionDenied)));
    api.delete(&pod("edge-1")).await;
    // The API server caches token reviews for some seconds.
    eventually("the pod is renewed no longer", || async {
        match renew(&of_pod).await {
            Err(Code::PermissionDenied) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    for plane in [&one, &other] {
        let log = plane.log();
        assert!(!log.contains("orbidden") && !log.contains(&of_pod), "{log}");
    }
}

/// The Secret of the authority is deleted, and a replica starts before a running one has looked: it makes no authority of its own, which
/// would cut everybody off, and has the one that is believed once that is written again.
#[tokio::test]
async fn a_replica_that_finds_no_authority_waits_for_one_that_has_it() {
    let (cluster, api) = helm::cluster(&[]).await;
    api.apply(&objects::namespace("shop")).await;
    api.apply_all(&objects::ballast("shop")).await;
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let accounts = accounts();
    let flags = ["--pod-namespace", "firth", "--account", &accounts];
    let mut one = ControlPlane::start_with(&source, &flags).await;
    let of_ca = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": "firth", "name": "firth-ca"}});
    let published =
        eventually("the roots are published", || async { api.read(&of_ca("ConfigMap")).await }).await;
    let roots = published["data"]["ca.pem"].as_str().unwrap();
    let trust = Trust::Roots(shared::pem::certificates(roots.as_bytes()).unwrap());
    let record = api.read(&of_ca("Secret")).await.unwrap();

    // Held still, so that it cannot have looked before the other one is there.
    one.process().signal(Signal::Stop);
    api.delete(&of_ca("Secret")).await;
    let mut other = ControlPlane::spawn(&source, &flags);
    other.waits_for("its roots are published: another control plane may write it again").await;
    assert!(api.read(&of_ca("Secret")).await.is_err(), "it has made one");
    one.process().signal(Signal::Cont);
    other.serves().await;

    let again = api.read(&of_ca("Secret")).await.unwrap();
    assert_eq!(again["data"], record["data"]);
    assert_eq!(api.read(&of_ca("ConfigMap")).await.unwrap()["data"], published["data"]);
    let reader = api.token("firth", "firth-reader", "firth.dev", None).await;
    for plane in [&one, &other] {
        let proof = Proof::AccountToken(reader.clone());
        let reader = Peer::enrol(plane.listen(), &trust, proof, "").await.unwrap();
        assert!(reader.channel(one.listen()).await.is_ok() && reader.channel(other.listen()).await.is_ok());
    }
    one.logs("is gone, and written again").await;
    for plane in [&one, &other] {
        let log = plane.log();
        assert!(!log.contains("a new authority is made") && !log.contains("another authority"), "{log}");
    }
}

/// Who may make tokens for the account that stands for readers, and for no other.
fn may_read(name: &str) -> [Value; 2] {
    let metadata = json!({"namespace": "firth", "name": "may-read"});
    let group = "rbac.authorization.k8s.io";
    let rule = |resource: &str, verb: &str, name: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": [verb], "resourceNames": [name]});
    [
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [rule("serviceaccounts/token", "create", "firth-reader"), rule("configmaps", "get", "firth-ca")],
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "may-read"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
        }),
    ]
}

#[tokio::test]
async fn people_log_in_by_whatever_their_kubeconfig_says() {
    let (cluster, api) = helm::cluster(&[]).await;
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let accounts = accounts();
    let control =
        ControlPlane::start_with(&source, &["--pod-namespace", "firth", "--account", &accounts]).await;
    let server = format!("https://{}", control.listen());
    let published = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "firth", "name": "firth-ca"}});
    eventually("the roots are published", || api.read(&published)).await;
    api.apply_all(&may_read("anna")).await;
    // One by certificates, one without rights, one by a token that may do everything.
    let [anna, bert] = ["anna", "bert"].map(|name| cluster.kubeconfig_of_person(name));
    let homes = tempfile::tempdir().unwrap();
    let firth = async |who: &str, words: &[&str]| {
        let mut command = Command::new(binary("firth"));
        command.args(words).args(["--server", &server]).arg("--identity").arg(homes.path().join(who));
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let [said, complaint] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        if output.status.success() { Ok(said) } else { Err(complaint) }
    };
    let login = async |who: &str, kubeconfig: &Path, account: &str| {
        let kubeconfig = kubeconfig.to_str().unwrap();
        firth(who, &["login", "--kubeconfig", kubeconfig, "--namespace", "firth", "--account", account]).await
    };

    let told = login("anna", &anna, "firth-reader").await.unwrap();
    assert!(told.starts_with("reader firth-reader, for 24 h"), "{told}");
    assert!(firth("anna", &["proxies"]).await.is_ok());
    assert!(firth("anna", &["authority"]).await.unwrap().contains("no rotation is under way"));
    for command in [&["unpin"][..], &["authority", "rotate"]] {
        let refused = firth("anna", command).await.unwrap_err();
        assert!(refused.contains("PermissionDenied"), "{command:?}: {refused}");
    }
    // The API server decides who gets a token, the control plane which account has a role.
    for (who, kubeconfig, account, why) in [
        ("anna", &anna, "firth-operator", "firth-operator"),
        ("bert", &bert, "firth-reader", "firth-reader"),
        ("admin", &cluster.kubeconfig(), "firth-control-plane", "PermissionDenied"),
    ] {
        let refused = login(who, kubeconfig, account).await.unwrap_err();
        assert!(refused.contains(why), "{who}: {refused}");
        assert!(why == "PermissionDenied" || refused.contains("forbidden"), "{who}: {refused}");
    }
    let proxy = login("anna", &cluster.kubeconfig(), "firth-data-plane").await.unwrap_err();
    assert!(proxy.contains("firth/firth-data-plane stands for a proxy, who can ask nothing"), "{proxy}");
    assert!(firth("anna", &["proxies"]).await.is_ok(), "what she had is hers still");

    let told = login("admin", &cluster.kubeconfig(), "firth-operator").await.unwrap();
    assert!(told.starts_with("operator firth-operator"), "{told}");
    let rotated = firth("admin", &["authority", "rotate"]).await.unwrap();
    assert!(rotated.contains("rotation, 1 of 2"), "{rotated}");
    eventually("who believes the new root is told so", || async {
        let roots = api.read(&published).await.map_err(|error| error.to_string())?;
        let count = roots["data"]["ca.pem"].as_str().unwrap_or_default().matches("BEGIN").count();
        if count == 2 { Ok(()) } else { Err(count.to_string()) }
    })
    .await;
    assert!(!control.log().contains("orbidden"), "{}", control.log());
}
