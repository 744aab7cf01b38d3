//! What an Ingress says and does not get, because another one decides: each loss is a problem of the one that loses, and
//! nobody else's, and what would keep clients out says so.

use serde_json::json;
use shared::kind::Kind;
use shared::resource::Resource;

use super::fixture::*;
use super::restrictions::authorities;
use crate::index::Options;
use crate::objects::{Object, ObjectKind};

/// The problems of an Ingress with their severities: `overridden server-alias: REASON`.
fn told(world: &World, name: &str) -> Vec<String> {
    let lines = world.problems(ObjectKind::Ingress, name).into_iter().zip(world.reasons(name));
    let of_others = lines.filter(|(line, _)| !line.ends_with(".service.name"));
    let short =
        |line: &str| line.replace("metadata.annotations[nginx.ingress.kubernetes.io/", "").replace(']', "");
    of_others.map(|(line, reason)| format!("{}: {reason}", short(&line))).collect()
}

fn told_once(world: &World, name: &str) -> String {
    let all = told(world, name);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

fn open() -> World {
    let mut world = World::with(Options { passes_tls: true, ..options() });
    world.apply(configmap(json!({
        "allow-snippet-annotations": "true",
        "annotations-risk-level": "Critical",
        "http-snippet": "limit_req_zone $remote_addr zone=a:1m rate=5r/s;",
    })));
    world
}

fn at(name: &str, second: u32, path: &str) -> Ing {
    ingress(name).at(second).rule("a.test", &[(path, name)])
}

fn is_denied(world: &World, name: &str) -> bool {
    match world.get(Kind::Route, &format!("ingress/default/{name}/a.test")) {
        Some(Resource::Route(route)) => route.denied.is_some(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_of_a_host_that_another_ingress_decides_are_told() {
    for (annotation, first, same, other) in [
        ("server-alias", "b.test,c.test", "c.test", "d.test"),
        (
            "ssl-ciphers",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES256-GCM-SHA384",
        ),
        ("ssl-prefer-server-ciphers", "true", "true", "false"),
        ("ssl-passthrough", "false", "false", "true"),
        (
            "server-snippet",
            "more_set_headers 'X-A: b';",
            "more_set_headers  'X-A: b' ;",
            "more_set_headers 'X-A: c';",
        ),
        ("app-root", "/app", "/app", "/other"),
    ] {
        let mut world = open();
        let late = |text| at("late", 2, "/b").annotation(annotation, text);
        world.apply(late(other));
        assert_eq!(told(&world, "late"), Vec::<String>::new(), "{annotation}");
        world.apply(at("first", 1, "/long").annotation(annotation, first));
        assert_eq!(told(&world, "first"), Vec::<String>::new(), "{annotation}");
        let loss = told_once(&world, "late");
        let begin = format!("overridden {annotation}: Ingress default/first ");
        assert!(loss.starts_with(&begin) && loss.contains("host a.test"), "{loss}");
        assert!(!is_denied(&world, "late"), "{annotation}");
        world.apply(late(same));
        assert_eq!(told(&world, "late"), Vec::<String>::new(), "equal: {annotation}");
        world.apply(late(other));
        world.delete(ObjectKind::Ingress, "first");
        assert_eq!(told(&world, "late"), Vec::<String>::new(), "{annotation}");
    }
}

/// Passthrough is decided by the first Ingress, which need not speak of it.
#[test]
fn who_says_nothing_decides_on_passthrough() {
    let mut world = open();
    world.apply(at("late", 2, "/b").annotation("ssl-passthrough", "true"));
    assert_eq!(told(&world, "late"), Vec::<String>::new());
    world.apply(at("first", 1, "/"));
    assert!(told_once(&world, "late").contains("decides on TLS passthrough"));
}

#[test]
fn certificates_that_are_not_used_are_told_with_their_place() {
    let mut world = World::default();
    for name in ["one", "two"] {
        world.apply(secret(name, 0));
    }
    world.apply(at("first", 1, "/").tls(&["a.test"], "one"));
    let late = |secret| at("late", 2, "/b").tls(&["b.test"], "one").tls(&["a.test"], secret);
    world.apply(late("two"));
    let all = told(&world, "late");
    assert!(
        all.iter().any(|it| it.starts_with("overridden spec.tls[1.secretName: Ingress default/first")),
        "{all:?}"
    );
    // An entry for another host is asked for nothing here.
    world.apply(at("late", 2, "/b").tls(&["b.test"], "two"));
    let all = told(&world, "late");
    assert!(all.iter().all(|it| !it.starts_with("overridden")), "{all:?}");
    for same in ["one", ""] {
        world.apply(late(same));
        assert!(told(&world, "late").iter().all(|it| !it.starts_with("overridden")), "{same}");
    }
}

/// The scenario of docs/adr/006: `/admin` is open to everybody, as in ingress-nginx, and its owner is told.
#[test]
fn restrictions_of_a_snippet_that_loses_are_told_as_such() {
    let mut world = open();
    let admin = |text: &str| at("b", 2, "/admin").annotation("server-snippet", text);
    world.events([applied(at("web", 3, "/")), applied(admin("allow 10.0.0.0/8; deny all;"))]);
    assert_eq!(told(&world, "b"), Vec::<String>::new());
    world.apply(at("zz", 1, "/z").annotation("server-snippet", "more_set_headers 'X-A: b';"));
    for (text, keeps_out) in [
        ("allow 10.0.0.0/8; deny all;", true),
        ("limit_req zone=a;", true),
        ("if ($http_user_agent ~ bot) { return 403; }", true),
        ("location /admin/private { deny all; }", true),
        ("location /admin/ping { return 200; }", false),
        ("add_header X-A c;", false),
    ] {
        world.apply(admin(text));
        let loss = told_once(&world, "b");
        assert!(loss.starts_with("overridden server-snippet: Ingress default/zz comes first"), "{loss}");
        assert_eq!(
            loss.ends_with("whom it would keep out is let in, as in ingress-nginx"),
            keeps_out,
            "{loss}"
        );
        assert!(["b", "zz", "web"].iter().all(|name| !is_denied(&world, name)), "{text}");
    }
    world.delete(ObjectKind::Ingress, "zz");
    assert_eq!(told(&world, "b"), Vec::<String>::new());
}

#[test]
fn client_certificates_that_another_ingress_asks_for_are_told() {
    let mut world = World::default();
    let asking = |name, second, path, secret: &str, mode| {
        let it = at(name, second, path).annotation("auth-tls-secret", &format!("default/{secret}"));
        it.annotation("auth-tls-verify-client", mode)
    };
    world.apply(authorities("one"));
    world.apply(authorities("two"));
    for (first, late, keeps_out, differing) in [
        (("one", "optional"), ("one", "on"), true, "auth-tls-verify-client"),
        (("one", "on"), ("two", "on"), true, "auth-tls-secret"),
        (("one", "off"), ("one", "optional"), true, "auth-tls-verify-client"),
        (("one", "on"), ("two", "off"), false, "auth-tls-secret and auth-tls-verify-client"),
        (("one", "on"), ("one", "on"), false, ""),
    ] {
        world.apply(asking("first", 1, "/", first.0, first.1));
        world.apply(asking("late", 2, "/b", late.0, late.1));
        assert!(!is_denied(&world, "late") && !is_denied(&world, "first"), "{first:?} {late:?}");
        let all = told(&world, "late");
        assert_eq!(all.len(), usize::from(!differing.is_empty()), "{all:?}");
        assert!(all.iter().all(|it| it.starts_with("overridden auth-tls-secret: ")), "{all:?}");
        assert!(all.iter().all(|it| it.contains(&format!("with another {differing}: "))), "{all:?}");
        assert!(all.iter().all(|it| it.ends_with("ingress-nginx") == keeps_out), "{all:?}");
    }
    // Nobody gets in at all without authorities, which is said on its own.
    world.apply(asking("late", 2, "/b", "none", "on"));
    assert!(told(&world, "late").iter().all(|it| !it.starts_with("overridden")));
}

#[test]
fn names_that_another_host_has_are_told() {
    let mut world = World::default();
    let host = |name: &str, host: &str| ingress(name).rule(host, &[("/", name)]);
    world.apply(host("a", "a.test").annotation("server-alias", "x.test,y.test"));
    world.apply(host("b", "b.test").annotation("server-alias", "x.test"));
    assert_eq!(told(&world, "a"), Vec::<String>::new());
    assert_eq!(
        told_once(&world, "b"),
        "overridden server-alias: \"x.test\" is an alias of host a.test (Ingress default/a), which comes first, and not of host b.test"
    );
    world.apply(host("x", "x.test"));
    for (name, host) in [("a", "a.test"), ("b", "b.test")] {
        let expected = format!(
            "overridden server-alias: \"x.test\" is a host of its own (Ingress default/x), and no alias of host {host}"
        );
        assert_eq!(told_once(&world, name), expected);
    }
    world.delete(ObjectKind::Ingress, "x");
    world.delete(ObjectKind::Ingress, "a");
    assert_eq!(told(&world, "b"), Vec::<String>::new());

    world.apply(host("bare", "c.test").annotation("from-to-www-redirect", "true"));
    assert_eq!(told(&world, "bare"), Vec::<String>::new());
    world.apply(host("www", "www.c.test"));
    assert_eq!(
        told_once(&world, "bare"),
        "overridden from-to-www-redirect: www.c.test is a host of its own (Ingress default/www): nothing is redirected from it"
    );
    world.delete(ObjectKind::Ingress, "www");
    assert_eq!(told(&world, "bare"), Vec::<String>::new());
}

#[test]
fn a_path_that_its_own_ingress_declares_before_is_told_as_that() {
    let mut world = World::default();
    world.apply(ingress("web").rule("a.test", &[("/x", "one"), ("/y", "one"), ("/x", "two")]));
    assert_eq!(
        told_once(&world, "web"),
        "overridden spec.rules[0.http.paths[2: /x of host a.test is declared twice by this Ingress: the first one counts"
    );
}

/// One alias of the hosts of one Ingress is its own business.
#[test]
fn an_ingress_is_not_told_of_itself() {
    let mut world = World::default();
    let both = ingress("both").rule("a.test", &[("/", "a")]).rule("b.test", &[("/", "a")]);
    world.apply(both.annotation("server-alias", "x.test").annotation("app-root", "/app"));
    assert_eq!(told(&world, "both"), Vec::<String>::new());
}

#[test]
fn settings_of_a_backend_that_another_ingress_decides_are_told() {
    for (annotation, first, other) in [
        (("load-balance", "ewma"), ("load-balance", "ewma"), ("upstream-hash-by", "$remote_addr")),
        (("upstream-hash-by", "$host"), ("load-balance", "round_robin"), ("load-balance", "ewma")),
        (("ssl-redirect", "false"), ("service-upstream", "false"), ("service-upstream", "true")),
    ] {
        let mut world = World::default();
        let of = |name: &str, second, host: &str, (annotation, text)| {
            ingress(name).at(second).rule(host, &[("/", "web")]).annotation(annotation, text)
        };
        let late = |says| of("late", 2, "b.test", says);
        world.apply(late(other));
        world.apply(of("first", 1, "a.test", annotation));
        let loss = told_once(&world, "late");
        assert!(
            loss.starts_with(&format!("overridden {}: Ingress default/first comes first", other.0)),
            "{loss}"
        );
        assert!(loss.contains("Service default/web, port 80"), "{loss}");
        assert_eq!(told(&world, "first"), Vec::<String>::new(), "{other:?}");
        world.apply(late(first));
        assert_eq!(told(&world, "late"), Vec::<String>::new(), "{first:?}");
        world.apply(late(other));
        world.delete(ObjectKind::Ingress, "first");
        assert_eq!(told(&world, "late"), Vec::<String>::new(), "{other:?}");
    }
}

/// What nobody says is what the fleet says.
#[test]
fn settings_of_a_backend_are_compared_with_those_of_the_fleet() {
    let mut world = World::default();
    world.apply(ingress("first").at(1).rule("a.test", &[("/", "web")]));
    let late = ingress("late").at(2).rule("b.test", &[("/", "web")]);
    world.apply(late.annotation("load-balance", "round_robin"));
    assert_eq!(told(&world, "late"), Vec::<String>::new());
    world.apply(configmap(json!({"load-balance": "ewma"})));
    assert!(told_once(&world, "late").starts_with("overridden load-balance"));
    world.apply(configmap(json!({})));
    assert_eq!(told(&world, "late"), Vec::<String>::new());
}

/// The cookie is that of the last one.
#[test]
fn the_cookie_of_another_ingress_is_told() {
    let mut world = World::default();
    let of = |name: &str, second, cookie| -> Object {
        let it = ingress(name).at(second).rule(&format!("{name}.test"), &[("/", "web")]);
        it.annotation("affinity", "cookie").annotation("session-cookie-name", cookie).into()
    };
    world.apply(of("first", 1, "one"));
    world.apply(of("late", 2, "one"));
    assert_eq!((told(&world, "first"), told(&world, "late")), (vec![], vec![]));
    world.apply(of("late", 2, "two"));
    assert!(told_once(&world, "first").starts_with("overridden affinity: Ingress default/late comes last"));
    assert_eq!(told(&world, "late"), Vec::<String>::new());

    let mode = |name: &str, second, mode| {
        let it = ingress(name).at(second).rule(&format!("{name}.test"), &[("/", "web")]);
        it.annotation("affinity", "cookie").annotation("affinity-mode", mode)
    };
    world.apply(mode("first", 1, "persistent"));
    world.apply(mode("late", 2, "balanced"));
    let loss = told_once(&world, "late");
    assert!(loss.starts_with("overridden affinity-mode: Ingress default/first comes first"), "{loss}");
    world.delete(ObjectKind::Ingress, "first");
    assert_eq!(told(&world, "late"), Vec::<String>::new());
}
