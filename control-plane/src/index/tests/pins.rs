//! What a pin needs from LIVE, when it is in force, and that it does not affect what is compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::json;
use shared::delta::Delta;
use shared::kind::Kind;
use shared::name::ObjectName;
use shared::snapshot::Snapshot;

use super::fixture::*;
use super::properties::{Step, Truth, steps_with};
use super::restrictions::with_annotation;
use crate::annotations::{self, table};
use crate::event::Event;
use crate::event::PinChange;
use crate::index::{Commit, Options};
use crate::objects::{Object, ObjectKind, Secret};
use crate::pin::{How, Pin, Unreadable};
use crate::problem::{Severity, Subject};
use crate::reference::{Reference, Use};

fn pin(config: &Snapshot, revision: &str) -> Arc<Pin> {
    let pin = Pin::new(How::Rollback, config.root(), config.clone(), UNIX_EPOCH, Duration::from_secs(60), "");
    Arc::new(Pin { revision: revision.into(), ..pin })
}

fn reasons(world: &World) -> Vec<String> {
    let problems = world.index.problems().get(&Subject::Pin);
    problems.iter().flat_map(|problems| problems.iter()).map(|problem| problem.reason.clone()).collect()
}

/// A world that serves a.test over TLS.
fn before() -> World {
    let mut world = World::default();
    world.apply(service("web"));
    world.apply(slice("web-1", "web", &["10.0.0.1"]));
    world.apply(secret("cert", 0));
    world.apply(ingress("web").rule("a.test", &[("/", "web")]).tls(&["a.test"], "cert"));
    world
}

#[test]
fn live_keeps_what_the_pinned_version_needs() {
    let mut world = before();
    let (old, live) = (world.config.clone(), world.live.clone());
    assert_eq!(live.len(), 2);
    let commit = world.events([Event::Pinned(pin(&old, "1"))]);
    assert!(commit.config.is_empty() && commit.live.is_empty() && commit.pin.is_some());

    let commit = world.delete(ObjectKind::Ingress, "web");
    assert!(!commit.config.is_empty() && commit.live.is_empty(), "nothing of LIVE goes");
    assert_eq!(world.live, live);
    // Endpoints and certificates keep changing.
    world.apply(slice("web-1", "web", &["10.0.0.1", "10.0.0.2"]));
    world.apply(slice("web-2", "web", &["10.0.0.3"]));
    world.apply(secret("cert", 1));
    assert_eq!(world.keys(Kind::Endpoints), ["default/web-1", "default/web-2"]);
    assert_ne!(world.live.version(&key(Kind::Certificate)), live.version(&key(Kind::Certificate)));
    // Deleted objects are gone.
    let commit = world.delete(ObjectKind::EndpointSlice, "web-2");
    assert!(commit.live.removed[0].gone);
    assert!(!reasons(&world).join("\n").contains("Secret"));
    world.delete(ObjectKind::Secret, "cert");
    assert!(reasons(&world).join("\n").contains("Secret default/cert"));
    world.delete(ObjectKind::Service, "web");
    assert!(world.keys(Kind::Certificate).is_empty());
    let told = reasons(&world).join("\n");
    assert!(told.contains("Secret default/cert") && told.contains("Service default/web"), "{told}");

    let commit = world.events([Event::Unpinned]);
    assert!(commit.pin.is_none() && commit.config.is_empty());
    assert!(world.live.is_empty() && reasons(&world).is_empty());
}

/// Over the whole table of annotations: whatever a version uses a Secret for, on the host or on the route, a pin keeps
/// its Material when nothing else wants it.
#[test]
fn a_pin_keeps_the_material_of_every_use() {
    let mut seen = BTreeSet::new();
    for row in table::ROWS.iter() {
        for text in row.value.samples().0.iter().copied().chain(["default/all"]) {
            for (location_only, kind, users) in [
                ("false", "basic", "auth-file"),
                ("true", "basic", "auth-map"),
                ("false", "digest", "auth-file"),
                ("true", "digest", "auth-map"),
            ] {
                let user = with_annotation(row, Some(text)).annotation("auth-type", kind);
                let user = user.annotation("auth-secret-type", users);
                let mut world = World::default();
                world.apply(configmap(json!({"proxy-ssl-location-only": location_only})));
                seen.extend(kept(&mut world, user, &format!("{} = {text:?}", row.name)));
            }
        }
    }
    let all = Use::of_secrets().filter(|what| what.material(&name("all")).is_some());
    assert_eq!(seen, all.collect());
}

/// Pins the result of adding an Ingress, and deletes the Ingress: returns the uses whose Material was kept.
fn kept(world: &mut World, user: Ing, case: &str) -> Vec<Use> {
    let used = materials_of(&user);
    used.iter().for_each(|it| drop(world.apply(secret_for_all(&it.name))));
    world.apply(user);
    if used.is_empty() || world.severities(ObjectKind::Ingress, "web").contains(&Severity::Rejected) {
        return Vec::new();
    }
    let keys: Vec<_> = used.iter().filter_map(|it| it.what.material(&it.name)).collect();
    assert_eq!(world.keys(Kind::Material), keys, "{case}");
    world.events([Event::Pinned(pin(&world.config.clone(), "1"))]);
    world.delete(ObjectKind::Ingress, "web");
    assert_eq!(world.keys(Kind::Material), keys, "{case}, pinned");
    world.events([Event::Unpinned]);
    assert!(world.keys(Kind::Material).is_empty(), "{case}, unpinned");
    used.into_iter().map(|it| it.what).collect()
}

/// What an Ingress wants a Material for.
fn materials_of(user: &Ing) -> Vec<Reference> {
    let annotations: BTreeMap<_, _> =
        serde_json::from_value(user.0["metadata"]["annotations"].clone()).unwrap();
    let annotations = annotations.into_iter().collect();
    let refs = annotations::read(&name("web"), &annotations).refs.into_keys();
    refs.filter(|it| it.what.material(&it.name).is_some()).collect()
}

/// A Secret that is valid for every use.
fn secret_for_all(name: &ObjectName) -> Object {
    let (certificate, key) = pem(0);
    let mut secret = Secret::default();
    secret.metadata.namespace = Arc::clone(&name.namespace);
    secret.metadata.name = Arc::clone(&name.name);
    let data = [("tls.crt", &**certificate), ("tls.key", key), ("ca.crt", certificate), ("auth", "ann:x")];
    secret.data.extend(data.map(|(key, text)| (key.into(), STANDARD.encode(text))));
    Object::Secret(secret.into())
}

fn key(kind: Kind) -> shared::kind::ResourceKey {
    shared::kind::ResourceKey::new(kind, "default/cert")
}

#[test]
fn a_pin_waits_for_what_it_needs_but_not_for_an_api_server_that_fails() {
    let old = before().config;
    let on_demand = || {
        let mut world = World::with(Options { on_demand: true, ..options() });
        world.apply(service("web"));
        world
    };
    let cert = reference(ObjectKind::Secret, "cert");

    let mut world = on_demand();
    let commit = world.events([Event::Pinned(pin(&old, "1"))]);
    assert!(commit.pin.is_none() && commit.wants_changed && world.index.wants().contains(&cert));
    assert!(reasons(&world)[0].contains("not in force"), "{:?}", reasons(&world));
    let commit = world.apply(secret("cert", 0));
    assert!(commit.pin.is_some());
    assert_eq!(world.keys(Kind::Certificate), ["default/cert"]);

    for answer in [Event::Deleted(cert.clone()), Event::Unreadable { object: cert, reason: "503".into() }] {
        let mut world = on_demand();
        assert!(world.events([Event::Pinned(pin(&old, "1"))]).pin.is_none());
        assert!(world.events([answer]).pin.is_some());
    }
}

#[test]
fn what_the_pin_before_it_needs_stays_until_another_is_in_force() {
    let mut world = before();
    let first = world.config.clone();
    world.events([Event::Pinned(pin(&first, "1"))]);
    world.apply(service("other"));
    world.apply(slice("other-1", "other", &["10.0.0.9"]));
    world.apply(ingress("web").rule("a.test", &[("/", "other")]));
    let second = world.config.clone();
    world.delete(ObjectKind::Ingress, "web");
    assert_eq!(world.keys(Kind::Endpoints), ["default/web-1"]);
    world.events([Event::Pinned(pin(&second, "2"))]);
    assert_eq!(world.keys(Kind::Endpoints), ["default/other-1"]);
}

#[test]
fn the_pin_in_force_keeps_what_it_needs_while_another_waits() {
    let mut other = World::default();
    other.apply(service("other"));
    other.apply(secret("new", 1));
    other.apply(ingress("web").rule("b.test", &[("/", "other")]).tls(&["b.test"], "new"));

    let mut world = World::with(Options { on_demand: true, ..options() });
    world.apply(service("web"));
    world.apply(slice("web-1", "web", &["10.0.0.1"]));
    world.apply(slice("other-1", "other", &["10.0.0.2"]));
    world.events([Event::Pinned(pin(&before().config, "1"))]);
    let commit = world.apply(secret("cert", 0));
    assert_eq!(commit.pin.map(|pin| pin.revision.to_string()).as_deref(), Some("1"));
    assert!(!commit.live.is_empty() && commit.cause.contains("Secret default/cert"), "{}", commit.cause);
    let commit = world.events([Event::Pinned(pin(&other.config, "2"))]);
    assert_eq!(commit.pin.map(|pin| pin.revision.to_string()).as_deref(), Some("1"), "the other waits");
    assert_eq!(world.keys(Kind::Certificate), ["default/cert"]);
    assert!(world.keys(Kind::Endpoints).contains(&"default/web-1".to_owned()));
    let commit = world.apply(secret("new", 1));
    assert_eq!(commit.pin.map(|pin| pin.revision.to_string()).as_deref(), Some("2"));
    assert_eq!(world.keys(Kind::Certificate), ["default/new"]);
    assert_eq!(world.keys(Kind::Endpoints), ["default/other-1"]);
}

/// A rollback of a fleet without its Secrets was a page of lines that differed in a name.
#[test]
fn what_a_pin_lacks_is_said_once_for_all_that_lack_it() {
    let mut world = World::with(Options { default_backend: Some(name("pages")), ..options() });
    world.apply(service("pages"));
    for i in 0..7 {
        let (host, secret) = (format!("{i}.test"), format!("cert-{i}"));
        world.apply(
            ingress(&format!("web-{i}")).rule(&host, &[("/", &format!("s{i}"))]).tls(&[&host], &secret),
        );
    }
    world.events([Event::Pinned(pin(&world.config.clone(), "1"))]);
    let after_first = |world: &World| {
        let mut told = reasons(world);
        told.retain(|it| !it.starts_with("rollback"));
        told
    };
    let names = |word: &str| (0..5).map(|i| format!("default/{word}{i}")).collect::<Vec<_>>().join(", ");
    let secrets = format!(
        "it needs 7 Secrets that do not exist, {} and others: the default certificate is shown",
        names("cert-")
    );
    let services = format!(
        "it leads to 7 Services that do not exist, {} and others: paths that lead there answer 503, or what custom-http-errors puts \
         in its place",
        names("s")
    );
    assert_eq!(after_first(&world), [services, secrets]);
    for i in 1..7 {
        world.apply(secret(&format!("cert-{i}"), 0));
        world.apply(service(&format!("s{i}")));
    }
    world.apply(service("s0"));
    let one = "it needs Secret default/cert-0, which does not exist: the default certificate is shown";
    assert_eq!(after_first(&world), [one]);
    // Its error pages are gone with it, and requests for them are not those of a path.
    world.apply(secret("cert-0", 0));
    world.delete(ObjectKind::Service, "pages");
    let [pages] = &after_first(&world)[..] else { panic!("{:?}", after_first(&world)) };
    assert!(pages.contains("match no Ingress get 404, and so do those with an error"), "{pages}");
}

#[test]
fn what_a_pin_alone_sends_is_nobodys_change() {
    let mut world = World::default();
    world.apply(service("web"));
    world.apply(slice("web-1", "web", &["10.0.0.1"]));
    world.apply(secret("cert", 0));
    let commit = world.events([Event::Pinned(pin(&before().config, "1"))]);
    assert_eq!((commit.live.len(), &*commit.cause), (2, ""));
}

/// The pin may be older than the restriction, and what operators name is read in any namespace.
#[test]
fn a_pin_asks_for_nothing_outside_of_the_one_watched_namespace_but_what_operators_name() {
    let mut world =
        World::with(Options { on_demand: true, watch_namespace: Some("edge".into()), ..options() });
    let mut older = (*pin(&before().config, "1")).clone();
    assert!(!older.needs.secrets.is_empty());
    let shown = Reference::new(Use::DefaultCertificate, ObjectName::new("fleet", "shown"));
    Arc::make_mut(&mut older.needs).secrets.insert(shown.clone());
    let commit = world.events([Event::Pinned(Arc::new(older))]);
    assert_eq!(world.index.wants().iter().collect::<Vec<_>>(), [&shown.object()]);
    assert!(commit.pin.is_none());
    assert!(world.events([Event::Deleted(shown.object())]).pin.is_some());
}

#[test]
fn a_damaged_record_is_written_again_by_who_has_its_pin_and_ends_nothing() {
    let mut world = before();
    let pinned = pin(&world.config.clone(), "1");
    world.events([Event::Pinned(Arc::clone(&pinned))]);
    let missing = || Unreadable::Missing { name: "firth-pin-0".to_owned() };
    let unreadable = |why, revision: &str| Event::PinUnreadable { why, revision: revision.into() };
    let commit = world.events([unreadable(missing(), "2")]);
    assert_eq!(commit.mend, Some(PinChange::Mend { pin: pinned, replaces: "2".into() }));
    assert_eq!(commit.on_record.as_deref(), Some("2"), "what an operator may end");
    assert!(commit.pin.is_some() && reasons(&world).iter().any(|it| it.contains("firth-pin-0")));
    assert_eq!(world.apply(service("x")).mend, None, "said once");
    // Copied from elsewhere, or incomplete: it is not in force, and nobody repairs it.
    for nothing in [Unreadable::Elsewhere, Unreadable::Unfinished] {
        let commit = world.events([unreadable(nothing, "3")]);
        assert_eq!((commit.mend, commit.pin, commit.on_record), (None, None, Some("3".into())));
    }
    assert_eq!(world.events([Event::Unpinned]).on_record, None);
    // A replica that starts now has no pin to write.
    let commit = before().events([unreadable(missing(), "2")]);
    assert_eq!((commit.mend, commit.pin), (None, None));
}

/// The offered state: the store's rule in short.
fn offered(world: &World, commit: &Commit) -> Snapshot {
    commit.pin.as_ref().map_or_else(|| world.config.clone(), |pin| pin.config.clone())
}

/// What a pin needs and exists, by key.
fn needed(pin: &Pin, truth: &Truth) -> BTreeSet<String> {
    let key = |event: Event| {
        let Event::Applied { object, .. } = event else { return None };
        let name = object.metadata().object_name();
        let is_needed = match &object {
            Object::EndpointSlice(slice) => {
                let is_usable = slice.ready().any(|address| address != "127.0.0.1");
                is_usable && slice.service().is_some_and(|service| pin.needs.services.contains(&service))
            }
            Object::Secret(_) => pin.needs.secrets.iter().any(|it| it.name == name),
            _ => false,
        };
        is_needed.then(|| name.to_string())
    };
    truth.events().into_iter().filter_map(key).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// pin(v), then any events, then unpin: as if nothing had been pinned. Meanwhile the pinned version is offered, by
    /// a replica that followed all of it and by one that starts at the end, and LIVE has what it needs.
    #[test]
    fn a_pin_changes_nothing_but_what_is_offered(
        first in steps_with(false, 3),
        then in steps_with(false, 3),
    ) {
        let (mut truth, mut world, mut free) = (Truth::default(), World::default(), World::default());
        let feed = |steps: Vec<Step>, truth: &mut Truth, world: &mut World, free: &mut World| {
            for step in steps {
                let event = truth.take(step);
                let mut asked = world.events(event.clone()).holds;
                assert_eq!(free.events(event).holds, asked);
                while !asked.is_empty() {
                    let read_back = truth.obey(asked);
                    asked = world.events(read_back.clone()).holds;
                    assert_eq!(free.events(read_back).holds, asked);
                }
            }
        };
        feed(first, &mut truth, &mut world, &mut free);
        let pinned = pin(&world.config.clone(), "1");
        let at_pin = world.live.clone();
        world.events([Event::Pinned(Arc::clone(&pinned))]);
        // It commits, too, where it had no events yet.
        free.events([]);
        prop_assert_eq!(&world.live, &at_pin, "what is offered needs nothing new");
        feed(then, &mut truth, &mut world, &mut free);
        prop_assert_eq!(&world.config, &free.config, "what is compiled does not depend on it");

        let mut fresh = World::default();
        let mut events = vec![Event::Pinned(Arc::clone(&pinned))];
        events.extend(truth.events());
        let commit = fresh.events(events.clone());
        prop_assert_eq!(offered(&fresh, &commit).root(), pinned.version);
        prop_assert_eq!(&fresh.config, &world.config);
        prop_assert_eq!(&fresh.live, &world.live, "LIVE is a function of objects and decisions, too");
        events.reverse();
        let mut backwards = World::default();
        backwards.events(events);
        prop_assert_eq!(&backwards.live, &world.live);

        let there: BTreeSet<_> = world.live.iter().map(|entry| entry.key.key.to_string()).collect();
        let needed = needed(&pinned, &truth);
        prop_assert!(needed.is_subset(&there), "{:?} of {:?}", needed, there);

        world.events([Event::Unpinned]);
        prop_assert_eq!(&world.config, &free.config);
        prop_assert_eq!(&world.live, &free.live, "and it leaves nothing behind");
        prop_assert!(reasons(&world).is_empty());
    }
}

#[test]
fn a_pin_costs_what_it_needs_and_nothing_while_it_stays() {
    let mut world = before();
    let config = world.config.clone();
    world.events([Event::Pinned(pin(&config, "1"))]);
    let commit = world.apply(slice("web-1", "web", &["10.0.0.7"]));
    assert_eq!((commit.config, commit.live.len(), commit.compiled), (Delta::default(), 1, 1));
}

/// What a version needs may be all Services of a cluster.
#[test]
fn what_a_pin_needs_is_looked_through_once_when_it_begins_and_once_when_it_ends() {
    const MANY: usize = 50;
    let mut world = World::default();
    world.events((0..MANY).flat_map(|i| {
        let rule = ingress(&format!("web-{i}")).rule(&format!("{i}.test"), &[("/", &format!("echo-{i}"))]);
        [applied(rule), applied(service(&format!("echo-{i}")))]
    }));
    let pinned = pin(&world.config.clone(), "1");
    assert_eq!(pinned.needs.services.len(), MANY);
    let mut looked_at = |event| world.events([event]).looked_at;
    assert_eq!(looked_at(Event::Pinned(Arc::clone(&pinned))), MANY, "read, and put into force");
    assert_eq!(looked_at(Event::Pinned(Arc::clone(&pinned))), 0, "read again");
    let longer = Pin { revision: "2".into(), until: pinned.until + 60, ..Pin::clone(&pinned) };
    assert_eq!(looked_at(Event::Pinned(Arc::new(longer))), 0, "the same version for longer");
    assert_eq!(looked_at(Event::Unpinned), MANY, "its end");
}
