//! Session affinity: a Backend has one setting, whichever of the Ingresses that refer to it enables it (ingress-nginx).

use shared::kind::Kind;
use shared::policy::{Affinity, AffinityMode};
use shared::resource::Resource;

use super::fixture::*;
use crate::objects::ObjectKind;

fn affinity(world: &World) -> Option<Affinity> {
    match world.get(Kind::Backend, "default/main/80") {
        Some(Resource::Backend(backend)) => backend.policy.affinity,
        _ => None,
    }
}

/// The cookie's name, and the mode.
fn of(world: &World) -> Option<(String, Option<AffinityMode>)> {
    affinity(world).map(|it| (it.name.clone(), it.mode.is_some().then(|| it.mode())))
}

fn sticky(name: &str, cookie: &str) -> Ing {
    ingress(name).annotation("affinity", "cookie").annotation("session-cookie-name", cookie)
}

#[test]
fn the_first_mode_and_the_last_cookie_count() {
    let mut world = World::default();
    world.apply(ingress("plain").at(1).rule("a.test", &[("/", "main")]));
    assert_eq!(of(&world), None);
    world.apply(sticky("first", "one").at(2).rule("b.test", &[("/", "main")]));
    assert_eq!(of(&world), Some(("one".into(), None)));
    let persistent = sticky("second", "two").annotation("affinity-mode", "persistent");
    world.apply(persistent.at(3).rule("c.test", &[("/", "main")]));
    let balanced = sticky("third", "three").annotation("affinity-mode", "balanced");
    world.apply(balanced.at(4).rule("a.test", &[("/", "main"), ("/other", "other")]));
    assert_eq!(of(&world), Some(("three".into(), Some(AffinityMode::Persistent))));
    world.delete(ObjectKind::Ingress, "third");
    assert_eq!(of(&world), Some(("two".into(), Some(AffinityMode::Persistent))));
    world.apply(sticky("second", "two").at(3).rule("c.test", &[("/", "main")]));
    assert_eq!(of(&world), Some(("two".into(), None)));
    world.delete(ObjectKind::Ingress, "second");
    world.delete(ObjectKind::Ingress, "first");
    assert_eq!(of(&world), None);
}

/// As in ingress-nginx: type and mode are each taken from the first Ingress that sets them.
#[test]
fn the_mode_may_be_said_by_one_that_asks_for_no_affinity() {
    let mut world = World::default();
    let mode = |mode| ingress("first").annotation("affinity-mode", mode).at(1);
    world.apply(mode("persistent").rule("a.test", &[("/", "main")]));
    assert_eq!(of(&world), None);
    world.apply(
        sticky("second", "two")
            .annotation("affinity-mode", "balanced")
            .at(2)
            .rule("b.test", &[("/", "main")]),
    );
    assert_eq!(of(&world), Some(("two".into(), Some(AffinityMode::Persistent))));
    world.apply(mode("balanced").rule("a.test", &[("/", "main")]));
    assert_eq!(of(&world), Some(("two".into(), Some(AffinityMode::Balanced))));
    world.apply(mode("persistent").rule("a.test", &[("/", "other")]));
    assert_eq!(of(&world), Some(("two".into(), Some(AffinityMode::Balanced))));
    let rest = mode("persistent").default_backend("main").rule("a.test", &[("/", "other")]);
    world.apply(rest);
    assert_eq!(of(&world), Some(("two".into(), Some(AffinityMode::Balanced))), "nor by a default backend");
}

#[test]
fn neither_a_default_backend_nor_a_canary_asks_for_it() {
    let mut world = World::default();
    world.apply(ingress("plain").at(1).rule("a.test", &[("/", "main")]));
    world.apply(sticky("rest", "one").at(2).default_backend("main").rule("b.test", &[("/", "other")]));
    world.apply(sticky("canary", "two").canary().at(3).rule("a.test", &[("/", "main")]));
    assert_eq!(of(&world), None);
}

#[test]
fn only_the_paths_of_who_asks_issue_the_cookie() {
    let mut world = World::default();
    world.apply(ingress("plain").at(1).rule("a.test", &[("/", "main")]));
    world.apply(sticky("sticky", "one").at(2).rule("a.test", &[("/in", "main")]));
    let issues = |ingress: &str| match world.get(Kind::Route, &format!("ingress/default/{ingress}/a.test")) {
        Some(Resource::Route(route)) => route.policy.issues_cookie,
        _ => panic!("no Route of {ingress}"),
    };
    assert_eq!((issues("plain"), issues("sticky")), (None, Some(true)));
}

/// The implicit "/" of an Ingress sets no cookie: it was not declared.
#[test]
fn an_undeclared_root_issues_no_cookie() {
    let issues_none = |paths: &[(&str, &str)]| {
        let mut world = World::default();
        world.apply(sticky("sticky", "one").at(1).default_backend("main").rule("a.test", paths));
        let Some(Resource::Route(route)) = world.get(Kind::Route, "ingress/default/sticky/a.test") else {
            panic!("no Route");
        };
        (route.paths[0].path.clone(), route.policy.root_issues_none)
    };
    assert_eq!(issues_none(&[("/in", "main")]), ("/".into(), Some(true)));
    assert_eq!(issues_none(&[("/", "main")]), ("/".into(), None));
    assert_eq!(issues_none(&[("=/", "main")]), ("/".into(), None), "one of them is declared");
}
