//! Which Ingress wins, and what follows from that (ingress-nginx).

use serde_json::json;
use shared::kind::Kind;
use shared::resource::{Backend, PortRule, Resource};

use super::fixture::*;
use crate::objects::ObjectKind;
use crate::problem::{Severity, Subject};

/// What exists without any Ingress.
#[test]
fn some_resources_are_always_there() {
    let mut world = World::default();
    let commit = world.events([]);
    assert_eq!(world.keys(Kind::Settings), ["default"]);
    assert_eq!(world.keys(Kind::Listener), ["http", "https"]);
    assert_eq!(world.keys(Kind::Host), ["_"]);
    assert_eq!(world.config.len(), 4);
    assert_eq!(commit.cause, "start");
    assert!(world.live.is_empty());
    let commit = world.events([]);
    assert_eq!((commit.config.len(), commit.compiled, commit.cause.as_str()), (0, 0, ""));
}

/// Each row: the Ingresses, then the resulting Routes.
#[test]
fn who_wins() {
    let table: Vec<(&str, Vec<Ing>, Vec<&str>)> = vec![
        (
            "a host comes with an implicit root",
            vec![ingress("web").rule("a.test", &[("/x", "echo")])],
            vec!["ingress/default/web/a.test: / -> 404, /x -> default/echo/80"],
        ),
        (
            "its own root replaces it, where it stands in the Ingress",
            vec![ingress("web").rule("a.test", &[("/x", "echo"), ("/", "root:http")])],
            vec!["ingress/default/web/a.test: /x -> default/echo/80, / -> default/root/http"],
        ),
        (
            "anybody's root replaces it",
            vec![
                ingress("old").at(1).rule("a.test", &[("/x", "echo")]),
                ingress("new").at(2).rule("a.test", &[("/", "root")]),
            ],
            vec![
                "ingress/default/new/a.test: / -> default/root/80",
                "ingress/default/old/a.test: /x -> default/echo/80",
            ],
        ),
        (
            "an Exact root does not",
            vec![ingress("web").rule("a.test", &[("=/", "root")])],
            vec!["ingress/default/web/a.test: / -> 404, =/ -> default/root/80"],
        ),
        (
            "the implicit root leads to the first one's default backend",
            vec![
                ingress("old").at(1).default_backend("rest").rule("a.test", &[("/x", "echo")]),
                ingress("new").at(2).default_backend("other").rule("a.test", &[("/y", "echo")]),
            ],
            vec![
                "ingress/default/new/a.test: /y -> default/echo/80",
                "ingress/default/old/a.test: / -> default/rest/80, /x -> default/echo/80",
            ],
        ),
        (
            "the older one has the path",
            vec![
                ingress("aaa").at(2).rule("a.test", &[("/", "new")]),
                ingress("zzz").at(1).rule("a.test", &[("/", "old")]),
            ],
            vec!["ingress/default/zzz/a.test: / -> default/old/80"],
        ),
        (
            "at the same second the greater name has it",
            vec![
                ingress("aaa").at(1).rule("a.test", &[("/", "a")]),
                ingress("zzz").at(1).rule("a.test", &[("/", "z")]),
                ingress("mmm").at(1).rule("a.test", &[("/", "m")]),
            ],
            vec!["ingress/default/zzz/a.test: / -> default/z/80"],
        ),
        (
            "both types of a path are two, a third is a duplicate",
            vec![
                ingress("old").at(1).rule("a.test", &[("=/foo", "exact"), ("/foo", "prefix")]),
                ingress("new").at(2).rule("a.test", &[("=/foo", "late"), ("/foo", "late")]),
            ],
            vec![
                "ingress/default/old/a.test: / -> 404, =/foo -> default/exact/80, /foo (after) -> default/prefix/80",
            ],
        ),
        (
            "of the two the older one comes first, the prefix that comes with the host before all",
            vec![
                ingress("old")
                    .at(1)
                    .rule("a.test", &[("=/", "exact"), ("/old", "prefix"), ("=/new", "exact")]),
                ingress("new").at(2).rule("a.test", &[("/", "root"), ("=/old", "exact"), ("/new", "prefix")]),
            ],
            vec![
                "ingress/default/new/a.test: / -> default/root/80, =/old -> default/exact/80, \
                 /new (after) -> default/prefix/80",
                "ingress/default/old/a.test: =/ -> default/exact/80, /old -> default/prefix/80, \
                 =/new -> default/exact/80",
            ],
        ),
        (
            "rules of one host add up, in one Ingress and in several",
            vec![
                ingress("one").at(1).rule("a.test", &[("/a", "a")]).rule("A.test", &[("/b", "b")]),
                ingress("two").at(2).rule("a.test", &[("/c", "c")]),
            ],
            vec![
                "ingress/default/one/a.test: / -> 404, /a -> default/a/80, /b -> default/b/80",
                "ingress/default/two/a.test: /c -> default/c/80",
            ],
        ),
        (
            "an empty path is the root",
            vec![ingress("web").rule("a.test", &[("", "echo")])],
            vec!["ingress/default/web/a.test: / -> default/echo/80"],
        ),
        (
            "the catch-all's root belongs to nobody",
            vec![ingress("web").rule("", &[("/x", "echo")])],
            vec!["ingress/default/web/_: /x -> default/echo/80"],
        ),
        (
            "a hostless rule takes it",
            vec![ingress("web").rule("", &[("/", "echo")])],
            vec!["ingress/default/web/_: / -> default/echo/80"],
        ),
        (
            "an Ingress of nothing but a default backend takes it before any rule, however young",
            vec![
                ingress("rule").at(1).rule("", &[("/", "echo")]),
                ingress("late").at(3).default_backend("late"),
                ingress("rest").at(2).default_backend("rest"),
            ],
            vec!["ingress/default/rest/_: / -> default/rest/80"],
        ),
        (
            "a default backend beside rules is none for unknown hosts",
            vec![ingress("web").default_backend("rest").rule("a.test", &[("/x", "echo")])],
            vec!["ingress/default/web/a.test: / -> default/rest/80, /x -> default/echo/80"],
        ),
        (
            "a backend that is no Service is as if its path were not there",
            vec![ingress("web").rule("a.test", &[("/r", "x"), ("/", "root")]).with(|it| {
                it["spec"]["rules"][0]["http"]["paths"][0]["backend"] =
                    json!({"resource": {"kind": "Bucket"}});
            })],
            vec!["ingress/default/web/a.test: / -> default/root/80"],
        ),
        (
            "a rule without paths makes its host",
            vec![ingress("web").with(|it| it["spec"]["rules"] = json!([{"host": "a.test"}]))],
            vec!["ingress/default/web/a.test: / -> 404"],
        ),
    ];
    for (what, ingresses, expected) in table {
        let mut world = World::default();
        world.events(ingresses.into_iter().map(applied));
        assert_eq!(world.routes(), expected, "{what}");
    }
}

#[test]
fn pathtypes_default_to_prefix() {
    let mut world = World::default();
    let web = ingress("web").rule("a.test", &[("/a", "a"), ("/b", "b")]).with(|it| {
        let paths = &mut it["spec"]["rules"][0]["http"]["paths"];
        paths[0]["pathType"] = json!("ImplementationSpecific");
        paths[1].as_object_mut().unwrap().remove("pathType");
    });
    world.apply(web);
    assert_eq!(
        world.routes(),
        ["ingress/default/web/a.test: / -> 404, /a -> default/a/80, /b -> default/b/80"]
    );
    // An API server accepts none of these.
    assert_eq!(world.problems_of("web"), ["warning spec.rules[0].http.paths[1].pathType"]);
}

#[test]
fn losers_are_told_by_whom() {
    let mut world = World::default();
    world.apply(ingress("old").at(1).rule("a.test", &[("/", "old")]));
    world.apply(ingress("new").at(2).default_backend("rest").rule("a.test", &[("/", "new"), ("/x", "new")]));
    assert_eq!(
        world.problems_of("new"),
        ["overridden spec.defaultBackend", "overridden spec.rules[0].http.paths[0]"]
    );
    let problems =
        world.index.problems().get(&Subject::Object(reference(ObjectKind::Ingress, "new"))).unwrap();
    assert!(problems.iter().any(|it| it.reason.contains("Ingress default/old")), "{problems:?}");
    assert_eq!(world.problems_of("old"), Vec::<String>::new());

    let commit = world.delete(ObjectKind::Ingress, "old");
    assert!(commit.problems_changed);
    assert_eq!(world.problems_of("new"), Vec::<String>::new());
    assert_eq!(world.routes(), ["ingress/default/new/a.test: / -> default/new/80, /x -> default/new/80"]);
}

#[test]
fn hosts_and_backends_go_with_their_last_user() {
    let mut world = World::default();
    world.apply(ingress("one").at(1).rule("a.test", &[("/", "echo")]).rule("b.test", &[("/", "echo")]));
    world.apply(ingress("two").at(2).rule("b.test", &[("/x", "echo")]));
    assert_eq!(world.keys(Kind::Host), ["_", "a.test", "b.test"]);
    assert_eq!(world.keys(Kind::Backend), ["default/echo/80"]);
    world.delete(ObjectKind::Ingress, "one");
    assert_eq!(world.keys(Kind::Host), ["_", "b.test"]);
    assert_eq!(world.keys(Kind::Backend), ["default/echo/80"]);
    world.delete(ObjectKind::Ingress, "two");
    assert_eq!(world.keys(Kind::Host), ["_"]);
    assert_eq!(world.config.len(), 4);
    assert!(world.index.backends.is_empty());
    assert!(world.index.services.is_empty());
    assert!(world.index.ingresses.claims.is_empty());
}

#[test]
fn backends_follow_their_service() {
    let mut world = World::default();
    let rule = |name: &str, target_port| {
        Some(Resource::Backend(Backend {
            port: Some(PortRule { name: name.into(), target_port, udp: false }),
            ..Backend::default()
        }))
    };
    let none = Some(Resource::Backend(Backend::default()));
    let without_service = Some(Resource::Backend(without_service()));
    world.apply(ingress("web").rule("a.test", &[("/", "echo"), ("/n", "echo:web")]));
    assert_eq!(world.get(Kind::Backend, "default/echo/80"), without_service);
    let field = "spec.rules[0].http.paths[0].backend.service";
    assert_eq!(world.problems(ObjectKind::Ingress, "web")[0], format!("warning {field}.name"));

    world.apply(service("echo"));
    assert_eq!(world.get(Kind::Backend, "default/echo/80"), rule("http", Some(8080)));
    assert_eq!(world.get(Kind::Backend, "default/echo/web"), none);
    assert_eq!(
        world.problems(ObjectKind::Ingress, "web"),
        ["warning spec.rules[0].http.paths[1].backend.service.port"]
    );

    world.apply(service_with("echo", json!([{"name": "web", "port": 81, "targetPort": "x"}])));
    assert_eq!(world.get(Kind::Backend, "default/echo/80"), none);
    assert_eq!(world.get(Kind::Backend, "default/echo/web"), rule("web", None));
    let commit = world.delete(ObjectKind::Service, "echo");
    assert_eq!(commit.cause, "Service default/echo: deleted");
    assert_eq!(world.get(Kind::Backend, "default/echo/web"), without_service);

    // The Service exists, but is unreadable.
    world.events([broken(reference(ObjectKind::Service, "echo"), "spec.ports", "expected a list, got text")]);
    assert_eq!(world.get(Kind::Backend, "default/echo/web"), none);
    let problems = &world.index.problems()[&Subject::Object(reference(ObjectKind::Ingress, "web"))];
    let unreadable =
        "Service default/echo cannot be read (spec.ports: expected a list, got text): answers 503";
    assert!(problems.iter().all(|it| it.reason == unreadable), "{problems:?}");
    world.delete(ObjectKind::Service, "echo");
    assert_eq!(world.get(Kind::Backend, "default/echo/web"), without_service);
}

#[test]
fn redirects_and_global_auth_stand_in_the_route() {
    let mut world = World::default();
    let web = ingress("web")
        .annotation("ssl-redirect", "false")
        .annotation("force-ssl-redirect", "1")
        .annotation("enable-global-auth", "f");
    world.apply(web.rule("a.test", &[("/", "echo")]));
    let Some(Resource::Route(route)) = world.get(Kind::Route, "ingress/default/web/a.test") else {
        panic!("the Route is there");
    };
    assert_eq!(
        (route.policy.ssl_redirect, route.policy.force_ssl_redirect, route.policy.enable_global_auth),
        (Some(false), Some(true), Some(false))
    );
}

#[test]
fn the_configmap_makes_the_settings() {
    let mut world = World::default();
    world.events([]);
    let commit = world.apply(configmap(json!({"ssl-redirect": "false", "use-geoip2": "true"})));
    assert_eq!(commit.config.len(), 1);
    assert_eq!(commit.cause, "ConfigMap ingress-nginx/ingress-nginx-controller: created");
    let commit = world.apply(configmap(json!({"ssl-redirect": "true"})));
    assert_eq!(
        commit.cause,
        "ConfigMap ingress-nginx/ingress-nginx-controller: ssl-redirect false -> true, use-geoip2 removed"
    );
    assert!(commit.problems_changed);
}

/// An Ingress that lost a path is told which one has it, also when that changes.
#[test]
fn who_lost_a_path_is_told_who_has_it_now() {
    let of = |name: &str, at| ingress(name).at(at).rule("a.test", &[("/x", "echo")]);
    let mut world = World::default();
    world.events([of("one", 1), of("two", 2), of("three", 3)].map(applied));
    let told = |world: &World, name: &str| {
        let problems = world.index.problems().get(&Subject::Object(reference(ObjectKind::Ingress, name)));
        let lost =
            problems.into_iter().flat_map(|all| all.iter()).find(|it| it.severity == Severity::Overridden);
        lost.map(|problem| problem.reason.clone()).unwrap_or_default()
    };
    assert!(told(&world, "three").contains("belongs to Ingress default/one"), "{}", told(&world, "three"));
    world.delete(ObjectKind::Ingress, "one");
    assert!(told(&world, "three").contains("belongs to Ingress default/two"), "{}", told(&world, "three"));
    assert_eq!(told(&world, "two"), "");
    world.apply(of("one", 1));
    assert!(told(&world, "two").contains("belongs to Ingress default/one"), "{}", told(&world, "two"));
}

/// An Ingress that claims the "/" of a host by a default backend blocks nobody, and is told which one comes first, also
/// when that changes.
#[test]
fn who_has_a_default_backend_is_told_whose_the_host_is_now() {
    let of = |name: &str, at, path: &str| ingress(name).at(at).rule("a.test", &[(path, "echo")]);
    let rest = |name: &str, at| ingress(name).at(at).default_backend("rest");
    let told = |world: &World, name: &str| world.reasons(name).join("; ");
    let mut world = World::default();
    let late = of("late", 3, "/c").default_backend("rest");
    world.events([of("one", 1, "/a"), of("two", 2, "/b"), late].map(applied));
    assert!(told(&world, "late").contains("belongs to Ingress default/one"), "{}", told(&world, "late"));
    world.delete(ObjectKind::Ingress, "one");
    assert!(told(&world, "late").contains("belongs to Ingress default/two"), "{}", told(&world, "late"));
    world.apply(of("one", 1, "/a"));
    assert!(told(&world, "late").contains("belongs to Ingress default/one"), "{}", told(&world, "late"));

    let mut world = World::default();
    world.events([rest("one", 1), rest("two", 2), rest("late", 3)].map(applied));
    world.delete(ObjectKind::Ingress, "one");
    assert!(told(&world, "late").contains("belongs to Ingress default/two"), "{}", told(&world, "late"));
}

/// Whether a path is a pattern depends on all Ingresses of its host.
#[test]
fn a_path_that_looks_like_a_pattern_is_told_unless_it_is_one() {
    let mut world = World::default();
    let odd = || ingress("web").at(1).rule("a.test", &[("/", "web"), ("/*", "web")]);
    world.apply(odd());
    let told = ["warning spec.rules[0].http.paths[1].path"];
    assert_eq!(world.problems_of("web"), told);
    world.apply(ingress("other").at(2).annotation("use-regex", "true").rule("a.test", &[("/x", "web")]));
    assert_eq!(world.problems_of("web"), Vec::<String>::new(), "the other one makes it a pattern");
    world.apply(ingress("other").at(2).rule("a.test", &[("/x", "web")]));
    assert_eq!(world.problems_of("web"), told);
    world.apply(odd().annotation("use-regex", "true"));
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
}
