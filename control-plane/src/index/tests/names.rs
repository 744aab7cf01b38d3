//! Additional names of hosts: whose aliases are used, and the redirects between names with and without `www.`
//! (ingress-nginx).

use shared::kind::Kind;
use shared::policy::HostPolicy;
use shared::resource::Resource;

use super::fixture::*;
use crate::objects::ObjectKind;

fn policy(world: &World, host: &str) -> HostPolicy {
    match world.get(Kind::Host, host) {
        Some(Resource::Host(host)) => host.policy,
        other => panic!("{host}: {other:?}"),
    }
}

fn aliases(world: &World, host: &str) -> Vec<String> {
    policy(world, host).aliases.map(|list| list.values).unwrap_or_default()
}

/// An Ingress of `a.test` with a path of its own.
fn of_a(name: &str, second: u32) -> Ing {
    ingress(name).at(second).rule("a.test", &[(&format!("/{name}"), "echo")])
}

#[test]
fn the_first_list_that_is_not_empty_wins() {
    let mut world = World::default();
    world.apply(of_a("third", 3).annotation("server-alias", "c.test"));
    assert_eq!(aliases(&world, "a.test"), ["c.test"]);
    world.apply(of_a("second", 2).annotation("server-alias", "z.test, b.test, a.test, b.test"));
    assert_eq!(
        aliases(&world, "a.test"),
        ["b.test", "z.test"],
        "each once, in order, without the host's own"
    );
    // Older, and without aliases: absent, empty, or an empty list.
    world.apply(of_a("first", 1));
    assert_eq!(aliases(&world, "a.test"), ["b.test", "z.test"]);
    for empty in ["", " ", ","] {
        world.apply(of_a("first", 1).annotation("server-alias", empty));
        assert_eq!(aliases(&world, "a.test"), ["b.test", "z.test"], "{empty:?}");
    }
    // A canary has no aliases.
    world.apply(of_a("canary", 0).canary().annotation("server-alias", "canary.test"));
    assert_eq!(aliases(&world, "a.test"), ["b.test", "z.test"]);
    world.delete(ObjectKind::Ingress, "second");
    assert_eq!(aliases(&world, "a.test"), ["c.test"]);
    world.delete(ObjectKind::Ingress, "third");
    assert_eq!(policy(&world, "a.test").aliases, None);
}

#[test]
fn of_each_host_the_first_list_counts() {
    let mut world = World::default();
    let two = ingress("two").at(1).rule("a.test", &[("/", "echo")]).rule("b.test", &[("/", "echo")]);
    world.apply(two.annotation("server-alias", "a.test, x.test"));
    assert_eq!(aliases(&world, "a.test"), ["x.test"]);
    assert_eq!(aliases(&world, "b.test"), ["a.test", "x.test"], "the proxy prefers the host of that name");
}

#[test]
fn whoever_has_a_location_redirects_between_www_names() {
    let mut world = World::default();
    world.apply(of_a("first", 1));
    assert_eq!(policy(&world, "a.test").www, None);
    world.apply(of_a("second", 2).annotation("from-to-www-redirect", "true"));
    assert_eq!(policy(&world, "a.test").www, Some(true), "any of them says so");
    // An Ingress that lost its path to an older one has no say.
    let loser = ingress("second").at(2).rule("a.test", &[("/first", "echo")]);
    world.apply(loser.annotation("from-to-www-redirect", "true"));
    assert_eq!(policy(&world, "a.test").www, None);
    world.apply(of_a("second", 2).annotation("from-to-www-redirect", "false"));
    assert_eq!(policy(&world, "a.test").www, None);
}

/// As in ingress-nginx, which reads the annotation for each path.
#[test]
fn a_host_without_paths_redirects_nobody() {
    let mut world = World::default();
    let of = |paths: &[(&str, &str)]| {
        ingress("bare").at(1).rule("a.test", paths).annotation("from-to-www-redirect", "true")
    };
    world.apply(of(&[]));
    assert_eq!(policy(&world, "a.test").www, None);
    for path in ["/x", "/", "=/"] {
        world.apply(of(&[(path, "echo")]));
        assert_eq!(policy(&world, "a.test").www, Some(true), "{path}");
    }
    world.apply(of_a("older", 0));
    world.apply(of(&[("/older", "echo")]));
    assert_eq!(policy(&world, "a.test").www, None, "its only path is another one's");
}

#[test]
fn patterns_have_no_www_name() {
    let mut world = World::default();
    let wild = ingress("wild").rule("*.test", &[("/", "echo")]).rule("", &[("/x", "echo")]);
    world.apply(wild.annotation("from-to-www-redirect", "true"));
    assert_eq!((policy(&world, "*.test").www, policy(&world, "_").www), (None, None));
}
