//! What is left of an earlier version: nothing, whatever part of an Ingress, or of the Secret that it names, is edited.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::fixture::*;
use super::properties::assert_same;
use super::restrictions::authorities;
use crate::event::Event;
use crate::objects::{Object, ObjectKind, Secret};

/// Versions of `web` that differ in one part from another; `None`: it does not exist.
fn versions() -> Vec<Option<Ing>> {
    let bare = || ingress("web").at(3);
    let web = || bare().rule("a.test", &[("/", "echo")]);
    let without_rules = || {
        let it = bare().default_backend("echo").annotation("app-root", "/app");
        it.annotation("permanent-redirect", "https://x.test").annotation("use-regex", "true")
    };
    let ca = |it: Ing| it.annotation("auth-tls-secret", "default/ca");
    [
        web(),
        web().at(9),
        web().tls(&[], ""),
        web().tls(&[], "one"),
        web().tls(&[], "two"),
        web().tls(&["A.test"], "one"),
        web().tls(&["b.test"], "one"),
        without_rules(),
        without_rules().with(|it| it["spec"]["rules"] = json!([{}])),
        bare().rule("a.test", &[("=/near", "echo")]),
        bare().rule("a.test", &[("=/near", "echo")]).at(9),
        bare().rule("a.test", &[("=/far", "echo"), ("/far", "echo")]),
        web().canary(),
        bare().canary().default_backend("echo"),
        web().default_backend("echo"),
        web().annotation("server-alias", "b.test"),
        web().annotation("from-to-www-redirect", "true"),
        web().annotation("use-regex", "true"),
        web().annotation("affinity", "cookie"),
        ca(web()),
        ca(web().canary()),
    ]
    .into_iter()
    .map(Some)
    .chain([None])
    .collect()
}

/// The Secret that some of them name: not there, of no use, good.
fn secrets() -> [Option<Object>; 3] {
    let mut faulty = Secret::default();
    (faulty.metadata.namespace, faulty.metadata.name) = ("default".into(), "ca".into());
    faulty.data.insert("ca.crt".into(), STANDARD.encode("none"));
    [None, Some(Object::Secret(faulty.into())), Some(authorities("ca"))]
}

fn neighbours() -> [Event; 3] {
    let near = ingress("near").at(5).rule("a.test", &[("/near", "near"), ("=/far", "near")]);
    let far = ingress("far").at(6).rule("a.test", &[("/far", "far")]).rule("", &[("/", "far")]);
    let canary = ingress("canary").at(7).canary().rule("a.test", &[("/near", "new"), ("/", "new")]);
    [near, far, canary].map(applied)
}

fn event(kind: ObjectKind, name: &str, version: Option<impl Into<Object>>) -> Event {
    match version {
        Some(version) => applied(version),
        None => Event::Deleted(reference(kind, name)),
    }
}

#[test]
fn whatever_is_edited_the_result_is_that_of_the_new_version() {
    let secrets = secrets();
    let fresh = |web: &Option<Ing>, ca: &Option<Object>| {
        let mut world = World::default();
        world.events(neighbours());
        world.events([
            event(ObjectKind::Ingress, "web", web.clone()),
            event(ObjectKind::Secret, "ca", ca.clone()),
        ]);
        world
    };
    let all: Vec<_> = versions().into_iter().map(|web| (fresh(&web, &secrets[2]), web)).collect();
    for (_, before) in &all {
        for (expected, after) in &all {
            let mut world = fresh(before, &secrets[2]);
            world.events([event(ObjectKind::Ingress, "web", after.clone())]);
            assert_same(&world, expected);
        }
    }
    for web in versions() {
        for before in &secrets {
            for after in &secrets {
                let mut world = fresh(&web, before);
                world.events([event(ObjectKind::Secret, "ca", after.clone())]);
                assert_same(&world, &fresh(&web, after));
            }
        }
    }
}
