//! On a real API server: creations, changes and deletions of each kind of object arrive at the proxy.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use integration_tests::client::tls;
use integration_tests::objects::{self, Edit};
use integration_tests::{ClusterSite, DataPlane, Ledger, Question, Traffic, eventually};
use serde_json::json;
use test_kit::certificates;

/// Names in the certificate that is shown for a host.
async fn shown(site: &ClusterSite, host: &str) -> Result<Vec<String>, String> {
    let (_, names) = tls::get(site.proxy.https(), host, "/").await.map_err(|error| error.to_string())?;
    Ok(names)
}

async fn shows(site: &ClusterSite, host: &str, expected: &[&str]) {
    eventually(&format!("{host} shows a certificate for {expected:?}"), || async {
        let names = shown(site, host).await?;
        if names == expected { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}

#[tokio::test]
async fn an_ingress_comes_changes_and_goes() {
    let site = ClusterSite::shared("an-ingress").await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", "a.test", &one).await;

    let ingress = site.ingress("web", "a.test", &[("/new", "one"), ("/", "two")]);
    site.api.apply(&ingress).await;
    site.proxy.serves("a.test", "/", two.name()).await;
    site.proxy.serves("a.test", "/new/x", one.name()).await;

    site.api.apply(&site.ingress("web", "b.test", &[("/", "one")])).await;
    site.proxy.serves("b.test", "/", one.name()).await;
    site.proxy.answers("a.test", "/", 404).await;

    site.api.delete(&ingress).await;
    site.proxy.answers("b.test", "/", 404).await;
}

#[tokio::test]
async fn endpoints_come_change_and_go() {
    let site = ClusterSite::shared("endpoints").await;
    let (one, two) = (site.origin("one").await, site.bare_origin("two").await);
    site.route("web", "a.test", &one).await;

    site.api.apply(&site.slice("one", &[two.address()])).await;
    site.proxy.serves("a.test", "/", "two").await;

    let unready = site.slice("one", &[two.address()]).with("/endpoints/0/conditions/ready", json!(false));
    site.api.apply(&unready).await;
    site.proxy.answers("a.test", "/", 503).await;

    let second = objects::slice(&site.namespace, "one", "2", &[one.address()]);
    site.api.apply(&second).await;
    site.proxy.serves("a.test", "/", "one").await;
    site.api.delete(&second).await;
    site.proxy.answers("a.test", "/", 503).await;
}

#[tokio::test]
async fn a_service_deleted_and_made_again_is_served() {
    let site = ClusterSite::shared("a-service").await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    for _ in 0..3 {
        site.api.delete(&site.slice("one", &[one.address()])).await;
        site.api.delete(&site.service("one")).await;
        site.proxy.answers("a.test", "/", 503).await;
        site.api.apply(&site.service("one")).await;
        site.api.apply(&site.slice("one", &[one.address()])).await;
        site.proxy.serves("a.test", "/", "one").await;
    }
    // The other way round: the slice is there before its Service.
    site.api.delete(&site.service("one")).await;
    site.proxy.answers("a.test", "/", 503).await;
    site.api.apply(&site.service("one")).await;
    site.proxy.serves("a.test", "/", "one").await;
}

#[tokio::test]
async fn a_service_s_ports_change() {
    let site = ClusterSite::shared("service-ports").await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let renamed = site.service("one").with("/spec/ports/0/name", json!("web"));
    let renamed = renamed.with("/spec/ports/0/targetPort", json!(1));
    site.api.apply(&renamed).await;
    // No slice has a port of that name, and nobody listens at the numeric targetPort.
    site.proxy.answers("a.test", "/", 502).await;
    let slice = site.slice("one", &[one.address()]).with("/ports/0/name", json!("web"));
    site.api.apply(&slice).await;
    site.proxy.serves("a.test", "/", "one").await;
}

#[tokio::test]
async fn a_certificate_comes_is_renewed_and_goes() {
    let site = ClusterSite::shared("a-certificate").await;
    let one = site.origin("one").await;
    let tls = json!([{"hosts": ["a.test"], "secretName": "cert"}]);
    let ingress = site.ingress("web", "a.test", &[("/", "one")]).with("/spec/tls", tls);
    site.api.apply(&ingress).await;
    eventually("the route is there with the default certificate", || async {
        let (answer, names) =
            tls::get(site.proxy.https(), "a.test", "/").await.map_err(|error| error.to_string())?;
        if answer.origin() == Some(one.name()) && names != ["a.test"] {
            Ok(())
        } else {
            Err(format!("{} with {names:?}", answer.status))
        }
    })
    .await;

    let secret = |names: &[&str]| {
        let (certificate, key) = certificates::self_signed(names);
        objects::tls_secret(&site.namespace, "cert", &certificate, &key)
    };
    site.api.apply(&secret(&["a.test"])).await;
    shows(&site, "a.test", &["a.test"]).await;

    site.api.apply(&secret(&["a.test", "renewed.test"])).await;
    shows(&site, "a.test", &["a.test", "renewed.test"]).await;

    site.api.delete(&secret(&["a.test"])).await;
    eventually("the default certificate is back", || async {
        let names = shown(&site, "a.test").await?;
        if names.contains(&"a.test".to_owned()) { Err(names) } else { Ok(()) }
            .map_err(|names| format!("{names:?}"))
    })
    .await;

    site.api.apply(&secret(&["a.test", "again.test"])).await;
    shows(&site, "a.test", &["a.test", "again.test"]).await;
}

#[tokio::test]
async fn an_ingress_class_comes_and_goes() {
    let mut site = ClusterSite::shared("a-class").await;
    let one = site.origin("one").await;
    let ingress =
        site.ingress("web", "a.test", &[("/", "one")]).with("/spec/ingressClassName", json!("late"));
    site.api.apply(&ingress).await;
    site.route("marker", "marker.test", &one).await;
    site.proxy.answers("a.test", "/", 404).await;

    let class = objects::ingress_class().with("/metadata/name", json!("late"));
    site.api.apply(&class).await;
    site.proxy.serves("a.test", "/", "one").await;
    // What it had goes on, after a restart, too; what comes later is not served.
    site.api.delete(&class).await;
    is_held(&site).await;
    let late = site.ingress("late", "late.test", &[("/", "one")]);
    site.api.apply(&late.with("/spec/ingressClassName", json!("late"))).await;
    site.control.restart().await;
    site.route("marker", "again.marker.test", &one).await;
    site.proxy.serves("a.test", "/", "one").await;
    site.proxy.answers("late.test", "/", 404).await;
    let other = class.with("/spec/controller", json!("example.com/other"));
    site.api.apply(&other).await;
    site.route("marker", "second.marker.test", &one).await;
    site.proxy.answers("a.test", "/", 404).await;
}

/// A decision is on record.
async fn is_held(site: &ClusterSite) {
    let holds =
        format!("/api/v1/namespaces/{}/configmaps?labelSelector=firth.dev%2Fdecision", site.namespace);
    eventually("the deleted object is held", || async {
        let held = site.api.list(&holds).await.map_err(|error| error.to_string())?;
        if held.len() == 1 { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
}

#[tokio::test]
async fn the_config_map_comes_changes_and_goes() {
    let mut site = ClusterSite::shared("a-config-map").await;
    let one = site.origin("one").await;
    let tls = json!([{"hosts": ["a.test"]}]);
    let ingress = site.ingress("web", "a.test", &[("/", "one")]).with("/spec/tls", tls);
    site.api.apply(&ingress).await;
    site.proxy.answers("a.test", "/", 308).await;
    let settings = |value: &str| {
        let data = json!({ "ssl-redirect": value });
        objects::config_map("a-config-map", "ingress-nginx-controller", data)
    };
    site.api.apply(&settings("false")).await;
    site.proxy.serves("a.test", "/", "one").await;
    site.api.apply(&settings("true")).await;
    site.proxy.answers("a.test", "/", 308).await;
    site.api.apply(&settings("false")).await;
    site.proxy.serves("a.test", "/", "one").await;
    // Its last values stay, after a restart, too.
    site.api.delete(&settings("false")).await;
    is_held(&site).await;
    site.control.restart().await;
    site.route("marker", "marker.test", &one).await;
    site.proxy.serves("a.test", "/", "one").await;
    site.api.apply(&settings("true")).await;
    site.proxy.answers("a.test", "/", 308).await;
}

#[tokio::test]
async fn a_canary_s_weight_moves_requests() {
    let site = ClusterSite::shared("a-canary").await;
    let main = site.origin("main").await;
    let _next = site.origin("next").await;
    site.route("web", "a.test", &main).await;
    let canary = |weight: &str| {
        let twin = site.ingress("web-next", "a.test", &[("/", "next")]);
        twin.annotated("canary", "true").annotated("canary-weight", weight)
    };
    site.api.apply(&canary("100")).await;
    site.proxy.serves("a.test", "/", "next").await;
    site.api.apply(&canary("0")).await;
    site.proxy.serves("a.test", "/", "main").await;
    site.api.apply(&canary("100")).await;
    site.proxy.serves("a.test", "/", "next").await;
    site.api.delete(&canary("0")).await;
    site.proxy.serves("a.test", "/", "main").await;
}

#[tokio::test]
async fn a_route_moved_to_an_unused_service_loses_no_request() {
    let site = ClusterSite::shared("a-move").await;
    let mut origins = vec![site.origin("target-0").await];
    site.route("web", "a.test", &origins[0]).await;
    // None of these is referred to by anything until the route comes to it.
    for number in 1..15 {
        origins.push(site.origin(&format!("target-{number}")).await);
    }
    let ledger = Ledger::new();
    origins.iter().for_each(|origin| ledger.endpoints(origin.name(), &[origin.name()]));
    ledger.routes("a.test", "target-0");
    let traffic = Traffic::start_on(ledger, site.proxy.http(), 4, &[Question::moving("a.test", "/")]);
    for origin in &origins[1..] {
        traffic.ledger().routes("a.test", origin.name());
        site.api.apply(&site.ingress("web", "a.test", &[("/", origin.name())])).await;
        traffic.shows("a.test").await;
    }
    let summary = traffic.stop().await;
    summary.assert_clean();
    assert!(summary.answered > 100, "{summary:?}");
}

/// The keys are made by the control plane, stand in a Secret of the cluster, and are the fleet's.
#[tokio::test]
async fn a_session_of_one_proxy_is_resumed_by_another_while_tickets_are_on() {
    let site = ClusterSite::shared("tickets").await;
    let _one = site.origin("one").await;
    let tls = json!([{"hosts": ["a.test"]}]);
    site.api.apply(&site.ingress("web", "a.test", &[("/", "one")]).with("/spec/tls", tls)).await;
    site.proxy.answers("a.test", "/", 308).await;
    let other = DataPlane::start(site.control.listen()).await;
    other.answers("a.test", "/", 308).await;
    let said = |tickets: &str| {
        // So that no proxy remembers a session itself.
        let data = json!({"ssl-session-tickets": tickets, "ssl-session-cache": "false"});
        objects::config_map(&site.namespace, "ingress-nginx-controller", data)
    };
    // Whether a client that came to one proxy is known at the other one.
    let is_known = || async {
        let client = tls::Keeping::default();
        let mut known = Vec::new();
        for proxy in [&site.proxy, &other] {
            let (answer, is_resumed) = client.get(proxy.https(), "a.test", "/").await.unwrap();
            assert_eq!(answer.origin(), Some("one"));
            known.push(is_resumed);
        }
        assert!(!known[0], "it never was there");
        known[1]
    };
    for (tickets, wanted) in [("false", false), ("true", true), ("false", false)] {
        site.api.apply(&said(tickets)).await;
        eventually("the other one knows it, or does not", || async {
            let is_known = is_known().await;
            if is_known == wanted { Ok(()) } else { Err(is_known) }
        })
        .await;
    }
}
