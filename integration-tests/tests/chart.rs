//! The chart's permissions on a real API server: enough for the control plane, and no more than it needs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use integration_tests::api::Api;
use integration_tests::client::tls;
use integration_tests::cluster::{Authorization, Cluster};
use integration_tests::objects::{self, Edit};
use integration_tests::{ClusterSite, Source, eventually, helm};
use serde_json::json;

#[tokio::test]
async fn the_control_plane_gets_along_with_the_chart_s_rights() {
    let cluster = Cluster::start(Authorization::Rbac).await;
    let api = cluster.api().await;
    api.apply(&objects::namespace("firth")).await;
    api.apply(&objects::namespace("ingress-nginx")).await;
    let rendered = helm::render(&["planes.insecure=true"]);
    let rights = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    let rights: Vec<_> =
        rendered.into_iter().filter(|it| rights.contains(&it["kind"].as_str().unwrap())).collect();
    assert!(rights.iter().any(|it| it["kind"] == "ClusterRoleBinding"), "{rights:?}");
    api.apply_all(&rights).await;

    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let own = ["--pod-namespace", "firth"];
    let site = ClusterSite::start_with(&cluster, "shop", &source, &own).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;

    // Secrets are read, settings too.
    let (certificate, key) = objects::certificate(&["b.test"]);
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

    // A hold is put on record and taken off it again.
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
    let log = site.control.log();
    assert!(!log.contains("orbidden"), "the API server refuses something:\n{log}");

    // What it has no business with, it cannot read.
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
