//! Annotations with another prefix.

use std::sync::Arc;

use serde_json::json;
use shared::kind::Kind;
use shared::resource::Resource;

use super::super::{Options, Prefix};
use super::fixture::*;
use crate::objects::{Object, ObjectKind};

fn world() -> World {
    World::with(Options { prefix: Prefix::new("custom.example.com"), ..options() })
}

fn web(key: &str, text: &str) -> Ing {
    let web = ingress("web").rule("a.test", &[("/", "echo")]);
    web.with(|it| it["metadata"]["annotations"][key] = json!(text))
}

#[test]
fn the_usual_one_is_no_other() {
    assert_eq!(Prefix::new("nginx.ingress.kubernetes.io"), None);
}

#[test]
fn only_its_own_annotations_act_and_are_told_by_their_names() {
    let mut world = world();
    let vhost = |world: &World| match world.get(Kind::Route, "ingress/default/web/a.test") {
        Some(Resource::Route(route)) => route.policy.upstream_vhost,
        other => panic!("{other:?}"),
    };
    world.apply(web("custom.example.com/upstream-vhost", "x.test"));
    assert_eq!(vhost(&world).as_deref(), Some("x.test"));
    world.apply(web("nginx.ingress.kubernetes.io/upstream-vhost", "x.test"));
    assert_eq!(vhost(&world), None);
    world.apply(web("custom.example.com/limit-rps", "ten"));
    let told = world.problems(ObjectKind::Ingress, "web");
    assert!(
        told.iter().any(|it| it.contains("metadata.annotations[custom.example.com/limit-rps]")),
        "{told:?}"
    );
}

#[test]
fn who_writes_the_usual_one_is_refused() {
    let world = world();
    let refused = |ingress: Ing| {
        let Object::Ingress(ingress) = ingress.into() else { panic!("no Ingress") };
        world.index.review(&Arc::clone(&ingress)).refused.unwrap_or_default()
    };
    assert!(refused(web("nginx.ingress.kubernetes.io/use-regex", "true")).contains("--annotations-prefix"));
    assert_eq!(refused(web("custom.example.com/use-regex", "true")), "");
    let foreign = web("nginx.ingress.kubernetes.io/use-regex", "true")
        .with(|it| it["metadata"]["annotations"]["kubernetes.io/ingress.class"] = json!("other"));
    assert_eq!(refused(foreign), "", "it is none of ours");
    let why = refused(web("custom.example.com/limit-rps", "ten"));
    assert!(why.starts_with("metadata.annotations[custom.example.com/limit-rps]"), "{why}");
    let why = refused(web("custom.example.com/configuration-snippet", "return 403;"));
    assert!(why.starts_with("custom.example.com/configuration-snippet annotation cannot be used"), "{why}");
}
