//! Ingresses selected by the labels of their namespaces.

use std::sync::Arc;

use serde_json::{Value, json};
use shared::name::ObjectName;

use super::super::Options;
use super::fixture::*;
use crate::event::Event;
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::problem::Subject;
use crate::selector::Selector;

fn selecting(selector: &str, folder: bool) -> World {
    World::with(Options { namespace_selector: Some(Selector::parse(selector).unwrap()), folder, ..options() })
}

fn namespace(name: &str, labels: &Value) -> Object {
    let it = json!({"metadata": {"name": name, "labels": labels}});
    Object::Namespace(serde_json::from_value(it).unwrap())
}

/// An Ingress for the host `NAMESPACE.test`.
fn of(namespace: &str) -> Ing {
    let web = ingress("web").rule(&format!("{namespace}.test"), &[("/", "echo")]);
    web.with(|it| it["metadata"]["namespace"] = json!(namespace))
}

fn served(world: &World) -> Vec<String> {
    let namespace = |line: String| line.split('/').nth(1).unwrap_or_default().to_owned();
    world.routes().into_iter().map(namespace).collect()
}

#[test]
fn only_ingresses_of_namespaces_with_these_labels_are_served() {
    let mut world = selecting("team=a", false);
    world.events([
        applied(of("one")),
        applied(of("two")),
        applied(of("three")),
        applied(namespace("one", &json!({"team": "a"}))),
        applied(namespace("two", &json!({"team": "b"}))),
    ]);
    assert_eq!(served(&world), ["one"], "the third does not exist");
    for name in ["two", "three"] {
        let object = ObjectRef { kind: ObjectKind::Ingress, name: ObjectName::new(name, "web") };
        let problems = world.index.problems().get(&Subject::Object(object));
        assert_eq!(problems, None, "others may well serve it");
    }
    let commit = world.apply(namespace("two", &json!({"team": "a", "more": "x"})));
    assert_eq!(served(&world), ["one", "two"]);
    assert_eq!(commit.cause, "Namespace two: changed");
    let commit = world.apply(namespace("two", &json!({"team": "a"})));
    assert_eq!((commit.config.len(), commit.compiled), (0, 0), "another label");
    world.apply(namespace("one", &json!({})));
    assert_eq!(served(&world), ["two"]);
    world.events([Event::Deleted(ObjectRef {
        kind: ObjectKind::Namespace,
        name: ObjectName::new("", "two"),
    })]);
    assert_eq!(served(&world), Vec::<String>::new());
    world.apply(namespace("three", &json!({"team": "a"})));
    assert_eq!(served(&world), ["three"]);
}

/// The API server labels each namespace with its name.
#[test]
fn in_a_folder_a_namespace_that_is_only_named_has_its_name_for_a_label() {
    let mut world = selecting("kubernetes.io/metadata.name in (one, two), !closed", true);
    world.events([applied(of("one")), applied(of("two")), applied(of("three"))]);
    assert_eq!(served(&world), ["one", "two"]);
    world.apply(namespace("two", &json!({"closed": ""})));
    assert_eq!(served(&world), ["one"]);
    world.events([Event::Deleted(ObjectRef {
        kind: ObjectKind::Namespace,
        name: ObjectName::new("", "two"),
    })]);
    assert_eq!(served(&world), ["one", "two"]);
}

#[test]
fn the_webhook_lets_go_what_is_not_ours_by_that() {
    let mut world = selecting("team=a", false);
    world.events([applied(namespace("one", &json!({"team": "a"})))]);
    let refused = |namespace: &str| {
        let Object::Ingress(odd) = Object::from(of(namespace).annotation("auth-type", "odd")) else {
            panic!("an Ingress")
        };
        world.index.review(&Arc::clone(&odd)).refused.is_some()
    };
    assert_eq!((refused("one"), refused("two")), (true, false));
}
