//! The admission webhook, asked by a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use base64::prelude::{BASE64_STANDARD, Engine as _};
use integration_tests::api::Api;
use integration_tests::cluster::{Authorization, Cluster};
use integration_tests::objects::{self, Edit};
use integration_tests::{ClusterSite, Source, eventually, ports};
use serde_json::{Value, json};

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

/// What the API server says of an object.
async fn said(api: &Api, object: &Value) -> String {
    api.try_apply(object).await.err().map(|error| error.to_string()).unwrap_or_default()
}

#[tokio::test]
async fn what_would_be_rejected_is_refused_and_nobody_waits_for_who_is_gone() {
    let cluster = Cluster::start(Authorization::AlwaysAllow).await;
    let dir = tempfile::tempdir().unwrap();
    let pair = [dir.path().join("tls.crt"), dir.path().join("tls.key")];
    let write = || {
        let (certificate, key) = objects::certificate(&["127.0.0.1"]);
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

    // A renewed certificate is shown, and believed.
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

    // It fails open.
    site.control.kill();
    assert_eq!(said(&site.api, &bad).await, "");
}
