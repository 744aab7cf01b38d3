//! The admission webhook, asked by a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use base64::prelude::{BASE64_STANDARD, Engine as _};
use integration_tests::api::Api;
use integration_tests::cluster::{Authorization, Cluster};
use integration_tests::objects::{self, Edit};
use integration_tests::process::Signal;
use integration_tests::{ClusterSite, ControlPlane, Source, eventually, helm, ports};
use serde_json::{Value, json};
use test_kit::certificates;

/// A webhook at this URL, whose certificate this is.
fn configuration(url: &str, certificate: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "firth"},
        "webhooks": [{
            "name": "validate.ingress.firth.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Ignore", "timeoutSeconds": 5,
            "clientConfig": {"url": url, "caBundle": BASE64_STANDARD.encode(certificate)},
            "rules": [{
                "apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["ingresses"],
            }],
        }],
    })
}

/// The API server's response to an object.
async fn said(api: &Api, object: &Value) -> String {
    api.try_apply(object).await.err().map(|error| error.to_string()).unwrap_or_default()
}

#[tokio::test]
async fn what_would_be_rejected_is_refused_and_nobody_waits_for_who_is_gone() {
    let cluster = Cluster::start(Authorization::AlwaysAllow).await;
    let dir = tempfile::tempdir().unwrap();
    let pair = [dir.path().join("tls.crt"), dir.path().join("tls.key")];
    let write = || {
        let (certificate, key) = certificates::self_signed(&["127.0.0.1"]);
        std::fs::write(&pair[0], &certificate).unwrap();
        std::fs::write(&pair[1], key).unwrap();
        certificate
    };
    let certificate = write();
    let address = ports::free().to_string();
    let flags = [
        "--validating-webhook",
        &address,
        "--validating-webhook-certificate",
        pair[0].to_str().unwrap(),
        "--validating-webhook-key",
        pair[1].to_str().unwrap(),
    ];
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig(), namespace: None };
    let mut site = ClusterSite::start_with(&cluster, "shop", &source, &flags).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let url = format!("https://{address}/networking/v1/ingresses");
    site.api.apply(&configuration(&url, &certificate)).await;

    // An API server hears of a webhook within seconds.
    let taken = site.ingress("other", "a.test", &[("/", "one")]);
    eventually("the path of another is refused", || async {
        match said(&site.api, &taken).await {
            why if why.contains("is already defined in ingress shop/web") => Ok(()),
            other => {
                site.api.delete(&taken).await;
                Err(format!("{other:?}"))
            }
        }
    })
    .await;
    let bad = site.ingress("bad", "b.test", &[("/", "one")]).annotated("limit-rps", "ten");
    let why = said(&site.api, &bad).await;
    assert!(why.contains("limit-rps") && why.contains("denied the request"), "{why}");
    assert_eq!(said(&site.api, &site.ingress("good", "c.test", &[("/", "one")])).await, "");
    site.proxy.serves("c.test", "/", "one").await;

    // A renewed certificate is shown, and trusted.
    let renewed = write();
    site.api.delete(&configuration(&url, &certificate)).await;
    site.api.apply(&configuration(&url, &renewed)).await;
    eventually("it is asked with the new certificate", || async {
        match said(&site.api, &bad).await {
            why if why.contains("limit-rps") => Ok(()),
            other => {
                site.api.delete(&bad).await;
                Err(format!("{other:?}"))
            }
        }
    })
    .await;

    // API servers hear some seconds later that it ends.
    site.control.process().signal(Signal::Term);
    site.control.logs("telling proxies to reconnect").await;
    for _ in 0..20 {
        let why = said(&site.api, &bad).await;
        assert!(why.contains("limit-rps"), "{why}");
    }

    // It fails open.
    site.control.kill();
    assert_eq!(said(&site.api, &bad).await, "");
}

#[tokio::test]
async fn a_certificate_of_the_authority_is_shown_and_believed_with_the_chart_s_rights() {
    let cluster = Cluster::start(Authorization::Rbac).await;
    let api = cluster.api().await;
    for namespace in ["firth", "ingress-nginx", "shop"] {
        api.apply(&objects::namespace(namespace)).await;
    }
    api.apply_all(&objects::ballast("shop")).await;
    let (mut rights, mut hook) = (Vec::new(), Value::Null);
    for object in helm::render(&["webhook.enabled=true"]) {
        match object["kind"].as_str().unwrap() {
            "ServiceAccount" | "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" => {
                rights.push(object)
            }
            "ValidatingWebhookConfiguration" => hook = object,
            _ => {}
        }
    }
    api.apply_all(&rights).await;
    // API servers here reach no Service.
    let address = ports::free().to_string();
    hook["webhooks"][0]["clientConfig"] =
        json!({"url": format!("https://{address}/networking/v1/ingresses")});
    api.apply(&hook).await;
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let own = hook["metadata"]["name"].as_str().unwrap();
    let flags = ["--pod-namespace", "firth", "--account", "proxy=firth/firth-data-plane"];
    let asked = ["--validating-webhook", &address, "--validating-webhook-configuration", own];
    let mut control = ControlPlane::start_with(&source, &[flags, asked].concat()).await;

    let bad = objects::ingress("shop", "bad", "b.test", &[("/", "one")]).annotated("limit-rps", "ten");
    let is_asked = async || {
        eventually("it is asked", || async {
            match said(&api, &bad).await {
                why if why.contains("limit-rps") => Ok(()),
                other => {
                    api.delete(&bad).await;
                    Err(format!("{other:?}"))
                }
            }
        })
        .await;
    };
    is_asked().await;
    let bundle = async || api.read(&hook).await.unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let roots = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "firth", "name": "firth-ca"}});
    let roots = eventually("the roots are published", || async {
        let published = api.read(&roots).await.map_err(|error| error.to_string())?;
        published["data"]["ca.pem"].as_str().map(str::to_owned).ok_or_else(|| "no roots".to_owned())
    })
    .await;
    assert_eq!(bundle().await, BASE64_STANDARD.encode(&roots), "what proxies believe, and nobody else's");

    // It is installed again, and replicas restart: the authority is the same.
    api.delete(&hook).await;
    api.apply(&hook).await;
    assert_eq!(bundle().await, Value::Null);
    control.restart().await;
    is_asked().await;
    assert_eq!(bundle().await, BASE64_STANDARD.encode(&roots));
    assert!(!control.log().contains("orbidden"), "{}", control.log());
}
