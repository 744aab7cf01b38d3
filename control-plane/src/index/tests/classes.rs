//! Which Ingresses are ours (controller.md 2, vectors ingress-class).

use serde_json::json;

use super::fixture::*;
use crate::event::Event;
use crate::objects::{ObjectKind, ObjectRef};
use shared::name::ObjectName;

fn web(class: Option<&str>, annotation: Option<&str>) -> Ing {
    ingress("web").rule("a.test", &[("/", "echo")]).with(|it| {
        it["metadata"]["annotations"] = match annotation {
            Some(class) => json!({"kubernetes.io/ingress.class": class}),
            None => json!({}),
        };
        it["spec"]["ingressClassName"] = json!(class);
    })
}

#[test]
fn the_field_comes_before_the_annotation() {
    let table = [
        (Some("nginx"), None, true),
        (Some("ours-too"), None, true),
        (Some("other"), None, false),
        (Some("missing"), None, false),
        (Some("missing"), Some("nginx"), false),
        (Some("nginx"), Some("other"), true),
        (None, Some("nginx"), true),
        (None, Some("other"), false),
        (None, None, false),
    ];
    for (field, annotation, expected) in table {
        let mut world = World::default();
        world.events([
            applied(class("nginx", "k8s.io/ingress-nginx")),
            applied(class("ours-too", "k8s.io/ingress-nginx")),
            applied(class("other", "example.com/other")),
            applied(web(field, annotation)),
        ]);
        assert_eq!(!world.routes().is_empty(), expected, "{field:?} {annotation:?}");
    }
}

#[test]
fn a_class_brings_its_ingresses_along() {
    let mut world = World::default();
    world.apply(web(Some("nginx"), None));
    assert_eq!(world.routes().len(), 0);
    let commit = world.apply(class("nginx", "k8s.io/ingress-nginx"));
    assert_eq!(commit.cause, "IngressClass nginx: created");
    assert_eq!(world.routes().len(), 1);
    world.apply(class("nginx", "example.com/other"));
    assert_eq!(world.routes().len(), 0);
    world.apply(class("nginx", "k8s.io/ingress-nginx"));
    assert_eq!(world.routes().len(), 1);
    world.events([Event::Deleted(ObjectRef {
        kind: ObjectKind::IngressClass,
        name: ObjectName::new("", "nginx"),
    })]);
    assert_eq!(world.routes().len(), 0);
}

#[test]
fn an_ingress_of_somebody_else_is_not_judged() {
    let mut world = World::default();
    world.events([]);
    let commit = world.apply(web(Some("other"), None).rule("a.test", &[("no slash", "echo")]));
    assert!(!commit.problems_changed);
    assert_eq!(commit.cause, "");
    assert!(commit.holds.is_empty());
}
