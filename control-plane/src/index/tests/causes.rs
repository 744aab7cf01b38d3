//! The line that explains a commit: its contents, and what it must not reveal.

use serde_json::{Value, json};

use super::super::Options;
use super::fixture::*;
use crate::event::Event;
use crate::objects::ObjectKind;

fn web(service: &str) -> Ing {
    ingress("web").rule("a.test", &[("/", service)])
}

#[test]
fn what_other_tools_wrote_is_not_told() {
    let applied = |ingress: Ing, text: &str| {
        ingress.with(|it| {
            it["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!(text);
        })
    };
    let mut world = World::default();
    world.apply(applied(web("one").annotation("canary-weight", "1"), "hunter1"));
    let commit = world.apply(applied(web("two").annotation("ssl-redirect", "false"), "hunter2"));
    assert_eq!(commit.cause, "Ingress default/web: canary-weight removed, ssl-redirect false, rules changed");
}

#[test]
fn a_class_that_changed_is_told() {
    let mut world = World::default();
    world.apply(web("one"));
    let commit = world.apply(web("one").with(|it| {
        it["metadata"]["annotations"]["kubernetes.io/ingress.class"] = json!("other");
    }));
    assert_eq!(commit.cause, "Ingress default/web: kubernetes.io/ingress.class nginx -> other");
}

#[test]
fn raw_configuration_is_not_told() {
    let mut world = World::default();
    world.apply(configmap(json!({"annotations-risk-level": "Critical"})));
    world.apply(web("one"));
    for (service, text, what) in [
        ("two", "set $key hunter1;", "server-snippet changed, rules changed"),
        ("three", "set $key hunter2;", "server-snippet changed, rules changed"),
    ] {
        let commit = world.apply(web(service).annotation("server-snippet", text));
        assert_eq!(commit.cause, format!("Ingress default/web: {what}"));
    }
    let commit = world.apply(web("four"));
    assert_eq!(commit.cause, "Ingress default/web: server-snippet removed, rules changed");

    world.apply(configmap(json!({"ssl-redirect": "true"})));
    let data = json!({"ssl-redirect": "false", "http-snippet": "set $key hunter2;"});
    let commit = world.apply(configmap(data));
    assert_eq!(
        commit.cause,
        "ConfigMap ingress-nginx/ingress-nginx-controller: http-snippet changed, ssl-redirect true -> false"
    );
}

#[test]
fn values_that_may_hold_a_credential_are_not_told() {
    let mut world = World::default();
    world.apply(web("one"));
    for name in
        ["auth-url", "auth-signin", "auth-realm", "canary-by-header-value", "canary-weigth", "x-of-tomorrow"]
    {
        for text in ["http://user:hunter1@a.test", "http://user:hunter2@a.test"] {
            let commit = world.apply(web("one").annotation(name, text));
            assert!(!commit.cause.contains("hunter"), "{}", commit.cause);
        }
    }
    let keys = ["ssl-session-ticket-key", "global-auth-url", "proxy-set-headers", "of-tomorrow"];
    for text in ["hunter1", "hunter2"] {
        let data: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), json!(text))).collect();
        let commit = world.apply(configmap(data.into()));
        assert!(!commit.cause.contains("hunter"), "{}", commit.cause);
    }
}

/// A name may be anything in a folder, and values may have any length.
#[test]
fn a_tenants_text_is_short_and_on_one_line() {
    let mut world = World::default();
    world.apply(web("one"));
    let commit = world.apply(web("one").annotation("odd\n\u{1b}[2Jname", "1"));
    assert_eq!(commit.cause, "", "it changes nothing");
    let commit = world.apply(web("two").annotation("odd\n\u{1b}[2Jname", "2"));
    assert_eq!(commit.cause, "Ingress default/web: odd  [2Jname changed, rules changed");
    let long = "9".repeat(200_000);
    let commit = world.apply(web("three").annotation(&long, "1").annotation("session-cookie-expires", &long));
    assert!(commit.cause.contains("rules changed") || commit.cause.contains("more"), "{}", commit.cause);
    assert!(commit.cause.len() < 250 && commit.cause.contains("9..."), "{} bytes", commit.cause.len());
}

#[test]
fn a_cause_names_its_object_its_version_and_who_wrote_it() {
    let mut world = World::default();
    let web = |weight: &str, version: &str, manager: &str| {
        ingress("web").canary().annotation("canary-weight", weight).rule("a.test", &[("/", "one")]).with(
            |it| {
                it["metadata"]["resourceVersion"] = json!(version);
                it["metadata"]["managedFields"] = json!([
                    {"manager": "kubectl-create", "time": "2026-02-01T00:00:00Z"},
                    {"manager": manager, "time": "2026-03-01T00:00:00Z"},
                ]);
            },
        )
    };
    world.apply(ingress("main").rule("a.test", &[("/", "main")]));
    let origin = world.apply(web("10", "7", "helm")).origin;
    assert_eq!(
        (&*origin.object, &*origin.resource_version, &*origin.manager),
        ("Ingress default/web", "7", "helm")
    );
    let origin = world.apply(web("50", "9", "k\n9")).origin;
    assert_eq!((&*origin.resource_version, &*origin.manager), ("9", "k 9"));
    // Whoever removes an annotation leaves no entry: one that has another field stays as it was, one that has none goes.
    let other = world.apply(web("40", "10", "k\n9").with(|it| it["metadata"]["labels"] = json!({}))).origin;
    let entry = |it: &mut Value| _ = it["metadata"]["managedFields"].as_array_mut().unwrap().pop();
    let gone = world.apply(web("30", "11", "k\n9").with(entry)).origin;
    assert_eq!([&*other.manager, &*gone.manager], ["", ""]);
    let origin = world.apply(web("50", "12", "helm")).origin;
    assert_eq!(&*origin.manager, "helm");
    // It is unknown who deleted it.
    let origin = world.delete(ObjectKind::Ingress, "web").origin;
    assert_eq!(
        (&*origin.object, &*origin.resource_version, &*origin.manager),
        ("Ingress default/web", "12", "")
    );
}

#[test]
fn endpoints_that_go_to_another_service_are_counted_there() {
    let mut world = World::default();
    world.apply(service("one"));
    world.apply(service("two"));
    world.apply(ingress("web").rule("a.test", &[("/", "one"), ("/two", "two")]));
    let told = [
        world.apply(slice("s-1", "one", &["10.0.0.1", "10.0.0.2"])).cause,
        world.apply(slice("s-1", "two", &["10.0.0.1", "10.0.0.2"])).cause,
        world.apply(slice("s-1", "two", &["10.0.0.1"])).cause,
    ];
    let expected = ["one: 0 -> 2", "two: 0 -> 2", "two: 2 -> 1"];
    assert_eq!(told, expected.map(|it| format!("endpoints of default/{it}")));
}

/// A referenced object is read after the Ingress arrived, and is not a change by itself.
#[test]
fn what_had_to_wait_is_told_as_the_change_that_it_is() {
    let on_demand = || World::with(Options { on_demand: true, ..options() });
    let secured = |service: &str| web(service).tls(&["a.test"], "cert");
    let mut world = on_demand();
    world.apply(secured("one"));
    // It is not published before its certificate was read, and edited meanwhile.
    world.apply(service("one"));
    world.apply(secured("two"));
    let commit = world.apply(secret("cert", 0));
    assert_eq!(commit.cause, "2 changes, first: Ingress default/web: created");
    assert_eq!(commit.origin.object, "Ingress default/web");
    // Once.
    assert_eq!(world.apply(secret("cert", 1)).cause, "Secret default/cert: changed");

    let commit = world.apply(web("two").tls(&["a.test"], "other"));
    assert_eq!(commit.cause, "", "nothing shows yet");
    assert_eq!(world.apply(secret("other", 1)).cause, "2 changes, first: Ingress default/web: tls changed");

    // It cannot be read for now, and nothing waits for it.
    let mut world = on_demand();
    world.apply(secured("one"));
    let unreadable =
        Event::Unreadable { object: reference(ObjectKind::Secret, "cert"), reason: "503".into() };
    assert_eq!(world.events([unreadable]).cause, "Ingress default/web: created");

    // An object that an annotation names.
    let mut world = on_demand();
    world.apply(web("one"));
    let guarded = web("one").annotation("auth-type", "basic").annotation("auth-secret", "users");
    let first = world.apply(guarded);
    let told = world.events([Event::Deleted(reference(ObjectKind::Secret, "users"))]);
    assert!([first.cause, told.cause].iter().all(|it| it.is_empty() || it.contains("Ingress default/web")));

    // Deleted Ingresses are not mentioned.
    let mut world = on_demand();
    world.apply(secured("one"));
    world.delete(ObjectKind::Ingress, "web");
    assert_eq!(world.apply(secret("cert", 0)).cause, "");
}
