//! Canaries: where they attach, and which one decides (ingress-nginx).

use shared::kind::Kind;
use shared::policy::Canary;
use shared::resource::Resource;

use super::fixture::*;
use crate::objects::ObjectKind;

fn main() -> Ing {
    ingress("main").at(1).rule("a.test", &[("/", "main")])
}

fn canary(name: &str) -> Ing {
    ingress(name).canary().annotation("canary-weight", "10")
}

fn policy(world: &World, key: &str) -> Option<Canary> {
    match world.get(Kind::Backend, key) {
        Some(Resource::Backend(backend)) => backend.policy.canary,
        _ => None,
    }
}

/// A fault that rejects an Ingress also rejects a canary, even if the setting would have no effect.
#[test]
fn a_value_that_is_rejected_rejects_a_canary_too() {
    let mut world = World::default();
    world.apply(main());
    let said = |name, text| canary("c").annotation(name, text).rule("a.test", &[("/", "canary")]);
    world.apply(said("limit-rps", "ten"));
    assert_eq!(world.alternatives(), Vec::<String>::new());
    assert_eq!(
        world.problems_of("c"),
        ["rejected metadata.annotations[nginx.ingress.kubernetes.io/limit-rps]"]
    );
    for (name, text) in [("limit-rps", "10"), ("limit-rps", ""), ("allowlist-source-range", "nobody")] {
        world.apply(said(name, text));
        assert_eq!(world.alternatives(), ["default/main/80: default/canary/80"], "{name}: {text}");
    }
    world.apply(said("limit-rps", "ten"));
    assert_eq!(world.alternatives(), ["default/main/80: default/canary/80"], "its last good version");
}

/// Each row: the Ingresses, then the resulting alternatives.
#[test]
fn what_attaches_where() {
    let table: Vec<(&str, Vec<Ing>, Vec<&str>)> = vec![
        (
            "the same host, path and type",
            vec![main(), canary("c").at(2).rule("a.test", &[("/", "canary")])],
            vec!["default/main/80: default/canary/80"],
        ),
        (
            "an older canary",
            vec![main(), canary("c").rule("a.test", &[("/", "canary")])],
            vec!["default/main/80: default/canary/80"],
        ),
        ("another type does not", vec![main(), canary("c").rule("a.test", &[("=/", "canary")])], vec![]),
        (
            "another path does not, and takes nothing away",
            vec![
                main(),
                canary("c").rule("a.test", &[("/bar", "canary"), ("/", "canary"), ("/baz", "canary")]),
            ],
            vec!["default/main/80: default/canary/80"],
        ),
        ("another host does not", vec![main(), canary("c").rule("b.test", &[("/", "canary")])], vec![]),
        (
            "an implicit root with a backend is a main path",
            vec![
                ingress("main").default_backend("rest").rule("a.test", &[("/x", "main")]),
                canary("c").rule("a.test", &[("/", "canary")]),
            ],
            vec!["default/rest/80: default/canary/80"],
        ),
        (
            "the fleet's default backend is none",
            vec![
                ingress("main").rule("a.test", &[("/x", "main")]),
                canary("c").rule("a.test", &[("/", "canary")]),
            ],
            vec![],
        ),
        ("not to the Service itself", vec![main(), canary("c").rule("a.test", &[("/", "main")])], vec![]),
        (
            "not behind a location that has the Service as its main one, but before it",
            vec![
                ingress("main").rule("a.test", &[("/", "main"), ("/x", "both"), ("/y", "other")]),
                canary("c").rule("a.test", &[("/y", "both"), ("/", "both")]),
            ],
            vec!["default/main/80: default/both/80"],
        ),
        (
            "several by age",
            vec![
                main(),
                canary("b").at(3).rule("a.test", &[("/", "b")]),
                canary("c").at(2).rule("a.test", &[("/", "c")]),
            ],
            vec!["default/main/80: default/c/80, default/b/80"],
        ),
        (
            "each once, over all hosts",
            vec![
                main(),
                ingress("more").at(1).rule("b.test", &[("/", "main")]),
                canary("c").at(2).rule("a.test", &[("/", "c")]).rule("b.test", &[("/", "c")]),
            ],
            vec!["default/main/80: default/c/80"],
        ),
        (
            "a default backend attaches to the whole catch-all",
            vec![
                ingress("main").rule("", &[("/", "one"), ("/x", "two")]),
                canary("c").default_backend("canary"),
            ],
            vec!["default/one/80: default/canary/80", "default/two/80: default/canary/80"],
        ),
    ];
    for (what, ingresses, expected) in table {
        let mut world = World::default();
        world.events(ingresses.into_iter().map(applied));
        assert_eq!(world.alternatives(), expected, "{what}");
    }
}

#[test]
fn a_lone_canary_makes_nothing() {
    let mut world = World::default();
    world.events([]);
    let commit = world.apply(canary("c").rule("a.test", &[("/", "canary")]).default_backend("canary"));
    assert_eq!(commit.config.len() + commit.live.len(), 0);
    assert_eq!(commit.cause, "");
    assert_eq!(
        world.problems_of("c"),
        ["warning spec.defaultBackend", "warning spec.rules[0].http.paths[0]"]
    );
}

#[test]
fn a_weight_is_one_resource() {
    let mut world = World::default();
    world.apply(main());
    world.apply(canary("c").rule("a.test", &[("/", "canary")]));
    assert_eq!(policy(&world, "default/canary/80").unwrap().weight, 10);
    assert_eq!(policy(&world, "default/main/80"), None);
    let changed = canary("c").annotation("canary-weight", "50");
    let commit = world.apply(changed.rule("a.test", &[("/", "canary")]));
    assert_eq!(commit.cause, "Ingress default/c: canary-weight 10 -> 50");
    assert_eq!((commit.config.len(), commit.compiled), (1, 1));
    assert_eq!(policy(&world, "default/canary/80").unwrap().weight, 50);
}

#[test]
fn a_canary_goes_with_its_main_path() {
    let mut world = World::default();
    world.apply(main());
    world.apply(canary("c").rule("a.test", &[("/", "canary")]));
    assert_eq!(world.keys(Kind::Backend), ["default/canary/80", "default/main/80"]);
    world.delete(ObjectKind::Ingress, "main");
    assert_eq!(world.keys(Kind::Backend), Vec::<String>::new());
    world.apply(main());
    assert_eq!(world.alternatives(), ["default/main/80: default/canary/80"]);
}

#[test]
fn a_canary_keeps_its_hosts_when_its_rules_move() {
    let main = ingress("main").rule("a.test", &[("/", "main")]);
    let canary = |hosts: &[&str]| {
        let rules = |it: Ing, host: &&str| it.rule(host, &[("/", "canary")]);
        hosts.iter().fold(canary("c").at(2), rules)
    };
    let all = [&["b.test", "a.test"][..], &["a.test"], &["b.test"], &["a.test", "b.test"]];
    let mut world = World::default();
    world.apply(main.rule("b.test", &[("/", "main")]));
    for before in all {
        for after in all {
            world.apply(canary(before));
            world.apply(canary(after));
            assert_eq!(
                world.alternatives(),
                ["default/main/80: default/canary/80"],
                "{before:?}, then {after:?}"
            );
        }
    }
}

#[test]
fn a_canary_that_leaves_a_main_path_is_told_no_more() {
    let canaries = [("b", 3, "b"), ("c", 2, "c")];
    let main = |to_b: &str| ingress("main").rule("a.test", &[("/", "main"), ("/b", to_b)]);
    let mut world = World::default();
    world.apply(main("main"));
    for (name, at, service) in canaries {
        let path = if name == "b" { "/b" } else { "/" };
        world.apply(canary(name).at(at).rule("a.test", &[(path, service)]));
    }
    assert_eq!(world.problems_of("b"), ["overridden spec.rules[0].http.paths[0]"]);
    world.apply(main("other"));
    assert_eq!(world.problems_of("b"), Vec::<String>::new());
}

#[test]
fn only_the_first_one_acts_and_the_others_are_told() {
    let mut world = World::default();
    world.apply(main());
    world.apply(canary("b").at(3).rule("a.test", &[("/", "b")]));
    assert_eq!(world.problems_of("b"), Vec::<String>::new());
    world.apply(canary("c").at(2).rule("a.test", &[("/", "c")]));
    assert_eq!(world.problems_of("b"), ["overridden spec.rules[0].http.paths[0]"]);
    assert_eq!(world.problems_of("c"), Vec::<String>::new());
    world.delete(ObjectKind::Ingress, "c");
    assert_eq!(world.problems_of("b"), Vec::<String>::new());
}

#[test]
fn the_first_referrer_decides() {
    let mut world = World::default();
    world.apply(main());
    world.apply(canary("b").at(3).rule("a.test", &[("/", "canary")]));
    world.apply(
        ingress("c").at(2).canary().annotation("canary-weight", "99").rule("x.test", &[("/", "canary")]),
    );
    assert_eq!(policy(&world, "default/canary/80").unwrap().weight, 99);
    assert_eq!(world.problems_of("b"), ["overridden spec.rules[0].http.paths[0]"]);
    // A main path that is older than all canaries: as a canary it takes no requests.
    world.apply(ingress("older").at(0).rule("b.test", &[("/", "canary")]));
    assert_eq!(policy(&world, "default/canary/80"), None);
    assert_eq!(world.problems_of("b"), ["warning spec.rules[0].http.paths[0]"]);
}

#[test]
fn a_main_path_to_an_older_canarys_service_is_served() {
    let mut world = World::default();
    world.apply(main());
    world.apply(canary("c").at(2).rule("a.test", &[("/", "canary")]));
    world.apply(ingress("late").at(3).rule("b.test", &[("/", "canary")]));
    assert!(world.routes().contains(&"ingress/default/late/b.test: / -> default/canary/80".to_owned()));
    assert_eq!(policy(&world, "default/canary/80").unwrap().weight, 10);
    assert_eq!(world.problems_of("late"), ["warning spec.rules[0].http.paths[0].backend"]);
}

#[test]
fn a_canary_that_stops_being_one_is_an_ordinary_ingress() {
    let mut world = World::default();
    world.apply(main());
    world.apply(canary("c").at(2).rule("b.test", &[("/", "canary")]));
    assert_eq!(world.keys(Kind::Host), ["_", "a.test"]);
    world.apply(canary("c").at(2).annotation("canary", "false").rule("b.test", &[("/", "canary")]));
    assert_eq!(world.keys(Kind::Host), ["_", "a.test", "b.test"]);
    assert_eq!(policy(&world, "default/canary/80"), None);
}

/// One path of an Ingress may take the position of another one with the same Service.
#[test]
fn a_canary_of_the_catch_all_stays_where_a_path_changes_its_type() {
    let canary = ingress("canary").canary().default_backend("next");
    for (before, after) in [("/x", "=/x"), ("=/x", "/x"), ("/x", "/y"), ("/y", "/x")] {
        let mut world = World::default();
        world.apply(canary.clone());
        world.apply(ingress("web").rule("", &[(before, "echo")]));
        assert_eq!(world.alternatives(), ["default/echo/80: default/next/80"]);
        world.apply(ingress("web").rule("", &[(after, "echo")]));
        assert_eq!(world.alternatives(), ["default/echo/80: default/next/80"], "{before} -> {after}");
    }
}
