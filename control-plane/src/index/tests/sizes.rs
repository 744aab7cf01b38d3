//! Objects that are too large for the stream are rejected, and no others.

use std::sync::Arc;

use shared::kind::Kind;

use super::fixture::*;
use crate::objects::{IngressPath, Object, ObjectKind};

fn with_paths(count: usize, service: &str) -> Object {
    let Object::Ingress(mut large) = ingress("large").rule("a.test", &[("/", service)]).into() else {
        panic!("an Ingress")
    };
    let http = Arc::make_mut(&mut large).spec.rules[0].http.as_mut().unwrap();
    let path = http.paths[0].clone();
    http.paths = (0..count).map(|i| IngressPath { path: format!("/{i}"), ..path.clone() }).collect();
    Object::Ingress(large)
}

#[test]
fn the_last_good_version_of_an_ingress_stays() {
    let mut world = World::default();
    world.apply(with_paths(1, "echo"));
    let before = world.routes();
    world.apply(with_paths(300_000, "echo"));
    assert_eq!(world.routes(), before);
    assert_eq!(world.problems_of("large"), ["rejected spec.rules"]);
    let commit = world.apply(ingress("later").rule("b.test", &[("/", "echo")]));
    assert_eq!(commit.config.len(), 2);

    world.apply(service("other"));
    let commit = world.apply(with_paths(10_000, "other"));
    let largest = commit.config.up.iter().map(|entry| entry.body.len()).max().unwrap();
    assert!(largest > 64 * 1024, "{largest}: more than a chunk is fine");
    assert_eq!(world.problems_of("large"), Vec::<String>::new());
}

#[test]
fn the_last_good_version_of_a_slice_stays() {
    let mut world = World::default();
    let good = slice("echo-1", "echo", &["10.0.0.1"]);
    world.events([applied(ingress("web").rule("a.test", &[("/", "echo")])), applied(good)]);
    let before = world.all(Kind::Endpoints);
    let Object::EndpointSlice(mut large) = slice("echo-1", "echo", &["10.0.0.1"]) else { panic!("a slice") };
    Arc::make_mut(&mut large).endpoints[0].addresses = vec!["10.0.0.1".to_owned(); 1_100_000];
    world.apply(Object::EndpointSlice(large));
    assert_eq!(world.all(Kind::Endpoints), before);
    assert_eq!(world.problems(ObjectKind::EndpointSlice, "echo-1"), ["rejected endpoints"]);
}

#[test]
fn canaries_cannot_make_the_backend_that_they_stand_beside_large() {
    let mut world = World::default();
    let paths: Vec<_> = (0..2_000).map(|i| format!("/{i}")).collect();
    let to = |services: &dyn Fn(usize) -> String| -> Vec<(String, String)> {
        paths.iter().enumerate().map(|(i, path)| (path.clone(), services(i))).collect()
    };
    let rule = |it: Ing, paths: &[(String, String)]| {
        let paths: Vec<_> = paths.iter().map(|(path, service)| (path.as_str(), service.as_str())).collect();
        it.rule("a.test", &paths)
    };
    world.apply(rule(ingress("web"), &to(&|_| "echo".to_owned())));
    world.apply(rule(ingress("canary").canary(), &to(&|i| format!("canary-{i}"))));
    let alternatives = world.alternatives();
    assert_eq!(alternatives.len(), 1);
    assert_eq!(alternatives[0].matches("canary-").count(), 100);
    assert!(alternatives[0].starts_with("default/echo/80: default/canary-0/80, default/canary-1/80,"));
}

/// 400 kB of an Ingress became hundreds of megabytes in each proxy.
#[test]
fn what_an_ingress_says_of_thousands_of_hosts_is_counted_on_each() {
    let mut world = World::default();
    let web = |hosts: usize, addresses: usize| {
        let list: Vec<_> = (0..addresses).map(|i| format!("10.{}.{}.0/24", i / 256, i % 256)).collect();
        let web = ingress("web").annotation("whitelist-source-range", &list.join(","));
        (0..hosts).fold(web, |it, i| it.rule(&format!("h{i}.test"), &[("/", "echo")]))
    };
    world.apply(service("echo"));
    world.apply(web(1_000, 10));
    let before = world.routes();
    assert_eq!(before.len(), 1_000);
    world.apply(web(1_000, 10_000));
    assert!(world.routes() == before, "its last good version stays");
    assert_eq!(world.problems_of("web"), ["rejected metadata.annotations"]);
    let commit = world.apply(ingress("later").rule("b.test", &[("/", "echo")]));
    assert_eq!(commit.config.len(), 2);
    world.apply(web(10, 10_000));
    assert_eq!((world.routes().len(), world.problems_of("web")), (11, Vec::new()));
}

/// A tenant's list of problems is in memory, in the log and in each response about it.
#[test]
fn so_many_problems_of_an_object_are_listed() {
    let paths: Vec<_> = (0..150).map(|i| (format!("/{i}"), format!("absent-{i}"))).collect();
    let paths: Vec<_> = paths.iter().map(|(path, service)| (path.as_str(), service.as_str())).collect();
    let mut world = World::default();
    world.apply(ingress("web").rule("a.test", &paths));
    let reasons = world.reasons("web");
    assert_eq!(reasons.len(), 100);
    assert!(reasons.iter().any(|reason| reason.contains("51 more")), "{reasons:?}");
}
