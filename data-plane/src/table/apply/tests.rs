//! What edits cost, what stays in use, what is refused; and that every sequence of changes to a state gives the same
//! tables.

mod costs;
mod matches;

use bytes::Bytes;
use proptest::prelude::*;
use shared::policy::{LocationPolicy, StatusList};
use shared::resource::{Backend, Denial, Guard, Host, Path, PathType, PortRule, Route, Settings};

use super::*;
use crate::table::world::{
    World, backend, certificate, dump, entry, gone, host, redirects, route, slice, steps, taking,
};
use crate::table::{Action, BackendCell, Match};

mod lingering;
mod sources;
mod spared;

fn key(kind: Kind, key: &str) -> ResourceKey {
    ResourceKey::new(kind, key)
}

fn unreferred(kind: Kind, name: &str) -> Removal {
    Removal { key: key(kind, name), gone: false }
}

/// A resource that cannot be decoded.
fn broken(kind: Kind, name: &str) -> Arc<Entry> {
    Arc::new(Entry::from_body(key(kind, name), 1, Bytes::from_static(&[0xff])))
}

/// Two hosts with one backend each.
fn two_hosts() -> Writer {
    let mut writer = Writer::new();
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1]), slice("ns/e2", "ns/s2", &[2])], &[]);
    writer.replace_config(vec![
        host("a.test", None),
        host("b.test", None),
        route("ingress/ns/i/a.test", &[("/", "ns/s1/80")]),
        route("ingress/ns/i/b.test", &[("/", "ns/s2/80")]),
        backend("ns/s1/80"),
        backend("ns/s2/80"),
    ]);
    writer
}

/// What a request for "/" of a host gets: the backend's cell, or a description of another action.
fn action(writer: &Writer, host: &str) -> Result<Arc<BackendCell>, &'static str> {
    let table = writer.tables().current();
    let entry = table.host(host).ok_or("no host")?;
    match entry.route(b"/", &shared::pattern::Steps::new()) {
        Match::Path(path) => match &path.action {
            Action::Backend(upstream) => Ok(Arc::clone(&upstream.cell)),
            Action::DefaultBackend => Err("default backend"),
            Action::Denied(_) => Err("denied"),
            Action::Unavailable => Err("unavailable"),
        },
        Match::AddSlash(_) => Err("add slash"),
        Match::None | Match::Unknown => Err("none"),
    }
}

/// The last octets of the addresses of a host's backend.
fn endpoints(writer: &Writer, host: &str) -> Vec<u8> {
    let cell = action(writer, host).unwrap();
    let set = cell.endpoints();
    let last = |it: &Arc<crate::table::Endpoint>| match it.address.ip() {
        std::net::IpAddr::V4(ip) => ip.octets()[3],
        std::net::IpAddr::V6(_) => 0,
    };
    set.list.iter().map(last).collect()
}

/// Hosts visited and cells joined so far, changed or not.
fn work(writer: &Writer) -> [u64; 2] {
    let Counters { hosts_visited, cells_filled, .. } = &**writer.counters();
    [hosts_visited, cells_filled].map(|counter| counter.load(Ordering::Relaxed))
}

/// Hosts rebuilt, cells changed, tables published so far.
fn costs(writer: &Writer) -> [u64; 3] {
    let Counters { hosts_rebuilt, cells_updated, tables_published, .. } = &**writer.counters();
    [hosts_rebuilt, cells_updated, tables_published].map(|counter| counter.load(Ordering::Relaxed))
}

#[test]
fn an_edit_costs_what_it_touches() {
    let mut writer = two_hosts();
    let mut before = costs(&writer);
    assert_eq!(before, [2, 2, 1]);
    let mut cost = |writer: &Writer| {
        let now = costs(writer);
        let cost = std::array::from_fn::<_, 3, _>(|i| now[i] - before[i]);
        before = now;
        cost
    };
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1, 3])], &[]);
    assert_eq!(cost(&writer), [0, 1, 0], "endpoints touch the cell of their Service");
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1, 3])], &[]);
    assert_eq!(cost(&writer), [0, 0, 0], "the same again touches nothing");
    writer.apply_live(vec![slice("ns/e9", "ns/unused", &[9])], &[]);
    assert_eq!(cost(&writer), [0, 0, 0]);
    let elsewhere = PortRule { name: "other".into(), target_port: Some(1234), udp: false };
    let moved = Backend { port: Some(elsewhere), ..Backend::default() };
    writer.apply_config(vec![entry("ns/s1/80", Resource::Backend(moved))], &[]);
    assert_eq!(cost(&writer), [0, 1, 0], "a port rule lives in the cell");
    writer.apply_config(vec![route("ingress/ns/i/a.test", &[("/", "ns/s1/80"), ("/x", "ns/s2/80")])], &[]);
    assert_eq!(cost(&writer), [1, 0, 1], "a route touches its host");
    let canary = Backend { policy: taking(Some(5)), ..Backend::default() };
    writer.apply_config(vec![entry("ns/s2/80", Resource::Backend(canary))], &[]);
    assert_eq!(cost(&writer), [2, 1, 1], "a policy touches the hosts that name its backend");
    let settings = Settings { defaults: redirects(Some(false)), ..Settings::default() };
    writer.apply_config(vec![entry("default", Resource::Settings(settings))], &[]);
    assert_eq!(cost(&writer), [2, 0, 1], "settings touch all");
    let settings = Settings {
        defaults: redirects(Some(false)),
        default_certificate: "ns/d".into(),
        ..Settings::default()
    };
    writer.apply_config(vec![entry("default", Resource::Settings(settings))], &[]);
    assert_eq!(cost(&writer), [0, 0, 1], "the default certificate touches the table alone");
}

#[test]
fn limit_counts_survive_while_their_ingress_is_limited() {
    let limited = |key: &str, rps| {
        let paths =
            vec![Path { path: "/".into(), kind: PathType::Prefix, backend: None, after_exact: false }];
        let policy = LocationPolicy { limit_rps: rps, ..LocationPolicy::default() };
        entry(key, Resource::Route(Route { paths, policy, ..Route::default() }))
    };
    let counts = |writer: &Writer, name: &str| {
        let table = writer.tables().current();
        table.host(name).unwrap().paths()[0].entry.counts().cloned()
    };
    let (a, b, other) = ("ingress/ns/i/a.test", "ingress/ns/i/*.test", "ingress/ns/other/b.a.test");
    let mut writer = Writer::new();
    let hosts = ["a.test", "*.test", "b.a.test"].map(|name| host(name, None));
    let routes = [a, b, other].map(|key| limited(key, Some(5)));
    writer.replace_config(hosts.into_iter().chain(routes).collect());
    let first = counts(&writer, "a.test").unwrap();
    assert!(Arc::ptr_eq(&first, &counts(&writer, "x.test").unwrap()), "one for all hosts of an Ingress");
    assert!(!Arc::ptr_eq(&first, &counts(&writer, "b.a.test").unwrap()));
    // With another rate, and with the limit moved between hosts.
    writer.apply_config(vec![limited(a, Some(7)), limited(b, None)], &[]);
    assert!(Arc::ptr_eq(&first, &counts(&writer, "a.test").unwrap()));
    assert!(counts(&writer, "x.test").is_none());
    writer.apply_config(vec![limited(a, None), limited(b, Some(1))], &[]);
    assert!(Arc::ptr_eq(&first, &counts(&writer, "x.test").unwrap()));
    let weak = Arc::downgrade(&first);
    drop(first);
    writer.apply_config(vec![limited(b, None)], &[]);
    assert!(weak.upgrade().is_none(), "nobody names it any more");
}

#[test]
fn one_slice_among_ten_thousand_services() {
    let mut writer = Writer::new();
    let slices = (0..10_000).map(|i| slice(&format!("ns/e{i}"), &format!("ns/s{i}"), &[1, 2]));
    writer.apply_live(slices.collect(), &[]);
    let config = (0..10_000).flat_map(|i| {
        let (name, key) = (format!("h{i}.test"), format!("ns/s{i}/80"));
        [host(&name, None), route(&format!("ingress/ns/i{i}/{name}"), &[("/", &key)]), backend(&key)]
    });
    writer.replace_config(config.collect());
    let before = costs(&writer);
    assert_eq!(before, [10_000, 10_000, 1]);
    let [hosts, cells] = work(&writer);
    writer.apply_live(vec![slice("ns/e77", "ns/s77", &[1, 2, 3])], &[]);
    assert_eq!(costs(&writer), [10_000, 10_001, 1]);
    assert_eq!(work(&writer), [hosts, cells + 1]);
    assert_eq!(endpoints(&writer, "h77.test"), [1, 2, 3]);
    writer.apply_config(vec![route("ingress/ns/i5/h5.test", &[("/", "ns/s6/80")])], &[]);
    assert_eq!(costs(&writer), [10_001, 10_001, 2]);
    assert_eq!(work(&writer), [hosts + 1, cells + 1]);
}

#[test]
fn endpoints_that_stay_are_the_same_ones() {
    let mut writer = two_hosts();
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1, 3])], &[]);
    let cell = action(&writer, "a.test").unwrap();
    let before: Vec<_> = cell.endpoints().list.iter().cloned().collect();
    // Another slice has one of them, too, and the first loses it.
    writer.apply_live(vec![slice("ns/e0", "ns/s1", &[3, 4])], &[]);
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1])], &[]);
    let after: Vec<_> = cell.endpoints().list.iter().cloned().collect();
    let same = |last: u8| {
        after.iter().any(|it| {
            it.address == format!("10.0.0.{last}:8080").parse().unwrap()
                && before.iter().any(|old| Arc::ptr_eq(old, it))
        })
    };
    assert!(same(1) && same(3) && !same(4));
    let mut ids: Vec<u64> = after.iter().map(|it| it.id).collect();
    // An endpoint that left and comes back is a new object.
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[])], &[]);
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1])], &[]);
    ids.extend(
        cell.endpoints()
            .list
            .iter()
            .filter(|it| !after.iter().any(|old| Arc::ptr_eq(old, it)))
            .map(|it| it.id),
    );
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), count), (4, 4));
}

#[test]
fn a_service_made_again_fills_the_same_cell() {
    let mut writer = two_hosts();
    let cell = action(&writer, "a.test").unwrap();
    writer.apply_live(Vec::new(), &[gone(&key(Kind::Endpoints, "ns/e1"))]);
    assert!(cell.endpoints().list.is_empty());
    writer.apply_config(vec![entry("ns/s1/80", Resource::Backend(Backend::default()))], &[]);
    writer.apply_config(vec![backend("ns/s1/80")], &[]);
    writer.apply_live(vec![slice("ns/e7", "ns/s1", &[7])], &[]);
    let again = action(&writer, "a.test").unwrap();
    assert!(Arc::ptr_eq(&cell, &again));
    assert_eq!(endpoints(&writer, "a.test"), [7]);
}

#[test]
fn unreferenced_resource_stays_until_no_table_names_it() {
    let mut writer = two_hosts();
    let mut reader = writer.tables().reader();
    reader.load();
    writer.apply_live(Vec::new(), &[unreferred(Kind::Endpoints, "ns/e1")]);
    assert!(writer.has(Lane::Live).get(&key(Kind::Endpoints, "ns/e1")).is_none());
    assert_eq!(endpoints(&writer, "a.test"), [1], "still in use");
    let cell = action(&writer, "a.test").unwrap();
    let route_away = route("ingress/ns/i/a.test", &[("/", "ns/s2/80")]);
    let backend_gone = unreferred(Kind::Backend, "ns/s1/80");
    writer.apply_config(vec![route_away], &[backend_gone]);
    assert_eq!(cell.endpoints().list.len(), 1, "a worker may still look at the old table");
    drop(cell);
    reader.load();
    writer.collect();
    // The cell was dropped with its table, and the slice with the cell: a later host finds nothing.
    writer.apply_config(vec![route("ingress/ns/i/a.test", &[("/", "ns/s1/80")]), backend("ns/s1/80")], &[]);
    assert!(endpoints(&writer, "a.test").is_empty());
}

#[test]
fn deleted_resource_leaves_although_it_lingered() {
    let mut writer = two_hosts();
    writer.apply_live(Vec::new(), &[unreferred(Kind::Endpoints, "ns/e1")]);
    writer.apply_live(Vec::new(), &[gone(&key(Kind::Endpoints, "ns/e1"))]);
    assert!(endpoints(&writer, "a.test").is_empty());
}

#[test]
fn a_full_sync_keeps_in_use_what_it_lacks_until_its_config() {
    let mut writer = two_hosts();
    writer.apply(writer.live_of(Vec::new(), |key| &*key.key == "ns/e2"));
    assert_eq!(writer.has(Lane::Live).len(), 1);
    assert_eq!(endpoints(&writer, "a.test"), [1]);
    writer.replace_config(vec![
        host("a.test", None),
        route("ingress/ns/i/a.test", &[("/", "ns/s1/80")]),
        backend("ns/s1/80"),
    ]);
    assert_eq!(endpoints(&writer, "a.test"), [1], "the CONFIG of that sync may come in more than one batch");
    writer.settle();
    assert!(endpoints(&writer, "a.test").is_empty());
}

/// A worker still has a table from before a Route left its Backend for a moment, so the upstream is there to be used
/// again.
#[test]
fn backend_that_is_named_again_loses_what_a_full_sync_lacks() {
    let mut writer = two_hosts();
    let mut reader = writer.tables().reader();
    reader.load();
    for backend in ["ns/s2/80", "ns/s1/80"] {
        writer.apply_config(vec![route("ingress/ns/i/a.test", &[("/", backend)])], &[]);
    }
    writer.apply(writer.live_of(Vec::new(), |key| &*key.key == "ns/e2"));
    assert_eq!(endpoints(&writer, "a.test"), [1]);
    writer.settle();
    assert!(endpoints(&writer, "a.test").is_empty());
}

/// A worker has found a request's backend and then gets no time; meanwhile the full sync of another control plane is
/// applied, in which the host has another backend and certificate.
#[test]
fn resource_missing_in_a_full_sync_stays_usable_in_older_tables() {
    let mut writer = two_hosts();
    let shown = |secret: &str| host("a.test", Some(&[secret]));
    let of_a = |secret: &str| entry(secret, Resource::Certificate(certificate(&["a.test"])));
    writer.apply_config(vec![shown("ns/before")], &[]);
    writer.apply_live(vec![of_a("ns/before"), of_a("ns/now"), slice("ns/e3", "ns/s2", &[3])], &[]);
    let mut reader = writer.tables().reader();
    reader.load();
    let (table, found) = (writer.tables().current(), action(&writer, "a.test").unwrap());

    let brought = ["ns/e2", "ns/now"];
    writer.apply(writer.live_of(Vec::new(), |key| brought.contains(&&*key.key)));
    writer.apply_config(
        vec![route("ingress/ns/i/a.test", &[("/", "ns/s2/80")]), shown("ns/now")],
        &[unreferred(Kind::Backend, "ns/s1/80")],
    );
    writer.settle();
    assert_eq!(endpoints(&writer, "a.test"), [2], "one that stays loses what the sync lacked");
    assert_eq!(found.endpoints().list.len(), 1, "the request is about to ask for one");
    assert!(table.certificate(Some("a.test")).is_some(), "and a handshake for its certificate");
    reader.load();
    writer.collect();
    assert_eq!(found.endpoints().list.len(), 1, "a request may read its body first");
    assert!(table.certificate(Some("a.test")).is_none());
    drop((found, table));
    writer.collect();
    assert!(!writer.cells.serves("ns/e1"), "nothing is kept");
}

#[test]
fn a_refused_resource_keeps_its_last_good() {
    let mut writer = two_hosts();
    let refused = |writer: &Writer, lane| -> Vec<(String, Code, bool)> {
        writer.refused(lane).map(|(key, it)| (key.to_string(), it.code, it.serving_last_good)).collect()
    };
    let later = Arc::new(Entry {
        min_schema: shared::schema::CURRENT + 1,
        ..(*route("ingress/ns/i/b.test", &[("/", "")])).clone()
    });
    writer.apply_config(
        vec![broken(Kind::Route, "ingress/ns/i/a.test"), later, broken(Kind::Backend, "ns/new/80")],
        &[],
    );
    writer.apply_live(vec![broken(Kind::Endpoints, "ns/e1"), broken(Kind::Material, "ns/m")], &[]);
    assert_eq!(
        refused(&writer, Lane::Config),
        [
            ("route ingress/ns/i/a.test".to_owned(), Code::Invalid, true),
            ("route ingress/ns/i/b.test".to_owned(), Code::Schema, true),
            ("backend ns/new/80".to_owned(), Code::Invalid, false),
        ]
    );
    assert_eq!(
        refused(&writer, Lane::Live),
        [
            ("endpoints ns/e1".to_owned(), Code::Invalid, true),
            ("material ns/m".to_owned(), Code::Invalid, false),
        ]
    );
    assert_eq!((endpoints(&writer, "a.test"), endpoints(&writer, "b.test")), (vec![1], vec![2]));
    // The root includes refused resources.
    let has = writer.has(Lane::Config).version(&key(Kind::Route, "ingress/ns/i/a.test"));
    assert_eq!(has, Some(broken(Kind::Route, "ingress/ns/i/a.test").version));

    writer.apply_config(
        vec![route("ingress/ns/i/a.test", &[("/", "ns/s2/80")])],
        &[unreferred(Kind::Route, "ingress/ns/i/b.test")],
    );
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[5])], &[gone(&key(Kind::Material, "ns/m"))]);
    assert_eq!(refused(&writer, Lane::Config).len(), 1);
    assert_eq!(refused(&writer, Lane::Live).len(), 0);
    assert_eq!(endpoints(&writer, "a.test"), [2]);
    assert_eq!(action(&writer, "b.test").err(), Some("none"));
}

/// Builds between two releases add fields to one revision, so `min_schema` does not tell of these.
#[test]
fn a_field_of_a_later_build_is_never_left_out() {
    let mut writer = two_hosts();
    for (name, serving_last_good) in [("ingress/ns/i/a.test", true), ("ingress/ns/new/a.test", false)] {
        let known = route(name, &[("/", "ns/s2/80")]);
        // A policy with a field of the number 2047.
        let body = [&known.body[..], &[0x32, 3, 0xf8, 0x7f, 1]].concat();
        let later = Arc::new(Entry::from_body(known.key.clone(), known.min_schema, body.into()));
        writer.apply_config(vec![later], &[]);
        let (_, refused) = writer.refused(Lane::Config).find(|(key, _)| *key.key == *name).unwrap();
        assert_eq!((refused.code, refused.serving_last_good), (Code::Schema, serving_last_good));
    }
    assert_eq!(endpoints(&writer, "a.test"), [1]);
}

/// A Backend like that of [`backend`], with a canary.
fn with_canary(key: &str, canary: Option<&str>) -> Arc<Entry> {
    let backend = Backend {
        port: Some(PortRule { name: "http".into(), target_port: Some(8080), udp: false }),
        alternatives: canary.into_iter().map(ToString::to_string).collect(),
        ..Backend::default()
    };
    entry(key, Resource::Backend(backend))
}

/// Whether the upstream of a host's "/" has an alternative.
fn has_canary(writer: &Writer, host: &str) -> bool {
    let table = writer.tables().current();
    match table.host(host).unwrap().route(b"/", &shared::pattern::Steps::new()) {
        Match::Path(path) => {
            matches!(&path.action, Action::Backend(upstream) if upstream.alternative.is_some())
        }
        _ => false,
    }
}

#[test]
fn the_last_good_version_of_a_route_keeps_the_backends_that_leave_it() {
    let leave = ["ns/s1/80", "ns/s2/80"].map(|name| unreferred(Kind::Backend, name));
    let mut writer = two_hosts();
    writer.apply_config(vec![with_canary("ns/s1/80", Some("ns/s2/80"))], &[]);
    assert!(has_canary(&writer, "a.test"));
    let cell = action(&writer, "a.test").unwrap();
    writer.apply_config(
        vec![broken(Kind::Route, "ingress/ns/i/a.test"), route("ingress/ns/i/b.test", &[("/", "")])],
        &leave,
    );
    writer.apply_live(Vec::new(), &["ns/e1", "ns/e2"].map(|name| unreferred(Kind::Endpoints, name)));
    writer.collect();
    assert!(Arc::ptr_eq(&cell, &action(&writer, "a.test").unwrap()));
    assert_eq!(endpoints(&writer, "a.test"), [1]);
    assert!(has_canary(&writer, "a.test"), "the alternative stays, too");
    // Other changes do not affect it.
    writer.apply_config(vec![host("c.test", None)], &[]);
    assert_eq!(endpoints(&writer, "a.test"), [1]);

    // A Backend that comes back but cannot be decoded has a last good version, too.
    writer.apply_config(vec![broken(Kind::Backend, "ns/s1/80")], &[]);
    assert_eq!(endpoints(&writer, "a.test"), [1]);
    let of_backend = writer.refused(Lane::Config).find(|(key, _)| key.kind == Kind::Backend);
    assert!(of_backend.is_some_and(|(_, it)| it.serving_last_good));
    writer.apply_config(vec![], &[unreferred(Kind::Backend, "ns/s1/80")]);
    assert_eq!(endpoints(&writer, "a.test"), [1]);

    // The same contents as the last good version, but now valid: there is no such Backend.
    drop(cell);
    writer.apply_config(vec![route("ingress/ns/i/a.test", &[("/", "ns/s1/80")])], &[]);
    assert_eq!(action(&writer, "a.test").err(), Some("unavailable"));
    writer.collect();
    writer.apply_config(vec![backend("ns/s1/80")], &[]);
    assert!(endpoints(&writer, "a.test").is_empty(), "its slices went with it");
}

/// The default backend is one of them: requests that no Ingress takes would get 404 instead.
#[test]
fn the_default_backend_of_last_good_settings_stays() {
    let mut writer = two_hosts();
    let named = |key: &str| {
        let settings = Settings { default_backend: key.into(), ..Settings::default() };
        entry("default", Resource::Settings(settings))
    };
    let leads_to = |writer: &Writer| {
        let table = writer.tables().current();
        table.unclaimed().and_then(|entry| entry.backend().map(ToString::to_string))
    };
    writer.apply_live(vec![slice("ns/e3", "ns/s3", &[3])], &[]);
    writer.apply_config(vec![backend("ns/s3/80"), named("ns/s3/80")], &[]);
    assert_eq!(leads_to(&writer).as_deref(), Some("ns/s3/80"));
    writer.apply_config(vec![broken(Kind::Settings, "default")], &[unreferred(Kind::Backend, "ns/s3/80")]);
    assert_eq!(leads_to(&writer).as_deref(), Some("ns/s3/80"));
    // It is read again, and names another one.
    writer.apply_config(vec![named("ns/s2/80")], &[]);
    assert_eq!(leads_to(&writer).as_deref(), Some("ns/s2/80"));
    writer.apply_config(vec![named("ns/s3/80")], &[]);
    assert_eq!(leads_to(&writer), None, "it is not kept any longer");
}

#[test]
fn a_backend_that_is_gone_is_not_kept_for_a_last_good_version() {
    let mut writer = two_hosts();
    writer.apply_config(
        vec![broken(Kind::Route, "ingress/ns/i/a.test")],
        &[gone(&key(Kind::Backend, "ns/s1/80"))],
    );
    assert_eq!(action(&writer, "a.test").err(), Some("unavailable"));
}

#[test]
fn a_named_backend_that_left_keeps_no_slices() {
    let mut writer = two_hosts();
    writer.apply_config(Vec::new(), &[unreferred(Kind::Backend, "ns/s1/80")]);
    writer.apply_live(Vec::new(), &[unreferred(Kind::Endpoints, "ns/e1")]);
    writer.apply_config(vec![backend("ns/s1/80")], &[]);
    assert!(endpoints(&writer, "a.test").is_empty());
}

#[test]
fn a_host_without_any_good_version_answers_503() {
    let mut writer = Writer::new();
    let config = vec![
        broken(Kind::Host, "a.test"),
        route("ingress/ns/i/a.test", &[("/", "ns/s1/80")]),
        backend("ns/s1/80"),
    ];
    writer.replace_config(config);
    assert_eq!(action(&writer, "a.test").err(), Some("unavailable"));
    writer.apply_config(vec![host("a.test", None)], &[]);
    assert!(action(&writer, "a.test").is_ok());
    writer.apply_config(vec![broken(Kind::Host, "a.test")], &[]);
    assert!(action(&writer, "a.test").is_ok(), "the last good one serves on");
}

#[test]
fn a_missing_backend_answers_503_until_it_comes() {
    let mut writer = Writer::new();
    writer.replace_config(vec![host("a.test", None), route("ingress/ns/i/a.test", &[("/", "ns/s1/80")])]);
    assert_eq!(action(&writer, "a.test").err(), Some("unavailable"));
    writer.apply_config(vec![backend("ns/s1/80")], &[]);
    assert!(action(&writer, "a.test").is_ok());
    writer.apply_config(Vec::new(), &[unreferred(Kind::Backend, "ns/s1/80")]);
    assert_eq!(action(&writer, "a.test").err(), Some("unavailable"));
}

#[test]
fn restrictions_that_are_not_enforced_deny() {
    let world = |settings: Option<Arc<Entry>>, host_denied: bool, route: Route| {
        let denial = || Some(Denial { reason: "not enforced".into() });
        let host = Host { denied: if host_denied { denial() } else { None }, ..Host::default() };
        let mut config =
            vec![entry("a.test", Resource::Host(host)), entry("ingress/ns/i/a.test", Resource::Route(route))];
        config.extend(settings);
        let mut writer = Writer::new();
        writer.replace_config(config);
        action(&writer, "a.test").err()
    };
    let route = |denied: bool, enable_global_auth| Route {
        paths: vec![Path { path: "/".into(), kind: PathType::Prefix, backend: None, after_exact: false }],
        denied: denied.then(|| Denial { reason: "not enforced".into() }),
        policy: LocationPolicy { enable_global_auth, ..LocationPolicy::default() },
    };
    let guards = |guards: &[Guard]| {
        let settings = Settings { guards: guards.to_vec(), ..Settings::default() };
        Some(entry("default", Resource::Settings(settings)))
    };
    assert_eq!(world(None, false, route(false, None)), Some("default backend"));
    assert_eq!(world(None, true, route(false, None)), Some("denied"));
    assert_eq!(world(None, false, route(true, None)), Some("denied"));
    assert_eq!(world(guards(&[Guard::Addresses]), false, route(false, Some(false))), Some("denied"));
    let unreadable = Some(broken(Kind::Settings, "default"));
    assert_eq!(world(unreadable, false, route(false, Some(false))), Some("denied"), "it may restrict");
}

/// In ingress-nginx such a location has `modsecurity off`.
#[test]
fn a_location_may_be_exempt_from_the_firewall_of_the_fleet() {
    let mut writer = Writer::new();
    let of = |policy| Route {
        paths: vec![Path { path: "/".into(), kind: PathType::Prefix, backend: None, after_exact: false }],
        denied: None,
        policy,
    };
    let says = |it| LocationPolicy { enable_modsecurity: it, ..LocationPolicy::default() };
    let mut config = Vec::new();
    for (name, it) in [("none.test", None), ("off.test", Some(false))] {
        config.push(host(name, None));
        config.push(entry(&format!("ingress/ns/i/{name}"), Resource::Route(of(says(it)))));
    }
    let fleet =
        |it| entry("default", Resource::Settings(Settings { defaults: says(it), ..Settings::default() }));
    for (it, expected) in [
        (None, ["default backend", "default backend"]),
        (Some(true), ["denied", "default backend"]),
        (Some(false), ["default backend", "default backend"]),
    ] {
        let mut changed = config.clone();
        changed.push(fleet(it));
        writer.replace_config(changed);
        let found = ["none.test", "off.test"].map(|name| action(&writer, name).err().unwrap());
        assert_eq!(found, expected, "{it:?}");
    }
}

#[test]
fn redirects_merge_annotation_configmap_and_default() {
    let path_of = |settings: Settings, route: Route, path: &str| {
        let mut writer = Writer::new();
        let mut route = route;
        route.paths.push(Path {
            path: path.into(),
            kind: PathType::Exact,
            backend: None,
            after_exact: false,
        });
        writer.replace_config(vec![
            entry("default", Resource::Settings(settings)),
            host("a.test", None),
            entry("ingress/ns/i/a.test", Resource::Route(route)),
        ]);
        let table = writer.tables().current();
        let Match::Path(entry) =
            table.host("a.test").unwrap().route(path.as_bytes(), &shared::pattern::Steps::new())
        else {
            panic!("no path");
        };
        (!entry.stays_plain).then_some((entry.policy.redirect.ssl, entry.policy.redirect.force_ssl))
    };
    let configured = |ssl_redirect, force_ssl_redirect| LocationPolicy {
        ssl_redirect,
        force_ssl_redirect,
        ..LocationPolicy::default()
    };
    let fleet = |ssl, force| Settings { defaults: configured(ssl, force), ..Settings::default() };
    let route = |ssl, force| Route { policy: configured(ssl, force), ..Route::default() };
    assert_eq!(path_of(fleet(None, None), route(None, None), "/"), Some((true, false)));
    assert_eq!(path_of(fleet(Some(false), Some(true)), route(None, None), "/"), Some((false, true)));
    assert_eq!(
        path_of(fleet(Some(false), Some(true)), route(Some(true), Some(false)), "/"),
        Some((true, false))
    );
    let challenge = "/.well-known/acme-challenge/token";
    assert_eq!(
        path_of(fleet(None, Some(true)), route(Some(true), Some(true)), challenge),
        None,
        "stays plain"
    );
}

#[test]
fn the_first_alternative_acts() {
    let canary = |weight| Backend { policy: taking(Some(weight)), ..Backend::default() };
    let primary = Backend { alternatives: vec!["ns/c1/80".into(), "ns/c2/80".into()], ..Backend::default() };
    let mut writer = Writer::new();
    writer.replace_config(vec![
        host("a.test", None),
        route("ingress/ns/i/a.test", &[("/", "ns/s1/80")]),
        entry("ns/s1/80", Resource::Backend(primary)),
        entry("ns/c2/80", Resource::Backend(canary(100))),
    ]);
    let weight = |writer: &Writer| {
        let table = writer.tables().current();
        let Match::Path(path) = table.host("a.test").unwrap().route(b"/", &shared::pattern::Steps::new())
        else {
            panic!("no path")
        };
        let Action::Backend(upstream) = &path.action else { panic!("no backend") };
        let alternative = upstream.alternative.as_ref()?;
        let canary = alternative.canary.as_ref().unwrap();
        let none = |_: &str| None::<&str>;
        Some(
            (0..100)
                .filter(|random| canary.decide(none, none, *random, &shared::pattern::Steps::new()))
                .count(),
        )
    };
    assert_eq!(weight(&writer), None, "the first one is not there, and the second never acts");
    writer.apply_config(vec![entry("ns/c1/80", Resource::Backend(canary(10)))], &[]);
    assert_eq!(weight(&writer), Some(10));
    writer.apply_config(vec![entry("ns/c1/80", Resource::Backend(canary(50)))], &[]);
    assert_eq!(weight(&writer), Some(50));
}

/// Its requests are counted under it: anew only once it is another one.
#[test]
fn the_name_of_a_canary_is_there_as_long_as_the_canary() {
    let mut writer = Writer::new();
    let main = |count: i64| {
        let policy = taking(Some(count));
        entry(
            "ns/s1/80",
            Resource::Backend(Backend {
                alternatives: vec!["ns/c1/80".into()],
                policy,
                ..Backend::default()
            }),
        )
    };
    let canary = |weight| {
        entry("ns/c1/80", Resource::Backend(Backend { policy: taking(Some(weight)), ..Backend::default() }))
    };
    let hosts = [host("a.test", None), route("ingress/ns/i/a.test", &[("/", "ns/s1/80")])];
    writer.replace_config([&hosts[..], &[main(1), canary(10)]].concat());
    let name = |writer: &Writer| {
        let table = writer.tables().current();
        let Match::Path(path) = table.host("a.test").unwrap().route(b"/", &shared::pattern::Steps::new())
        else {
            panic!("no path")
        };
        let Action::Backend(upstream) = &path.action else { panic!("no backend") };
        upstream.alternative.as_ref().map(|alternative| Arc::downgrade(&alternative.name))
    };
    let first = name(&writer).unwrap();
    for change in [main(2), canary(20)] {
        writer.apply_config(vec![change], &[]);
        writer.collect();
        assert!(first.ptr_eq(&name(&writer).unwrap()));
    }
    assert_eq!(first.upgrade().as_deref(), Some("ns-c1-80"));
    writer.apply_config(vec![backend("ns/s1/80")], &[gone(&ResourceKey::new(Kind::Backend, "ns/c1/80"))]);
    writer.collect();
    assert_eq!((first.strong_count(), name(&writer).is_none()), (0, true));
}

#[test]
fn a_key_that_does_not_fit_is_refused() {
    let mut writer = Writer::new();
    writer.replace_config(vec![host("a.test", Some(&["ns/a"]))]);
    let good = certificate(&["a.test"]);
    writer.apply_live(vec![entry("ns/a", Resource::Certificate(good.clone()))], &[]);
    let mixed = shared::resource::Certificate { key: certificate(&["b.test"]).key, ..good };
    writer.apply_live(vec![entry("ns/a", Resource::Certificate(mixed))], &[]);
    let (_, refused) = writer.refused(Lane::Live).next().unwrap();
    assert_eq!((refused.code, refused.serving_last_good), (Code::Invalid, true));
    assert_eq!(refused.reason, "key: does not belong to the certificate");
    assert!(writer.tables().current().certificate(Some("a.test")).is_some());
}

/// A policy is compiled for the first Route that has it.
#[test]
fn equal_policies_are_judged_alike() {
    let of = |name: &str, statuses: &[u32]| {
        let custom_http_errors = Some(StatusList { values: statuses.to_vec() });
        let policy = LocationPolicy { custom_http_errors, ..LocationPolicy::default() };
        entry(&format!("ingress/ns/{name}/a.test"), Resource::Route(Route { policy, ..Route::default() }))
    };
    let mut writer = Writer::new();
    let both = |statuses: &[u32]| vec![of("i", statuses), of("j", statuses)];
    for (statuses, refused) in [(&[404_u32][..], 0), (&[42], 2), (&[404], 0), (&[42, 404], 2), (&[], 0)] {
        writer.apply_config(both(statuses), &[]);
        assert_eq!(writer.refused(Lane::Config).count(), refused, "{statuses:?}");
    }
    writer.apply_config(vec![of("i", &[404]), of("j", &[42])], &[]);
    let refused: Vec<_> = writer.refused(Lane::Config).map(|(key, _)| &*key.key).collect();
    assert_eq!(refused, ["ingress/ns/j/a.test"]);
}

#[test]
fn a_chain_completes_its_certificate() {
    let chain = shared::resource::Chain { certificates: vec![certificate(&["ca.test"]).leaf] };
    let leaf = shared::resource::Certificate { chain: Some(chain.key()), ..certificate(&["a.test"]) };
    let mut writer = Writer::new();
    writer.replace_config(vec![host("a.test", Some(&["ns/a"]))]);
    let shown =
        |writer: &Writer| writer.tables().current().certificate(Some("a.test")).unwrap().shown().cert.len();
    writer.apply_live(vec![entry("ns/a", Resource::Certificate(leaf.clone()))], &[]);
    assert_eq!(shown(&writer), 1);
    writer.apply_live(vec![entry(&chain.key(), Resource::Chain(chain.clone()))], &[]);
    assert_eq!(shown(&writer), 2);
    let mut other = Writer::new();
    other.replace_config(vec![host("a.test", Some(&["ns/a"]))]);
    // In one chunk, in any order.
    let both = [entry("ns/a", Resource::Certificate(leaf)), entry(&chain.key(), Resource::Chain(chain))];
    other.apply_live(both.to_vec(), &[]);
    assert_eq!(shown(&other), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// However a state was reached, the tables equal those built from scratch.
    #[test]
    fn incremental_equals_from_scratch(steps in steps(60), whole in 0..20_usize) {
        let mut world = World::default();
        let mut writer = Writer::new();
        let mut reader = writer.tables().reader();
        for (count, step) in steps.iter().enumerate() {
            let (lane, delta) = world.step(step);
            match lane {
                Lane::Live => writer.apply_live(delta.up, &delta.removed),
                Lane::Config if count % 20 == whole => writer.replace_config(world.config.iter().cloned().collect()),
                Lane::Config => writer.apply_config(delta.up, &delta.removed),
            }
            if count % 3 == 0 {
                reader.load();
            }
        }
        let scratch = world.writer();
        prop_assert_eq!(dump(&writer.tables().current()), dump(&scratch.tables().current()));
        for lane in Lane::ALL {
            prop_assert_eq!(writer.has(lane), world.lane(lane));
            prop_assert_eq!(writer.root(lane), world.lane(lane).root());
            prop_assert_eq!(writer.refused(lane).count(), 0);
        }
    }
}

/// Each change of a Service leaves one behind.
#[test]
fn endpoint_sets_that_nobody_uses_are_freed() {
    let mut writer = Writer::new();
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1])], &[]);
    writer.replace_config(vec![
        host("a.test", None),
        route("ingress/ns/i/a.test", &[("/", "ns/s1/80")]),
        backend("ns/s1/80"),
    ]);
    let cell = writer.cells.cell(&"ns/s1/80".into(), Source::Nowhere);
    let replaced = Arc::downgrade(&cell.endpoints());
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1, 2])], &[]);
    assert_eq!(cell.endpoints().list.len(), 2);
    writer.cells.sweep();
    assert!(replaced.upgrade().is_none());
}
