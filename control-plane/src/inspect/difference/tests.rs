use shared::policy::{BackendPolicy, Canary, LocationPolicy};
use shared::resource::{Backend, Host, Path, PathType, Route, Tls};

use super::*;

fn snapshot(resources: Vec<(&str, Resource)>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.extend(resources.into_iter().map(|(key, it)| Arc::new(Entry::encode(key, &it))));
    snapshot
}

fn route(paths: &[(&str, &str)], ssl_redirect: Option<bool>) -> Resource {
    let path = |(path, backend): &(&str, &str)| Path {
        path: (*path).to_owned(),
        kind: PathType::Prefix,
        backend: Some((*backend).to_owned()),
        after_exact: false,
    };
    let policy = LocationPolicy { ssl_redirect, ..LocationPolicy::default() };
    Resource::Route(Route { paths: paths.iter().map(path).collect(), policy, ..Route::default() })
}

fn canary(weight: i64) -> Resource {
    let canary = Some(Canary { weight, ..Canary::default() });
    let policy = BackendPolicy { canary, ..BackendPolicy::default() };
    Resource::Backend(Backend { policy, ..Backend::default() })
}

fn lines(from: &Snapshot, to: &Snapshot) -> Vec<String> {
    let bodies = Bodies::new().unwrap();
    let terms = Terms::new(&bodies);
    let differences = Differences::new(from, to, &bodies, &terms, None);
    let line = |change: inspect::Change| {
        let places: Vec<_> = change.places.iter().map(|it| format!("{}{}", it.host, it.path)).collect();
        let value = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        format!(
            "{} {} {}: {} {} -> {}",
            change.change,
            change.kind,
            places.join(" "),
            change.field,
            value(change.before),
            value(change.after)
        )
    };
    differences.changes().map(|(_, change)| line(change.unwrap())).collect()
}

#[test]
fn routes_are_told_by_host_path_and_annotation() {
    let key = "ingress/default/web/a.test";
    let from = snapshot(vec![(key, route(&[("/", "default/one/80"), ("/x", "default/one/80")], None))]);
    let to = snapshot(vec![
        (key, route(&[("/", "default/two/80"), ("/y", "default/one/80")], Some(false))),
        ("ingress/default/new/_", route(&[("/", "default/one/80")], None)),
    ]);
    let expected = [
        "added route */: backend - -> default/one/80",
        "changed route a.test/: backend default/one/80 -> default/two/80",
        "changed route a.test/x: backend default/one/80 -> -",
        "changed route a.test/y: backend - -> default/one/80",
        "changed route a.test: ssl-redirect - -> false",
    ];
    assert_eq!(lines(&from, &to), expected);
    assert!(lines(&to, &to).is_empty());
}

#[test]
fn an_exact_path_and_a_prefix_are_told_apart() {
    let world = |exact: &str, prefix: &str, weight| {
        let Resource::Route(mut route) = route(&[("/x", exact), ("/x", prefix)], None) else {
            unreachable!()
        };
        route.paths[0].kind = PathType::Exact;
        snapshot(vec![
            ("ingress/default/web/a.test", Resource::Route(route)),
            ("default/one/80", canary(weight)),
        ])
    };
    let (one, two) = ("default/one/80", "default/two/80");
    let expected = [
        "changed route a.test/x: backend default/two/80 -> default/one/80",
        "changed route a.test=/x: backend default/one/80 -> default/two/80",
    ];
    assert_eq!(lines(&world(one, two, 10), &world(two, one, 10)), expected);
    let expected = ["changed backend a.test/x a.test=/x: canary-weight 10 -> 50"];
    assert_eq!(lines(&world(one, one, 10), &world(one, one, 50)), expected);
}

#[test]
fn a_canary_is_told_where_its_main_backend_is() {
    let main = Backend { alternatives: vec!["default/next/80".to_owned()], ..Backend::default() };
    let world = |weight| {
        snapshot(vec![
            ("ingress/default/web/a.test", route(&[("/", "default/web/80")], None)),
            ("default/web/80", Resource::Backend(main.clone())),
            ("default/next/80", canary(weight)),
        ])
    };
    assert_eq!(lines(&world(10), &world(50)), ["changed backend a.test/: canary-weight 10 -> 50"]);
}

#[test]
fn hosts_tell_of_their_certificates_and_places_are_counted() {
    let host = |secrets: &[&str]| {
        let certificates = secrets.iter().map(|it| (*it).to_owned()).collect();
        Resource::Host(Host { tls: Some(Tls { certificates }), ..Host::default() })
    };
    let from = snapshot(vec![("a.test", host(&["default/a"]))]);
    let to = snapshot(vec![("a.test", host(&["default/b"])), ("b.test", Resource::Host(Host::default()))]);
    let expected =
        ["changed host a.test: tls.certificates default/a -> default/b", "added host b.test:  - -> -"];
    assert_eq!(lines(&from, &to), expected);

    let routes = (0..20).map(|i| format!("ingress/default/web/h{i}.test")).collect::<Vec<_>>();
    let world = |weight| {
        let mut all = vec![("default/web/80", canary(weight))];
        all.extend(routes.iter().map(|key| (key.as_str(), route(&[("/", "default/web/80")], None))));
        snapshot(all)
    };
    let (from, to) = (world(1), world(2));
    let bodies = Bodies::new().unwrap();
    let terms = Terms::new(&bodies);
    let differences = Differences::new(&from, &to, &bodies, &terms, None);
    let (_, change) = differences.changes().next().unwrap();
    let change = change.unwrap();
    assert_eq!((change.places.len(), change.places_total), (PLACES, 20));
}

/// The paths that led to what is gone, as well as those that lead to what has come.
#[test]
fn a_backend_that_went_is_told_where_it_was() {
    let key = "ingress/default/web/a.test";
    let with = |backend: &str| {
        let path = route(&[("/x", backend)], None);
        snapshot(vec![(key, path), (backend, Resource::Backend(Backend::default()))])
    };
    let found = lines(&with("default/old/80"), &with("default/new/80"));
    for backend in ["added backend a.test/x: ", "removed backend a.test/x: "] {
        assert!(found.iter().any(|line| line.starts_with(backend)), "{backend}: {found:?}");
    }
}

/// Wherever a page ends, the next one begins with what follows.
#[test]
fn each_place_has_the_rest_behind_it() {
    let names: Vec<_> = (0..5).map(|i| format!("ingress/default/web/h{i}.test")).collect();
    let routes = names.iter().map(|key| (key.as_str(), route(&[("/", "default/web/80")], None))).collect();
    let (from, to) = (Snapshot::default(), snapshot(routes));
    let bodies = Bodies::new().unwrap();
    let terms = Terms::new(&bodies);
    let behind = |after: Option<(Kind, &str)>| {
        let differences = Differences::new(&from, &to, &bodies, &terms, after);
        differences.changes().map(|((_, key), _)| key).collect::<Vec<_>>()
    };
    assert_eq!(behind(None), names);
    for (at, name) in names.iter().enumerate() {
        assert_eq!(behind(Some((Kind::Route, name))), names[at + 1..]);
    }
}
