//! A commit costs what changed, however much there is: counted, not timed.

use shared::kind::Kind;

use super::fixture::*;
use crate::objects::{Object, ObjectKind};
use crate::problem::Subject;

const MANY: usize = 1000;

fn world() -> World {
    let mut world = World::default();
    let events = (0..MANY).flat_map(|i| {
        let (web, echo) = (format!("web-{i}"), format!("echo-{i}"));
        let rule = ingress(&web).rule(&format!("{web}.test"), &[("/", &echo)]);
        let rule = rule.tls(&[&format!("{web}.test")], "cert");
        [applied(rule), applied(service(&echo)), applied(slice(&echo, &echo, &["10.0.0.1"]))]
    });
    let commit = world.events(events);
    assert_eq!(commit.config.len(), 4 + 3 * MANY);
    assert_eq!(commit.live.len(), MANY);
    world
}

#[test]
fn one_change_among_many_objects_compiles_only_what_it_touches() {
    let mut world = world();
    let commit = world.apply(slice("echo-7", "echo-7", &["10.0.0.1", "10.0.0.2"]));
    assert_eq!((commit.live.len(), commit.config.len(), commit.compiled), (1, 0, 1));

    let changed = ingress("web-7").rule("web-7.test", &[("/", "echo-7"), ("/x", "echo-8")]);
    let commit = world.apply(changed.tls(&["web-7.test"], "cert"));
    assert_eq!((commit.live.len(), commit.config.len()), (0, 1));
    assert_eq!(commit.compiled, 2, "the Host and its Route");

    let commit = world.apply(service_with("echo-9", serde_json::json!([{"name": "http", "port": 81}])));
    assert_eq!((commit.config.len(), commit.compiled), (1, 1));

    let commit = world.apply(secret("cert", 0));
    assert_eq!((commit.live.len(), commit.config.len(), commit.compiled), (1, 0, 1));

    let commit = world.apply(ingress("new").rule("new.test", &[("/", "echo-1")]).tls(&["new.test"], "cert"));
    assert_eq!((commit.config.len(), commit.compiled), (2, 2));
}

#[test]
fn an_ingress_of_many_hosts_costs_the_hosts_that_change() {
    let many = |changed: &str| {
        (0..100).fold(ingress("many"), |it, i| {
            let service = if i == 50 { changed } else { "echo" };
            it.rule(&format!("h{i}.test"), &[("/", service)])
        })
    };
    let mut world = World::default();
    world.apply(many("echo"));
    let commit = world.apply(many("other"));
    assert_eq!(commit.compiled, 3, "one Host, its Route, and the new Backend");
    assert_eq!(commit.config.len(), 2);
}

/// Limit of the work for one change, whatever else exists.
const FEW: usize = 40;

fn crowd(i: usize) -> Ing {
    let created = format!("2026-03-01T00:{:02}:{:02}Z", i / 60 % 60, i % 60);
    let (path, other) = (format!("/{i}"), format!("/{i}/x"));
    let crowd = ingress(&format!("web-{i:04}")).rule("a.test", &[(&path, "echo"), (&other, "echo")]);
    crowd.with(|it| it["metadata"]["creationTimestamp"] = created.into())
}

/// A host of this many Ingresses, all of which claim its "/", TLS and affinity.
fn crowded(count: usize) -> World {
    let mut world = World::default();
    let all = (0..count).map(|i| applied(crowd(i).default_backend("echo").tls(&["a.test"], "cert")));
    world.events(all.chain([applied(service("echo")), applied(secret("cert", 0))]));
    assert_eq!(world.keys(Kind::Route).len(), count);
    world
}

#[test]
fn one_ingress_of_a_host_of_thousands() {
    let mut world = crowded(5_000);
    let web = |i: usize| crowd(i).default_backend("echo").tls(&["a.test"], "cert");
    let middle = web(2_500);
    for (what, changed, compiled) in [
        ("what no host is compiled from", middle.clone().annotation("load-balance", "ewma"), 0),
        ("an annotation", middle.clone().annotation("ssl-redirect", "false"), 2),
        ("a backend", middle.clone().rule("a.test", &[("/new", "other")]), 3),
        ("a path of another", middle.clone().rule("a.test", &[("/7", "echo")]), 3),
        ("nothing of it", middle, 2),
        ("what the first decides", web(0).annotation("server-alias", "b.test"), 2),
        ("of the last", web(4_999).annotation("server-alias", "c.test"), 2),
        ("affinity", web(3).annotation("affinity", "cookie"), 3),
        ("a new one", web(6_000), 2),
    ] {
        let commit = world.apply(changed);
        assert!(commit.compiled <= compiled, "{what}: {} compiled", commit.compiled);
        assert!(commit.looked_at <= FEW, "{what}: {} looked at", commit.looked_at);
    }
    let commit = world.delete(ObjectKind::Ingress, "web-2500");
    assert!(commit.compiled <= 2 && commit.looked_at <= FEW, "{commit:?}");
    let commit = world.apply(secret("cert", 0));
    assert_eq!((commit.compiled, commit.looked_at), (0, 0), "the same again");
}

/// Only the Ingresses whose problems change are examined.
#[test]
fn one_canary_beside_a_host_of_thousands() {
    let mut world = crowded(1_000);
    let canary = |weight: &str| ingress("canary").canary().annotation("canary-weight", weight);
    let of = |weight: &str| canary(weight).rule("a.test", &[("/17", "next")]);
    for changed in [of("10"), of("20"), canary("20").rule("a.test", &[("/18", "next"), ("/19", "next")])] {
        let commit = world.apply(changed);
        assert!(commit.compiled <= 3 && commit.looked_at <= FEW, "{commit:?}");
    }
    let commit = world.apply(crowd(17).annotation("ssl-redirect", "false"));
    assert!(commit.looked_at <= FEW, "{commit:?}");
}

/// A Host whose paths all changed costs their number, not its square.
#[test]
fn a_host_is_settled_in_the_size_of_its_claims() {
    let work = |count: usize| {
        let mut world = World::default();
        world.events((0..count).map(|i| applied(crowd(i)))).looked_at
    };
    let (small, large) = (work(250), work(1_000));
    assert!(large <= 5 * small, "{small} for 250, {large} for 1,000");
}

/// Names in descending order of age: each Ingress comes before all that were compiled earlier.
fn youngest_first(i: usize) -> Ing {
    let created = format!("2026-03-01T00:{:02}:{:02}Z", i / 60 % 60, i % 60);
    ingress(&name_at(i)).with(|it| it["metadata"]["creationTimestamp"] = created.into())
}

/// 2,000 Ingresses for one path took ten seconds, in which no proxy that starts got a configuration.
#[test]
fn ingresses_that_displace_each_other_cost_a_few_looks_each() {
    let shared = |it: Ing, i: usize| it.rule("a.test", &[("/", &format!("echo-{i}"))]);
    let apart = |i: usize| youngest_first(i).rule("a.test", &[(&format!("/{i}"), "echo")]);
    let canary = |i: usize| shared(ingress(&format!("c-{i}")).canary(), 10_000 + i);
    for (what, claim) in [
        ("a path", &(|i| vec![shared(youngest_first(i), i)]) as &dyn Fn(usize) -> Vec<Ing>),
        ("the path of a default backend", &|i| vec![apart(i).default_backend("echo")]),
        ("the catch-all's path", &|i| vec![youngest_first(i).default_backend("echo")]),
        ("what a host answers", &|i| {
            vec![apart(i).annotation("server-snippet", "more_set_headers 'X-A: b';")]
        }),
        ("the backend of canaries", &|i| vec![shared(youngest_first(i), i), canary(i)]),
    ] {
        let work = |count: usize| {
            let mut world = World::default();
            world.apply(allows_snippets());
            world.events((0..count).flat_map(claim).map(applied)).looked_at
        };
        let (small, large) = (work(100), work(400));
        assert!(large <= 5 * small, "{what}: {small} for 100, {large} for 400");
    }
}

/// Those with this field that are told of an owner, and how many of them are told its name.
fn told(world: &World, field: &str, owner: &str) -> (usize, usize) {
    let all = (0..2_000).filter_map(|i| world.index.problems().get(&subject(i)));
    let of_field = all.flat_map(|problems| problems.iter()).filter(|problem| problem.field == field);
    let reasons: Vec<_> = of_field.map(|problem| problem.reason.as_str()).collect();
    let name = format!("belongs to Ingress default/{owner}, which comes first");
    let named = reasons.iter().filter(|reason| reason.contains(&name)).count();
    let unnamed = reasons.iter().filter(|reason| reason.contains("more than 16 claim it")).count();
    assert_eq!(named + unnamed, reasons.len(), "nobody is told of another owner");
    (reasons.len(), named)
}

/// Another owner of a path that thousands claim is told to the first of them; the others know that there is one.
#[test]
fn one_owner_of_a_path_that_thousands_claim() {
    let by_path = |i: usize| youngest_first(i).rule("a.test", &[("/", &format!("echo-{i}"))]);
    let by_default =
        |i: usize| youngest_first(i).rule("a.test", &[(&format!("/{i}"), "echo")]).default_backend("echo");
    for (field, claim) in [
        ("spec.rules[0].http.paths[0]", &by_path as &dyn Fn(usize) -> Ing),
        ("spec.defaultBackend", &by_default),
    ] {
        let mut world = World::default();
        world.events((1..2_000).map(|i| applied(claim(i))));
        assert_eq!(told(&world, field, &name_at(1)), (1_998, 15));
        for what in ["a new owner", "again"] {
            let commit = world.apply(claim(0));
            assert!(commit.looked_at <= 2 * FEW, "{field}, {what}: {} looked at", commit.looked_at);
            assert_eq!(told(&world, field, &name_at(0)), (1_999, 15), "{field}, {what}");

            let commit = world.delete(ObjectKind::Ingress, &name_at(0));
            assert!(commit.looked_at <= 2 * FEW, "{field}, {what}: {} looked at", commit.looked_at);
            assert_eq!(told(&world, field, &name_at(1)), (1_998, 15), "{field}, {what}");
        }
        for i in [16, 17] {
            let commit = world.apply(claim(i).annotation("ssl-redirect", "false"));
            assert!(commit.looked_at <= FEW, "{field}: {} looked at", commit.looked_at);
        }
        let commit = world.delete(ObjectKind::Ingress, &name_at(16));
        assert!(commit.looked_at <= FEW, "{field}: {} looked at", commit.looked_at);
        assert_eq!(told(&world, field, &name_at(1)), (1_997, 15), "{field}: the next one takes its place");
    }
}

fn allows_snippets() -> Object {
    configmap(serde_json::json!({"allow-snippet-annotations": "true", "annotations-risk-level": "Critical"}))
}

fn name_at(i: usize) -> String {
    format!("web-{:04}", 9_999 - i)
}

fn subject(i: usize) -> Subject {
    reference(ObjectKind::Ingress, &name_at(i)).into()
}

#[test]
fn one_host_of_an_ingress_of_thousands() {
    let many = |changed: &str| {
        (0..4_000).fold(ingress("many"), |it, i| {
            let (host, service) = (format!("h{i}.test"), if i == 2_000 { changed } else { "echo" });
            it.rule(&host, &[("/", service)]).tls(&[&host], "cert")
        })
    };
    let mut world = World::default();
    world.apply(many("echo"));
    let first = |it: &mut serde_json::Value, list: &str| it["spec"][list].as_array_mut().unwrap().remove(0);
    for (what, changed, compiled) in [
        ("a backend", many("other"), 3),
        ("a certificate", many("other").with(|it| it["spec"]["tls"][7]["secretName"] = "new".into()), 2),
        ("an entry that no host needs", many("other").tls(&["elsewhere.test"], "cert"), 2),
        ("a host more", many("other").rule("new.test", &[("/", "echo")]), 3),
        ("all rules moved", many("other").with(|it| drop(first(it, "rules"))), 4),
        ("all entries moved", many("other").with(|it| drop(first(it, "tls"))), 4),
    ] {
        let commit = world.apply(changed);
        assert!(commit.compiled <= compiled, "{what}: {} compiled", commit.compiled);
        assert!(commit.looked_at <= FEW, "{what}: {} looked at", commit.looked_at);
    }
}

#[test]
fn one_path_of_a_host_of_thousands() {
    const EACH: usize = 100;
    let of = |i: usize, changed: &str| {
        let paths: Vec<_> = (0..EACH).map(|j| format!("/{i}/{j}")).collect();
        let service = |j| if j == 50 { changed } else { "echo" };
        let paths: Vec<_> = paths.iter().enumerate().map(|(j, path)| (path.as_str(), service(j))).collect();
        ingress(&format!("web-{i}")).rule("a.test", &paths)
    };
    let mut world = World::default();
    world.events((0..100).map(|i| applied(of(i, "echo"))));
    let commit = world.apply(of(50, "other"));
    assert_eq!((commit.config.len(), commit.compiled), (2, 3), "its Route and the new Backend; the Host too");
    assert!(commit.looked_at <= EACH + FEW, "{} of 10,000", commit.looked_at);

    let whole = |changed: &str| {
        let all: Vec<_> = (0..10_000).map(|i| format!("/{i}")).collect();
        let service = |i| if i == 5_000 { changed } else { "echo" };
        let paths: Vec<_> = all.iter().enumerate().map(|(i, path)| (path.as_str(), service(i))).collect();
        ingress("whole").rule("b.test", &paths)
    };
    world.apply(whole("echo"));
    let commit = world.apply(whole("third"));
    assert_eq!((commit.config.len(), commit.compiled), (2, 3));
    assert!(commit.looked_at <= 10_000 + FEW, "each path of the Route once: {}", commit.looked_at);
}

#[test]
fn one_slice_of_a_service_of_a_hundred_thousand() {
    let addresses = |i: usize, count: usize| -> Vec<String> {
        (0..count).map(|j| format!("10.{}.{}.{j}", i / 250, i % 250)).collect()
    };
    let of = |i: usize, count: usize| {
        let addresses = addresses(i, count);
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        slice(&format!("echo-{i}"), "echo", &addresses)
    };
    let mut world = World::default();
    let web = applied(ingress("web").rule("a.test", &[("/", "echo")]));
    world.events((0..1_000).map(|i| applied(of(i, 100))).chain([web, applied(service("echo"))]));
    assert_eq!(world.live.len(), 1_000);
    let commit = world.apply(of(500, 99));
    assert_eq!((commit.live.len(), commit.compiled), (1, 1));
    assert_eq!(commit.cause, "endpoints of default/echo: 100000 -> 99999");
    assert!(commit.looked_at <= 3 * 100 + FEW, "{} of 100,000", commit.looked_at);
    world.index.apply(applied(of(501, 98)));
    let commit = world.early();
    assert_eq!(commit.cause, "endpoints of default/echo: 99999 -> 99997");
    assert!(commit.looked_at <= 3 * 100 + FEW, "{} of 100,000", commit.looked_at);
}

/// Each of 300 examined each of 300 whenever one was added: 13 million steps, and as many entries in Backends.
#[test]
fn canaries_beside_all_backends_of_a_host_cost_a_few_looks_at_each() {
    const BACKENDS: usize = 300;
    let paths: Vec<_> = (0..BACKENDS).map(|i| (format!("/{i}"), format!("echo-{i}"))).collect();
    let paths: Vec<_> = paths.iter().map(|(path, service)| (path.as_str(), service.as_str())).collect();
    let mut world = World::default();
    world.apply(ingress("web").rule("", &paths));
    // Created in the same second, the greater name comes first.
    let of = |i: usize| format!("c-{:03}", 999 - i);
    let canary = |i: usize| ingress(&of(i)).canary().default_backend(&format!("next-{i:03}"));
    for i in 0..BACKENDS {
        let commit = world.apply(canary(i));
        assert!(commit.looked_at <= BACKENDS * 3 + FEW, "{i}: {} looked at", commit.looked_at);
    }
    for line in world.alternatives() {
        assert_eq!(line.matches("next-").count(), 16, "{line}");
    }
    assert_eq!(world.problems_of(&of(299)), ["overridden spec.defaultBackend"]);
    assert!(world.reasons(&of(299))[0].contains("already has 16 canaries"));

    let more: Vec<_> = paths.iter().copied().chain([("/new", "new")]).collect();
    let commit = world.apply(ingress("web").rule("", &more));
    assert!(commit.looked_at <= 20 * BACKENDS + FEW, "{} looked at", commit.looked_at);

    let seventeenth = |world: &World| world.alternatives().iter().all(|it| it.contains("next-016"));
    assert!(!seventeenth(&world));
    world.delete(ObjectKind::Ingress, &of(0));
    assert!(seventeenth(&world), "the next one takes its place: {:?}", world.alternatives()[0]);
    world.apply(canary(0));
    assert!(!seventeenth(&world));
}
