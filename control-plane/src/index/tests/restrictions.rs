//! Restrictions that are not enforced yet: what they would guard answers 503.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use shared::kind::Kind;
use shared::policy::LocationPolicy;
use shared::resource::{Guard, Resource};

use super::fixture::*;
use super::properties::assert_same;
use crate::annotations::row::{Row, Status};
use crate::annotations::table;
use crate::event::Event;
use crate::index::Options;
use crate::objects::{Object, ObjectKind, ObjectRef, Secret};
use crate::problem::{Severity, Subject};

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

/// In a folder, one value without quotes (`ssl-redirect: true`) makes the ConfigMap unreadable, which may contain an
/// allowlist.
#[test]
fn settings_that_cannot_be_read_let_nobody_in() {
    let object = ObjectRef { kind: ObjectKind::ConfigMap, name: options().configmap };
    let guards = |world: &World| match world.get(Kind::Settings, "default") {
        Some(Resource::Settings(settings)) => settings.guards,
        other => panic!("{other:?}"),
    };
    let said = |world: &World| {
        let problems = world.index.problems().get(&Subject::Object(object.clone()));
        let said = problems.into_iter().flat_map(|all| all.iter()).map(|it| (it.severity, it.reason.clone()));
        let mut said: Vec<_> = said.collect();
        said.sort_by_key(|(severity, _)| *severity != Severity::Rejected);
        said
    };
    let unreadable = || broken(object.clone(), "data.ssl-redirect", "expected text, got true");
    let mut world = World::default();
    world.events([]);
    assert_eq!(guards(&world), []);
    world.events([unreadable()]);
    assert_eq!(guards(&world), [Guard::Addresses]);
    let [(Severity::Rejected, first), (Severity::Unsupported, then)] = &said(&world)[..] else {
        panic!("{:?}", said(&world))
    };
    assert!(first.contains("expected text") && then.ends_with("all paths answer 503"), "{first} {then}");

    // A valid version stays in use.
    world.apply(configmap(json!({"ssl-redirect": "false"})));
    assert_eq!((guards(&world), said(&world)), (vec![], vec![]));
    world.events([unreadable()]);
    assert_eq!((guards(&world), said(&world).len()), (vec![], 1));
    world.events([Event::Deleted(object.clone())]);
    let [(Severity::Warning, kept)] = &said(&world)[..] else { panic!("{:?}", said(&world)) };
    assert!(guards(&world).is_empty() && kept.starts_with("was deleted: its last values"), "{kept}");
}

#[test]
fn what_holds_for_a_host_denies_it_whoever_owns_its_paths() {
    let mut world = World::default();
    world.apply(configmap(json!({"annotations-risk-level": "Critical"})));
    world.apply(ingress("open").at(1).rule("a.test", &[("/", "open")]).rule("b.test", &[("/", "open")]));
    let guard = ingress("guard").at(2).annotation("server-snippet", "auth_request /x;");
    world.apply(guard.rule("a.test", &[("/", "lost")]));
    let denied = |host: &str| match world.get(Kind::Host, host) {
        Some(Resource::Host(it)) => it.denied.map(|denial| denial.reason),
        _ => None,
    };
    assert_eq!(
        denied("a.test").unwrap(),
        "Ingress default/guard: nginx.ingress.kubernetes.io/server-snippet has a restriction that is not enforced"
    );
    assert_eq!(denied("b.test"), None);
    assert_eq!(denied("_"), None);
}

/// Not even where no path is its own: it would take a neighbour's host.
#[test]
fn passthrough_is_what_the_first_ingress_of_a_host_says() {
    for (passes_tls, early, late, expected) in [
        (true, "true", "false", Some(true)),
        (true, "false", "true", None),
        (false, "true", "true", None),
        (false, "false", "true", None),
    ] {
        let mut world = World::with(Options { passes_tls, ..options() });
        let with = |name: &str, at, path: &str, says| {
            ingress(name).at(at).rule("a.test", &[(path, "echo")]).annotation("ssl-passthrough", says)
        };
        world.apply(with("late", 2, "/late", late));
        world.apply(with("early", 1, "/", early));
        let Some(Resource::Host(host)) = world.get(Kind::Host, "a.test") else { panic!("no host") };
        assert_eq!((host.denied, host.policy.passthrough), (None, expected), "{passes_tls} {early} {late}");
        // Other backends than that of "/" may be spoken to in plain HTTP, here as without it.
        for name in ["early", "late"] {
            let Some(Resource::Route(it)) = world.get(Kind::Route, &format!("ingress/default/{name}/a.test"))
            else {
                panic!("no Route of {name}")
            };
            assert_eq!(it.policy.backend_protocol, None, "{passes_tls} {early} {late}");
        }
        let warned = |name| world.reasons(name).iter().any(|reason| reason.contains("has no effect"));
        assert_eq!(
            [warned("early"), warned("late")],
            [early, late].map(|says| !passes_tls && says == "true")
        );
    }
}

/// In ingress-nginx the catch-all of an Ingress without rules keeps its own redirects, which are none. What the fleet says
/// would count where nothing is said.
#[test]
fn the_catch_all_of_an_ingress_without_rules_is_not_redirected_to_tls_whatever_the_fleet_says() {
    let redirects = |world: &World, host: &str| {
        let Some(Resource::Route(route)) = world.get(Kind::Route, &format!("ingress/default/web/{host}"))
        else {
            panic!("no route");
        };
        (route.policy.ssl_redirect, route.policy.force_ssl_redirect)
    };
    for own in [None, Some("true")] {
        let web = || match own {
            Some(text) => ingress("web").annotation("force-ssl-redirect", text),
            None => ingress("web"),
        };
        let mut world = World::default();
        world.apply(configmap(json!({"force-ssl-redirect": "true"})));
        world.apply(web().default_backend("rest"));
        assert_eq!(redirects(&world, "_"), (Some(false), Some(false)), "{own:?}");
        world.apply(web().default_backend("rest").rule("", &[("/a", "echo")]));
        assert_eq!(redirects(&world, "_"), (None, own.map(|_| true)), "{own:?}: it has a rule");
    }
}

#[test]
fn a_guarded_catch_all_is_denied() {
    let mut world = World::default();
    world.apply(configmap(json!({"annotations-risk-level": "Critical"})));
    let guard = ingress("guard")
        .annotation("server-snippet", "auth_request /x;")
        .annotation("enable-modsecurity", "true");
    world.apply(guard.default_backend("rest"));
    assert_eq!(world.routes(), ["ingress/default/guard/_: / -> default/rest/80 (denied)"]);
    assert!(matches!(world.get(Kind::Host, "_"), Some(Resource::Host(it)) if it.denied.is_some()));
}

/// With a missing Secret nobody is let in, on any path of the host; other Ingresses are told.
#[test]
fn clients_of_a_host_are_asked_as_its_first_ingress_says_and_nobody_gets_in_without_its_secret() {
    let mut world = World::default();
    let asked = |world: &World, host: &str| match world.get(Kind::Host, host) {
        Some(Resource::Host(it)) => it.policy.client_certificates.map(|it| (it.authorities, it.depth)),
        _ => panic!("no host {host}"),
    };
    world.apply(ingress("open").at(1).rule("a.test", &[("/", "open")]).rule("b.test", &[("/", "open")]));
    let guard = |name: &str, at, depth: &str| {
        let it = ingress(name).at(at).annotation("auth-tls-secret", &format!("default/{name}"));
        it.annotation("auth-tls-verify-depth", depth).rule("a.test", &[(&format!("/{name}"), "x")])
    };
    world.apply(guard("one", 2, "3"));
    assert_eq!(asked(&world, "a.test"), Some((String::new(), 0)));
    assert_eq!(asked(&world, "b.test"), None);
    assert_eq!(world.problems_of("open"), ["warning spec.rules[0]"]);
    world.apply(authorities("one"));
    assert_eq!(asked(&world, "a.test"), Some(("default/one/auth-tls".into(), 3)));
    assert_eq!(world.problems_of("open"), Vec::<String>::new());
    world.apply(guard("two", 3, "4"));
    assert_eq!(asked(&world, "a.test"), Some((String::new(), 0)), "one that is broken breaks the host");
    world.apply(authorities("two"));
    assert_eq!(asked(&world, "a.test"), Some(("default/one/auth-tls".into(), 3)), "the first decides");
    assert_eq!(world.keys(Kind::Material), ["default/one/auth-tls", "default/two/auth-tls"]);
}

/// A Secret without authorities says nothing of its own (ingress-nginx).
#[test]
fn whose_secret_has_no_authorities_follows_its_host() {
    let tls = |name: &str, at| ingress(name).at(at).annotation("backend-protocol", "HTTPS");
    let first = tls("first", 1).annotation("proxy-ssl-secret", "default/ca");
    let mut world = World::default();
    world.apply(authorities("ca"));
    world.apply(secret("pair", 0));
    world.apply(first.annotation("proxy-ssl-verify", "on").rule("a.test", &[("/first", "x")]));
    let blind = tls("blind", 2).annotation("proxy-ssl-secret", "default/pair");
    world.apply(blind.rule("a.test", &[("/blind", "y")]));
    let own = |world: &World| match world.get(Kind::Route, "ingress/default/blind/a.test") {
        Some(Resource::Route(it)) => (it.policy.backend_tls.map(|it| it.material), it.denied.is_some()),
        other => panic!("{other:?}"),
    };
    assert_eq!(own(&world), (None, false), "what the host says");
    world.delete(ObjectKind::Secret, "ca");
    assert_eq!(own(&world), (own(&world).0, true), "nothing can be verified");
    world.delete(ObjectKind::Ingress, "first");
    assert_eq!(own(&world), (Some("default/pair/proxy-ssl".into()), false));
}

/// What nginx says of TLS for a whole host has no effect on `grpc_pass`.
#[test]
fn grpcs_follows_its_own_ingress_alone() {
    let tls = |name: &str, at| {
        let it = ingress(name).at(at).annotation("backend-protocol", "GRPCS");
        it.rule("a.test", &[(&format!("/{name}"), "x")])
    };
    let verified = |it: Ing, secret: &str| {
        let it = it.annotation("proxy-ssl-secret", &format!("default/{secret}"));
        it.annotation("proxy-ssl-verify", "on").annotation("proxy-ssl-name", "x.test")
    };
    let mut world = World::default();
    world.apply(verified(tls("first", 1), "ca"));
    world.apply(tls("other", 2));
    world.apply(tls("blind", 3).annotation("proxy-ssl-secret", "default/pair"));
    world.apply(secret("pair", 0));
    let own =
        |world: &World, name: &str| match world.get(Kind::Route, &format!("ingress/default/{name}/a.test")) {
            Some(Resource::Route(it)) => {
                (it.policy.backend_tls.map(|it| (it.material, it.verify)), it.denied.is_some())
            }
            other => panic!("{other:?}"),
        };
    let blind = (Some(("default/pair/proxy-ssl".into(), false)), false);
    assert!(own(&world, "first").1, "it cannot be verified");
    assert_eq!((own(&world, "other"), own(&world, "blind")), ((None, false), blind.clone()));
    world.apply(authorities("ca"));
    assert_eq!(own(&world, "first"), (Some(("default/ca/proxy-ssl".into(), true)), false));
    assert_eq!((own(&world, "other"), own(&world, "blind")), ((None, false), blind));
}

/// ingress-nginx reads it of canaries, too, since it is about the host and not about their paths.
#[test]
fn a_canary_asks_the_clients_of_its_host_for_certificates() {
    let mut world = World::default();
    let asked = |world: &World| match world.get(Kind::Host, "a.test") {
        Some(Resource::Host(it)) => it.policy.client_certificates.map(|it| it.authorities),
        _ => panic!("no host"),
    };
    let canary = || {
        let it = ingress("canary").at(2).rule("a.test", &[("/", "new")]);
        it.annotation("canary", "true").annotation("auth-tls-secret", "default/one")
    };
    world.events([
        applied(authorities("one")),
        applied(ingress("open").at(1).rule("a.test", &[("/", "open")])),
    ]);
    assert_eq!(asked(&world), None);
    world.apply(canary());
    assert_eq!(asked(&world), Some("default/one/auth-tls".into()));
    assert!(world.problems_of("canary").is_empty(), "{:?}", world.problems_of("canary"));
    world.apply(canary().annotation("auth-tls-secret", "default/two"));
    assert_eq!(asked(&world), Some(String::new()), "its Secret is missing: nobody gets in");
    assert_eq!(world.problems_of("open"), ["warning spec.rules[0]"]);
    world.delete(ObjectKind::Ingress, "canary");
    assert_eq!(asked(&world), None);
    assert_eq!(world.problems_of("open"), Vec::<String>::new());
}

/// The TLS settings of the first Ingress with authorities apply to the host; while the authorities are missing, nothing
/// is sent by paths that rely on them.
#[test]
fn backends_of_a_host_are_verified_as_its_first_ingress_says() {
    let mut world = World::default();
    let tls = |name: &str, at| ingress(name).at(at).annotation("backend-protocol", "HTTPS");
    let first = tls("first", 1).annotation("proxy-ssl-secret", "default/ca");
    let first = first.annotation("proxy-ssl-verify", "on").annotation("proxy-ssl-name", "x.test");
    world.apply(first.rule("a.test", &[("/first", "x")]));
    world.apply(tls("other", 2).rule("a.test", &[("/other", "y")]));
    world.apply(ingress("plain").at(3).rule("a.test", &[("/plain", "z")]));
    let denied = |world: &World| {
        let routes = world.routes();
        let denied = routes.iter().filter(|line| line.ends_with("(denied)"));
        denied.map(|line| line.split('/').nth(2).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let shared = |world: &World| match world.get(Kind::Host, "a.test") {
        Some(Resource::Host(it)) => it.policy.backend_tls.map(|it| it.material),
        _ => panic!("no host"),
    };
    assert_eq!((denied(&world), shared(&world)), (vec!["first".into(), "other".into()], None));
    world.apply(authorities("ca"));
    assert_eq!((denied(&world), shared(&world)), (vec![], Some("default/ca/proxy-ssl".into())));
    world.apply(configmap(serde_json::json!({"proxy-ssl-location-only": "true"})));
    assert_eq!((denied(&world), shared(&world)), (vec![], None));
}

/// ingress-nginx reads it of canaries, too, since it is about the host as well. They shut nobody out.
#[test]
fn a_canary_says_how_backends_of_its_host_are_verified() {
    let mut world = World::default();
    let tls = |name: &str, at| ingress(name).at(at).annotation("backend-protocol", "HTTPS");
    let shared = |world: &World| match world.get(Kind::Host, "a.test") {
        Some(Resource::Host(it)) => it.policy.backend_tls.map(|it| (it.material, it.verify)),
        _ => panic!("no host"),
    };
    let canary = || {
        let it = ingress("canary").at(1).annotation("canary", "true");
        let it = it.annotation("proxy-ssl-secret", "default/ca");
        let it = it.annotation("proxy-ssl-verify", "on").annotation("proxy-ssl-name", "x.test");
        it.rule("a.test", &[("/", "new")])
    };
    world.apply(tls("main", 2).rule("a.test", &[("/", "old")]));
    world.apply(canary());
    assert_eq!((shared(&world), is_any_denied(&world)), (None, false), "its Secret is missing");
    world.apply(authorities("ca"));
    assert_eq!(shared(&world), Some(("default/ca/proxy-ssl".into(), true)));
    assert_eq!((world.problems_of("canary").len(), world.keys(Kind::Material).len()), (0, 1));
    world.apply(canary().annotation("proxy-ssl-verify", "off"));
    assert_eq!(shared(&world), Some(("default/ca/proxy-ssl".into(), false)));
    // Without it, the next Ingress with such settings decides.
    world.apply(authorities("other"));
    let late = tls("late", 3).annotation("proxy-ssl-secret", "default/other");
    world.apply(late.annotation("proxy-ssl-verify", "on").rule("a.test", &[("/late", "late")]));
    assert_eq!(shared(&world), Some(("default/ca/proxy-ssl".into(), false)));
    world.delete(ObjectKind::Ingress, "canary");
    assert_eq!(shared(&world), Some(("default/other/proxy-ssl".into(), true)));
    world.delete(ObjectKind::Ingress, "late");
    assert_eq!(shared(&world), None);
}

/// A Secret with the certificate of a root.
pub(super) fn authorities(name: &str) -> Object {
    let key = rcgen::KeyPair::generate().unwrap();
    let root = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap();
    let mut secret = Secret::default();
    secret.metadata.namespace = "default".into();
    secret.metadata.name = name.into();
    secret.data.insert("ca.crt".into(), STANDARD.encode(root.pem()));
    Object::Secret(secret.into())
}

/// Whether a request for a path of the Ingress `web` on `a.test` gets 503, according to the resources.
fn is_closed(world: &World) -> bool {
    let host = matches!(world.get(Kind::Host, "a.test"), Some(Resource::Host(it)) if it.denied.is_some());
    host || world
        .routes()
        .iter()
        .any(|line| line.starts_with("ingress/default/web/a.test") && line.ends_with("(denied)"))
}

fn is_any_denied(world: &World) -> bool {
    world.routes().iter().any(|line| line.ends_with("(denied)"))
}

fn fresh(ingress: &Ing) -> World {
    let mut world = World::default();
    world.apply(configmap(serde_json::json!({"annotations-risk-level": "Critical"})));
    world.apply(ingress.clone());
    world
}

/// An Ingress with an annotation of this row, or only with those that the row needs.
pub(super) fn with_annotation(row: &Row, text: Option<&str>) -> Ing {
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

/// Over the whole table: an annotation that is added to an Ingress takes effect, and one that is removed has no effect
/// any more. A restriction closes the paths in the same commit; after a change the state equals that of a fresh start.
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

/// One location turns all paths of a host into regular expressions, whichever Ingress owns them (ingress-nginx).
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

/// An Ingress without rules gets the catch-all without its redirects and rewrites (ingress-nginx).
#[test]
fn the_catch_all_of_an_ingress_without_rules_neither_rewrites_nor_redirects() {
    let mut world = World::default();
    let said = [
        ("app-root", "/app"),
        ("force-ssl-redirect", "true"),
        ("permanent-redirect", "https://x.test"),
        ("permanent-redirect-code", "308"),
        ("preserve-trailing-slash", "true"),
        ("relative-redirects", "true"),
        ("rewrite-target", "/x"),
        ("ssl-redirect", "false"),
        ("temporal-redirect", "https://x.test"),
        ("temporal-redirect-code", "307"),
        ("use-regex", "true"),
    ];
    let bare = said
        .iter()
        .fold(ingress("bare").default_backend("web"), |it, (name, text)| it.annotation(name, text));
    world.apply(bare);
    let Some(Resource::Route(route)) = world.get(Kind::Route, "ingress/default/bare/_") else {
        panic!("no route")
    };
    let none = LocationPolicy {
        force_ssl_redirect: Some(false),
        ssl_redirect: Some(false),
        ..LocationPolicy::default()
    };
    assert_eq!(route.policy, none, "nor does what the fleet says of redirects to https count");
}

/// A target that equals the path rewrites nothing (ingress-nginx), including the host's own "/"; what is below a Prefix
/// path is another path.
#[test]
fn a_rewrite_to_the_path_itself_is_none() {
    let is_regex = |world: &World| match world.get(Kind::Host, "a.test") {
        Some(Resource::Host(it)) => it.policy.regex == Some(true),
        _ => panic!("no host"),
    };
    let mut world = World::default();
    world.apply(ingress("web").at(1).annotation("rewrite-target", "/").rule("a.test", &[("/", "x")]));
    assert!(!is_regex(&world));
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
    world.apply(ingress("web").at(1).annotation("rewrite-target", "/x").rule("a.test", &[("/x", "x")]));
    assert!(is_regex(&world), "the implicit / is rewritten");
    world.apply(ingress("first").at(0).rule("a.test", &[("/y", "y")]));
    assert!(is_regex(&world), "the implicit / is another's, and what lies below /x is rewritten");
    for path in ["=/x", "/x/"] {
        let target = path.trim_start_matches('=');
        let web = ingress("web").at(1).annotation("rewrite-target", target);
        world.apply(web.rule("a.test", &[(path, "x")]));
        assert!(!is_regex(&world), "{path}");
    }
}

#[test]
fn whoever_shares_a_denied_host_is_told() {
    let mut world = World::default();
    world.apply(configmap(json!({"annotations-risk-level": "Critical"})));
    world.apply(ingress("open").at(1).rule("b.test", &[("/", "open")]).rule("a.test", &[("/", "open")]));
    world.apply(
        ingress("guard").at(2).annotation("auth-tls-secret", "default/ca").rule("a.test", &[("/g", "g")]),
    );
    assert_eq!(world.problems_of("open"), ["warning spec.rules[1]"]);
}
