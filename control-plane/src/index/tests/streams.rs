//! TCP and UDP services.

use serde_json::{Value, json};
use shared::kind::Kind;
use shared::name::ObjectName;
use shared::resource::{ExternalName, Listener, PortRule, Resource};

use super::fixture::*;
use crate::event::Event;
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::problem::Subject;

/// The ConfigMap with the services over a transport.
fn services(transport: &str, data: Value) -> Object {
    let metadata = json!({"namespace": "ingress-nginx", "name": format!("{transport}-services")});
    Object::ConfigMap(serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap())
}

fn named(transport: &str) -> ObjectRef {
    let name = ObjectName::new("ingress-nginx", format!("{transport}-services"));
    ObjectRef { kind: ObjectKind::ConfigMap, name }
}

fn dns() -> Object {
    let ports = json!([
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 5353},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": "dns-tcp"},
    ]);
    service_with("dns", ports)
}

/// Ports of services, and where they lead: `tcp-53 -> default/dns/53/tcp`.
fn ports(world: &World) -> Vec<String> {
    let line = |(key, resource)| match resource {
        Resource::Listener(Listener::Service(service)) => Some(format!("{key} -> {}", service.backend)),
        _ => None,
    };
    world.all(Kind::Listener).into_iter().filter_map(line).collect()
}

fn reasons(world: &World, transport: &str) -> Vec<String> {
    let problems = world.index.problems().get(&Subject::Object(named(transport)));
    let all = problems.iter().flat_map(|problems| problems.iter());
    all.map(|problem| format!("{}: {}", problem.field, problem.reason)).collect()
}

fn rule(world: &World, key: &str) -> Option<PortRule> {
    match world.get(Kind::Backend, key) {
        Some(Resource::Backend(backend)) => backend.port,
        _ => None,
    }
}

#[test]
fn a_service_has_a_port_a_backend_and_endpoints_as_long_as_it_is_named() {
    let mut world = World::default();
    world.events([applied(dns()), applied(slice("dns-1", "dns", &["10.0.0.1"]))]);
    assert!(world.live.is_empty());
    world.events([
        applied(services("tcp", json!({"53": "default/dns:53"}))),
        applied(services("udp", json!({"53": "default/dns:dns:PROXY"}))),
    ]);
    assert_eq!(ports(&world), ["tcp-53 -> default/dns/53/tcp", "udp-53 -> default/dns/dns/udp"]);
    let of = |name: &str, target_port, udp| Some(PortRule { name: name.into(), target_port, udp });
    assert_eq!(rule(&world, "default/dns/53/tcp"), of("dns-tcp", None, false));
    assert_eq!(rule(&world, "default/dns/dns/udp"), of("dns", Some(5353), true));
    assert_eq!(world.keys(Kind::Endpoints), ["default/dns-1"]);
    world.apply(services("tcp", json!({})));
    assert_eq!(ports(&world), ["udp-53 -> default/dns/dns/udp"]);
    world.events([Event::Deleted(named("udp"))]);
    assert!(ports(&world).is_empty() && world.keys(Kind::Backend).is_empty() && world.live.is_empty());
}

#[test]
fn an_entry_leads_elsewhere_without_another_going_along() {
    let mut world = World::default();
    world.events([applied(service("a")), applied(service("b"))]);
    world.apply(services("tcp", json!({"1000": "default/a:80", "1001": "default/a:80"})));
    let commit = world.apply(services("tcp", json!({"1000": "default/b:80", "1001": "default/a:80"})));
    let changed: Vec<_> = commit.config.up.iter().map(|entry| entry.key.key.to_string()).collect();
    assert_eq!(changed, ["tcp-1000", "default/b/80/tcp"]);
    assert_eq!(ports(&world), ["tcp-1000 -> default/b/80/tcp", "tcp-1001 -> default/a/80/tcp"]);
    let commit = world.apply(services("tcp", json!({"1000": "default/b:80"})));
    assert_eq!(commit.config.removed.len(), 2, "the port and the Backend that nothing names any more");
}

#[test]
fn an_entry_without_its_service_port_is_not_served_and_said() {
    let mut world = World::default();
    world.apply(services(
        "tcp",
        json!({"1000": "default/echo:80", "1001": "default/echo:81", "1002": "default/echo", "443": "default/echo:80"}),
    ));
    assert!(ports(&world).is_empty());
    let all = reasons(&world, "tcp");
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(
        all.iter().any(|it| it == "data[1000]: Service default/echo does not exist: not served"),
        "{all:?}"
    );
    world.apply(service("echo"));
    assert_eq!(ports(&world), ["tcp-1000 -> default/echo/80/tcp"]);
    let all = reasons(&world, "tcp");
    assert!(all.iter().any(|it| it.contains("data[1001]: Service default/echo has no TCP port")), "{all:?}");
    assert_eq!(all.len(), 3);
    world.delete(ObjectKind::Service, "echo");
    assert!(ports(&world).is_empty());
    world.events([broken(reference(ObjectKind::Service, "echo"), "spec.ports", "expected a list, got text")]);
    let all = reasons(&world, "tcp");
    let unreadable =
        "data[1000]: Service default/echo cannot be read (spec.ports: expected a list, got text): not served";
    assert!(all.iter().any(|it| it == unreadable), "{all:?}");
    // A port of the other transport protocol does not match.
    world.events([applied(service("echo")), applied(services("udp", json!({"1000": "default/echo:80"})))]);
    assert_eq!(ports(&world), ["tcp-1000 -> default/echo/80/tcp"]);
    assert!(reasons(&world, "udp")[0].contains("has no UDP port"), "{:?}", reasons(&world, "udp"));
}

#[test]
fn a_service_may_lead_to_a_name() {
    let mut world = World::default();
    let service = json!({
        "metadata": {"namespace": "default", "name": "far"},
        "spec": {"type": "ExternalName", "externalName": "db.test"},
    });
    let service = Object::Service(serde_json::from_value(service).unwrap());
    world.events([applied(service), applied(services("tcp", json!({"5432": "default/far:5433"})))]);
    assert_eq!(ports(&world), ["tcp-5432 -> default/far/5433/tcp"]);
    let Some(Resource::Backend(backend)) = world.get(Kind::Backend, "default/far/5433/tcp") else {
        panic!("there is a backend")
    };
    let name = ExternalName { name: "db.test".into(), port: 5433, local: false };
    assert_eq!((backend.external, backend.port), (Some(name), None));
}

#[test]
fn what_ingresses_say_of_a_service_port_is_not_said_of_its_stream() {
    let mut world = World::default();
    let web = ingress("web").annotation("service-upstream", "true").rule("a.test", &[("/", "echo")]);
    world.events([applied(service("echo")), applied(services("tcp", json!({"1000": "default/echo:80"})))]);
    let alone = world.get(Kind::Backend, "default/echo/80/tcp");
    world.apply(web);
    assert_eq!(world.get(Kind::Backend, "default/echo/80/tcp"), alone);
    assert_ne!(world.get(Kind::Backend, "default/echo/80"), alone);
    world.delete(ObjectKind::Ingress, "web");
    assert_eq!(world.keys(Kind::Backend), ["default/echo/80/tcp"]);
}

#[test]
fn the_order_of_events_does_not_show() {
    let events = || {
        [
            applied(service("echo")),
            applied(dns()),
            applied(services("tcp", json!({"1000": "default/echo:80", "53": "default/dns:53"}))),
            applied(services("udp", json!({"53": "default/dns:53"}))),
        ]
    };
    let mut whole = World::default();
    whole.events(events());
    for first in 0..4 {
        let mut world = World::default();
        let mut events = events().to_vec();
        events.rotate_left(first);
        for event in events {
            world.events([event]);
        }
        assert_eq!(world.config.root(), whole.config.root(), "{first}");
    }
}
