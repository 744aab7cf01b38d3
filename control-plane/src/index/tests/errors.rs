//! The Service for error pages: a Backend of its own, with the first port of the Service.

use serde_json::json;
use shared::kind::Kind;
use shared::resource::{Backend, Resource};

use super::fixture::*;
use crate::index::Options;
use crate::objects::ObjectKind;

fn errors(world: &World) -> Option<Backend> {
    match world.get(Kind::Backend, "default/errors/default")? {
        Resource::Backend(backend) => Some(backend),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_service_for_errors_is_followed_like_any_other() {
    let mut world = World::default();
    let web = || ingress("web").rule("a.test", &[("/", "echo")]).annotation("default-backend", "errors");
    world.apply(web());
    assert_eq!(errors(&world), Some(without_service()), "it does not exist");
    let told = world.problems(ObjectKind::Ingress, "web");
    let field = "warning metadata.annotations[nginx.ingress.kubernetes.io/default-backend]";
    assert!(told.iter().any(|it| it == field), "{told:?}");
    let what = "Service default/errors does not exist: the default backend of all Ingresses answers in its place, as in ingress-nginx";
    assert!(world.reasons("web").iter().any(|it| it == what), "{:?}", world.reasons("web"));
    let ports = json!([{"name": "udp", "port": 53, "protocol": "UDP"}, {"name": "web", "port": 8080}]);
    world.apply(service_with("errors", ports));
    assert_eq!(errors(&world).and_then(|it| it.port).map(|port| port.name), Some("web".into()));
    let commit = world.apply(slice("errors-1", "errors", &["10.0.0.7"]));
    assert_eq!(commit.live.up.len(), 1, "its endpoints are known");
    match world.get(Kind::Route, "ingress/default/web/a.test") {
        Some(Resource::Route(route)) => {
            assert_eq!(route.policy.default_backend.as_deref(), Some("default/errors/default"));
        }
        other => panic!("{other:?}"),
    }
    world.delete(ObjectKind::Ingress, "web");
    assert_eq!(errors(&world), None);
}

#[test]
fn the_fleets_default_backend_is_there_whatever_happens() {
    let mut world = World::with(Options { default_backend: Some(name("fallback")), ..options() });
    world.events([]);
    let key = "default/fallback/default";
    let Some(Resource::Settings(settings)) = world.get(Kind::Settings, "default") else { panic!() };
    assert_eq!(settings.default_backend, key);
    assert_eq!(world.get(Kind::Backend, key), Some(Resource::Backend(without_service())));
    let told = |world: &World| world.problems(ObjectKind::Service, "fallback");
    assert_eq!(told(&world), ["warning "], "nobody made it");
    world.apply(service("fallback"));
    assert_eq!(told(&world), [""; 0]);
    let commit = world.apply(slice("fallback-1", "fallback", &["10.0.0.7"]));
    assert_eq!(commit.live.up.len(), 1, "its endpoints are known");
    // An Ingress that names it, too, and goes again.
    world.apply(ingress("web").rule("a.test", &[("/", "echo")]).annotation("default-backend", "fallback"));
    world.delete(ObjectKind::Ingress, "web");
    assert!(matches!(world.get(Kind::Backend, key), Some(Resource::Backend(it)) if it.port.is_some()));
    world.delete(ObjectKind::Service, "fallback");
    assert_eq!(told(&world), ["warning "]);
}
