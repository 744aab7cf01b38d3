//! EndpointSlices of Services in use.

use serde_json::json;
use shared::kind::Kind;
use shared::policy::LocationPolicy;
use shared::resource::{Backend, ExternalName, Resource};

use super::fixture::*;
use crate::index::Options;
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

/// An API server accepts none of these; a folder may contain them.
#[test]
fn a_slice_that_no_api_server_takes_keeps_its_last_good_version() {
    let mut world = World::default();
    let echo = || slice("echo-1", "echo", &["10.0.0.1"]);
    world.events([applied(web()), applied(echo()), applied(slice("echo-2", "echo", &["10.0.0.2"]))]);
    let before = world.live.clone();
    let bad = [
        (with_ports(echo(), json!([{"name": "http", "port": 70_000}])), "rejected ports[0].port"),
        (slice("echo-1", "echo", &["10.0.0.1", "no address"]), "rejected endpoints[1].addresses[0]"),
    ];
    for (bad, said) in bad {
        let commit = world.apply(bad);
        assert!(commit.live.is_empty());
        assert_eq!(world.problems(ObjectKind::EndpointSlice, "echo-1"), [said]);
        assert_eq!(world.live.root(), before.root());
        world.apply(slice("echo-2", "echo", &["10.0.0.3"]));
        assert_ne!(world.live.root(), before.root(), "the others of the Service go on");
        world.apply(slice("echo-2", "echo", &["10.0.0.2"]));
    }
    world.apply(echo());
    assert!(world.problems(ObjectKind::EndpointSlice, "echo-1").is_empty());
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
    // A difference that is not compiled is examined, and is no change.
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

/// A Service with this spec.
fn service_of(spec: serde_json::Value) -> Object {
    let Object::Service(service) = service_with("echo", json!([])) else { unreachable!() };
    let mut service = (*service).clone();
    service.spec = serde_json::from_value(spec).unwrap();
    Object::Service(service.into())
}

fn external(name: &str) -> Object {
    service_of(json!({"type": "ExternalName", "externalName": name, "ports": []}))
}

fn echo(world: &World) -> Backend {
    let Some(Resource::Backend(backend)) = world.get(Kind::Backend, "default/echo/80") else {
        panic!("no Backend")
    };
    backend
}

#[test]
fn a_name_is_sent_followed_and_let_go_of() {
    let mut world = World::default();
    let name = |name: &str| Some(ExternalName { name: name.into(), port: 80, local: false });
    world.events([applied(web()), applied(external("one.test"))]);
    assert_eq!((echo(&world).external, echo(&world).port), (name("one.test"), None));
    assert_eq!(world.problems(ObjectKind::Ingress, "web"), Vec::<String>::new());
    let commit = world.apply(external("two.test."));
    assert_eq!((echo(&world).external, commit.config.len()), (name("two.test."), 1));
    world.delete(ObjectKind::Service, "echo");
    assert_eq!(echo(&world), without_service());
    world.apply(external("two.test"));
    assert_eq!(echo(&world).external, name("two.test"));
    world.apply(service("echo"));
    assert_eq!((echo(&world).external, echo(&world).port.is_some()), (None, true));
}

#[test]
fn a_name_that_is_not_followed_is_said_to_the_ingress() {
    for (options, name) in [
        (options(), "localhost"),
        (options(), "127.8.8.8"),
        (options(), "10.0.0.1"),
        (options(), "no_name"),
        (Options { no_external_names: true, ..options() }, "one.test"),
    ] {
        let mut world = World::with(options);
        world.events([applied(web()), applied(external(name))]);
        assert_eq!(echo(&world), Backend::default(), "{name}");
        let field = "warning spec.rules[0].http.paths[0].backend.service.name";
        assert_eq!(world.problems(ObjectKind::Ingress, "web"), [field], "{name}");
    }
}

#[test]
fn in_a_folder_a_name_may_lead_to_this_machine() {
    let mut world = World::with(Options { folder: true, ..options() });
    world.events([applied(web()), applied(external("one.test"))]);
    assert!(echo(&world).external.is_some_and(|name| name.local));
}

#[test]
fn the_first_ingress_decides_whether_requests_go_to_the_service() {
    let with_address =
        || service_of(json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80, "targetPort": 8080}]}));
    let asks = |name: &str, second, text: &str| {
        let path = format!("/{name}");
        ingress(name).rule("a.test", &[(&path, "echo")]).at(second).annotation("service-upstream", text)
    };
    let mut world = World::default();
    world.events([applied(with_address()), applied(asks("second", 2, "true"))]);
    assert_eq!(echo(&world).service, Some("10.96.0.7:80".parse().unwrap()));
    assert_eq!(echo(&world).policy.service_upstream, Some(true));
    world.apply(asks("first", 1, "false"));
    assert_eq!(echo(&world).policy.service_upstream, Some(false));
    // An invalid value is false, whatever the ConfigMap says; an empty one is invalid.
    let field = "metadata.annotations[nginx.ingress.kubernetes.io/service-upstream]";
    for text in ["yes", ""] {
        world.apply(asks("first", 1, text));
        assert_eq!(echo(&world).policy.service_upstream, Some(false), "{text:?}");
        assert_eq!(world.problems(ObjectKind::Ingress, "first"), [format!("warning {field}")], "{text:?}");
    }
    world.delete(ObjectKind::Ingress, "first");
    assert_eq!(echo(&world).policy.service_upstream, Some(true));
}

#[test]
fn a_service_without_an_address_is_said() {
    let headless = service_of(json!({"clusterIP": "None", "ports": [{"port": 80}]}));
    let mut world = World::default();
    world.events([applied(headless), applied(web().annotation("service-upstream", "true"))]);
    assert_eq!((echo(&world).service, echo(&world).port.is_some()), (None, true));
    let field = "warning spec.rules[0].http.paths[0].backend.service.name";
    assert_eq!(world.problems(ObjectKind::Ingress, "web"), [field]);
    world.apply(web());
    assert_eq!(world.problems(ObjectKind::Ingress, "web"), Vec::<String>::new());
    // As in manifests: an API server gives it one.
    world.events([applied(service("echo")), applied(web().annotation("service-upstream", "true"))]);
    assert_eq!(world.problems(ObjectKind::Ingress, "web"), Vec::<String>::new());
}

#[test]
fn the_configmap_says_it_of_all_without_touching_a_backend() {
    let mut world = World::default();
    world.events([applied(service("echo")), applied(web())]);
    let commit = world.apply(configmap(json!({"service-upstream": "true"})));
    let keys: Vec<_> = commit.config.up.iter().map(|entry| entry.kind()).collect();
    assert_eq!(keys, [Kind::Settings]);
    let Some(Resource::Settings(settings)) = world.get(Kind::Settings, "default") else { panic!() };
    assert_eq!(settings.backend_defaults.service_upstream, Some(true));
    assert_eq!(settings.defaults, LocationPolicy::default());
}
