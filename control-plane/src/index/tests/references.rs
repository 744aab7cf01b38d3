//! Reading on demand: what is wanted, what waits, and what is used meanwhile.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use shared::kind::Kind;
use shared::resource::{Material, Resource};

use super::super::Options;
use super::fixture::*;
use super::restrictions::authorities;
use crate::compile::referred::Referred;
use crate::event::Event;
use crate::objects::{Object, ObjectKind, ObjectRef, Secret};
use crate::placement::Report;

/// A world whose Secrets are read on demand.
fn on_demand() -> World {
    World::with(Options { on_demand: true, ..options() })
}

fn certificates(world: &World, host: &str) -> Option<Vec<String>> {
    match world.get(Kind::Host, host)? {
        Resource::Host(it) => Some(it.tls.map(|tls| tls.certificates).unwrap_or_default()),
        other => panic!("{host} is {other:?}"),
    }
}

fn web(secret: &str) -> Ing {
    ingress("web").rule("a.test", &[("/", "echo")]).tls(&["a.test"], secret)
}

fn cert(name: &str) -> ObjectRef {
    reference(ObjectKind::Secret, name)
}

fn unreadable(name: &str, reason: &str) -> Event {
    Event::Unreadable { object: cert(name), reason: reason.into() }
}

fn awaited(world: &World) -> Vec<String> {
    world.index.awaited().keys().map(|object| object.name.name.to_string()).collect()
}

/// A host with a published certificate.
fn with_old() -> World {
    let mut world = on_demand();
    world.events([applied(web("old")), applied(secret("old", 0))]);
    assert_eq!(certificates(&world, "a.test"), Some(vec!["default/old".into()]));
    world
}

#[test]
fn a_new_host_waits_for_its_certificate() {
    let mut world = on_demand();
    world.events([applied(web("cert")), applied(ingress("two").rule("b.test", &[("/", "echo")]))]);
    assert_eq!(certificates(&world, "a.test"), None);
    assert!(world.get(Kind::Host, "b.test").is_some(), "nobody else waits");
    let routes = ["ingress/default/two/b.test", "ingress/default/web/a.test"];
    assert_eq!(world.keys(Kind::Route), routes[..1], "a Route without its Host would be served without TLS");
    world.apply(web("cert").rule("a.test", &[("/more", "echo")]));
    assert_eq!(world.keys(Kind::Route), routes[..1], "an edit meanwhile shows nothing either");
    assert_eq!(awaited(&world), ["cert"]);
    let commit = world.apply(secret("cert", 0));
    assert_eq!((commit.live.up.len(), awaited(&world).len()), (1, 0));
    assert_eq!(certificates(&world, "a.test"), Some(vec!["default/cert".into()]));
    assert_eq!(world.keys(Kind::Route), routes, "and all of it at once");
}

#[test]
fn a_new_host_does_not_wait_for_what_cannot_be_read() {
    let mut world = on_demand();
    world.apply(web("cert"));
    world.events([unreadable("cert", "403")]);
    assert_eq!(certificates(&world, "a.test"), Some(vec!["default/cert".into()]));
    assert_eq!(awaited(&world), ["cert"], "an error settles nothing");
    assert_eq!(world.problems_of("web"), ["warning spec.tls[0].secretName"]);
    world.apply(secret("cert", 0));
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
}

#[test]
fn another_secret_shows_once_it_was_read() {
    let mut world = with_old();
    // All other changes of the Ingress take effect.
    let commit =
        world.apply(web("new").rule("a.test", &[("/x", "echo")]).annotation("ssl-redirect", "false"));
    assert_eq!(certificates(&world, "a.test"), Some(vec!["default/old".into()]));
    assert_eq!(world.keys(Kind::Certificate), ["default/old"]);
    assert!(commit.config.up.iter().any(|entry| entry.kind() == Kind::Route));
    assert!(world.index.wants().contains(&cert("new")) && world.index.wants().contains(&cert("old")));

    world.events([unreadable("new", "503")]);
    assert_eq!(certificates(&world, "a.test"), Some(vec!["default/old".into()]));
    assert_eq!(world.problems_of("web"), ["warning spec.tls[0].secretName"]);

    let commit = world.apply(secret("new", 1));
    assert_eq!(certificates(&world, "a.test"), Some(vec!["default/new".into()]));
    assert_eq!(world.keys(Kind::Certificate), ["default/new"]);
    assert!(!commit.live.removed[0].gone, "it is there still, and nobody shows it");
    assert!(!world.index.wants().contains(&cert("old")));
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
}

#[test]
fn absence_is_an_answer_and_so_is_what_cannot_be_decoded() {
    let mut world = with_old();
    world.apply(web("new"));
    world.events([Event::Deleted(cert("new"))]);
    assert_eq!(certificates(&world, "a.test"), Some(vec!["default/new".into()]));
    assert_eq!(awaited(&world).len(), 0);

    let mut world = with_old();
    world.events([applied(web("new")), applied(secret_with("new", "no", "certificate"))]);
    assert_eq!(certificates(&world, "a.test"), Some(vec!["default/new".into()]));
}

#[test]
fn the_old_one_is_shown_even_where_it_went() {
    let mut world = with_old();
    world.events([applied(web("new")), unreadable("new", "503")]);
    world.delete(ObjectKind::Secret, "old");
    assert_eq!(world.keys(Kind::Certificate), ["default/old"]);
    world.apply(secret("new", 1));
    assert_eq!(world.keys(Kind::Certificate), ["default/new"]);
    // Without a replacement it is removed at once.
    world.delete(ObjectKind::Secret, "new");
    assert_eq!(world.keys(Kind::Certificate), Vec::<String>::new());
}

/// Whether a Secret is reported as one that cannot be read again.
fn is_stale(commit: &super::super::Commit, name: &str) -> Option<bool> {
    commit.reports.iter().find_map(|(object, report)| match report {
        Report::Compiled(made) if *object == cert(name) => Some(made.is_stale),
        _ => None,
    })
}

/// A renewed certificate would not be shown, and nobody knew.
#[test]
fn what_cannot_be_read_again_stays_and_its_owner_and_users_are_told() {
    let mut world = with_old();
    let of_secret = |world: &World| world.problems(ObjectKind::Secret, "old");
    let commit = world.events([unreadable("old", "403: no")]);
    assert!(commit.live.is_empty() && commit.config.is_empty(), "what was read stays in use");
    assert_eq!(certificates(&world, "a.test"), Some(vec!["default/old".into()]));
    assert_eq!(world.problems_of("web"), ["warning spec.tls[0].secretName"]);
    assert_eq!(of_secret(&world), ["warning "]);
    assert_eq!((awaited(&world).len(), is_stale(&commit, "old")), (0, Some(true)));
    world.apply(web("old").annotation("ssl-redirect", "false"));
    assert_eq!(world.problems_of("web").len(), 1, "an edit of its user changes nothing of it");

    // The same version again.
    let commit = world.apply(secret("old", 0));
    assert_eq!((world.problems_of("web").len(), of_secret(&world).len()), (0, 0));
    assert_eq!(is_stale(&commit, "old"), Some(false));

    world.events([unreadable("old", "500")]);
    world.delete(ObjectKind::Ingress, "web");
    assert_eq!(of_secret(&world), Vec::<String>::new(), "nobody needs it");
    world.events([applied(web("old")), applied(secret("old", 0)), unreadable("old", "500")]);
    world.delete(ObjectKind::Secret, "old");
    assert_eq!(of_secret(&world), Vec::<String>::new(), "it is gone");
}

#[test]
fn annotations_whose_objects_cannot_be_read_again_are_told_of() {
    let mut world = on_demand();
    let web = || guarded("users").annotation("custom-headers", "default/map");
    let map = || reference(ObjectKind::ConfigMap, "map");
    world.events([applied(web()), applied(htpasswd("users", "ann:{SHA}x"))]);
    world.events([Event::Deleted(map())]);
    let before = world.problems_of("web");
    world.events([unreadable("users", "403")]);
    let field = "warning metadata.annotations[nginx.ingress.kubernetes.io/auth-secret]".to_owned();
    assert!(!before.contains(&field) && world.problems_of("web").contains(&field));
    assert_eq!(users(&world, "default/users/auth-file"), Some(vec!["ann".into()]), "nobody is shut out");
    world.apply(htpasswd("users", "bob:{SHA}y"));
    assert_eq!(world.problems_of("web"), before);

    world.events([Event::Unreadable { object: map(), reason: "503".into() }]);
    assert_eq!(world.problems(ObjectKind::ConfigMap, "map"), ["warning "]);
    world.apply(guarded("users"));
    assert_eq!(world.problems(ObjectKind::ConfigMap, "map"), Vec::<String>::new());
}

#[test]
fn a_change_of_mind_goes_back_at_once() {
    let mut world = with_old();
    world.apply(web("new"));
    let commit = world.apply(web("old"));
    assert!(commit.live.is_empty());
    assert_eq!(certificates(&world, "a.test"), Some(vec!["default/old".into()]));
    assert_eq!((awaited(&world).len(), world.index.wants().len()), (0, 1));
    let commit = world.apply(web("newer"));
    assert!(commit.config.is_empty() && commit.wants_changed);
    world.delete(ObjectKind::Ingress, "web");
    assert!(world.index.wants().is_empty() && awaited(&world).is_empty());
}

#[test]
fn what_is_dropped_while_it_is_wanted_again_stays() {
    let mut world = with_old();
    let commit = world.events([Event::Dropped(cert("old"))]);
    assert!(commit.live.is_empty());
    world.delete(ObjectKind::Ingress, "web");
    world.events([Event::Dropped(cert("old"))]);
    world.apply(web("old"));
    assert_eq!(awaited(&world), ["old"], "it is read again");
}

#[test]
fn a_secret_is_shared_by_those_who_wait_for_it() {
    let mut world = on_demand();
    let hosts = ["a.test", "b.a.test", "c.a.test"];
    world.events(hosts.map(|host| {
        let name = format!("i-{}", &host[..1]);
        applied(ingress(&name).rule(host, &[("/", "echo")]).tls(&[host], "cert"))
    }));
    assert!(hosts.iter().all(|host| certificates(&world, host).is_none()));
    world.apply(secret("cert", 0));
    assert!(hosts.iter().all(|host| certificates(&world, host).is_some()));
}

pub(super) fn htpasswd(name: &str, lines: &str) -> Object {
    let mut secret = Secret::default();
    secret.metadata.namespace = "default".into();
    secret.metadata.name = name.into();
    secret.data.insert("auth".into(), STANDARD.encode(lines));
    Object::Secret(secret.into())
}

fn guarded(secret: &str) -> Ing {
    ingress("web")
        .rule("a.test", &[("/", "echo")])
        .annotation("auth-type", "basic")
        .annotation("auth-secret", secret)
}

fn users(world: &World, key: &str) -> Option<Vec<String>> {
    match world.get(Kind::Material, key)? {
        Resource::Material(Material::Users(users)) => Some(users.into_iter().map(|it| it.name).collect()),
        other => panic!("{key} is {other:?}"),
    }
}

fn referred(world: &World) -> Option<Referred> {
    world
        .index
        .ingresses
        .claims
        .get(&reference(ObjectKind::Ingress, "web"))?
        .referred
        .values()
        .next()
        .cloned()
}

#[test]
fn a_secret_of_users_is_judged_as_one() {
    let mut world = on_demand();
    world.events([applied(guarded("users")), applied(htpasswd("users", "ann:x\nbob:y\n"))]);
    assert_eq!(users(&world, "default/users/auth-file"), Some(vec!["ann".into(), "bob".into()]));
    assert_eq!(referred(&world), Some(Referred::Material("default/users/auth-file".into())));
    assert_eq!(
        world.problems(ObjectKind::Secret, "users"),
        Vec::<String>::new(),
        "it is no faulty certificate"
    );

    let commit = world.apply(htpasswd("users", "bob:y\n"));
    assert_eq!((commit.live.up.len(), commit.config.len()), (1, 0), "one resource");
    assert!(commit.holds.is_empty());
    // An unusable Secret has no last good version: ann stays out.
    world.apply(secret_with("users", "no", "users"));
    assert_eq!(users(&world, "default/users/auth-file"), None);
    assert!(matches!(referred(&world), Some(Referred::Faulty(_))));
    let commit = world.delete(ObjectKind::Ingress, "web");
    assert!(commit.wants_changed && world.index.wants().is_empty());
}

/// Nothing else shows it: everybody gets 401.
#[test]
fn users_of_whom_nobody_can_log_in_are_told_without_their_passwords() {
    let mut world = World::default();
    for (lines, said) in [
        ("admin:hunter2\nroot hunter3", Some("has 2 lines under its key auth, none of which is NAME:HASH")),
        ("", Some("has no line under its key auth: nobody can log in")),
        ("admin:$apr1$x$y", None),
        ("admin:hunter2\nann:{SHA}x", None),
    ] {
        world.events([applied(guarded("users")), applied(htpasswd("users", lines))]);
        let reasons = world.reasons("web");
        let told: Vec<_> = reasons.iter().filter(|it| it.contains("nobody can log in")).collect();
        assert_eq!(told.len(), usize::from(said.is_some()), "{lines:?}: {told:?}");
        let is_said =
            |it: &&String| it.starts_with("Secret default/users ") && it.contains(said.unwrap_or_default());
        assert!(told.iter().all(is_said), "{told:?}");
        assert!(reasons.iter().all(|it| !it.contains("hunter") && !it.contains("admin")), "{reasons:?}");
    }
    world.apply(htpasswd("users", ""));
    assert_eq!(
        world.problems_of("web"),
        ["warning metadata.annotations[nginx.ingress.kubernetes.io/auth-secret]"]
    );
}

#[test]
fn one_secret_of_two_uses_is_judged_twice() {
    let mut world = on_demand();
    world.events([applied(guarded("both").tls(&["a.test"], "both")), applied(secret("both", 0))]);
    assert_eq!(world.keys(Kind::Certificate), ["default/both"]);
    assert_eq!(world.keys(Kind::Material), Vec::<String>::new());
    assert_eq!(world.problems(ObjectKind::Secret, "both"), Vec::<String>::new());
    let Object::Secret(pair) = secret("both", 0) else { unreachable!() };
    let mut pair = (*pair).clone();
    pair.data.insert("auth".into(), STANDARD.encode("ann:x"));
    world.apply(Object::Secret(pair.into()));
    assert_eq!((world.keys(Kind::Certificate).len(), world.keys(Kind::Material).len()), (1, 1));
}

/// Each Material is compiled for its use, whatever else the Ingress uses.
#[test]
fn passwords_are_those_of_their_secret_beside_client_certificates() {
    let mut world = World::default();
    let web = guarded("users").annotation("auth-tls-secret", "default/ca");
    world.events([applied(web), applied(htpasswd("users", "ann:x")), applied(authorities("ca"))]);
    assert_eq!(world.keys(Kind::Material), ["default/ca/auth-tls", "default/users/auth-file"]);
    let Some(Resource::Route(route)) = world.get(Kind::Route, "ingress/default/web/a.test") else {
        panic!("no route");
    };
    assert_eq!(route.policy.basic_auth.unwrap().users, "default/users/auth-file");
}

#[test]
fn other_users_count_once_they_were_read() {
    let mut world = on_demand();
    world.events([applied(guarded("old")), applied(htpasswd("old", "ann:x"))]);
    world.apply(guarded("new"));
    assert_eq!(referred(&world), Some(Referred::Material("default/old/auth-file".into())));
    world.events([unreadable("new", "503")]);
    world.delete(ObjectKind::Secret, "old");
    assert_eq!(users(&world, "default/old/auth-file"), Some(vec!["ann".into()]));
    world.apply(htpasswd("new", "bob:y"));
    assert_eq!(referred(&world), Some(Referred::Material("default/new/auth-file".into())));
    assert_eq!(world.keys(Kind::Material), ["default/new/auth-file"]);
    world.delete(ObjectKind::Secret, "new");
    assert_eq!(referred(&world), Some(Referred::Absent));
}

#[test]
fn users_that_were_never_read_are_awaited() {
    let mut world = on_demand();
    world.apply(guarded("users"));
    assert_eq!((referred(&world), awaited(&world).len()), (Some(Referred::Awaited), 1));
    world.apply(guarded("other/users"));
    assert_eq!(
        (referred(&world), world.index.wants().len()),
        (Some(Referred::Foreign), 0),
        "of another namespace"
    );
}

/// Why the paths of `web` answer 503.
fn denied(world: &World) -> Option<String> {
    match world.get(Kind::Route, "ingress/default/web/a.test")? {
        Resource::Route(route) => route.denied.map(|denial| denial.reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_guarded_is_shut_while_its_users_are_not_there() {
    let mut world = on_demand();
    world.apply(guarded("users"));
    assert!(
        denied(&world).unwrap().contains("Secret default/users was not read yet"),
        "{:?}",
        denied(&world)
    );
    world.events([unreadable("users", "403")]);
    assert!(denied(&world).is_some());
    world.apply(htpasswd("users", "ann:x\n"));
    assert_eq!(denied(&world), None);
    world.apply(secret_with("users", "no", "users"));
    assert!(denied(&world).unwrap().contains("expected htpasswd lines"));
    world.apply(htpasswd("users", "ann:x\n"));
    world.delete(ObjectKind::Secret, "users");
    assert!(denied(&world).unwrap().contains("does not exist"));
    world.events([broken(cert("users"), "data", "expected a mapping, got text")]);
    let why = denied(&world).unwrap();
    assert!(why.contains("Secret default/users cannot be used: data: expected a mapping, got text"), "{why}");
}

#[test]
fn what_names_no_users_is_denied_and_asks_for_no_password() {
    let mut world = on_demand();
    let web = || ingress("web").rule("a.test", &[("/", "echo")]).annotation("auth-realm", "r");
    for said in [
        web().annotation("auth-type", "basic"),
        web().annotation("auth-type", "basic").annotation("auth-secret", "a;b"),
        web().annotation("auth-secret", "a;b"),
    ] {
        world.apply(said);
        match world.get(Kind::Route, "ingress/default/web/a.test") {
            Some(Resource::Route(it)) => {
                assert!(it.denied.is_some());
                assert_eq!(it.policy.basic_auth, None, "no proxy takes one without users");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn other_namespaces_count_where_the_fleet_allows_them() {
    let mut world = on_demand();
    let Object::Secret(mut users) = htpasswd("users", "ann:x\n") else { unreachable!() };
    std::sync::Arc::make_mut(&mut users).metadata.namespace = "other".into();
    world.events([applied(guarded("other/users")), applied(Object::Secret(users))]);
    assert!(denied(&world).unwrap().contains("is in another namespace"));
    assert_eq!(
        world.problems_of("web"),
        ["unsupported metadata.annotations[nginx.ingress.kubernetes.io/auth-secret]"]
    );
    let allow = |text: &str| configmap(serde_json::json!({"allow-cross-namespace-resources": text}));
    world.apply(allow("true"));
    assert_eq!(denied(&world), None);
    assert_eq!(world.keys(Kind::Material), ["other/users/auth-file"]);
    world.apply(allow("perhaps"));
    assert!(denied(&world).is_some());
    assert!(world.index.wants().is_empty());
}

#[test]
fn what_lies_outside_of_the_one_watched_namespace_is_absent_and_not_asked_for() {
    let mut world =
        World::with(Options { on_demand: true, watch_namespace: Some("default".into()), ..options() });
    world.apply(configmap(serde_json::json!({
        "allow-cross-namespace-resources": "true",
        "proxy-set-headers": "ingress-nginx/custom",
    })));
    let operators = ObjectRef {
        kind: ObjectKind::ConfigMap,
        name: shared::name::ObjectName::new("ingress-nginx", "custom"),
    };
    for (annotation, text, others) in [
        ("custom-headers", "other/map", [("auth-type", ""); 2]),
        ("auth-secret", "other/users", [("auth-type", "basic"); 2]),
        ("auth-tls-secret", "other/ca", [("auth-type", ""); 2]),
        ("proxy-ssl-secret", "other/tls", [("backend-protocol", "HTTPS"), ("proxy-ssl-verify", "on")]),
        ("auth-proxy-set-headers", "other/map", [("auth-url", "http://auth.test/"); 2]),
    ] {
        let mut web = ingress("web").rule("a.test", &[("/", "echo")]).annotation(annotation, text);
        for (name, text) in others.into_iter().filter(|(_, text)| !text.is_empty()) {
            web = web.annotation(name, text);
        }
        world.apply(web);
        assert_eq!(world.index.wants().iter().collect::<Vec<_>>(), [&operators], "{annotation}");
        let said = world.reasons("web");
        assert!(said.iter().any(|it| it.contains("is outside namespace default")), "{annotation}: {said:?}");
    }
    world.apply(guarded("users"));
    assert!(world.index.wants().contains(&cert("users")), "its own namespace is the watched one");
}

#[test]
fn of_a_folder_the_one_watched_namespace_counts() {
    let watched = |namespace: &str| {
        World::with(Options { folder: true, watch_namespace: Some(namespace.into()), ..options() })
    };
    let web = || ingress("web").rule("a.test", &[("/", "echo")]);
    let (mut own, mut others) = (watched("default"), watched("other"));
    for world in [&mut own, &mut others] {
        world.apply(web());
        world.apply(slice("echo-1", "echo", &["10.0.0.1"]));
    }
    assert_eq!((own.routes().len(), own.keys(Kind::Endpoints).len()), (1, 1));
    assert_eq!((others.routes().len(), others.keys(Kind::Endpoints).len()), (0, 0));
    let broken = web().annotation("limit-rps", "x");
    let review = |world: &World| match broken.clone().into() {
        Object::Ingress(ingress) => world.index.review(&ingress).refused,
        other => panic!("{other:?}"),
    };
    assert!(review(&own).is_some());
    assert_eq!(review(&others), None, "it is none of ours");
}

#[test]
fn what_no_object_can_be_called_is_said_and_not_asked_for() {
    let mut world = on_demand();
    for name in ["my_users", "Users", "default/-users", "a/b/c"] {
        world.apply(guarded(name));
        assert_eq!((world.index.wants().len(), awaited(&world).len()), (0, 0), "{name}");
        let why = denied(&world).unwrap();
        assert!(why.contains("expected the name of a Secret"), "{name}: {why}");
        assert_eq!(
            world.problems_of("web"),
            ["unsupported metadata.annotations[nginx.ingress.kubernetes.io/auth-secret]"]
        );
    }
    world.apply(configmap(serde_json::json!({"add-headers": "default/My_Headers"})));
    assert!(world.index.wants().is_empty());
    let options = options();
    let subject =
        crate::problem::Subject::Object(ObjectRef { kind: ObjectKind::ConfigMap, name: options.configmap });
    let problems = world.index.problems().get(&subject).cloned().unwrap_or_default();
    assert!(problems.iter().any(|it| it.reason.contains("expected the name of a ConfigMap")), "{problems:?}");
}

#[test]
fn what_went_while_one_kept_it_goes_for_all_once_nobody_does() {
    let mut world = with_old();
    world.apply(ingress("other").rule("b.a.test", &[("/", "echo")]).tls(&["b.a.test"], "old"));
    world.apply(web("new"));
    world.delete(ObjectKind::Secret, "old");
    assert_eq!(world.keys(Kind::Certificate), ["default/old"]);
    world.apply(secret("new", 1));
    assert_eq!(world.keys(Kind::Certificate), ["default/new"]);
}

#[test]
fn a_certificate_that_nobody_names_any_more_goes() {
    let mut world = with_old();
    world.apply(ingress("web").rule("a.test", &[("/", "echo")]));
    assert_eq!(world.keys(Kind::Certificate), Vec::<String>::new());
}

/// A reference that was never read cannot replace another one that was not read.
#[test]
fn a_new_host_that_is_given_another_certificate_waits_for_that() {
    let mut world = on_demand();
    world.apply(web("one"));
    world.apply(web("two"));
    assert_eq!((certificates(&world, "a.test"), awaited(&world)), (None, vec!["two".to_owned()]));
    assert_eq!(world.keys(Kind::Route), Vec::<String>::new());
}

#[test]
fn what_was_read_and_cannot_be_read_again_is_not_awaited() {
    let mut world = with_old();
    world.events([unreadable("old", "503")]);
    assert_eq!(awaited(&world).len(), 0);
    assert_eq!(world.problems_of("web"), ["warning spec.tls[0].secretName"]);
    assert_eq!(certificates(&world, "a.test"), Some(vec!["default/old".into()]));
}
