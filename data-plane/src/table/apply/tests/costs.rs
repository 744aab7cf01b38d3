//! The amount of work of an edit when one host, one Route or one Service is large.

use std::net::Ipv4Addr;

use shared::policy::HostPolicy;
use shared::resource::{EndpointPort, Endpoints, Tls};

use super::*;

const MANY: usize = 10_000;

/// Hosts, Routes and paths compiled, and addresses processed, by `what`.
fn spent(writer: &mut Writer, what: impl FnOnce(&mut Writer)) -> [u64; 4] {
    let counts = |writer: &Writer| {
        let Counters { hosts_rebuilt, routes_compiled, paths_compiled, endpoints_joined, .. } =
            &**writer.counters();
        [hosts_rebuilt, routes_compiled, paths_compiled, endpoints_joined]
            .map(|counter| counter.load(Ordering::Relaxed))
    };
    let before = counts(writer);
    what(writer);
    let after = counts(writer);
    std::array::from_fn(|i| after[i] - before[i])
}

fn up(writer: &mut Writer, entries: Vec<Arc<Entry>>) -> [u64; 4] {
    spent(writer, |writer| writer.apply_config(entries, &[]))
}

/// The backend of a host's path.
fn backend_of(writer: &Writer, path: &str) -> Option<String> {
    let table = writer.tables().current();
    match table.host("a.test").unwrap().route(path.as_bytes(), &shared::pattern::Steps::new()) {
        Match::Path(entry) => Some(entry.service().to_owned()),
        _ => None,
    }
}

/// A host with this many Ingresses of one path each, on two Services.
fn of_ingresses(regex: bool) -> Writer {
    let mut writer = Writer::new();
    let policy = HostPolicy { regex: Some(regex), ..HostPolicy::default() };
    let host = Host { policy, ..Host::default() };
    let many = if regex { 100 } else { MANY };
    let routes = (0..many).map(|i| {
        let (path, service) = (format!("/p{i}"), format!("ns/s{}/80", i % 2));
        route(&format!("ingress/ns/i{i}/a.test"), &[(&path, &service)])
    });
    let other = [entry("a.test", Resource::Host(host)), backend("ns/s0/80"), backend("ns/s1/80")];
    writer.replace_config(routes.chain(other).collect());
    writer
}

#[test]
fn one_ingress_of_ten_thousand_on_a_host() {
    let mut writer = of_ingresses(false);
    let moved = || route("ingress/ns/i7/a.test", &[("/moved", "ns/s0/80")]);
    assert_eq!(up(&mut writer, vec![moved()]), [1, 1, 1, 0]);
    assert_eq!(backend_of(&writer, "/moved/x").as_deref(), Some("s0"));
    assert_eq!(backend_of(&writer, "/p7"), None);
    assert_eq!(backend_of(&writer, "/p9999").as_deref(), Some("s1"));
    assert_eq!(up(&mut writer, vec![moved()]), [0; 4], "the same again");
    let gone = gone(&key(Kind::Route, "ingress/ns/i7/a.test"));
    assert_eq!(spent(&mut writer, |writer| writer.apply_config(Vec::new(), &[gone])), [1, 0, 0, 0]);
    assert_eq!(backend_of(&writer, "/moved"), None);
}

#[test]
fn a_backend_of_a_large_host_touches_the_routes_that_name_it() {
    let mut writer = of_ingresses(false);
    let other = route("ingress/ns/other/a.test", &[("/other", "ns/s2/80")]);
    up(&mut writer, vec![other]);
    assert_eq!(up(&mut writer, vec![backend("ns/s2/80")]), [1, 1, 1, 0]);
    let canary = Backend { policy: taking(Some(5)), ..Backend::default() };
    let half = MANY as u64 / 2;
    assert_eq!(up(&mut writer, vec![entry("ns/s1/80", Resource::Backend(canary))]), [1, half, half, 0]);
}

#[test]
fn a_host_s_certificates_and_names_touch_none_of_its_paths() {
    for regex in [false, true] {
        let mut writer = of_ingresses(regex);
        let tls = Some(Tls { certificates: vec!["ns/a".into()] });
        let regex = Some(regex);
        let policy = HostPolicy { regex, ..HostPolicy::default() };
        let secure = Host { tls, policy: policy.clone(), ..Host::default() };
        assert_eq!(up(&mut writer, vec![entry("a.test", Resource::Host(secure))]), [1, 0, 0, 0]);
        assert!(writer.tables().current().host("a.test").unwrap().has_tls());
        let policy = HostPolicy { www: Some(true), ..policy };
        let named = Host { policy, ..Host::default() };
        assert_eq!(up(&mut writer, vec![entry("a.test", Resource::Host(named))]), [1, 0, 0, 0]);
        assert!(writer.tables().current().www("www.a.test").is_some());
        assert!(!writer.tables().current().host("a.test").unwrap().has_tls());
        assert_eq!(backend_of(&writer, "/p9").as_deref(), Some("s1"));
    }
}

#[test]
fn one_path_of_a_route_of_ten_thousand() {
    let mut writer = of_ingresses(false);
    let paths: Vec<_> = (0..MANY).map(|i| format!("/q{i}")).collect();
    let mut paths: Vec<_> = paths.iter().map(|path| (path.as_str(), "ns/s0/80")).collect();
    let large = "ingress/ns/large/a.test";
    assert_eq!(up(&mut writer, vec![route(large, &paths)]), [1, 1, MANY as u64, 0]);
    paths[50].1 = "ns/s1/80";
    assert_eq!(up(&mut writer, vec![route(large, &paths)]), [1, 1, 1, 0]);
    assert_eq!(backend_of(&writer, "/q50").as_deref(), Some("s1"));
    // All other paths move to another position.
    paths.remove(3);
    paths.insert(10, ("/new", "ns/s0/80"));
    assert_eq!(up(&mut writer, vec![route(large, &paths)]), [1, 1, 1, 0]);
    assert_eq!(backend_of(&writer, "/q3"), None);
    assert_eq!(backend_of(&writer, "/new").as_deref(), Some("s0"));
}

/// A slice of a hundred endpoints, of which all but the last are unique.
fn hundred(number: u32, last: u32) -> Arc<Entry> {
    let addresses = (number * 1000..number * 1000 + 99).chain([last]);
    let slice = Endpoints {
        service: "ns/s1".into(),
        ports: vec![EndpointPort { name: "http".into(), port: 8080, udp: false }],
        ipv4: addresses.map(|bits| Ipv4Addr::from_bits(0x0a00_0000 + bits)).collect(),
        ipv6: Vec::new(),
    };
    entry(&format!("ns/e{number:04}"), Resource::Endpoints(slice))
}

#[test]
fn one_slice_of_a_service_of_a_hundred_thousand_endpoints() {
    let mut writer = two_hosts();
    let slices = |last: u32| (0..1000).map(move |number| hundred(number, number * 1000 + last)).collect();
    assert_eq!(spent(&mut writer, |writer| writer.apply_live(slices(99), &[]))[3], 100_001);
    let cell = action(&writer, "a.test").unwrap();
    let addresses =
        |cell: &BackendCell| cell.endpoints().list.iter().map(|it| it.address).collect::<Vec<_>>();
    assert_eq!(addresses(&cell).len(), 100_000);
    // One endpoint changes; then a slice gets one that a later slice has; then both are removed, one after the other.
    let changes = [
        (vec![hundred(500, 777_777)], vec![]),
        (vec![hundred(500, 501_000)], vec![]),
        (vec![], vec![gone(&key(Kind::Endpoints, "ns/e0500"))]),
        (vec![], vec![gone(&key(Kind::Endpoints, "ns/e0501"))]),
        (vec![hundred(501, 5)], vec![]),
    ];
    for (up, removed) in changes {
        let [.., looked] = spent(&mut writer, |writer| writer.apply_live(up, &removed));
        assert!((100..=500).contains(&looked), "{looked} addresses were looked at");
        let mut scratch = two_hosts();
        scratch.apply_live(vec![], &[gone(&key(Kind::Endpoints, "ns/e1"))]);
        scratch.apply_live(writer.has(Lane::Live).iter().cloned().collect(), &[]);
        assert_eq!(addresses(&cell), addresses(&action(&scratch, "a.test").unwrap()));
    }
}
