use std::sync::Arc;

use shared::entry::Entry;
use shared::policy::{Canary, HostPolicy, LocationPolicy, StatusList, TextList};
use shared::resource::{Denial, Host, Resource, Tls};

use super::*;
use crate::table::Writer;
use crate::table::world::{backend, certificate, entry, host, route, slice};

fn records(writer: &Writer) -> BTreeMap<String, Value> {
    let page = page(&writer.tables().current(), "/configuration/backends", None);
    let list: Vec<Value> = serde_json::from_slice(&page.body.into_bytes()).unwrap();
    let named = list.iter().map(|it| (it["name"].as_str().unwrap().to_owned(), it.clone()));
    let records: BTreeMap<_, _> = named.collect();
    assert!(list.iter().map(|it| it["name"].as_str().unwrap()).eq(records.keys()), "sorted");
    records
}

#[test]
fn where_tls_ends_is_told_of_what_has_the_root() {
    let mut writer = Writer::new();
    let policy = HostPolicy { passthrough: Some(true), ..HostPolicy::default() };
    writer.replace_config(vec![
        entry("a.test", Resource::Host(Host { policy, ..Host::default() })),
        route("ingress/ns/web/a.test", &[("/", "ns/main/443"), ("/api", "ns/api/80")]),
        backend("ns/main/443"),
        backend("ns/api/80"),
    ]);
    let records = records(&writer);
    let ends = ["ns-main-443", "ns-api-80"].map(|name| records[name]["sslPassthrough"].clone());
    assert_eq!(ends, [json!(true), json!(false)]);
}

#[test]
fn upstreams_are_told_as_the_original_does() {
    let mut writer = Writer::new();
    let canary = Canary { weight: 5, weight_total: 1000, header: "X-Next".into(), ..Canary::default() };
    let affinity = Affinity { name: "INGRESSCOOKIE".into(), max_age: Some(60), ..Affinity::default() };
    let main = BackendPolicy {
        affinity: Some(affinity),
        hash_by: Some("$request_uri".into()),
        load_balance: Some(LoadBalance::Ewma.into()),
        ..BackendPolicy::default()
    };
    let of = |alternatives: &[&str], policy: &BackendPolicy| {
        Resource::Backend(Backend {
            port: Some(shared::resource::PortRule { name: "http".into(), target_port: None, udp: false }),
            service: Some("10.96.0.9:80".parse().unwrap()),
            alternatives: alternatives.iter().map(ToString::to_string).collect(),
            policy: policy.clone(),
            ..Backend::default()
        })
    };
    let next = BackendPolicy { canary: Some(canary), ..BackendPolicy::default() };
    let cookie = LocationPolicy { issues_cookie: Some(true), ..LocationPolicy::default() };
    let with_cookie = Resource::Route(shared::resource::Route {
        paths: vec![shared::resource::Path {
            path: "/shop".into(),
            kind: shared::resource::PathType::Prefix,
            backend: Some("ns/main/80".into()),
            after_exact: false,
        }],
        policy: cookie,
        ..shared::resource::Route::default()
    });
    writer.replace_config(vec![
        host("a.test", None),
        entry("ingress/ns/web/a.test", with_cookie),
        route("ingress/ns/other/a.test", &[("/named", "ns/plain/http"), ("/gone", "ns/gone/80")]),
        entry("ns/main/80", of(&["ns/next/80"], &main)),
        entry("ns/next/80", of(&[], &next)),
        backend("ns/plain/http"),
    ]);
    writer.apply_live(vec![slice("ns/main-1", "ns/main", &[1, 2])], &[]);
    let records = records(&writer);
    let main = &records["ns-main-80"];
    assert_eq!(main["port"], 80);
    assert_eq!(main["service"]["spec"]["clusterIP"], "10.96.0.9");
    assert_eq!(
        main["endpoints"],
        json!([{ "address": "10.0.0.1", "port": "8080" }, { "address": "10.0.0.2", "port": "8080" }])
    );
    assert_eq!(main["alternativeBackends"], json!(["ns-next-80"]));
    assert_eq!(
        main["sessionAffinityConfig"],
        json!({ "name": "cookie", "mode": "", "cookieSessionAffinity":
            { "name": "INGRESSCOOKIE", "maxage": "60", "locations": { "a.test": ["/shop"] } } })
    );
    assert_eq!(
        main["upstreamHashByConfig"],
        json!({ "upstream-hash-by": "$request_uri", "upstream-hash-by-subset-size": 3 })
    );
    // The algorithm is that of the annotation, although the hash is what counts.
    assert_eq!((&main["noServer"], &main["load-balance"]), (&json!(false), &json!("ewma")));
    assert_eq!(records["ns-plain-http"].get("load-balance"), None);
    let next = &records["ns-next-80"];
    assert_eq!(
        (&next["noServer"], &next["trafficShapingPolicy"]["weightTotal"]),
        (&json!(true), &json!(1000))
    );
    assert_eq!(records["ns-plain-http"]["port"], "http");
    assert_eq!(records["ns-gone-80"].get("endpoints"), None);
    assert_eq!(records[DEFAULT_UPSTREAM]["endpoints"], json!([{ "address": "127.0.0.1", "port": "8181" }]));
    assert_eq!(records.len(), 5);
    // A change of the Backend only, which is not compiled into any table.
    let moved = Backend { service: Some("10.96.0.10:80".parse().unwrap()), ..Backend::default() };
    writer.apply_config(vec![entry("ns/plain/http", Resource::Backend(moved))], &[]);
    assert_eq!(self::records(&writer)["ns-plain-http"]["service"]["spec"]["clusterIP"], "10.96.0.10");
}

/// Paths of one Ingress, with a policy.
fn with_policy(paths: &[(&str, &str)], policy: LocationPolicy) -> Arc<Entry> {
    let path = |(path, backend): &(&str, &str)| shared::resource::Path {
        path: (*path).into(),
        kind: shared::resource::PathType::Prefix,
        backend: Some((*backend).into()),
        after_exact: false,
    };
    let paths = paths.iter().map(path).collect();
    let route = shared::resource::Route { paths, policy, ..shared::resource::Route::default() };
    entry("ingress/ns/web/a.test", Resource::Route(route))
}

/// A canary has the affinity of its main upstream unless it has its own setting; aliases have the affinity of their
/// host.
#[test]
fn a_canary_is_told_with_the_affinity_that_it_has() {
    let mut writer = Writer::new();
    let main = |next: &str| {
        let affinity = Affinity { name: "S".into(), ..Affinity::default() };
        Resource::Backend(Backend {
            alternatives: vec![next.into()],
            policy: BackendPolicy { affinity: Some(affinity), ..BackendPolicy::default() },
            ..Backend::default()
        })
    };
    let next = |legacy| {
        let canary = Some(Canary { weight: 5, ..Canary::default() });
        let policy = BackendPolicy { canary, no_affinity_as_canary: legacy, ..BackendPolicy::default() };
        Resource::Backend(Backend { policy, ..Backend::default() })
    };
    let sticky = LocationPolicy { issues_cookie: Some(true), ..LocationPolicy::default() };
    let aliases = Some(TextList { values: vec!["b.test".into(), "~^c[.]test$".into()] });
    let with_aliases = Host { policy: HostPolicy { aliases, ..HostPolicy::default() }, ..Host::default() };
    writer.replace_config(vec![
        entry("a.test", Resource::Host(with_aliases)),
        with_policy(&[("/a", "ns/a/80"), ("/b", "ns/b/80")], sticky),
        entry("ns/a/80", main("ns/next/80")),
        entry("ns/next/80", next(None)),
        entry("ns/b/80", main("ns/legacy/80")),
        entry("ns/legacy/80", next(Some(true))),
    ]);
    let records = records(&writer);
    let of = |name: &str| records[name]["sessionAffinityConfig"].clone();
    assert_eq!(
        of("ns-next-80"),
        json!({ "name": "cookie", "mode": "", "cookieSessionAffinity":
            { "name": "S", "locations": { "a.test": ["/a"], "b.test": ["/a"], "~^c[.]test$": ["/a"] } } })
    );
    assert_eq!(of("ns-next-80"), of("ns-a-80"));
    assert_eq!(of("ns-legacy-80")["name"], "");
}

/// Empty where no Ingress says it, as in ingress-nginx.
#[test]
fn the_mode_of_affinity_is_told_as_configured() {
    for (mode, told) in [
        (None, ""),
        (Some(AffinityMode::Balanced), "balanced"),
        (Some(AffinityMode::Persistent), "persistent"),
    ] {
        let configured = Affinity { name: "S".into(), mode: mode.map(Into::into), ..Affinity::default() };
        assert_eq!(affinity(Some(&configured), &BTreeMap::new())["mode"], told);
    }
}

/// As in ingress-nginx' controller: the addresses that it resolves to are each proxy's own affair.
#[test]
fn a_name_is_told_as_the_endpoint() {
    let mut writer = Writer::new();
    let external = shared::resource::ExternalName { name: "far.test".into(), port: 8443, local: false };
    let named = Backend { external: Some(external), ..Backend::default() };
    writer.replace_config(vec![
        host("a.test", None),
        route("ingress/ns/web/a.test", &[("/", "ns/far/443")]),
        entry("ns/far/443", Resource::Backend(named)),
    ]);
    let record = &records(&writer)["ns-far-443"];
    assert_eq!(record["endpoints"], json!([{ "address": "far.test", "port": "8443" }]));
}

/// Once it has endpoints, it has a record of its own with all other fields of the upstream that it replaces.
#[test]
fn default_backend_with_endpoints_has_a_record_of_its_own() {
    let mut writer = Writer::new();
    let policy = LocationPolicy { default_backend: Some("ns/errors/80".into()), ..LocationPolicy::default() };
    writer.replace_config(vec![
        host("a.test", None),
        with_policy(&[("/", "ns/main/80")], policy.clone()),
        backend("ns/main/80"),
        backend("ns/errors/80"),
    ]);
    let name = "custom-default-backend-ns-errors";
    assert_eq!(records(&writer).get(name), None);
    writer.apply_live(vec![slice("ns/errors-1", "ns/errors", &[7])], &[]);
    let with_endpoints = records(&writer);
    assert_eq!(with_endpoints[name]["endpoints"], json!([{ "address": "10.0.0.7", "port": "8080" }]));
    assert_eq!(
        (&with_endpoints[name]["port"], with_endpoints["ns-main-80"].get("endpoints")),
        (&json!(80), None)
    );
    // Otherwise nobody asks it, unless the location lists errors.
    writer.apply_live(vec![slice("ns/main-1", "ns/main", &[1])], &[]);
    assert_eq!(records(&writer).get(name), None);
    let listed = Some(StatusList { values: vec![404] });
    let policy = LocationPolicy { custom_http_errors: listed, ..policy };
    writer.apply_config(vec![with_policy(&[("/", "ns/main/80")], policy)], &[]);
    assert!(records(&writer).contains_key(name));
}

/// In ingress-nginx, that a location is denied is not known where upstreams are made.
#[test]
fn the_upstream_of_what_is_denied_is_told() {
    let mut writer = Writer::new();
    let path = |path: &str, backend: Option<&str>| shared::resource::Path {
        path: path.into(),
        kind: shared::resource::PathType::Prefix,
        backend: backend.map(Into::into),
        after_exact: false,
    };
    let denied = shared::resource::Route {
        paths: vec![path("/", Some("ns/main/80")), path("/none", None), path("/gone", Some("ns/gone/80"))],
        denied: Some(Denial { reason: "no".into() }),
        ..shared::resource::Route::default()
    };
    writer.replace_config(vec![
        host("a.test", None),
        entry("ingress/ns/web/a.test", Resource::Route(denied)),
        backend("ns/main/80"),
    ]);
    writer.apply_live(vec![slice("ns/main-1", "ns/main", &[1])], &[]);
    let records = records(&writer);
    assert!(records.keys().eq(["ns-gone-80", "ns-main-80", DEFAULT_UPSTREAM]), "{records:?}");
    assert_eq!(records["ns-main-80"]["endpoints"], json!([{ "address": "10.0.0.1", "port": "8080" }]));
}

#[test]
fn no_key_is_shown() {
    let mut writer = Writer::new();
    let aliases = Some(TextList { values: vec!["other.test".into(), "c.test".into()] });
    let tls = Host {
        tls: Some(Tls { certificates: vec!["ns/a".into()] }),
        policy: HostPolicy { aliases, ..HostPolicy::default() },
        ..Host::default()
    };
    writer.replace_config(vec![entry("a.test", Resource::Host(tls)), host("b.test", None)]);
    let made = certificate(&["a.test", "c.test"]);
    writer.apply_live(vec![entry("ns/a", Resource::Certificate(made.clone()))], &[]);
    let table = writer.tables().current();
    let page = |query| {
        let page = page(&table, "/configuration/certs", query);
        (page.status.as_u16(), String::from_utf8(page.body.into_bytes().to_vec()).unwrap())
    };
    let (status, pem) = page(Some("hostname=a.test"));
    assert_eq!(status, 200);
    assert_eq!(pem, *shared::pem::write("CERTIFICATE", &made.leaf));
    assert_eq!(page(Some("hostname=c.test")), (status, pem), "an alias that it covers");
    assert_eq!(page(None), (400, "Hostname must be specified.".into()));
    for other in ["hostname=b.test", "hostname=other.test", "hostname=x.a.test", "hostname=A.test"] {
        assert_eq!(page(Some(other)), (404, "No key associated with this hostname.".into()), "{other}");
    }
}

#[test]
fn other_pages_are_not_found() {
    let table = Arc::new(HostTable::default());
    let text = |path, query| String::from_utf8(page(&table, path, query).body.into_bytes().to_vec()).unwrap();
    assert_eq!(text("/configuration/xyz", None), "Not found!");
    assert_eq!(text("/configuration/backends", Some("x=1")), "Not found!");
    assert_eq!(text("/configuration/servers", None), "Only POST requests are allowed!");
    assert_eq!(text("/configuration/general", None), "{}\n");
}
