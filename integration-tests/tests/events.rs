//! Events for the owners of objects, on a real API server: each once, regardless of the number of replicas, at a rate
//! that does not burden the API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Instant;

use integration_tests::api::Api;
use integration_tests::cluster::{Authorization, Cluster};
use integration_tests::objects::{self, Edit};
use integration_tests::subscriber::{State, Subscriber};
use integration_tests::{ClusterSite, ControlPlane, Source, eventually, helm};
use serde_json::Value;

/// The Events of a namespace with a given reason.
async fn events(api: &Api, namespace: &str, reason: &str) -> Vec<Value> {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let all = api.list(&path).await.expect("a list of Events");
    all.into_iter().filter(|event| event["reason"] == reason).collect()
}

/// Waits until there is one, of an object.
async fn event(api: &Api, namespace: &str, reason: &str, name: &str) -> Value {
    eventually(&format!("{reason} is told of {name}"), || async {
        let found = events(api, namespace, reason).await;
        let of_name: Vec<_> = found.iter().filter(|event| event["regarding"]["name"] == name).collect();
        match of_name[..] {
            [one] => Ok(one.clone()),
            _ => Err(format!("{found:?}")),
        }
    })
    .await
}

#[tokio::test]
async fn an_ingress_that_is_rejected_says_so_once_and_says_when_it_is_accepted() {
    let site = ClusterSite::shared("events-rejected").await;
    let origin = site.origin("one").await;
    site.route("web", "a.test", &origin).await;
    // Another replica sees the same.
    let source = Source::Cluster {
        kubeconfig: Cluster::shared().await.kubeconfig(),
        namespace: Some("events-rejected".to_owned()),
    };
    let other = ControlPlane::start_with(&source, &[]).await;

    site.api.apply(&site.ingress("web", "a.test", &[("/etc/passwd", "one")])).await;
    let told = event(&site.api, "events-rejected", "Rejected", "web").await;
    assert_eq!((&told["type"], &told["regarding"]["kind"]), (&"Warning".into(), &"Ingress".into()));
    let note = told["note"].as_str().unwrap();
    assert!(note.starts_with("spec.rules[0].http.paths[0].path: "), "{note}");
    assert!(note.ends_with(". Its last good version is served"), "{note}");
    let web = site.api.read(&site.ingress("web", "a.test", &[])).await.unwrap();
    assert_eq!(told["regarding"]["uid"], web["metadata"]["uid"], "kubectl describe finds it by that");

    let bad =
        site.ingress("bad", "b.test", &[("/", "one")]).annotated("whitelist-source-range", "10.0.0.0/33");
    site.api.apply(&bad).await;
    let told = event(&site.api, "events-rejected", "AnnotationParsingFailed", "bad").await;
    assert!(told["note"].as_str().unwrap().starts_with("Error parsing annotations: "), "{told}");

    site.api.apply(&site.ingress("web", "a.test", &[("/", "one")])).await;
    let told = event(&site.api, "events-rejected", "Accepted", "web").await;
    assert_eq!(told["type"], "Normal");
    // It was fine all the time, and two replicas produce one Event.
    for (reason, count) in [("Rejected", 1), ("AnnotationParsingFailed", 1), ("Accepted", 1)] {
        assert_eq!(events(&site.api, "events-rejected", reason).await.len(), count, "{reason}");
    }
    drop(other);
}

#[tokio::test]
async fn an_ingress_that_a_proxy_refuses_says_so_and_says_when_it_is_served() {
    let site = ClusterSite::shared("events-refused").await;
    let origin = site.origin("one").await;
    site.route("web", "a.test", &origin).await;
    let mut judge = Subscriber::connect(site.control.listen(), State::new("judge-0123456789abcdef")).await;
    judge.until_idle().await;
    judge.refuses.insert("ingress/events-refused/web/a.test".to_owned(), "expected another path".to_owned());
    let edited = |timeout: &str| {
        site.ingress("web", "a.test", &[("/", "one")]).annotated("proxy-read-timeout", timeout)
    };
    let config = shared::kind::Lane::Config;
    let place = judge.state.lane(config).seq;
    site.api.apply(&edited("7")).await;
    judge.until("the edit is there", |state| state.lane(config).seq > place).await;
    let refused = event(&site.api, "events-refused", "Refused", "web");
    let told = refused.await;
    let note = told["note"].as_str().unwrap();
    assert!(
        note.starts_with(
            "proxies cannot serve route ingress/events-refused/web/a.test: expected another path"
        )
    );
    assert!(note.contains("`firth status ingress events-refused/web`"), "{note}");

    judge.refuses.clear();
    let place = judge.state.lane(config).seq;
    site.api.apply(&edited("8")).await;
    judge.until("the next edit is there", |state| state.lane(config).seq > place).await;
    let accepted = event(&site.api, "events-refused", "Accepted", "web");
    let told = accepted.await;
    assert_eq!((&told["type"], &told["action"]), (&"Normal".into(), &"Serve".into()));
    assert_eq!(events(&site.api, "events-refused", "Refused").await.len(), 1);
}

#[tokio::test]
async fn hundreds_of_bad_ingresses_are_told_at_a_pace_and_hold_up_nobody() {
    let site = ClusterSite::shared("events-many").await;
    let origin = site.origin("one").await;
    let begun = Instant::now();
    for at in 0..300 {
        let name = format!("bad{at}");
        site.api.apply(&site.ingress(&name, &format!("{name}.test"), &[("/etc/passwd", "one")])).await;
    }
    site.route("web", "a.test", &origin).await;
    // The newest does not wait for the others.
    site.api.apply(&site.ingress("web", "a.test", &[("/etc/passwd", "one")])).await;
    event(&site.api, "events-many", "Rejected", "web").await;
    let count = events(&site.api, "events-many", "Rejected").await.len();
    assert!(count <= 300, "all others were told");
    let most = 25 + 5 * (begun.elapsed().as_secs() as usize + 1);
    assert!(count <= most, "{count} within {:?}", begun.elapsed());
}

#[tokio::test]
async fn where_events_may_not_be_written_it_is_said_once_and_all_else_goes_on() {
    let cluster = Cluster::start(Authorization::Rbac).await;
    let api = cluster.api().await;
    for namespace in ["firth", "ingress-nginx"] {
        api.apply(&objects::namespace(namespace)).await;
    }
    let mut taken = 0;
    for mut right in helm::rights(&[]) {
        if let Some(rules) = right["rules"].as_array_mut() {
            let before = rules.len();
            rules.retain(|rule| rule["resources"] != serde_json::json!(["events"]));
            taken += before - rules.len();
        }
        api.apply(&right).await;
    }
    assert_eq!(taken, 1, "the chart gives this right once");
    let source = Source::Cluster { kubeconfig: cluster.kubeconfig_of_account(), namespace: None };
    let site = ClusterSite::start_with(&cluster, "shop", &source, &["--pod-namespace", "firth"]).await;
    let origin = site.origin("one").await;
    for at in 0..20 {
        let name = format!("bad{at}");
        site.api.apply(&site.ingress(&name, &format!("{name}.test"), &[("/etc/passwd", "one")])).await;
    }
    let said = || site.control.log().matches("Events may not be written").count();
    eventually("it is said", || async { if said() > 0 { Ok(()) } else { Err(()) } }).await;
    site.route("web", "a.test", &origin).await;
    site.api.apply(&site.ingress("web", "a.test", &[("/etc/passwd", "one")])).await;
    site.route("api", "b.test", &origin).await;
    assert_eq!(said(), 1, "{}", site.control.log());
    assert!(events(&api, "shop", "Rejected").await.is_empty());
}
