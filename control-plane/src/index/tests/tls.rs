//! The certificates of hosts, and Secrets (ingress-nginx).

use shared::kind::Kind;
use shared::resource::Resource;

use super::super::Options;
use super::fixture::*;
use crate::event::{Event, HoldRequest};
use crate::objects::ObjectKind;
use crate::problem::Subject;

fn certificates(world: &World, host: &str) -> Option<Vec<String>> {
    match world.get(Kind::Host, host) {
        Some(Resource::Host(it)) => it.tls.map(|tls| tls.certificates),
        other => panic!("{host} is {other:?}"),
    }
}

#[test]
fn who_decides() {
    let web = || ingress("web").at(1).rule("a.test", &[("/", "echo")]);
    type Row = (&'static str, Vec<Ing>, Option<Vec<&'static str>>);
    let table: Vec<Row> = vec![
        ("no section", vec![web()], None),
        ("an entry that lists the host", vec![web().tls(&["A.test"], "one")], Some(vec!["default/one"])),
        (
            "it alone",
            vec![web().tls(&["b.test"], "b").tls(&["a.test"], "one").tls(&["a.test"], "two")],
            Some(vec!["default/one"]),
        ),
        ("one without a Secret too", vec![web().tls(&["a.test"], "").tls(&[], "b")], Some(vec![])),
        (
            "all of the Ingress where none lists it",
            vec![web().tls(&["b.test"], "b").tls(&[], "").tls(&[], "c").tls(&[], "b")],
            Some(vec!["default/b", "default/c"]),
        ),
        (
            "the first Ingress that has a section",
            vec![
                web(),
                ingress("new").at(3).rule("a.test", &[("/y", "echo")]).tls(&["a.test"], "new"),
                ingress("old").at(2).rule("a.test", &[("/x", "echo")]).tls(&["b.test"], "old"),
            ],
            Some(vec!["default/old"]),
        ),
        (
            "never a canary",
            vec![web(), ingress("c").canary().rule("a.test", &[("/", "c")]).tls(&["a.test"], "c")],
            None,
        ),
    ];
    for (what, ingresses, expected) in table {
        let mut world = World::default();
        world.events(ingresses.into_iter().map(applied));
        let expected = expected.map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(certificates(&world, "a.test"), expected, "{what}");
    }
}

#[test]
fn whose_order_of_ciphers_counts_is_said_by_the_first_that_does() {
    let web = |name: &str, second, annotation, text| {
        let path = format!("/{name}");
        ingress(name).at(second).rule("a.test", &[(&path, "echo")]).annotation(annotation, text)
    };
    let order = |world: &World| match world.get(Kind::Host, "a.test") {
        Some(Resource::Host(host)) => {
            (host.policy.ssl_ciphers.is_some(), host.policy.ssl_prefer_server_ciphers)
        }
        other => panic!("{other:?}"),
    };
    let mut world = World::default();
    world.apply(web("a", 1, "ssl-ciphers", "HIGH"));
    world.apply(web("b", 2, "ssl-prefer-server-ciphers", "perhaps"));
    assert_eq!(order(&world), (true, None));
    world.apply(web("d", 4, "ssl-prefer-server-ciphers", "true"));
    assert_eq!(order(&world), (true, Some(true)));
    world.apply(web("c", 3, "ssl-prefer-server-ciphers", "false"));
    assert_eq!(order(&world), (true, Some(false)));
    world.delete(ObjectKind::Ingress, "c");
    assert_eq!(order(&world), (true, Some(true)));
}

#[test]
fn the_catch_all_has_none() {
    let mut world = World::default();
    world.apply(ingress("web").rule("", &[("/", "echo")]).tls(&[""], "one"));
    assert_eq!(certificates(&world, "_"), None);
    assert!(world.index.wants().is_empty());
}

fn secure() -> Ing {
    ingress("web").rule("a.test", &[("/", "echo")]).tls(&["a.test"], "cert")
}

#[test]
fn secrets_are_wanted_and_become_certificates() {
    let mut world = World::default();
    world.apply(secret("cert", 0));
    assert!(world.live.is_empty(), "nobody names it");
    let commit = world.apply(secure());
    assert!(commit.wants_changed);
    assert!(world.index.wants().contains(&reference(ObjectKind::Secret, "cert")));
    assert_eq!(world.keys(Kind::Certificate), ["default/cert"]);
    assert_eq!(world.problems_of("web"), Vec::<String>::new());

    let commit = world.apply(secret("cert", 1));
    assert_eq!((commit.live.up.len(), commit.config.len()), (1, 0));
    assert_eq!(commit.cause, "Secret default/cert: changed");

    let commit = world.delete(ObjectKind::Secret, "cert");
    assert!(commit.live.removed[0].gone);
    assert_eq!(world.problems_of("web"), ["warning spec.tls[0].secretName"]);
    assert!(
        world
            .reasons("web")
            .contains(&"Secret default/cert does not exist: the default certificate is shown".into())
    );
    world.apply(secret("cert", 0));
    let commit = world.delete(ObjectKind::Ingress, "web");
    assert!(!commit.live.removed[0].gone);
    assert!(commit.wants_changed);
    assert!(world.index.wants().is_empty());
}

#[test]
fn chains_are_shared() {
    let mut world = World::default();
    let (leaf, key) = pem(0);
    let (issuer, _) = pem(1);
    let chained = format!("{leaf}{issuer}");
    world.events([
        applied(ingress("one").rule("a.test", &[("/", "echo")]).tls(&["a.test"], "one")),
        applied(ingress("two").rule("b.a.test", &[("/", "echo")]).tls(&["b.a.test"], "two")),
        applied(secret_with("one", &chained, key)),
        applied(secret_with("two", &chained, key)),
    ]);
    assert_eq!(world.keys(Kind::Chain).len(), 1);
    world.delete(ObjectKind::Secret, "one");
    assert_eq!(world.keys(Kind::Chain).len(), 1);
    world.apply(secret("two", 0));
    assert_eq!(world.keys(Kind::Chain).len(), 0);
}

#[test]
fn a_bad_secret_is_rejected_and_the_good_one_stays() {
    let mut world = World::default();
    world.events([applied(secure()), applied(secret("cert", 0))]);
    let before = world.live.clone();
    let (certificate, _) = pem(0);
    let (_, key) = pem(1);
    let commit = world.apply(secret_with("cert", certificate, key));
    assert_eq!(world.live, before);
    assert_eq!(world.problems(ObjectKind::Secret, "cert"), ["rejected data[tls.key]"]);
    assert!(
        matches!(commit.holds.as_slice(), [HoldRequest::Write(hold)] if hold.object == secret("cert", 0))
    );
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
}

#[test]
fn a_secret_that_nobody_wants_is_not_judged() {
    let mut world = World::default();
    let commit = world.apply(secret_with("cert", "hello", "world"));
    assert!(!commit.problems_changed && commit.holds.is_empty());
    world.apply(secure());
    assert_eq!(world.problems(ObjectKind::Secret, "cert"), ["rejected data[tls.crt]"]);
    assert_eq!(world.problems_of("web"), ["warning spec.tls[0].secretName"]);
    assert!(world.reasons("web").iter().any(|reason| reason.contains("has no certificate that can be used")));
    world.delete(ObjectKind::Ingress, "web");
    assert!(world.problems(ObjectKind::Secret, "cert").is_empty(), "nor is one that nobody wants any more");
}

/// Another Ingress cannot change that.
#[test]
fn what_is_wrong_with_a_certificate_is_told_to_who_decides_of_it() {
    let mut world = World::default();
    world.apply(ingress("web").at(1).rule("a.test", &[("/", "echo")]).tls(&["a.test"], "absent"));
    world.apply(ingress("api").at(2).rule("a.test", &[("/api", "echo")]));
    assert_eq!(world.problems_of("web"), ["warning spec.tls[0].secretName"]);
    assert!(world.problems_of("api").is_empty(), "{:?}", world.problems_of("api"));
}

#[test]
fn a_certificate_of_other_names_is_told() {
    let mut world = World::default();
    world.events([
        applied(ingress("web").rule("x.y.test", &[("/", "echo")]).tls(&["x.y.test"], "cert")),
        applied(secret("cert", 0)),
    ]);
    assert_eq!(world.problems_of("web"), ["warning spec.tls"]);
}

/// A host that no entry lists has all Secrets of its Ingress. A proxy shows the first that covers it (`HostEntry`), so
/// one is enough, at any position.
#[test]
fn one_certificate_that_covers_the_host_is_enough() {
    let key = rcgen::KeyPair::generate().unwrap();
    let made = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let leaf = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        leaf.pem()
    };
    let none: &[&str] = &[];
    let (uncovered, gone, one_gone) = (
        &["warning spec.tls"][..],
        &["warning spec.tls[0].secretName", "warning spec.tls[1].secretName"][..],
        &["warning spec.tls[1].secretName"][..],
    );
    for (host, secrets, told) in [
        ("a.test", &["exact", "other"][..], none),
        ("a.test", &["other", "exact"], none),
        ("a.test", &["other", "exact", "wild", "other"], none),
        ("b.a.test", &["exact", "wild", "other"], none),
        ("*.a.test", &["wild", "other"], none),
        ("*.a.test", &["exact", "other"], uncovered),
        ("c.b.a.test", &["exact", "wild"], uncovered),
        ("a.test", &["wild"], uncovered),
        // No Secret is named: this asks for the default certificate.
        ("a.test", &[""], none),
        ("a.test", &["exact", "absent"], one_gone),
        ("x.test", &["exact", "absent"], one_gone),
        ("x.test", &["absent", "gone"], gone),
    ] {
        let mut world = World::default();
        for (name, names) in [("exact", &["a.test"][..]), ("wild", &["*.a.test"]), ("other", &["c.test"])] {
            world.apply(secret_with(name, &made(names), &key.serialize_pem()));
        }
        let web = ingress("web").rule(host, &[("/", "echo")]);
        world.apply(secrets.iter().fold(web, |web, secret| web.tls(&[], secret)));
        assert_eq!(world.problems_of("web"), told, "{host} {secrets:?}");
        let is_default = world.reasons("web").iter().any(|it| it.ends_with("default certificate is shown"));
        let is_shown = !told.is_empty() && secrets[0] != "exact" || told == uncovered || host == "x.test";
        assert_eq!(is_default, is_shown, "{host} {secrets:?}: {:?}", world.reasons("web"));
    }
}

/// Nothing is reported about certificates while one of them is still being read.
#[test]
fn what_is_not_read_yet_is_not_judged() {
    let mut world = World::with(Options { on_demand: true, ..options() });
    let web = ingress("web").rule("x.test", &[("/", "echo")]);
    world.events([applied(web.tls(&[], "one").tls(&[], "two")), applied(secret("one", 0))]);
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
    world.apply(secret("two", 1));
    assert_eq!(world.problems_of("web"), ["warning spec.tls"]);
}

#[test]
fn the_default_certificate_is_always_wanted() {
    let mut world = World::with(Options { default_certificate: Some(name("cert")), ..options() });
    let commit = world.events([]);
    assert!(commit.wants_changed);
    world.events([applied(secret("cert", 0)), applied(secure())]);
    world.delete(ObjectKind::Ingress, "web");
    assert_eq!(world.keys(Kind::Certificate), ["default/cert"]);
    let Some(Resource::Settings(settings)) = world.get(Kind::Settings, "default") else {
        panic!("settings are there");
    };
    assert_eq!(settings.default_certificate, "default/cert");
    let commit = world.events([Event::Deleted(reference(ObjectKind::Secret, "cert"))]);
    assert!(commit.live.removed[0].gone);
}

#[test]
fn a_missing_default_certificate_is_told() {
    let mut world = World::with(Options { default_certificate: Some(name("fallback")), ..options() });
    assert!(world.events([]).problems_changed);
    assert_eq!(world.problems(ObjectKind::Secret, "fallback"), ["warning "]);
    world.apply(secret("other", 0));
    assert_eq!(world.problems(ObjectKind::Secret, "other"), Vec::<String>::new());
    world.apply(secret("fallback", 0));
    assert_eq!(world.problems(ObjectKind::Secret, "fallback"), Vec::<String>::new());
    world.delete(ObjectKind::Secret, "fallback");
    assert_eq!(world.problems(ObjectKind::Secret, "fallback"), ["warning "]);
}

#[test]
fn the_owner_of_a_certificate_that_has_ended_is_told_while_it_is_shown() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2024, 1, 1), rcgen::date_time_ymd(2025, 1, 1));
    let ended = params.self_signed(&key).unwrap().pem();
    let mut world = World::default();
    let told = |world: &World| world.problems(ObjectKind::Secret, "cert");
    world.index.set_time(shared::clock::wall());
    world.apply(ingress("web").rule("a.test", &[("/", "echo")]).tls(&["a.test"], "cert"));
    world.apply(secret_with("cert", &ended, &key.serialize_pem()));
    assert_eq!(told(&world), ["warning data[tls.crt]"]);
    assert_eq!(certificates(&world, "a.test").unwrap(), ["default/cert"]);
    // A year ago it had not.
    let ago = std::time::Duration::from_secs(u64::try_from(params.not_before.unix_timestamp()).unwrap() + 1);
    world.index.set_time(std::time::SystemTime::UNIX_EPOCH + ago);
    assert!(world.events([]).problems_changed && told(&world).is_empty());
    world.index.set_time(shared::clock::wall());
    world.events([]);
    world.apply(secret("cert", 0));
    assert_eq!(told(&world), [""; 0]);
    world.apply(secret_with("cert", &ended, &key.serialize_pem()));
    world.delete(ObjectKind::Ingress, "web");
    assert_eq!(told(&world), [""; 0], "nobody is shown it");
}

/// A missing Secret and an unusable one are reported differently, because the owner has to act differently.
#[test]
fn a_secret_of_no_use_is_told_apart_from_one_that_is_not_there() {
    let mut world = World::default();
    world.apply(ingress("web").rule("a.test", &[("/", "echo")]).tls(&["a.test"], "cert"));
    let reason = |world: &World| {
        let problems = &world.index.problems()[&Subject::Object(reference(ObjectKind::Ingress, "web"))];
        let of_tls = problems.iter().find(|problem| problem.field == "spec.tls[0].secretName");
        of_tls.map(|problem| problem.reason.clone()).unwrap_or_default()
    };
    assert!(reason(&world).contains("does not exist"), "{}", reason(&world));
    world.apply(secret_with("cert", &pem(0).0, "no key"));
    assert!(reason(&world).contains("no certificate that can be used"), "{}", reason(&world));
    world.apply(secret("cert", 0));
    assert_eq!(reason(&world), "");
    world.delete(ObjectKind::Secret, "cert");
    assert!(reason(&world).contains("does not exist"), "{}", reason(&world));
    world.events([broken(reference(ObjectKind::Secret, "cert"), "data", "expected a mapping, got text")]);
    let unreadable = "Secret default/cert cannot be read (data: expected a mapping, got text)";
    assert!(reason(&world).starts_with(unreadable), "{}", reason(&world));
}
