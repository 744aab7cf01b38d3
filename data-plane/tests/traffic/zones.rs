//! Limits of snippets by zones of the fleet, which all Ingresses share.

use shared::policy::{LimitList, LocationPolicy, SnippetLevel, ZoneLimit};
use shared::resource::{Backend, Host, PathType, Resource, Route};

use super::harness::*;

fn rate(zone: &str, key: &str, burst: u32) -> ZoneLimit {
    let (zone, key) = (zone.into(), key.into());
    ZoneLimit { zone, key, requests: 1, seconds: 60, burst, ..ZoneLimit::default() }
}

fn list(level: SnippetLevel, limits: Vec<ZoneLimit>) -> Option<LimitList> {
    Some(LimitList { limits, level: Some(level.into()) })
}

fn of_location(limits: Vec<ZoneLimit>) -> LocationPolicy {
    LocationPolicy {
        limit_requests: list(SnippetLevel::Locations, limits),
        limit_req_status_code: Some(429),
        ..LocationPolicy::default()
    }
}

/// A host with one path for each.
fn serving(origin: &Origin, policies: Vec<(&str, LocationPolicy)>) -> Proxy {
    let mut proxy = Proxy::start();
    for (name, policy) in policies {
        let route = Route { paths: vec![to("/", PathType::Prefix, "echo")], policy, ..Route::default() };
        let key = format!("ingress/ns/{name}/{name}");
        proxy.config(vec![(name, Resource::Host(Host::default())), (&key, Resource::Route(route))]);
    }
    proxy.service("echo", Backend::default());
    proxy.endpoints("echo", &[origin.address]);
    proxy
}

/// How many of some requests to a host pass, and the status of the others.
fn passed(client: &mut Client, host: &str, said: &str) -> (usize, Vec<u16>) {
    let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{said}\r\n");
    let statuses = (0..6).map(|_| client.ask(&head).status);
    let (passed, mut others): (Vec<_>, Vec<_>) = statuses.partition(|status| *status == 200);
    others.dedup();
    (passed.len(), others)
}

#[test]
fn requests_of_a_zone_are_counted_together() {
    let origin = Origin::says("x");
    let proxy = serving(
        &origin,
        vec![
            ("a.test", of_location(vec![rate("one", "$http_x_key", 3)])),
            ("b.test", of_location(vec![rate("one", "$http_x_key", 3)])),
            ("c.test", of_location(vec![rate("other", "$http_x_key", 1), rate("both", "all", 2)])),
            ("d.test", of_location(vec![rate("other", "$http_x_key", 1)])),
        ],
    );
    let mut client = Client::new(proxy.http);
    let mut passed = |host: &str, said: &str| passed(&mut client, host, said);
    assert_eq!(passed("a.test", "X-Key: k\r\n"), (4, vec![429]));
    assert_eq!(passed("b.test", "X-Key: k\r\n"), (0, vec![429]), "it is the same zone");
    assert_eq!(passed("b.test", "X-Key: l\r\n"), (4, vec![429]));
    assert_eq!(passed("b.test", ""), (6, vec![]), "who has no key is not counted");
    // What one zone refuses is not counted by the other, and the other way round.
    assert_eq!(passed("c.test", "X-Key: k\r\n"), (2, vec![429]));
    assert_eq!(passed("c.test", "X-Key: l\r\n"), (1, vec![429]));
    assert_eq!(passed("c.test", "X-Key: m\r\n"), (0, vec![429]));
    assert_eq!(passed("d.test", "X-Key: m\r\n"), (2, vec![429]), "the other zone refused all of those");
}

#[test]
fn limits_of_the_fleet_are_for_locations_without_any() {
    let origin = Origin::says("x");
    let by_annotation =
        LocationPolicy { limit_rpm: Some(1), limit_burst_multiplier: Some(5), ..LocationPolicy::default() };
    let mut proxy = serving(
        &origin,
        vec![
            ("plain.test", LocationPolicy::default()),
            ("own.test", of_location(vec![rate("own", "$host", 4)])),
            ("rpm.test", by_annotation),
        ],
    );
    let mut fleet = |level| {
        let limit_requests = list(level, vec![rate("fleet", "$host$arg_x", 1)]);
        let defaults = LocationPolicy { limit_requests, ..LocationPolicy::default() };
        proxy.defaults(defaults);
    };
    fleet(SnippetLevel::Hosts);
    let mut client = Client::new(proxy.http);
    assert_eq!(passed(&mut client, "plain.test", ""), (2, vec![503]));
    assert_eq!(passed(&mut client, "own.test", ""), (5, vec![429]));
    assert_eq!(passed(&mut client, "rpm.test", ""), (6, vec![]));
    let limit_requests = list(SnippetLevel::Locations, vec![rate("inner", "$host", 0)]);
    let defaults = LocationPolicy { limit_requests, ..LocationPolicy::default() };
    proxy.defaults(defaults);
    assert_eq!(passed(&mut client, "rpm.test", ""), (0, vec![503]), "both are of the location");
}

#[test]
fn requests_in_progress_are_limited_by_a_zone() {
    let origin = Origin::says("x");
    let limit = |key: &str, in_progress| {
        let limits =
            vec![ZoneLimit { zone: "z".into(), key: key.into(), in_progress, ..ZoneLimit::default() }];
        LocationPolicy {
            limit_in_progress: list(SnippetLevel::Locations, limits),
            limit_conn_status_code: Some(420),
            ..LocationPolicy::default()
        }
    };
    let proxy = serving(&origin, vec![("a.test", limit("$host", 1)), ("b.test", limit("a.test", 1))]);
    let passed = || passed(&mut Client::new(proxy.http), "b.test", "");
    // One that sends its body slowly is in progress.
    let mut slow = Client::new(proxy.http);
    slow.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nx");
    eventually("it is in progress", || passed() == (0, vec![420]));
    slow.send("y");
    assert_eq!(slow.receive(false).unwrap().status, 200);
    eventually("its place is free", || passed() == (6, vec![]));
}

/// It is not refused.
#[test]
fn a_request_that_waits_is_served() {
    let origin = Origin::says("x");
    let limit = ZoneLimit { requests: 50, seconds: 1, delay: Some(0), ..rate("slow", "$host", 5) };
    let proxy = serving(&origin, vec![("a.test", of_location(vec![limit]))]);
    let mut client = Client::new(proxy.http);
    assert_eq!(passed(&mut client, "a.test", ""), (6, vec![]));
}

/// Whoever leaves meanwhile leaves nothing behind.
#[test]
fn a_client_that_waits_may_leave() {
    let origin = Origin::says("x");
    let limit = ZoneLimit { delay: Some(0), ..rate("slow", "$host", 5) };
    let proxy = serving(&origin, vec![("a.test", of_location(vec![limit]))]);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 200);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    drop(client);
    eventually("the connection is gone", || proxy.metrics.open() == 0);
    assert_eq!(origin.seen().len(), 1, "its minute has not passed");
}

/// Not for the last of them, nor for none: while it waits for a minute, others are served.
#[test]
fn a_request_waits_for_the_slowest_of_its_zones() {
    let origin = Origin::says("x");
    let slow = ZoneLimit { delay: Some(0), ..rate("slow", "$host", 5) };
    let quick = rate("quick", "$host", 5);
    let hosts = [
        ("alone.test", vec![slow.clone()]),
        ("first.test", vec![slow.clone(), quick.clone()]),
        ("last.test", vec![quick, slow]),
    ];
    let policies = hosts.map(|(host, limits)| (host, of_location(limits)));
    let free = ("free.test", LocationPolicy::default());
    let proxy = serving(&origin, policies.into_iter().chain([free]).collect());
    for host in ["alone.test", "first.test", "last.test"] {
        let (mut waiting, mut other) = (Client::new(proxy.http), Client::new(proxy.http));
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n");
        assert_eq!(waiting.ask(&format!("{head}\r\n")).status, 200);
        waiting.send(format!("{head}X-Waits: {host}\r\n\r\n"));
        assert_eq!(passed(&mut other, "free.test", "").0, 6);
        assert!(origin.seen().iter().all(|seen| seen.header("x-waits").is_none()), "{host}");
    }
}

/// As in nginx, where an internal redirect belongs to its request.
#[test]
fn a_request_that_its_backend_sends_elsewhere_counts_once() {
    let app = Origin::new(|_| {
        (b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /files\r\nContent-Length: 0\r\n\r\n".to_vec(), true)
    });
    let files = Origin::says("x");
    let mut proxy = Proxy::start();
    for (path, origin) in [("/app", &app), ("/files", &files)] {
        proxy.policies(false, &[(path, of_location(vec![rate("one", "$host", 1)]))]);
        proxy.endpoints(&path[1..], &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    assert_eq!([(); 3].map(|()| client.get("/app").status), [200, 200, 429]);
    assert_eq!(files.seen().len(), 2);
}
