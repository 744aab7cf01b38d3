//! Templates that expand to more than a request can justify: many times what the client sent.

use shared::policy::{ExternalAuth, Header, HeaderList, HostPolicy, LocationPolicy, Shortcut, Shortcuts};
use shared::resource::{Backend, Host, PathType, Resource, Route};

use super::fastcgi::{application, fcgi, saying};
use super::harness::*;

const MANY: usize = 3_000;

/// `a.test` with a regular expression path and these settings.
fn proxy(location: LocationPolicy, of_host: Option<Shortcuts>, origin: &Origin) -> Proxy {
    let mut proxy = Proxy::start();
    let policy = HostPolicy { regex: Some(true), shortcuts: of_host, ..HostPolicy::default() };
    let paths = vec![to("/(.*)", PathType::Prefix, "echo")];
    let route = Route { paths, policy: location, ..Route::default() };
    proxy.config(vec![
        ("a.test", Resource::Host(Host { policy, ..Host::default() })),
        ("ingress/ns/i/a.test", Resource::Route(route)),
    ]);
    proxy.service("echo", Backend::default());
    proxy.endpoints("echo", &[origin.address]);
    proxy
}

fn headers(value: &str) -> HeaderList {
    // Each one alone is short enough.
    let header = |at: usize| Header { name: format!("X{at}"), value: value.repeat(8) };
    HeaderList { headers: (0..40).map(header).collect() }
}

/// A short path gets the origin's response, a long one a 500.
fn check(what: &str, location: LocationPolicy, of_host: Option<Shortcuts>) {
    let origin = Origin::says("in");
    let proxy = proxy(location, of_host, &origin);
    let mut client = Client::new(proxy.http);
    let before = origin.seen().len();
    assert_eq!(client.get("/a").status, 200, "{what}");
    let seen = origin.seen().len();
    assert_eq!(client.get(&format!("/{}", "a".repeat(7_000))).status, 500, "{what}");
    // Response headers are expanded after the backend's response.
    assert!(origin.seen().len() <= seen + usize::from(what == "answers"), "{what}");
    assert!(seen <= before + 1);
    // The client's connection can still be used.
    assert_eq!(client.get("/b").status, 200, "{what}");
}

#[test]
fn expanded_headers_of_a_location_are_limited() {
    let auth = Origin::says("yes");
    let url = format!("http://{}/", auth.address);
    let external = |change: &dyn Fn(&mut ExternalAuth)| {
        let mut external = ExternalAuth { url: url.clone(), ..ExternalAuth::default() };
        change(&mut external);
        LocationPolicy { external_auth: Some(external), ..LocationPolicy::default() }
    };
    let usual = LocationPolicy::default;
    for (what, location) in [
        ("rewrite", LocationPolicy { rewrite_target: Some(format!("/{}", "$1".repeat(MANY))), ..usual() }),
        ("host", LocationPolicy { upstream_vhost: Some("$arg_x$uri$uri".into()), ..usual() }),
        ("request", LocationPolicy { proxy_set_headers: Some(headers("$uri")), ..usual() }),
        ("answers", LocationPolicy { add_headers: Some(headers("$uri")), ..usual() }),
        ("question", external(&|it| it.url = format!("{url}?{}", "$uri".repeat(MANY)))),
        ("asked", external(&|it| it.proxy_set_headers = headers("$uri").headers)),
        ("back", external(&|it| it.request_redirect = "$uri".repeat(MANY))),
        ("key", external(&|it| it.cache_key = "$uri".repeat(MANY))),
    ] {
        check(what, location, None);
    }
}

#[test]
fn expanded_body_of_a_snippet_response_is_limited() {
    for (status, text) in [(200, "$uri"), (301, "https://b.test/${uri}")] {
        let said = Shortcuts {
            shortcuts: vec![Shortcut { status, text: Some(text.repeat(MANY)), ..Shortcut::default() }],
            blocks: Vec::new(),
        };
        let location = LocationPolicy { shortcuts: Some(said.clone()), ..LocationPolicy::default() };
        let origin = Origin::says("in");
        for proxy in [proxy(location, None, &origin), proxy(LocationPolicy::default(), Some(said), &origin)] {
            let mut client = Client::new(proxy.http);
            assert_eq!(client.get(&format!("/{}", "a".repeat(7_000))).status, 500, "{text}");
            assert_eq!(client.get("/").status, if status == 200 { 200 } else { 301 }, "{text}");
        }
    }
}

#[test]
fn expanded_fastcgi_params_are_limited() {
    let (origin, tolds) = application(saying(&["Content-Length: 2\r\n\r\n", "ok"]));
    let location = LocationPolicy { fastcgi_params: Some(headers("$uri")), ..fcgi() };
    let proxy = proxy(location, None, &origin);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get(&format!("/{}", "a".repeat(7_000))).status, 500);
    assert_eq!(tolds.lock().unwrap().len(), 0);
    assert_eq!(client.get("/a").status, 200);
}

#[test]
fn mirror_request_beyond_the_limit_is_dropped() {
    let (origin, mirror) = (Origin::says("in"), Origin::says("copied"));
    let target = format!("http://{}/{}", mirror.address, "$uri".repeat(MANY));
    let location = LocationPolicy { mirror_target: Some(target), ..LocationPolicy::default() };
    let proxy = proxy(location, None, &origin);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get(&format!("/{}", "a".repeat(7_000))).status, 200);
    assert_eq!(proxy.metrics.worker(0).copies_lost.value(), 1);
    assert_eq!(mirror.seen().len(), 0);
}
