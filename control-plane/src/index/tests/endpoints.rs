//! Slices of Services in use.

use serde_json::json;
use shared::kind::Kind;

use super::fixture::*;
use crate::objects::{Object, ObjectKind};

fn web() -> Ing {
    ingress("web").rule("a.test", &[("/", "echo")])
}

#[test]
fn slices_come_and_go_with_the_backends_of_their_service() {
    let mut world = World::default();
    world.apply(slice("echo-1", "echo", &["10.0.0.1"]));
    world.apply(slice("other-1", "other", &["10.0.0.9"]));
    assert!(world.live.is_empty());
    world.apply(web());
    assert_eq!(world.keys(Kind::Endpoints), ["default/echo-1"]);
    let commit = world.delete(ObjectKind::Ingress, "web");
    assert!(!commit.live.removed[0].gone, "only nobody refers to it any longer");
    assert!(world.live.is_empty());
}

#[test]
fn a_slice_that_is_deleted_or_moves_is_gone() {
    let mut world = World::default();
    world.events([applied(web()), applied(slice("echo-1", "echo", &["10.0.0.1"]))]);
    let commit = world.apply(slice("echo-1", "other", &["10.0.0.1"]));
    assert!(commit.live.removed[0].gone);
    world.apply(slice("echo-1", "echo", &["10.0.0.1"]));
    let commit = world.delete(ObjectKind::EndpointSlice, "echo-1");
    assert!(commit.live.removed[0].gone);
    assert!(world.index.services.values().all(|service| service.slices.is_empty()));
}

#[test]
fn causes_count_the_endpoints_of_the_service() {
    let mut world = World::default();
    world.events([applied(web()), applied(slice("echo-1", "echo", &["10.0.0.1"]))]);
    let commit = world.apply(slice("echo-2", "echo", &["10.0.0.2", "10.0.0.3"]));
    assert_eq!(commit.cause, "endpoints of default/echo: 1 -> 3");
    let commit = world.apply(slice("echo-2", "echo", &["10.0.0.2"]));
    assert_eq!(commit.cause, "endpoints of default/echo: 3 -> 2");
    let commit = world.delete(ObjectKind::EndpointSlice, "echo-1");
    assert_eq!(commit.cause, "endpoints of default/echo: 2 -> 1");
}

fn with_ports(slice: Object, ports: serde_json::Value) -> Object {
    let Object::EndpointSlice(slice) = slice else { unreachable!() };
    let mut slice = (*slice).clone();
    slice.ports = serde_json::from_value(ports).unwrap();
    Object::EndpointSlice(slice.into())
}

#[test]
fn causes_say_what_changed_where_the_count_does_not() {
    let echo = || slice("echo-1", "echo", &["10.0.0.1", "10.0.0.2"]);
    let mut world = World::default();
    world.events([applied(web()), applied(echo())]);
    for (ports, cause) in [
        (json!([{"name": "http", "port": 8081}]), "port 8080 -> 8081"),
        (json!([{"name": "web", "port": 8081}]), "port http 8081 -> web 8081"),
        (json!([{"name": "web", "port": 8081}, {"name": "x", "port": 9}]), "port 8081 -> 8081, 9"),
        (json!([]), "port 8081, 9 -> none"),
        (json!([{"name": "http", "port": 8080}]), "port none -> 8080"),
    ] {
        let commit = world.apply(with_ports(echo(), ports));
        assert_eq!(commit.cause, format!("endpoints of default/echo: {cause}"));
    }
    let commit = world.apply(slice("echo-1", "echo", &["10.0.0.1", "10.0.0.3"]));
    assert_eq!(commit.cause, "endpoints of default/echo: 1 of 2 changed");
}

#[test]
fn causes_name_an_ingress_first_and_endpoints_last() {
    let mut world = World::default();
    world.events([applied(web()), applied(slice("echo-1", "echo", &["10.0.0.1"]))]);
    let commit = world.events([
        applied(slice("echo-1", "echo", &["10.0.0.2"])),
        applied(service("echo")),
        applied(web().annotation("ssl-redirect", "false")),
    ]);
    assert_eq!(commit.cause, "3 changes, first: Ingress default/web: ssl-redirect false");
    let commit = world.events([
        applied(slice("echo-1", "echo", &["10.0.0.3"])),
        applied(service_with("echo", json!([{"name": "http", "port": 80}]))),
    ]);
    assert_eq!(commit.cause, "2 changes, first: Service default/echo: changed");
}

#[test]
fn an_unchanged_slice_changes_nothing() {
    let mut world = World::default();
    world.events([applied(web()), applied(slice("echo-1", "echo", &["10.0.0.1"]))]);
    let Object::EndpointSlice(again) = slice("echo-1", "echo", &["10.0.0.1"]) else { unreachable!() };
    let mut again = (*again).clone();
    again.metadata.resource_version = "2".into();
    let commit = world.apply(Object::EndpointSlice(again.into()));
    assert_eq!((commit.live.len(), commit.compiled, commit.cause.as_str()), (0, 0, ""));
    // What differs only in what nobody compiles costs a look and is no change.
    let Object::EndpointSlice(again) = slice("echo-1", "echo", &["10.0.0.1", "10.0.0.1"]) else {
        unreachable!()
    };
    let commit = world.apply(Object::EndpointSlice(again));
    assert_eq!((commit.live.len(), commit.compiled, commit.cause.as_str()), (0, 1, ""));
}

#[test]
fn bad_addresses_are_reported_while_the_slice_is_in_use() {
    let mut world = World::default();
    world.apply(slice("echo-1", "echo", &["127.0.0.1", "10.0.0.1"]));
    assert_eq!(world.problems(ObjectKind::EndpointSlice, "echo-1"), Vec::<String>::new());
    world.apply(web());
    assert_eq!(world.problems(ObjectKind::EndpointSlice, "echo-1"), ["warning endpoints[0].addresses[0]"]);
    world.delete(ObjectKind::EndpointSlice, "echo-1");
    assert_eq!(world.problems(ObjectKind::EndpointSlice, "echo-1"), Vec::<String>::new());
}

#[test]
fn an_external_name_is_reported_on_the_ingress() {
    let mut world = World::default();
    let Object::Service(external) = service_with("echo", json!([])) else { unreachable!() };
    let mut external = (*external).clone();
    external.spec.kind = "ExternalName".into();
    world.events([applied(web()), applied(Object::Service(external.into()))]);
    assert_eq!(
        world.problems(ObjectKind::Ingress, "web"),
        ["unsupported spec.rules[0].http.paths[0].backend.service.name"]
    );
}
