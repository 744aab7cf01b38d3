//! Objects of the fleet that stay in use when they are deleted.

use std::collections::BTreeSet;

use serde_json::json;
use shared::name::ObjectName;

use super::super::{Options, Prefix};
use super::fixture::*;
use crate::event::{Event, Hold, HoldRequest};
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::problem::Subject;

const OURS: &str = "k8s.io/ingress-nginx";

/// An Ingress with a class, of its own uid.
fn of_class(name: &str, uid: &str) -> Ing {
    ingress(name).rule(&format!("{name}.test"), &[("/", "echo")]).with(|it| {
        it["metadata"]["annotations"] = json!({});
        it["metadata"]["uid"] = json!(uid);
        it["spec"]["ingressClassName"] = json!("nginx");
    })
}

fn nginx() -> ObjectRef {
    ObjectRef { kind: ObjectKind::IngressClass, name: ObjectName::new("", "nginx") }
}

fn created(uid: &str, controller: &str) -> Event {
    let mut it = json!({"metadata": {"name": "nginx", "uid": uid}, "spec": {"controller": controller}});
    it["metadata"]["resourceVersion"] = json!("7");
    applied(crate::objects::json::decode(ObjectKind::IngressClass, &it.to_string()).unwrap())
}

/// With a class, and Ingresses `one` and `two` of it.
fn world() -> World {
    let mut world = World::default();
    world.events([
        created("c1", OURS),
        applied(service("echo")),
        applied(of_class("one", "u1")),
        applied(of_class("two", "u2")),
    ]);
    world
}

fn hosts(world: &World) -> Vec<String> {
    let routes = world.routes();
    routes.iter().filter_map(|it| it.split(['/', ':']).nth(3).map(str::to_owned)).collect()
}

/// The hold that a commit asks for.
fn written(requests: &[HoldRequest]) -> Object {
    match requests {
        [HoldRequest::Write(hold)] => hold.object.clone(),
        other => panic!("expected one hold to be written, got {other:?}"),
    }
}

fn held(object: &Object) -> Event {
    Event::Held(Hold { object: object.clone() })
}

fn said(world: &World, object: ObjectRef) -> String {
    let problems = world.index.problems().get(&Subject::Object(object));
    problems.iter().flat_map(|it| it.iter()).map(|it| it.reason.clone()).collect()
}

#[test]
fn a_deleted_class_is_kept_for_the_ingresses_that_it_had() {
    let mut world = world();
    let before = world.config.clone();
    let commit = world.events([Event::Deleted(nginx())]);
    assert_eq!(world.config, before);
    let hold = written(&commit.holds);
    assert_eq!(hold.reference(), nginx());
    assert!(said(&world, nginx()).starts_with("was deleted: "), "{}", said(&world, nginx()));
    assert_eq!(world.events([held(&hold)]).holds, []);
    assert_eq!(world.config, before);

    world.apply(of_class("late", "u3"));
    assert_eq!(hosts(&world), ["one.test", "two.test"]);
    assert!(
        world.reasons("late")[0].contains("there is no such IngressClass"),
        "{:?}",
        world.reasons("late")
    );

    world.apply(of_class("one", "u1").rule("more.test", &[("/", "echo")]));
    assert_eq!(hosts(&world), ["more.test", "one.test", "two.test"], "its owner goes on changing it");
    world.apply(of_class("one", "u4"));
    assert_eq!(hosts(&world), ["two.test"], "another one of this name was created later");
}

#[test]
fn an_ingress_that_is_deleted_with_its_class_or_comes_just_before_is_counted_right() {
    let mut world = world();
    let events = [
        Event::Deleted(reference(ObjectKind::Ingress, "one")),
        applied(of_class("three", "u3")),
        Event::Deleted(nginx()),
        applied(of_class("late", "u4")),
    ];
    let commit = world.events(events);
    assert_eq!(hosts(&world), ["three.test", "two.test"]);
    world.events([held(&written(&commit.holds)), applied(of_class("one", "u1"))]);
    assert_eq!(hosts(&world), ["three.test", "two.test"], "it came again afterwards");
}

#[test]
fn an_ingress_of_another_class_is_not_counted() {
    let mut world = world();
    let of_other = of_class("three", "u3").with(|it| it["spec"]["ingressClassName"] = json!("other"));
    let commit = world.events([applied(of_other), Event::Deleted(nginx())]);
    world.events([held(&written(&commit.holds)), applied(of_class("three", "u3"))]);
    assert_eq!(hosts(&world), ["one.test", "two.test"]);
}

#[test]
fn a_class_that_exists_again_decides_anew() {
    for (controller, expected) in [(OURS, 3), ("example.com/other", 0)] {
        let mut world = world();
        let hold = written(&world.events([Event::Deleted(nginx())]).holds);
        world.events([held(&hold), applied(of_class("late", "u3"))]);
        let commit = world.events([created("c2", controller)]);
        assert_eq!(hosts(&world).len(), expected, "{controller}");
        assert_eq!(commit.holds, [HoldRequest::Erase(nginx())]);
        assert_eq!(said(&world, nginx()), "");
        assert_eq!(world.events([Event::Released(nginx())]).holds, []);
        assert_eq!(hosts(&world).len(), expected, "{controller}");
        let holds = world.events([Event::Deleted(nginx())]).holds;
        assert_eq!(holds.len(), usize::from(expected > 0), "{controller}");
        assert_eq!(hosts(&world).len(), expected, "{controller}");
    }
}

#[test]
fn a_class_that_becomes_another_controllers_is_not_kept() {
    let mut world = world();
    assert_eq!(world.events([created("c1", "example.com/other")]).holds, []);
    assert_eq!(hosts(&world).len(), 0);
    assert_eq!(world.events([Event::Deleted(nginx())]).holds, []);
    assert_eq!(hosts(&world).len(), 0);
    assert_eq!(said(&world, nginx()), "");
}

#[test]
fn a_deleted_hold_of_an_earlier_class_serves_nobody() {
    let mut world = world();
    let hold = written(&world.events([Event::Deleted(nginx())]).holds);
    world.events([held(&hold)]);
    // The new class, not ours, is deleted before the request to erase the hold was carried out.
    world.events([created("c2", "example.com/other")]);
    world.events([Event::Deleted(nginx())]);
    assert_eq!(hosts(&world).len(), 0);
    assert_eq!(world.events([Event::Released(nginx())]).holds, []);
}

#[test]
fn a_class_is_kept_until_its_last_ingress_has_gone() {
    let mut world = world();
    let hold = written(&world.events([Event::Deleted(nginx())]).holds);
    world.events([held(&hold), applied(of_class("late", "u3"))]);
    assert_eq!(world.delete(ObjectKind::Ingress, "one").holds, []);
    let away = of_class("two", "u2").with(|it| it["spec"]["ingressClassName"] = json!("other"));
    assert_eq!(world.apply(away).holds, [HoldRequest::Erase(nginx())]);
    assert_eq!(said(&world, nginx()), "");
    assert_eq!(world.events([Event::Released(nginx())]).holds, []);
    assert!(world.index.objects.get(&nginx()).is_none());
    assert_eq!(hosts(&world).len(), 0);
}

#[test]
fn a_class_without_ingresses_is_not_kept() {
    let mut world = World::default();
    world.events([created("c1", OURS)]);
    assert_eq!(world.events([Event::Deleted(nginx())]).holds, []);
    assert_eq!(said(&world, nginx()), "");
}

#[test]
fn a_new_process_keeps_what_is_on_record_in_any_order() {
    let mut old = world();
    let hold = written(&old.events([Event::Deleted(nginx())]).holds);
    old.events([held(&hold), applied(of_class("late", "u3"))]);
    let events = [
        held(&hold),
        applied(service("echo")),
        applied(of_class("one", "u1")),
        applied(of_class("two", "u2")),
        applied(of_class("late", "u3")),
    ];
    for turn in 0..events.len() {
        let mut fresh = World::default();
        let mut events = events.to_vec();
        events.rotate_left(turn);
        for event in events {
            assert_eq!(fresh.events([event]).holds, []);
        }
        fresh.index.lists_complete();
        assert_eq!(fresh.events([]).holds, []);
        super::properties::assert_same(&old, &fresh);
        // Somebody removes the record alone: whoever keeps the class writes it again.
        assert_eq!(written(&fresh.events([Event::Released(nginx())]).holds), hold);
        super::properties::assert_same(&old, &fresh);
    }
}

#[test]
fn a_new_process_lets_go_of_a_record_that_nobody_needs() {
    let hold = written(&world().events([Event::Deleted(nginx())]).holds);
    let mut fresh = World::default();
    assert_eq!(fresh.events([held(&hold), applied(of_class("late", "u3"))]).holds, []);
    fresh.index.lists_complete();
    assert_eq!(fresh.events([]).holds, [HoldRequest::Erase(nginx())]);
    assert_eq!(fresh.events([Event::Released(nginx())]).holds, []);
}

/// The record of a class is from before another `--controller-class`.
#[test]
fn a_record_of_a_class_that_is_not_ours_is_let_go() {
    let mut old = world();
    let hold = written(&old.events([Event::Deleted(nginx())]).holds);
    let other = || Options { controller_class: "example.com/other".to_owned(), ..options() };
    for is_named in [false, true] {
        let mut fresh = World::with(Options { class_by_name: is_named, ..other() });
        fresh.events([held(&hold), applied(service("echo")), applied(of_class("one", "u1"))]);
        fresh.index.lists_complete();
        let commit = fresh.events([]);
        if is_named {
            assert_eq!((commit.holds, hosts(&fresh)), (vec![], vec!["one.test".to_owned()]));
            continue;
        }
        assert_eq!((commit.holds, hosts(&fresh)), (vec![HoldRequest::Erase(nginx())], vec![]));
        assert_eq!(said(&fresh, nginx()), "");
        fresh.events([Event::Released(nginx())]);
        assert!(fresh.reasons("one")[0].contains("there is no such IngressClass"));
    }
}

#[test]
fn replicas_that_saw_different_ingresses_agree_on_the_list_that_is_stored() {
    let mut ahead = world();
    ahead.apply(of_class("three", "u3"));
    let (mut one, mut other) = (world(), ahead);
    let first = written(&one.events([Event::Deleted(nginx())]).holds);
    let second = written(&other.events([Event::Deleted(nginx())]).holds);
    assert_ne!(first, second);
    // The second one overwrites the first.
    assert_eq!(one.events([held(&first)]).holds, []);
    assert_eq!(other.events([held(&first)]).holds, []);
    assert_eq!(one.events([held(&second), applied(of_class("three", "u3"))]).holds, []);
    assert_eq!(other.events([held(&second)]).holds, []);
    super::properties::assert_same(&one, &other);
    assert_eq!(hosts(&one), ["one.test", "three.test", "two.test"]);
}

#[test]
fn a_folder_keeps_a_class_too() {
    let mut world = World::with(Options { folder: true, ..options() });
    let unnamed = of_class("bare", "").with(|it| it["spec"]["ingressClassName"] = json!(null));
    let default = json!({
        "metadata": {"name": "web", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
        "spec": {"controller": OURS},
    });
    let named = of_class("one", "").with(|it| it["spec"]["ingressClassName"] = json!("web"));
    world.events([
        applied(crate::objects::json::decode(ObjectKind::IngressClass, &default.to_string()).unwrap()),
        applied(service("echo")),
        applied(unnamed.at(0)),
        applied(named),
    ]);
    assert_eq!(hosts(&world), ["bare.test", "one.test"]);
    let commit = world.delete_class("web");
    assert_eq!(hosts(&world), ["bare.test", "one.test"]);
    world.events([held(&written(&commit.holds))]);
    world.apply(of_class("late", "").with(|it| it["spec"]["ingressClassName"] = json!("web")));
    assert_eq!(hosts(&world), ["bare.test", "one.test"]);

    world.delete(ObjectKind::Ingress, "one");
    let commit = world.delete(ObjectKind::Ingress, "bare");
    let class = ObjectRef { kind: ObjectKind::IngressClass, name: ObjectName::new("", "web") };
    assert_eq!(commit.holds, [HoldRequest::Erase(class)], "it is the default of nobody any more");
}

#[test]
fn a_default_class_that_exists_counts_before_one_that_is_kept() {
    let mut world = World::with(Options { folder: true, ..options() });
    let default = |name: &str| {
        let is_default = json!({"ingressclass.kubernetes.io/is-default-class": "true"});
        let it = json!({"metadata": {"name": name, "annotations": is_default}, "spec": {"controller": OURS}});
        applied(crate::objects::json::decode(ObjectKind::IngressClass, &it.to_string()).unwrap())
    };
    let bare = |name: &str| of_class(name, "").with(|it| it["spec"]["ingressClassName"] = json!(null));
    world.events([default("alpha"), applied(service("echo")), applied(bare("one"))]);
    let hold = written(&world.delete_class("alpha").holds);
    world.events([held(&hold)]);
    assert_eq!(hosts(&world), ["one.test"]);

    let commit = world.events([default("beta")]);
    assert_eq!(commit.holds, [HoldRequest::Erase(hold.reference())]);
    assert_eq!(said(&world, hold.reference()), "");
    world.apply(bare("late"));
    assert_eq!(hosts(&world), ["late.test", "one.test"]);
}

/// In a folder, most manifests name the class that their cluster had, and none is needed.
#[test]
fn a_kept_class_does_not_count_as_one_that_the_folder_has() {
    let mut world = World::with(Options { folder: true, ..options() });
    world.events([created("", OURS), applied(service("echo")), applied(of_class("one", ""))]);
    world.events([Event::Deleted(nginx())]);
    world.apply(of_class("late", ""));
    assert_eq!(hosts(&world), ["late.test", "one.test"]);
}

fn settings() -> ObjectRef {
    ObjectRef { kind: ObjectKind::ConfigMap, name: options().configmap }
}

#[test]
fn the_values_of_a_deleted_configmap_stay_until_it_exists_again() {
    let mut world = World::default();
    world.apply(configmap(json!({"whitelist-source-range": "10.0.0.0/8", "frobnicate": "1"})));
    let before = world.config.clone();
    let commit = world.events([Event::Deleted(settings())]);
    assert_eq!(world.config, before);
    let hold = written(&commit.holds);
    assert_eq!(world.events([held(&hold)]).holds, []);
    let reasons = said(&world, settings());
    assert!(reasons.contains("was deleted: its last values stay in use"), "{reasons}");
    assert!(reasons.contains("unknown key"), "what was said of its values still holds: {reasons}");

    let mut fresh = World::default();
    fresh.events([held(&hold)]);
    fresh.index.lists_complete();
    assert_eq!(fresh.events([]).holds, []);
    super::properties::assert_same(&world, &fresh);
    assert_eq!(written(&fresh.events([Event::Released(settings())]).holds), hold);
    assert_eq!(fresh.config, before);

    let commit = world.apply(configmap(json!({})));
    assert_eq!(commit.holds, [HoldRequest::Erase(settings())]);
    assert!(world.config != before && said(&world, settings()).is_empty());
    world.events([Event::Released(settings())]);
    assert_eq!(world.events([Event::Deleted(settings())]).holds, [], "without data there is nothing to keep");
    assert_eq!(said(&world, settings()), "");
}

#[test]
fn the_last_good_values_of_a_broken_configmap_that_is_deleted_stay() {
    let mut world = World::default();
    world.apply(configmap(json!({"whitelist-source-range": "10.0.0.0/8"})));
    let before = world.config.clone();
    let commit = world.events([broken(settings(), "data", "expected a map")]);
    world.events([held(&written(&commit.holds))]);
    assert_eq!(world.events([Event::Deleted(settings())]).holds, [], "they are on record");
    assert_eq!(world.config, before);
}

#[test]
fn a_configmap_that_a_flag_names_is_absent_while_nothing_of_it_is_known() {
    let is_absent = |world: &World| said(world, settings()).contains("FIRTH_CONFIGMAP) does not exist");
    let expected = BTreeSet::from([settings().name]);
    let mut world = World::with(Options { expected, ..options() });
    world.events([]);
    assert!(is_absent(&world));
    world.apply(configmap(json!({})));
    assert!(!is_absent(&world));
    world.events([Event::Deleted(settings())]);
    assert!(is_absent(&world), "nothing of it is kept");
    world.apply(configmap(json!({"ssl-redirect": "false"})));
    world.events([Event::Deleted(settings())]);
    assert!(!is_absent(&world), "its values are kept");
    let mut world = World::default();
    world.events([]);
    assert!(!is_absent(&world), "no flag names it");
}

#[test]
fn services_of_a_configmap_that_a_flag_names_and_nobody_has_made_are_missed() {
    for (services, variable) in [
        (options().tcp_services, "FIRTH_TCP_SERVICES_CONFIGMAP"),
        (options().udp_services, "FIRTH_UDP_SERVICES_CONFIGMAP"),
    ] {
        let map = ObjectRef { kind: ObjectKind::ConfigMap, name: services.clone() };
        let mut world = World::with(Options { expected: BTreeSet::from([services]), ..options() });
        world.events([]);
        assert!(said(&world, map).contains(variable), "{variable}");
    }
}

#[test]
fn what_is_said_of_the_configmap_names_its_keys_as_they_are() {
    let mut world = World::with(Options { prefix: Prefix::new("custom.example.com"), ..options() });
    world.apply(configmap(json!({"nginx.ingress.kubernetes.io/use-regex": "true"})));
    let fields = |world: &World| {
        let problems = world.index.problems().get(&Subject::Object(settings())).cloned();
        problems.iter().flat_map(|it| it.iter()).map(|it| it.field.clone()).collect::<String>()
    };
    let before = fields(&world);
    assert!(before.contains("nginx.ingress.kubernetes.io"), "{before}");
    world.events([Event::Deleted(settings())]);
    assert_eq!(fields(&world), before);
}
