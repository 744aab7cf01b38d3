//! Versions that are rejected or cannot be decoded, and the stored last good ones.

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::fixture::*;
use crate::event::{Event, Hold, HoldRequest};
use crate::objects::{Object, ObjectKind};
use crate::problem::{OF_LAST_GOOD, Problem, Severity, Subject};

fn good() -> Ing {
    ingress("web").rule("a.test", &[("/", "one")])
}

fn bad() -> Ing {
    ingress("web").rule("a.test", &[("/", "two"), ("/etc/nginx", "two")])
}

fn uid(uid: &str, ingress: Ing) -> Ing {
    ingress.with(|it| it["metadata"]["uid"] = json!(uid))
}

fn held(ingress: Ing) -> Event {
    Event::Held(Hold { object: ingress.into() })
}

fn broken(uid: &str) -> Event {
    Event::Broken {
        object: reference(ObjectKind::Ingress, "web"),
        uid: uid.into(),
        problem: Problem {
            object: reference(ObjectKind::Ingress, "web").into(),
            field: "spec.rules".into(),
            severity: Severity::Rejected,
            reason: "expected a list, got a number".into(),
            location: "web.yaml:3".into(),
        },
    }
}

fn write(ingress: Ing) -> Vec<HoldRequest> {
    vec![HoldRequest::Write(Hold { object: ingress.into() })]
}

fn erase() -> Vec<HoldRequest> {
    vec![HoldRequest::Erase(reference(ObjectKind::Ingress, "web"))]
}

#[test]
fn a_rejected_version_leaves_the_good_one() {
    let mut world = World::default();
    world.apply(good());
    let before = world.config.clone();
    let commit = world.apply(bad());
    assert_eq!(world.config, before);
    assert_eq!(commit.holds, write(good()));
    assert_eq!(world.problems_of("web"), ["rejected spec.rules[0].http.paths[1].path"]);
    // Requested once, until the stored record changes.
    assert_eq!(world.events([]).holds, []);
    assert_eq!(world.apply(bad().at(0).annotation("x", "y")).holds, []);
    assert_eq!(world.events([held(good())]).holds, []);
    // It was removed by somebody else: it is written again.
    let released = Event::Released(reference(ObjectKind::Ingress, "web"));
    assert_eq!(world.events([released]).holds, write(good()));
    assert_eq!(world.config, before);
}

#[test]
fn what_a_list_of_the_holds_lacks_is_requested_again() {
    let mut world = World::default();
    world.apply(good());
    assert_eq!(world.apply(bad()).holds, write(good()));
    // It was stored and deleted between two lists.
    assert_eq!(world.events([Event::HoldsListed]).holds, write(good()));
    assert_eq!(world.events([]).holds, []);
    // A list that has it is preceded by it.
    assert_eq!(world.events([held(good()), Event::HoldsListed]).holds, []);
    let better = ingress("web").rule("a.test", &[("/", "three")]);
    assert_eq!(world.apply(better).holds, erase());
    assert_eq!(world.events([Event::HoldsListed]).holds, erase());
    // A newer wish replaces the one that was not fulfilled.
    assert_eq!(world.apply(bad()).holds, write(ingress("web").rule("a.test", &[("/", "three")])));
}

/// Its owner believes that it is kept, and the first restart would prove otherwise.
#[test]
fn a_hold_that_cannot_be_stored_is_said_on_the_object_until_it_is() {
    let mut world = World::default();
    let object = reference(ObjectKind::Ingress, "web");
    let said = |world: &World| {
        let all = world.index.problems().get(&Subject::Object(object.clone())).cloned().unwrap_or_default();
        all.iter()
            .map(|it| it.reason.clone())
            .filter(|it| it.contains("cannot be stored"))
            .collect::<Vec<_>>()
    };
    let refused = |reason: &str| Event::Unstored { object: object.clone(), reason: reason.into() };
    world.apply(good());
    world.events([refused("too long")]);
    assert_eq!(said(&world), [""; 0], "none is asked for");
    world.apply(bad());
    assert!(world.events([refused("too long")]).problems_changed);
    assert!(said(&world)[0].ends_with("because it cannot be stored: too long"), "{:?}", said(&world));
    assert!(!world.events([refused("too long")]).problems_changed, "that is known");
    world.events([refused("forbidden")]);
    assert!(said(&world)[0].ends_with("stored: forbidden"), "{:?}", said(&world));
    assert!(world.events([held(good())]).problems_changed);
    assert_eq!(said(&world), [""; 0], "it is stored");
    world.events([Event::Released(object.clone())]);
    world.events([refused("too long")]);
    assert_eq!(said(&world).len(), 1);
    world.apply(good());
    assert_eq!(said(&world), [""; 0], "it is not rejected any more");
}

#[test]
fn a_good_version_ends_the_hold() {
    let mut world = World::default();
    world.apply(good());
    world.apply(bad());
    world.events([held(good())]);
    let commit = world.apply(ingress("web").rule("a.test", &[("/", "three")]));
    assert_eq!(commit.holds, erase());
    assert_eq!(world.routes(), ["ingress/default/web/a.test: / -> default/three/80"]);
    assert_eq!(world.problems_of("web"), Vec::<String>::new());
    assert_eq!(world.events([]).holds, []);
}

#[test]
fn deletion_ends_the_hold() {
    let mut world = World::default();
    world.apply(good());
    world.apply(bad());
    world.events([held(good())]);
    let commit = world.delete(ObjectKind::Ingress, "web");
    assert_eq!(commit.holds, erase());
    assert!(world.routes().is_empty());
    world.events([Event::Released(reference(ObjectKind::Ingress, "web"))]);
    assert!(world.index.objects.get(&reference(ObjectKind::Ingress, "web")).is_none());
    // Created again, it has no previous version.
    world.apply(bad());
    assert!(world.routes().is_empty());
}

#[test]
fn a_new_process_starts_from_the_record_in_any_order() {
    for events in [[held(good()), applied(bad())], [applied(bad()), held(good())]] {
        for batched in [true, false] {
            let mut world = World::default();
            let mut holds = Vec::new();
            if batched {
                holds.extend(world.events(events.clone()).holds);
            } else {
                for event in events.clone() {
                    holds.extend(world.events([event]).holds);
                }
            }
            assert_eq!(world.routes(), ["ingress/default/web/a.test: / -> default/one/80"]);
            assert_eq!(holds, []);
        }
    }
}

#[test]
fn a_hold_of_an_object_that_is_good_or_another_is_erased() {
    let mut world = World::default();
    world.apply(good());
    assert_eq!(world.events([held(ingress("web"))]).holds, erase());

    let mut world = World::default();
    world.apply(uid("new", bad()));
    assert_eq!(world.events([held(uid("old", good()))]).holds, erase());
    assert!(world.routes().is_empty());
}

#[test]
fn an_object_made_again_does_not_inherit() {
    let mut world = World::default();
    world.apply(uid("old", good()));
    world.apply(uid("new", bad()));
    assert!(world.routes().is_empty());
}

#[test]
fn what_cannot_be_read_leaves_the_good_one() {
    for its_uid in ["u1", ""] {
        let mut world = World::default();
        world.apply(uid("u1", good()));
        let commit = world.events([broken(its_uid)]);
        assert_eq!(world.routes(), ["ingress/default/web/a.test: / -> default/one/80"]);
        assert_eq!(commit.holds, write(uid("u1", good())));
        assert_eq!(world.problems_of("web"), ["rejected spec.rules"]);
        world.apply(uid("u1", good()));
        assert_eq!(world.problems_of("web"), Vec::<String>::new());
    }
}

#[test]
fn every_kind_may_be_broken() {
    let mut world = World::default();
    world.events([applied(good()), applied(service("one")), applied(slice("one-1", "one", &["10.0.0.1"]))]);
    let (config, live) = (world.config.clone(), world.live.clone());
    for (kind, name) in [(ObjectKind::Service, "one"), (ObjectKind::EndpointSlice, "one-1")] {
        let object = reference(kind, name);
        let Event::Broken { mut problem, .. } = broken("") else { unreachable!() };
        problem.object = object.clone().into();
        let commit = world.events([Event::Broken { object, uid: "".into(), problem }]);
        assert!(matches!(commit.holds.as_slice(), [HoldRequest::Write(_)]), "{kind:?}");
    }
    assert_eq!((&world.config, &world.live), (&config, &live));
}

#[test]
fn a_held_version_of_another_class_is_not_served() {
    let mut world = World::default();
    let other = good().with(|it| it["metadata"]["annotations"] = json!({}));
    world.events([held(other), applied(bad())]);
    assert!(world.routes().is_empty());
}

#[test]
fn a_stale_record_does_not_bring_an_older_version_back() {
    let newer = || ingress("web").rule("a.test", &[("/", "newer")]);
    let mut world = World::default();
    world.apply(good());
    assert_eq!(world.apply(bad()).holds, write(good()));
    world.apply(newer());
    assert_eq!(world.apply(bad()).holds, write(newer()));
    // The first write arrives only now, then its end, then the second one.
    for event in [held(good()), Event::Released(reference(ObjectKind::Ingress, "web")), held(newer())] {
        assert_eq!(world.events([event]).holds, []);
        assert_eq!(world.routes(), ["ingress/default/web/a.test: / -> default/newer/80"]);
    }
}

#[test]
fn what_another_replica_put_on_record_is_taken_over() {
    let theirs = || ingress("web").rule("a.test", &[("/", "theirs")]);
    let mut world = World::default();
    world.apply(good());
    world.apply(bad());
    world.events([held(good())]);
    assert_eq!(world.events([held(theirs())]).holds, []);
    assert_eq!(world.routes(), ["ingress/default/web/a.test: / -> default/theirs/80"]);
}

#[test]
fn locations_are_told() {
    let mut world = World::default();
    world.events([Event::Applied { object: Object::from(bad()), location: "web.yaml:7".into() }]);
    let problems =
        world.index.problems().get(&Subject::Object(reference(ObjectKind::Ingress, "web"))).unwrap();
    assert_eq!(problems[0].location, "web.yaml:7");
}

fn version(count: u32, service: &str) -> Ing {
    let it = ingress("web").rule("a.test", &[("/", service)]);
    it.with(|it| it["metadata"]["resourceVersion"] = json!(count.to_string()))
}

/// A replica that has its own good version and has requested a hold.
fn replica(good: &Ing) -> World {
    let mut world = World::default();
    world.apply(good.clone());
    assert_eq!(world.apply(bad()).holds, write(good.clone()));
    world
}

/// Each writes its own version, in any order; both then read the last one back, and perhaps the previous one first.
#[test]
fn two_replicas_agree_on_one_version() {
    let (older, newer) = (version(9, "older"), version(10, "newer"));
    for (first, last) in [(&older, &newer), (&newer, &older)] {
        for reads_both in [[true, true], [true, false], [false, true], [false, false]] {
            let mut worlds = [replica(&older), replica(&newer)];
            let mut written = vec![first.clone(), last.clone()];
            let mut read = 0;
            while read < written.len() {
                let mut asked = Vec::new();
                for (world, reads_both) in worlds.iter_mut().zip(reads_both) {
                    for (i, version) in written.iter().enumerate().skip(read) {
                        if reads_both || i != 0 {
                            asked.extend(world.events([held(version.clone())]).holds);
                        }
                    }
                }
                read = written.len();
                assert!(asked.len() < 2, "{asked:?}");
                if !asked.is_empty() {
                    assert_eq!(asked, write(newer.clone()));
                    written.push(newer.clone());
                }
            }
            let service = if written.last() == Some(&older) { "older" } else { "newer" };
            for world in &worlds {
                assert_eq!(
                    world.routes(),
                    [format!("ingress/default/web/a.test: / -> default/{service}/80")]
                );
            }
        }
    }
}

#[test]
fn what_another_replica_writes_after_the_end_is_erased_too() {
    let mut world = replica(&good());
    world.events([held(good())]);
    assert_eq!(world.apply(version(11, "three")).holds, erase());
    assert_eq!(world.events([held(version(9, "theirs"))]).holds, erase());
    assert_eq!(world.events([]).holds, []);
}

#[test]
fn a_hold_outlives_its_object_until_the_lists_are_complete() {
    let secret = secret("c0", 0);
    let mut world = World::default();
    let on_record = [held(good()), Event::Held(Hold { object: secret })];
    assert_eq!(world.events(on_record).holds, []);
    world.index.lists_complete();
    assert_eq!(world.events([]).holds, erase());
    assert_eq!(world.events([]).holds, []);
    world.events([Event::Released(reference(ObjectKind::Ingress, "web"))]);
    let slot = |kind, name| world.index.objects.get(&reference(kind, name));
    assert!(slot(ObjectKind::Ingress, "web").is_none());
    // It is not wanted yet, so it was not read.
    assert!(slot(ObjectKind::Secret, "c0").is_some());
}

#[test]
fn complete_lists_do_not_end_the_holds_of_what_is_there() {
    for present in [applied(bad()), broken("")] {
        let mut world = World::default();
        for event in [held(good()), present] {
            world.index.apply(event);
        }
        world.index.lists_complete();
        assert_eq!(world.events([]).holds, []);
        assert_eq!(world.routes(), ["ingress/default/web/a.test: / -> default/one/80"]);
    }
}

#[test]
fn a_good_version_of_somebody_else_s_ends_the_hold_even_unseen() {
    let mut world = World::default();
    world.apply(good());
    let commit = world.events([broken("")]);
    assert_eq!(commit.holds, write(good()));
    world.events([held(good())]);
    // Within one commit it is good but not ours, and then unreadable again.
    let foreign =
        good().with(|it| it["metadata"]["annotations"]["kubernetes.io/ingress.class"] = json!("other"));
    let commit = world.events([applied(foreign), broken("")]);
    assert_eq!(commit.holds, erase(), "a process that starts now would serve what is on record");
    assert_eq!(world.routes(), Vec::<String>::new());
    world.events([Event::Released(reference(ObjectKind::Ingress, "web"))]);
    let mut fresh = World::default();
    fresh.events([broken("")]);
    assert_eq!(fresh.config.root(), world.config.root());
}

/// The API server gives each write a new resource version: of two requests, the newer version wins.
#[test]
fn a_hold_has_the_newest_count_of_its_version() {
    let mut world = World::default();
    world.apply(version(9, "one"));
    assert!(world.apply(version(12, "one")).config.is_empty());
    assert_eq!(world.apply(bad()).holds, write(version(12, "one")));
}

/// A version that is not served mends nothing of the one that is.
#[test]
fn what_is_wrong_with_the_version_that_is_served_stays_said() {
    let said = |world: &World| {
        let all = world.reasons("web").into_iter();
        all.filter(|it| it.contains("Secret default/cert does not exist")).collect::<Vec<_>>()
    };
    let mut world = World::default();
    world.apply(good().tls(&["a.test"], "cert"));
    let plain = said(&world);
    assert_eq!(plain.len(), 1);
    let of_last_good = [format!("{OF_LAST_GOOD}{}", plain[0])];
    for unserved in [applied(bad()), broken("")] {
        world.events([unserved]);
        assert_eq!(said(&world), of_last_good);
    }
    assert!(world.apply(secret("cert", 0)).problems_changed);
    assert_eq!(said(&world), [""; 0], "it was put right");
    world.delete(ObjectKind::Secret, "cert");
    assert_eq!(said(&world), of_last_good);
    world.apply(good());
    assert_eq!(said(&world), [""; 0], "it is served no longer");
}

#[test]
fn a_certificate_that_ended_and_is_shown_stays_said() {
    let mut world = World::default();
    world.apply(good().tls(&["a.test"], "cert"));
    world.apply(secret("cert", 0));
    world.index.set_time(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 37));
    world.events([]);
    let cert = reference(ObjectKind::Secret, "cert");
    let said = |world: &World| {
        let problems =
            world.index.problems().get(&Subject::Object(cert.clone())).cloned().unwrap_or_default();
        let all = problems.iter().map(|it| it.reason.clone());
        all.filter(|it| it.contains("the certificate ended at ")).collect::<Vec<_>>()
    };
    assert!(said(&world)[0].starts_with("the certificate ended"), "{:?}", said(&world));
    world.apply(secret_with("cert", &pem(0).0, &pem(1).1));
    assert_eq!(world.problems(ObjectKind::Secret, "cert").len(), 2, "{:?}", said(&world));
    assert!(said(&world)[0].starts_with(OF_LAST_GOOD), "{:?}", said(&world));
}

/// A stored hold may be of an object that had the name before, or of a build that accepts more: neither is adopted.
#[test]
fn what_is_on_record_and_cannot_be_of_use_is_not_taken_over() {
    let theirs = || ingress("web").rule("a.test", &[("/", "theirs")]);
    let faulty = theirs().rule("a.test", &[("/etc/nginx", "theirs")]);
    for record in [uid("old", theirs()), uid("new", faulty)] {
        let mut world = World::default();
        world.apply(uid("new", good()));
        assert_eq!(world.apply(uid("new", bad())).holds, write(uid("new", good())));
        world.events([held(uid("new", good()))]);
        let holds = world.events([held(record)]).holds;
        assert_eq!(world.routes(), ["ingress/default/web/a.test: / -> default/one/80"]);
        assert_eq!(holds, write(uid("new", good())), "it is put right");
    }
}
