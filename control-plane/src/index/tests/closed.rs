//! Ingresses that are rejected for what ingress-nginx reads after a Secret, which may be missing.

use shared::kind::Kind;
use shared::resource::Resource;

use super::super::Options;
use super::fixture::*;
use super::properties::assert_same;
use super::references::htpasswd;
use super::restrictions::authorities;
use crate::annotations::{companions, table};
use crate::event::{Event, Hold};
use crate::objects::{Object, ObjectKind, ObjectRef, Secret};
use crate::problem::Severity;

fn open() -> Ing {
    ingress("web").rule("a.test", &[("/", "echo")])
}

fn guarded() -> Ing {
    open().annotation("auth-type", "basic").annotation("auth-secret", "users")
}

/// With a realm that is none.
fn faulty() -> Ing {
    guarded().annotation("auth-realm", "a;b")
}

fn secret() -> ObjectRef {
    reference(ObjectKind::Secret, "users")
}

/// Why the only Route is denied; `None`: it is served.
fn denial(world: &World) -> Option<String> {
    match world.get(Kind::Route, "ingress/default/web/a.test") {
        Some(Resource::Route(route)) => route.denied.map(|denial| denial.reason),
        other => panic!("{other:?}"),
    }
}

fn is_rejected(world: &World) -> bool {
    world.severities(ObjectKind::Ingress, "web").contains(&Severity::Rejected)
}

fn world(on_demand: bool) -> World {
    World::with(Options { on_demand, ..options() })
}

#[test]
fn without_the_secret_access_is_denied_whatever_was_open_before() {
    for (before, is_open) in [(None, false), (Some(open()), true), (Some(guarded()), false)] {
        let mut world = world(false);
        before.into_iter().for_each(|before| _ = world.apply(before));
        assert_eq!(is_open, !world.keys(Kind::Route).is_empty() && denial(&world).is_none());
        world.apply(faulty());
        assert!(denial(&world).is_some_and(|why| why.contains("does not exist")));
        let ends = "it is not read while the Secret that auth-secret names cannot be used";
        let reasons = world.reasons("web");
        assert!(reasons.iter().any(|reason| reason.ends_with(ends)) && !is_rejected(&world), "{reasons:?}");
    }
}

/// Then the realm is read, and what it is rejects the version, as it would have with the Secret there from the start.
#[test]
fn with_the_secret_the_last_good_version_stays() {
    let mut world = world(false);
    world.apply(guarded());
    world.apply(faulty());
    world.apply(htpasswd("users", "ann:{SHA}x"));
    assert!(denial(&world).is_none() && is_rejected(&world));
    world.delete(ObjectKind::Secret, "users");
    assert!(denial(&world).is_some() && !is_rejected(&world));
    world.apply(guarded());
    world.apply(htpasswd("users", "ann:{SHA}x"));
    assert_eq!((denial(&world), world.problems_of("web")), (None, vec![]));
}

#[test]
fn every_other_fault_rejects_all_the_same() {
    for worse in [
        faulty().annotation("proxy-cookie-path", "a\nb"),
        faulty().annotation("auth-secret-type", "folder"),
        // Client certificates are there: what is read after them counts.
        faulty().annotation("auth-tls-secret", "default/ca").annotation("auth-tls-match-cn", "x"),
    ] {
        let mut world = world(false);
        world.events([applied(authorities("ca")), applied(open())]);
        world.apply(worse);
        assert!(denial(&world).is_none() && is_rejected(&world), "{:?}", world.problems_of("web"));
    }
    let mut world = world(false);
    world.apply(open());
    world.apply(configmap(serde_json::json!({"annotation-value-word-blocklist": "a;b"})));
    world.apply(faulty());
    assert!(denial(&world).is_none() && is_rejected(&world), "the operator forbids it");
}

#[test]
fn of_two_secrets_both_must_be_missing() {
    let both = || faulty().annotation("auth-tls-secret", "default/ca").annotation("auth-tls-match-cn", "x");
    let mut world = world(false);
    world.apply(open());
    world.apply(both());
    assert!(denial(&world).is_some());
    world.apply(authorities("ca"));
    assert!(denial(&world).is_none() && is_rejected(&world));
}

/// Nothing is decided before it was read, and nothing is requested that nobody needs.
#[test]
fn the_secret_is_read_first_and_let_go_after() {
    let mut world = world(true);
    world.apply(open());
    world.apply(faulty());
    assert!(denial(&world).is_none() && world.index.wants().contains(&secret()));
    world.events([Event::Deleted(secret())]);
    assert!(denial(&world).is_some());
    // A version that is read anew is not open meanwhile.
    world.apply(guarded().annotation("auth-secret", "others"));
    assert!(denial(&world).is_some());
    world.apply(htpasswd("others", "ann:{SHA}x"));
    assert!(denial(&world).is_none() && !world.index.wants().contains(&secret()));
    world.apply(open());
    assert_eq!((denial(&world), world.index.wants().len()), (None, 0));
    world.apply(faulty());
    world.delete(ObjectKind::Ingress, "web");
    assert_eq!((world.keys(Kind::Route).len(), world.index.wants().len()), (0, 0));
}

/// Nothing of the Secret changes, and the version in use does not name it.
#[test]
fn a_secret_that_may_not_be_named_any_more_cannot_be_used() {
    let allow = |text: &str| configmap(serde_json::json!({"allow-cross-namespace-resources": text}));
    let faulty = || faulty().annotation("auth-secret", "other/users");
    let elsewhere = || match htpasswd("users", "ann:{SHA}x") {
        Object::Secret(secret) => {
            let mut secret = Secret::clone(&secret);
            secret.metadata.namespace = "other".into();
            applied(Object::Secret(secret.into()))
        }
        other => panic!("{other:?}"),
    };
    let mut world = world(false);
    world.events([applied(allow("true")), elsewhere(), applied(open())]);
    world.apply(faulty());
    assert!(denial(&world).is_none() && is_rejected(&world));
    world.apply(allow("false"));
    assert!(denial(&world).is_some() && !is_rejected(&world));
    let mut fresh = self::world(false);
    let held = Event::Held(Hold { object: open().into() });
    fresh.events([held, applied(allow("false")), elsewhere(), applied(faulty())]);
    assert_same(&world, &fresh);
}

/// The webhook knows what it claims, though no version of it was ever good.
#[test]
fn its_paths_are_its_own() {
    let mut world = world(false);
    world.apply(faulty());
    let Object::Ingress(second) = Object::from(ingress("second").rule("a.test", &[("/", "echo")])) else {
        panic!("an Ingress")
    };
    let refused = world.index.review(&second).refused;
    assert!(
        refused.as_ref().is_some_and(|why| why.contains("already defined in ingress default/web")),
        "{refused:?}"
    );
}

/// The stored hold keeps the last good version meanwhile.
#[test]
fn a_process_that_starts_then_serves_the_same() {
    let mut world = world(false);
    world.apply(guarded());
    world.apply(faulty());
    let mut fresh = self::world(false);
    fresh.events([Event::Held(Hold { object: guarded().into() }), applied(faulty())]);
    assert_same(&world, &fresh);
    assert!(denial(&fresh).is_some());
    for world in [&mut world, &mut fresh] {
        world.apply(htpasswd("users", "ann:{SHA}x"));
    }
    assert_same(&world, &fresh);
    assert_eq!(denial(&fresh), None);
}

/// It is as if it was not there.
#[test]
fn nothing_that_is_read_after_a_missing_secret_counts() {
    let rows: Vec<_> = table::ROWS.iter().filter(|row| row.behind.is_some()).collect();
    assert!(rows.len() >= 4, "{}", rows.len());
    for row in rows {
        for bad in row.value.samples().1 {
            let [mut faulty, mut sound] = [true, false].map(|is_faulty| {
                let said =
                    companions(row, bad).into_iter().filter(|(name, _)| is_faulty || *name != row.name);
                let mut world = world(false);
                world.apply(open());
                world.apply(said.fold(open(), |it, (name, text)| it.annotation(name, &text)));
                world
            });
            assert!(!is_rejected(&faulty), "{} = {bad:?}: {:?}", row.name, faulty.reasons("web"));
            assert_eq!(faulty.config, sound.config, "{} = {bad:?}", row.name);
            let secret = if row.name == "auth-realm" {
                htpasswd("secret", "ann:{SHA}x")
            } else {
                authorities("secret")
            };
            for world in [&mut faulty, &mut sound] {
                world.apply(secret.clone());
            }
            assert!(is_rejected(&faulty) && faulty.config != sound.config, "{} = {bad:?}", row.name);
        }
    }
}
