//! What the fleet's ConfigMap allows annotations to be.

use serde_json::json;

use super::fixture::*;
use crate::event::{Event, Hold, HoldRequest};
use crate::objects::{Object, ObjectKind};

fn good() -> Ing {
    ingress("web").rule("a.test", &[("/", "one")])
}

fn risky() -> Ing {
    ingress("web").rule("a.test", &[("/", "two")]).annotation("server-alias", "b.test")
}

fn level(level: &str) -> Object {
    configmap(json!({"annotations-risk-level": level}))
}

const ONE: &str = "ingress/default/web/a.test: / -> default/one/80";
const TWO: &str = "ingress/default/web/a.test: / -> default/two/80";
const TOLD: &str = "rejected metadata.annotations[nginx.ingress.kubernetes.io/server-alias]";

#[test]
fn what_is_not_allowed_leaves_the_last_good_version() {
    let mut world = World::default();
    world.apply(level("Medium"));
    world.apply(good());
    let commit = world.apply(risky());
    assert_eq!((world.routes(), world.problems_of("web")), (vec![ONE.to_owned()], vec![TOLD.to_owned()]));
    assert_eq!(commit.holds, [HoldRequest::Write(Hold { object: good().into() })]);
    // Once allowed, it is served at once, and the hold ends.
    world.events([Event::Held(Hold { object: good().into() })]);
    let commit = world.apply(level("High"));
    assert_eq!((world.routes(), world.problems_of("web")), (vec![TWO.to_owned()], vec![]));
    assert_eq!(commit.holds, [HoldRequest::Erase(reference(ObjectKind::Ingress, "web"))]);
    // Forbidden again, it has no good version: a process that starts now would not know one either.
    world.events([Event::Released(reference(ObjectKind::Ingress, "web"))]);
    world.apply(level("Low"));
    assert_eq!((world.routes(), world.problems_of("web")), (vec![], vec![TOLD.to_owned()]));
    world.apply(configmap(json!({})));
    assert_eq!(world.routes(), [TWO]);
}

#[test]
fn the_order_of_ingress_and_configmap_does_not_show() {
    for batched in [true, false] {
        let words = configmap(json!({"annotation-value-word-blocklist": "b.test"}));
        let plain = ingress("plain").rule("c.test", &[("/", "one")]).annotation("upstream-vhost", "x.test");
        let events = [applied(risky()), applied(plain), applied(words)];
        let mut seen = Vec::new();
        for first in 0..events.len() {
            let mut events = events.clone();
            events.rotate_left(first);
            let mut world = World::default();
            match batched {
                true => drop(world.events(events)),
                false => events.into_iter().for_each(|event| drop(world.events([event]))),
            }
            assert_eq!(world.problems_of("web"), [TOLD]);
            assert_eq!(world.routes(), ["ingress/default/plain/c.test: / -> default/one/80"]);
            seen.push(world.config);
        }
        assert!(seen.windows(2).all(|two| two[0] == two[1]));
    }
}

#[test]
fn a_hold_that_is_not_allowed_is_not_served() {
    let mut world = World::default();
    let broken = risky().rule("a.test", &[("/etc/nginx", "two")]);
    world.events([applied(broken), Event::Held(Hold { object: risky().into() })]);
    assert_eq!(world.routes(), [TWO]);
    world.apply(level("Medium"));
    assert!(world.routes().is_empty());
    world.apply(level("Critical"));
    assert_eq!(world.routes(), [TWO]);
}

/// A good version becomes bad when less is allowed, whether this process saw it before or not.
#[test]
fn a_good_version_that_is_not_allowed_any_more_is_not_served() {
    let mut world = World::default();
    world.apply(risky());
    world.apply(risky().rule("a.test", &[("/etc/nginx", "two")]));
    assert_eq!(world.routes(), [TWO]);
    world.apply(level("Medium"));
    assert!(world.routes().is_empty());
}

#[test]
fn what_else_is_wrong_is_told_of_a_version_that_is_not_allowed() {
    const MORE: &str = "warning metadata.annotations[nginx.ingress.kubernetes.io/whitelist]";
    let mut world = World::default();
    world.apply(level("Medium"));
    let odd = risky().annotation("whitelist", "10.0.0.0/8");
    world.apply(odd.clone());
    assert_eq!(world.problems_of("web"), [TOLD, MORE]);
    // What is rejected for itself, too, is mended first.
    world.apply(odd.clone().annotation("limit-rps", "ten"));
    assert_eq!(world.problems_of("web").len(), 2);
    world.apply(odd.rule("b.test", &[("/etc/nginx", "two")]));
    assert_eq!(world.problems_of("web").len(), 2);
    world.apply(risky().annotation("whitelist", "10.0.0.0/8"));
    world.apply(level("Critical"));
    assert_eq!(world.problems_of("web"), [MORE]);
}
