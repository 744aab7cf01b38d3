//! ConfigMaps of headers: an Ingress' own, which the fleet may restrict, and those of the fleet.

use serde_json::{Value, json};
use shared::kind::Kind;
use shared::resource::{Resource, Route, SETTINGS_KEY, Settings};

use super::super::Options;
use super::fixture::*;
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::problem::Subject;

fn world() -> World {
    World::with(Options { on_demand: true, ..options() })
}

fn map(name: &str, data: Value) -> Object {
    let metadata = json!({"namespace": "default", "name": name});
    Object::ConfigMap(serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap())
}

fn web() -> Ing {
    ingress("web").rule("a.test", &[("/", "echo")]).annotation("custom-headers", "default/extra")
}

fn route(world: &World) -> Route {
    match world.get(Kind::Route, "ingress/default/web/a.test") {
        Some(Resource::Route(route)) => route,
        other => panic!("{other:?}"),
    }
}

fn settings(world: &World) -> Settings {
    match world.get(Kind::Settings, SETTINGS_KEY) {
        Some(Resource::Settings(settings)) => settings,
        other => panic!("{other:?}"),
    }
}

/// Names and values; `None` if all paths answer 503.
fn headers(world: &World) -> Option<Vec<String>> {
    let Route { denied, policy, .. } = route(world);
    let headers = policy.custom_headers.map(|list| list.headers).unwrap_or_default();
    denied.is_none().then(|| headers.into_iter().map(|it| format!("{}: {}", it.name, it.value)).collect())
}

#[test]
fn custom_headers_are_served_whole_or_not_at_all() {
    let mut world = world();
    world.apply(web());
    assert_eq!(headers(&world), None, "it was not read yet");
    world.apply(map("extra", json!({"X-A": "1", "X-B": "$host"})));
    assert_eq!(headers(&world), None, "the fleet allows none");
    world.apply(configmap(json!({"global-allowed-response-headers": "X-A"})));
    assert_eq!(headers(&world), None, "nor that one");
    let told = world.reasons("web");
    assert!(told.iter().any(|it| it.ends_with("all paths of this Ingress answer 503")), "{told:?}");
    assert_eq!(world.problems_of("web").len(), 1);
    world.apply(configmap(json!({"global-allowed-response-headers": "X-B, X-A"})));
    assert_eq!(headers(&world), Some(vec!["X-A: 1".into(), "X-B: $host".into()]));
    assert_eq!(world.problems_of("web"), Vec::<String>::new());

    world.apply(map("extra", json!({"X-A": "a\r\nX-Injected: 1"})));
    assert_eq!(headers(&world), None);
    world.apply(map("extra", json!({"X-A": "2"})));
    assert_eq!(headers(&world), Some(vec!["X-A: 2".into()]), "a change is followed");
    world.delete(ObjectKind::ConfigMap, "extra");
    assert_eq!(headers(&world), None);
    world.apply(ingress("web").rule("a.test", &[("/", "echo")]));
    assert_eq!(headers(&world), Some(vec![]));
    assert!(world.index.wants().is_empty());
}

/// As in ingress-nginx: what the fleet allows is decided by header, not by namespace.
#[test]
fn custom_headers_may_be_of_any_namespace() {
    let mut world = world();
    world.apply(configmap(json!({"global-allowed-response-headers": "X-A"})));
    world.apply(web().annotation("custom-headers", "other/extra"));
    let metadata = json!({"namespace": "other", "name": "extra"});
    let map = json!({"metadata": metadata, "data": {"X-A": "1"}});
    world.apply(Object::ConfigMap(serde_json::from_value(map).unwrap()));
    assert_eq!(headers(&world), Some(vec!["X-A: 1".into()]));
}

/// A ConfigMap of 60 kB was 240 MB in each proxy, for an Ingress of 4,000 hosts.
#[test]
fn a_configmap_that_comes_to_too_much_is_of_no_use() {
    let mut world = world();
    let web = |name: &str, hosts: usize| {
        let web = ingress(name).annotation("custom-headers", "default/extra");
        (0..hosts).fold(web, |it, i| it.rule(&format!("{name}-{i}.test"), &[("/", "echo")]))
    };
    world.apply(configmap(json!({"global-allowed-response-headers": "X-A"})));
    world.apply(web("many", 1_000));
    world.apply(web("few", 10));
    let is_served = |world: &World, host: &str| {
        let name = host.split('-').next().unwrap();
        match world.get(Kind::Route, &format!("ingress/default/{name}/{host}.test")) {
            Some(Resource::Route(route)) => route.denied.is_none() && route.policy.custom_headers.is_some(),
            other => panic!("{other:?}"),
        }
    };
    let of = |bytes: usize| map("extra", json!({"X-A": "x".repeat(bytes)}));
    for (bytes, many, few) in
        [(1_000, true, true), (60_000, false, true), (70_000, false, false), (1_000, true, true)]
    {
        world.apply(of(bytes));
        assert_eq!((is_served(&world, "many-7"), is_served(&world, "few-7")), (many, few), "{bytes}");
        for (name, is_fine) in [("many", many), ("few", few)] {
            let told = world.reasons(name).iter().any(|it| it.contains("its entries take"));
            assert_eq!(told, !is_fine, "{name}, {bytes}: {:?}", world.reasons(name));
        }
    }
}

#[test]
fn the_fleet_s_headers_are_followed_and_what_is_of_no_use_is_left_out() {
    let mut world = world();
    let keys = json!({"add-headers": "default/extra", "proxy-set-headers": "default/other"});
    world.apply(configmap(keys));
    assert_eq!(settings(&world).defaults.add_headers, None);
    world.apply(map("extra", json!({"X-One": "1", "X-Split": "a\r\nX-Injected: 1"})));
    let headers = settings(&world).defaults.add_headers.unwrap().headers;
    assert_eq!(headers.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["X-One"]);
    let map_of_fleet = ObjectRef { kind: ObjectKind::ConfigMap, name: options().configmap };
    let told: Vec<_> =
        world.index.problems()[&Subject::Object(map_of_fleet)].iter().map(|it| it.reason.clone()).collect();
    assert!(told.iter().any(|it| it.contains("X-Split") && it.ends_with("it is left out")), "{told:?}");
    assert_eq!(settings(&world).defaults.proxy_set_headers, None, "it does not exist");
    world.apply(map("other", json!({"X-From": "$remote_addr"})));
    assert_eq!(settings(&world).defaults.proxy_set_headers.unwrap().headers.len(), 1);
    world.apply(configmap(json!({})));
    assert_eq!(settings(&world), Settings::default());
    assert!(world.index.wants().is_empty());
}

/// A header that cannot be sent may be what the service decides by, so nobody is let in without it.
#[test]
fn headers_of_the_question_come_first_and_are_sent_whole_or_nobody_is_let_in() {
    let mut world = world();
    let asking = ingress("web").rule("a.test", &[("/", "echo")]).annotation("auth-url", "http://auth.test/");
    let asking = asking.annotation("auth-proxy-set-headers", "default/extra");
    world
        .apply(configmap(json!({"allow-snippet-annotations": "true", "annotations-risk-level": "Critical"})));
    world.apply(asking.annotation("auth-snippet", "proxy_set_header X-Own 1;"));
    let asked = |world: &World| {
        let Route { denied, policy, .. } = route(world);
        let headers = policy.external_auth.map(|it| it.proxy_set_headers).unwrap_or_default();
        (denied.is_some(), headers.into_iter().map(|it| it.name).collect::<Vec<_>>())
    };
    world.apply(map("extra", json!({"X-A": "1", "X-B": "2"})));
    assert_eq!(asked(&world), (false, ["X-A", "X-B", "X-Own"].map(str::to_owned).to_vec()));
    world.apply(map("extra", json!({"X-A": "1", "X-B": "a\r\nX-C: 1"})));
    assert!(asked(&world).0, "{:?}", asked(&world));
}
