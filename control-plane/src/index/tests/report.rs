//! What commits report about objects: their newest versions, once each, and nothing about others.

use serde_json::json;

use super::fixture::*;
use crate::objects::ObjectKind;
use crate::placement::{Compiled, Report};

fn web(count: u32) -> Ing {
    counted(ingress("web").rule("a.test", &[("/", "one"), ("/x", "two")]), count)
}

fn counted(ingress: Ing, count: u32) -> Ing {
    ingress.with(|it| it["metadata"]["resourceVersion"] = json!(count.to_string()))
}

fn said(commit: &super::super::Commit, kind: ObjectKind, name: &str) -> Option<Report> {
    let object = reference(kind, name);
    commit.reports.iter().find(|(it, _)| *it == object).map(|(_, reports)| reports.clone())
}

fn made(commit: &super::super::Commit, kind: ObjectKind, name: &str) -> Compiled {
    match said(commit, kind, name) {
        Some(Report::Compiled(made)) => made,
        other => panic!("expected what was made of {name}, got {other:?}"),
    }
}

#[test]
fn a_version_is_told_with_the_commit_that_has_it() {
    let mut world = World::default();
    let first = made(&world.apply(web(7)), ObjectKind::Ingress, "web");
    assert_eq!((&*first.resource_version, first.is_served, first.is_rejected), ("7", true, false));
    let backends: Vec<_> = first.backends.iter().map(|it| &**it).collect();
    assert_eq!(backends, ["default/one/80", "default/two/80"]);
    assert_eq!(first.hosts.iter().map(|it| &**it).collect::<Vec<_>>(), ["a.test"]);

    let other = world.apply(counted(ingress("other").rule("b.test", &[("/", "one")]), 8));
    assert_eq!(said(&other, ObjectKind::Ingress, "web"), None, "nothing new is said of others");
    let gone = world.delete(ObjectKind::Ingress, "web");
    assert_eq!(said(&gone, ObjectKind::Ingress, "web"), Some(Report::Deleted));
}

#[test]
fn a_version_that_changes_nothing_is_told_too() {
    let mut world = World::default();
    world.apply(web(7));
    let commit = world.apply(web(8));
    assert!(commit.config.is_empty() && commit.live.is_empty());
    assert_eq!(&*made(&commit, ObjectKind::Ingress, "web").resource_version, "8", "whoever waits for it");
    assert!(world.apply(web(8)).reports.is_empty());
}

#[test]
fn one_that_is_rejected_says_so_and_whether_an_older_one_is_served() {
    let bad = |count| counted(ingress("web").rule("a.test", &[("/etc/nginx", "one")]), count);
    let mut world = World::default();
    let never_good = made(&world.apply(bad(1)), ObjectKind::Ingress, "web");
    assert_eq!((never_good.is_served, never_good.is_rejected), (false, true));
    world.apply(web(2));
    let held = made(&world.apply(bad(3)), ObjectKind::Ingress, "web");
    assert_eq!((&*held.resource_version, held.is_served, held.is_rejected), ("3", true, true));
}

#[test]
fn whose_it_is_hangs_on_the_class() {
    let mut world = World::default();
    let classy = || {
        web(1).with(|it| {
            it["metadata"]["annotations"] = json!({});
            it["spec"]["ingressClassName"] = json!("ours");
        })
    };
    assert_eq!(said(&world.apply(classy()), ObjectKind::Ingress, "web"), Some(Report::Foreign));
    let came = world.apply(class("ours", "k8s.io/ingress-nginx"));
    assert!(made(&came, ObjectKind::Ingress, "web").is_served, "nothing was heard of the Ingress itself");
    let went = world.apply(class("ours", "example.com/other"));
    assert_eq!(said(&went, ObjectKind::Ingress, "web"), Some(Report::Foreign), "it exists");
    let gone = world.delete(ObjectKind::Ingress, "web");
    assert_eq!(said(&gone, ObjectKind::Ingress, "web"), Some(Report::Deleted));
}

#[test]
fn endpoints_are_their_service_s_and_overtake_what_else_is_under_way() {
    let mut world = World::default();
    world.apply(web(1));
    world.apply(service("one"));
    world.apply(slice("one-a", "one", &["10.0.0.1"]));
    world.index.apply(applied(web(2)));
    world.index.apply(applied(slice("one-a", "one", &["10.0.0.2"])));
    let early = world.early();
    assert_eq!(early.reports, [(reference(ObjectKind::Service, "one"), Report::EndpointsChanged)]);
    let rest = world.events([]);
    assert_eq!(&*made(&rest, ObjectKind::Ingress, "web").resource_version, "2");
    assert_eq!(said(&rest, ObjectKind::Service, "one"), None, "said before");
    // One that goes over to another Service is news of both.
    let moved = world.apply(slice("one-a", "two", &["10.0.0.2"]));
    for service in ["one", "two"] {
        assert_eq!(said(&moved, ObjectKind::Service, service), Some(Report::EndpointsChanged), "{service}");
    }
}

/// As in a cluster, where such a Secret is not read.
#[test]
fn a_secret_that_nothing_refers_to_is_not_told_as_served() {
    let mut world = World::default();
    let unused = world.apply(secret("cert", 0));
    assert_eq!(said(&unused, ObjectKind::Secret, "cert"), Some(Report::Foreign));
    let secure = || web(1).tls(&["a.test"], "cert");
    assert!(made(&world.apply(secure()), ObjectKind::Secret, "cert").is_served);
    let broken = made(&world.apply(secret_with("cert", "x", "x")), ObjectKind::Secret, "cert");
    assert_eq!((broken.is_served, broken.is_rejected), (true, true), "the last good one is");
    let left = world.apply(web(2));
    assert_eq!(said(&left, ObjectKind::Secret, "cert"), Some(Report::Foreign));
}
