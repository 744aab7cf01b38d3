//! The fleet's error pages: which hosts and which clients get them.

use data_plane::local::Limits;
use shared::policy::{
    ClientCertificates, ClientVerification, ExternalAuth, HostPolicy, LocationPolicy, StatusList, TextList,
};
use shared::resource::{Host, PathType, Resource, Route};
use test_kit::certificates::Authority;

use super::client_certs::{KEY, Secure, asking, client, host, material};
use super::errors::{answers, with_fallback};
use super::harness::*;

fn list(texts: &[&str]) -> Option<TextList> {
    Some(TextList { values: texts.iter().map(|text| (*text).to_owned()).collect() })
}

fn pages(statuses: &[u32]) -> LocationPolicy {
    LocationPolicy {
        custom_http_errors: Some(StatusList { values: statuses.to_vec() }),
        ..LocationPolicy::default()
    }
}

/// `a.test` with one origin, in a fleet with a default backend.
fn proxy(origin: &Origin, said: LocationPolicy, fallback: &Origin, defaults: LocationPolicy) -> Proxy {
    let mut proxy = Proxy::start();
    let paths = vec![to("/", PathType::Prefix, "echo")];
    let route = Route { paths, policy: said, ..Route::default() };
    let of_host = Resource::Host(Host::default());
    proxy.config(vec![("a.test", of_host), ("ingress/ns/web/a.test", Resource::Route(route))]);
    proxy.service("echo", Default::default());
    proxy.endpoints("echo", &[origin.address]);
    with_fallback(&mut proxy, fallback, defaults);
    proxy
}

fn ask(proxy: &Proxy, host: &str, fields: &str) -> Answer {
    Client::new(proxy.http).ask(&format!("GET /x?y HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"))
}

/// As in nginx' server, before location lookup; the redirect between names with and without `www.` has no error pages.
#[test]
fn blocked_user_agent_gets_the_fleets_error_page() {
    let (origin, fallback) = (answers("200 OK"), answers("410 Fleet"));
    let defaults = LocationPolicy { block_user_agents: list(&["Bot"]), ..pages(&[403]) };
    let mut proxy = proxy(&origin, LocationPolicy::default(), &fallback, defaults.clone());
    let www = HostPolicy { www: Some(true), ..HostPolicy::default() };
    proxy.config(vec![("b.test", Resource::Host(Host { policy: www, ..Host::default() }))]);
    for (host, status) in [("a.test", 410), ("nobody.test", 410), ("www.b.test", 403)] {
        assert_eq!(ask(&proxy, host, "User-Agent: Bot\r\n").status, status, "{host}");
    }
    let seen = fallback.seen();
    assert_eq!(seen[0].line(), "GET /?y HTTP/1.1");
    for (name, values) in [
        ("x-code", vec!["403"]),
        ("x-original-uri", vec!["/x?y"]),
        ("host", vec!["a.test"]),
        ("x-forwarded-for", vec!["127.0.0.1"]),
        ("x-namespace", vec![]),
        ("x-ingress-name", vec![]),
        ("x-service-port", vec![]),
    ] {
        assert_eq!(seen[0].all(name), values, "{name}");
    }
    assert_eq!(ask(&proxy, "a.test", "User-Agent: Other\r\n").status, 200);
    let others = LocationPolicy { custom_http_errors: pages(&[404]).custom_http_errors, ..defaults };
    with_fallback(&mut proxy, &fallback, others);
    assert_eq!(ask(&proxy, "a.test", "User-Agent: Bot\r\n").status, 403);
    assert_eq!(origin.seen().len(), 1);
}

/// In nginx' configuration the error page's location has the fleet's list, whatever list the original location has.
#[test]
fn blocked_address_gets_no_error_page_of_the_fleet() {
    let (origin, fallback) = (answers("404 No"), answers("410 Fleet"));
    let (mine, other) = (list(&["127.0.0.0/8"]), list(&["10.0.0.0/8"]));
    let fleet = |blocked| LocationPolicy { block_cidrs: blocked, ..pages(&[403, 404]) };
    let denying = |denied| LocationPolicy { denylist_source_range: denied, ..LocationPolicy::default() };
    for (said, defaults, status) in [
        (denying(None), fleet(mine.clone()), 403),
        (denying(mine.clone()), fleet(mine.clone()), 403),
        (denying(mine.clone()), fleet(other.clone()), 410),
        (denying(other.clone()), fleet(mine), 403),
        (denying(other.clone()), fleet(other), 410),
    ] {
        let before = fallback.seen().len();
        let proxy = proxy(&origin, said.clone(), &fallback, defaults.clone());
        assert_eq!(ask(&proxy, "a.test", "").status, status, "{said:?} {defaults:?}");
        assert_eq!(fallback.seen().len() > before, status == 410);
    }
}

/// nginx' server defines where clients without a certificate are sent, and then inherits no other error page.
#[test]
fn a_host_with_a_page_for_clients_without_certificates_has_none_of_the_fleets() {
    let (origin, fallback) = (answers("404 No"), answers("410 Fleet"));
    let mut proxy = proxy(&origin, LocationPolicy::default(), &fallback, pages(&[404]));
    proxy.live(KEY, material(&Authority::new("one")));
    let asked = |page: &str| ClientCertificates {
        verification: Some(ClientVerification::Optional.into()),
        error_page: page.into(),
        ..asking()
    };
    let status = |proxy: &Proxy| Secure::new(proxy, &client(None), "a.test").get("/x", "a.test", "").0;
    proxy.config(vec![("a.test", host(Some(asked("")), false))]);
    assert_eq!(status(&proxy), 410);
    proxy.config(vec![("a.test", host(Some(asked("http://else.test/")), false))]);
    assert_eq!(status(&proxy), 404);
    let own = LocationPolicy { default_backend: Some("ns/fallback/default".into()), ..pages(&[404]) };
    let route = Route { paths: vec![to("/", PathType::Prefix, "echo")], policy: own, ..Route::default() };
    proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
    assert_eq!(status(&proxy), 410, "its location's own are its own");
}

/// Its server in nginx' file has `return 403` and the fleet's pages, and nothing else in it.
#[test]
fn a_host_whose_authorities_are_missing_has_the_page_of_the_fleet() {
    let (origin, fallback) = (answers("200 OK"), answers("410 Fleet"));
    let untold = ClientCertificates { error_page: "http://else.test/".into(), ..Default::default() };
    let policy = HostPolicy { client_certificates: Some(untold), ..HostPolicy::default() };
    let own = LocationPolicy { default_backend: Some("ns/fallback/default".into()), ..pages(&[403]) };
    for (said, defaults, status) in [
        (LocationPolicy::default(), pages(&[403]), 410),
        (own.clone(), pages(&[404]), 403),
        (own, pages(&[403]), 410),
    ] {
        let mut proxy = proxy(&origin, said, &fallback, defaults);
        proxy.config(vec![("a.test", Resource::Host(Host { policy: policy.clone(), ..Host::default() }))]);
        assert_eq!(ask(&proxy, "a.test", "").status, status);
    }
    let seen = fallback.seen();
    assert_eq!((seen.len(), seen[0].all("x-code"), seen[0].all("x-ingress-name")), (2, vec!["403"], vec![]));
    assert!(origin.seen().is_empty());
}

/// The original's own server answers in place of a default backend where there is none.
#[test]
fn the_page_of_a_fleet_without_a_default_backend_is_404() {
    let origin = answers("200 OK");
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let policy = HostPolicy { client_certificates: Some(Default::default()), ..HostPolicy::default() };
    proxy.config(vec![("b.test", Resource::Host(Host { policy, ..Host::default() }))]);
    for (statuses, blocked, status) in
        [(&[403][..], None, 404), (&[404], None, 403), (&[403], list(&["127.0.0.1/32"]), 403)]
    {
        let agents = list(&["Bot"]);
        let defaults = LocationPolicy { block_user_agents: agents, block_cidrs: blocked, ..pages(statuses) };
        proxy.defaults(defaults);
        assert_eq!(ask(&proxy, "a.test", "User-Agent: Bot\r\n").status, status, "{statuses:?}");
        assert_eq!(ask(&proxy, "b.test", "").status, status, "{statuses:?}");
    }
}

/// The sign-in page is an error page of the location, and hides the fleet's. In nginx' configuration it stands where a path of
/// `no-auth-locations`, a denied one and the host have nothing.
#[test]
fn sign_in_page_hides_the_pages_of_the_fleet_where_clients_are_asked() {
    let (origin, fallback, auth) = (answers("404 Mine"), answers("410 Fleet"), answers("200 In"));
    let url = || format!("http://{}/", auth.address);
    let own = |signin: &str| ExternalAuth { url: url(), signin: signin.into(), ..ExternalAuth::default() };
    let asking =
        |signin: &str| LocationPolicy { external_auth: Some(own(signin)), ..LocationPolicy::default() };
    let listing =
        LocationPolicy { custom_http_errors: pages(&[404]).custom_http_errors, ..asking("http://in.test/") };
    let off = LocationPolicy { enable_global_auth: Some(false), ..LocationPolicy::default() };
    let of_fleet = |global: bool| LocationPolicy {
        global_auth_url: global.then(url),
        global_auth_signin: global.then(|| "http://in.test/".into()),
        no_auth_locations: list(&["/open"]),
        block_user_agents: list(&["Bot"]),
        ..pages(&[403, 404])
    };
    for (what, policy, global, expected) in [
        ("its own", asking("http://in.test/"), false, [404, 410, 410]),
        ("none", asking(""), false, [410, 410, 410]),
        ("the fleet's", LocationPolicy::default(), true, [404, 410, 410]),
        ("switched off", off, true, [410, 410, 410]),
        ("beside pages of its own", listing, false, [410, 410, 410]),
    ] {
        let mut proxy = proxy(&origin, policy.clone(), &fallback, of_fleet(global));
        let paths = vec![to("/asks", PathType::Prefix, "echo"), to("/open", PathType::Prefix, "echo")];
        let route = Route { paths, policy: policy.clone(), ..Route::default() };
        proxy.config(vec![("ingress/ns/more/a.test", Resource::Route(route))]);
        let mut client = Client::new(proxy.http);
        let paths = ["/asks", "/open"].map(|path| client.get(path).status);
        let blocked = ask(&proxy, "a.test", "User-Agent: Bot\r\n").status;
        assert_eq!([paths[0], paths[1], blocked], expected, "{what}");
    }
}
