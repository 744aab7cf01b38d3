//! Restrictions that are not enforced yet: what they would guard answers 503.

use shared::kind::Kind;
use shared::resource::Resource;

use super::fixture::*;
use super::properties::assert_same;
use crate::annotations::row::{Row, Status};
use crate::annotations::table;
use crate::objects::ObjectKind;
use crate::problem::Severity;

#[test]
fn paths_of_a_guarded_ingress_are_denied_the_implicit_root_too() {
    let mut world = World::default();
    world.apply(ingress("guarded").at(1).annotation("auth-url", "not-a-url").rule("a.test", &[("/x", "x")]));
    world.apply(ingress("open").at(2).rule("a.test", &[("/y", "y")]));
    assert_eq!(
        world.routes(),
        [
            "ingress/default/guarded/a.test: / -> 404, /x -> default/x/80 (denied)",
            "ingress/default/open/a.test: /y -> default/y/80",
        ]
    );
    assert!(world.severities(ObjectKind::Ingress, "guarded").contains(&Severity::Unsupported));
}

#[test]
fn client_certificates_deny_the_host_whoever_owns_its_paths() {
    let mut world = World::default();
    world.apply(ingress("open").at(1).rule("a.test", &[("/", "open")]).rule("b.test", &[("/", "open")]));
    let guard = ingress("guard").at(2).annotation("auth-tls-secret", "default/ca");
    world.apply(guard.rule("a.test", &[("/", "lost")]));
    let denied = |host: &str| match world.get(Kind::Host, host) {
        Some(Resource::Host(it)) => it.denied.map(|denial| denial.reason),
        _ => None,
    };
    assert_eq!(
        denied("a.test").unwrap(),
        "Ingress default/guard: nginx.ingress.kubernetes.io/auth-tls-secret is not enforced yet"
    );
    assert_eq!(denied("b.test"), None);
    assert_eq!(denied("_"), None);
}

#[test]
fn a_guarded_catch_all_is_denied() {
    let mut world = World::default();
    let guard =
        ingress("guard").annotation("auth-tls-secret", "default/ca").annotation("enable-modsecurity", "true");
    world.apply(guard.default_backend("rest"));
    assert_eq!(world.routes(), ["ingress/default/guard/_: / -> default/rest/80 (denied)"]);
    assert!(matches!(world.get(Kind::Host, "_"), Some(Resource::Host(it)) if it.denied.is_some()));
}

/// Whether a request for a path of the Ingress `web` on `a.test` is answered with 503, as its proxy is told.
fn is_closed(world: &World) -> bool {
    let host = matches!(world.get(Kind::Host, "a.test"), Some(Resource::Host(it)) if it.denied.is_some());
    host || world
        .routes()
        .iter()
        .any(|line| line.starts_with("ingress/default/web/a.test") && line.ends_with("(denied)"))
}

fn fresh(ingress: &Ing) -> World {
    let mut world = World::default();
    world.apply(ingress.clone());
    world
}

/// An Ingress with an annotation of this row, or with those alone that the row needs.
fn with_annotation(row: &Row, text: Option<&str>) -> Ing {
    let mut it = ingress("web").at(1).rule("a.test", &[("/x", "x")]);
    let mut needed = row.needs.and_then(table::find);
    while let Some(row) = needed {
        it = it.annotation(row.name, row.value.samples().0[0]);
        needed = row.needs.and_then(table::find);
    }
    match text {
        Some(text) => it.annotation(row.name, text),
        None => it,
    }
}

/// Over the whole table: an annotation that is put on a live Ingress acts, and one that is taken off acts no more. What
/// restricts closes the paths in that very commit; nothing that a change leaves behind differs from a fresh start.
#[test]
fn annotations_of_live_objects_act_at_once() {
    for row in table::ROWS.iter() {
        let (good, bad) = row.value.samples();
        let before = with_annotation(row, None);
        let mut closes = is_closed(&fresh(&before));
        for text in good.iter().chain(bad) {
            let after = with_annotation(row, Some(text));
            let is_rejected =
                fresh(&after).severities(ObjectKind::Ingress, "web").contains(&Severity::Rejected);
            let mut world = fresh(&before);
            world.apply(after.clone());
            if is_rejected {
                assert_eq!(
                    world.routes(),
                    fresh(&before).routes(),
                    "{} = {text:?}: the last good one",
                    row.name
                );
                continue;
            }
            assert_same(&world, &fresh(&after));
            closes |= is_closed(&world) && good.contains(text);
            world.apply(before.clone());
            assert_same(&world, &fresh(&before));
        }
        let must = matches!(row.value.status(), Status::Denies(_));
        assert!(closes || !must, "{} closes the paths of a live Ingress", row.name);
    }
}

/// One location makes all paths of a host regular expressions, whoever has them (annotations.md 3.4).
#[test]
fn a_host_matches_by_regular_expressions_while_one_location_does() {
    let is_regex = |world: &World, host| match world.get(Kind::Host, host) {
        Some(Resource::Host(it)) => it.policy.regex == Some(true),
        _ => panic!("no host {host}"),
    };
    for (name, text) in [("use-regex", "true"), ("rewrite-target", "/$1")] {
        let mut world = World::default();
        world.apply(ingress("plain").at(1).rule("a.test", &[("/a", "a")]).rule("b.test", &[("/", "a")]));
        world.apply(ingress("web").at(2).annotation(name, text).rule("a.test", &[("/x", "x")]));
        assert!(is_regex(&world, "a.test") && !is_regex(&world, "b.test"));
        world.apply(ingress("web").at(2).rule("a.test", &[("/x", "x")]));
        assert!(!is_regex(&world, "a.test"));
    }
}

/// An Ingress without rules has the catch-all without its redirects and rewrites (annotations.md 2.3).
#[test]
fn the_catch_all_of_an_ingress_without_rules_neither_rewrites_nor_redirects() {
    let mut world = World::default();
    let said = [("rewrite-target", "/x"), ("permanent-redirect", "https://x.test"), ("app-root", "/app")];
    let bare = said
        .iter()
        .fold(ingress("bare").default_backend("web"), |it, (name, text)| it.annotation(name, text));
    world.apply(bare);
    let Some(Resource::Route(route)) = world.get(Kind::Route, "ingress/default/bare/_") else {
        panic!("no route")
    };
    assert_eq!(route.policy, shared::policy::LocationPolicy::default());
}

/// A target that is the path itself rewrites nothing (annotations.md 3.5), the host's own "/" included.
#[test]
fn a_rewrite_to_the_path_itself_is_none() {
    let is_regex = |world: &World| match world.get(Kind::Host, "a.test") {
        Some(Resource::Host(it)) => it.policy.regex == Some(true),
        _ => panic!("no host"),
    };
    let mut world = World::default();
    world.apply(ingress("web").at(1).annotation("rewrite-target", "/").rule("a.test", &[("/", "x")]));
    assert!(!is_regex(&world));
    assert_eq!(world.told("web"), Vec::<String>::new());
    world.apply(ingress("web").at(1).annotation("rewrite-target", "/x").rule("a.test", &[("/x", "x")]));
    assert!(is_regex(&world), "the implicit / is rewritten");
    world.apply(ingress("first").at(0).rule("a.test", &[("/y", "y")]));
    assert!(!is_regex(&world), "the implicit / is another's");
}

#[test]
fn whoever_shares_a_denied_host_is_told() {
    let mut world = World::default();
    world.apply(ingress("open").at(1).rule("b.test", &[("/", "open")]).rule("a.test", &[("/", "open")]));
    world.apply(
        ingress("guard").at(2).annotation("auth-tls-secret", "default/ca").rule("a.test", &[("/g", "g")]),
    );
    assert_eq!(world.told("open"), ["unsupported spec.rules[1]"]);
}
