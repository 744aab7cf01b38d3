//! ConfigMaps of ingress-nginx under another name.

use serde_json::{Value, json};
use shared::name::ObjectName;

use super::fixture::*;
use crate::event::Event;
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::problem::Subject;

fn map(name: &str, data: Value) -> Object {
    let metadata = json!({"namespace": "edge", "name": name});
    Object::ConfigMap(serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap())
}

/// The ConfigMap that a flag names for TCP or UDP services.
fn of_flag(name: &str) -> Object {
    let metadata = json!({"namespace": "ingress-nginx", "name": name});
    Object::ConfigMap(serde_json::from_value(json!({"metadata": metadata, "data": {}})).unwrap())
}

fn told(world: &World, name: &str) -> Vec<String> {
    let object = ObjectRef { kind: ObjectKind::ConfigMap, name: ObjectName::new("edge", name) };
    let problems = world.index.problems().get(&Subject::Object(object));
    problems.into_iter().flat_map(|all| all.iter()).map(|it| it.reason.clone()).collect()
}

#[test]
fn settings_of_another_name_are_told_while_those_of_the_flag_are_missing() {
    let mut world = World::default();
    let settings = || map("nginx-configuration", json!({"proxy-body-size": "8m", "of-yesterday": "1"}));
    world.events([
        applied(settings()),
        applied(map("mine", json!({"Use-Gzip": "true"}))),
        applied(map("app", json!({"proxy-body-size": "8m", "colour": "blue"}))),
        applied(map("none", json!({}))),
        applied(map("my-tcp", json!({"5432": "db/sql:5432"}))),
        applied(map("my-udp", json!({"53": "dns/dns:53"}))),
        applied(map("ports", json!({"5432": "sql"}))),
    ]);
    for (name, flag) in [
        ("nginx-configuration", "FIRTH_CONFIGMAP=edge/nginx-configuration"),
        ("mine", "FIRTH_CONFIGMAP=edge/mine"),
        ("my-tcp", "FIRTH_TCP_SERVICES_CONFIGMAP=edge/my-tcp"),
        ("my-udp", "FIRTH_UDP_SERVICES_CONFIGMAP=edge/my-udp"),
    ] {
        let told = told(&world, name);
        assert!(told.len() == 1 && told[0].contains(flag), "{name}: {told:?}");
    }
    for name in ["app", "none", "ports"] {
        assert_eq!(told(&world, name), [""; 0], "{name}");
    }

    world.apply(configmap(json!({})));
    assert_eq!(told(&world, "nginx-configuration"), [""; 0], "that of the flag exists");
    assert_eq!(told(&world, "my-tcp").len(), 1);
    for (flag, alike) in [("tcp-services", "my-tcp"), ("udp-services", "my-udp")] {
        world.apply(of_flag(flag));
        assert_eq!(told(&world, alike), [""; 0], "{flag} exists");
    }
    let named = ObjectRef {
        kind: ObjectKind::ConfigMap,
        name: ObjectName::new("ingress-nginx", "ingress-nginx-controller"),
    };
    world.events([Event::Deleted(named)]);
    assert_eq!(told(&world, "nginx-configuration").len(), 1);
    world.apply(map("nginx-configuration", json!({"of-yesterday": "1"})));
    assert_eq!(told(&world, "nginx-configuration"), [""; 0]);
    world.apply(settings());
    let gone =
        ObjectRef { kind: ObjectKind::ConfigMap, name: ObjectName::new("edge", "nginx-configuration") };
    world.events([Event::Deleted(gone)]);
    assert_eq!(told(&world, "nginx-configuration"), [""; 0]);
}
