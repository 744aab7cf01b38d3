//! Other names of a host: aliases, and the redirect between `www.` and the bare name.

use shared::policy::{Header, HeaderList, HostPolicy, LocationPolicy, TextList};
use shared::resource::{Host, PathType, Resource, Route};

use super::harness::*;

fn host(aliases: &[&str], www: bool) -> Resource {
    let values = aliases.iter().map(ToString::to_string).collect();
    let policy = HostPolicy { aliases: Some(TextList { values }), www: Some(www), ..HostPolicy::default() };
    Resource::Host(Host { policy, ..Host::default() })
}

fn proxy(hosts: &[(&str, Resource)]) -> (Proxy, Vec<Origin>) {
    let mut proxy = Proxy::start();
    let mut origins = Vec::new();
    for (number, (name, host)) in hosts.iter().enumerate() {
        let text: &'static str = (*name).to_owned().leak();
        let origin = Origin::says(text);
        let service = format!("s{number}");
        proxy.host(name, false, &[("/", PathType::Prefix, &service)]);
        proxy.config(vec![(name, host.clone())]);
        proxy.endpoints(&service, &[origin.address]);
        origins.push(origin);
    }
    (proxy, origins)
}

fn get(proxy: &Proxy, host: &str, target: &str) -> Answer {
    Client::new(proxy.http).ask(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
}

/// The host that takes a name; empty for none.
fn taker(proxy: &Proxy, name: &str) -> String {
    let response = get(proxy, name, "/");
    if response.status == 200 { response.text().to_owned() } else { String::new() }
}

/// Whatever name of it a client asks for.
#[test]
fn server_name_is_the_name_of_the_host() {
    let (mut proxy, origins) = proxy(&[("a.test", host(&["b.test", "~^re[0-9]+"], false))]);
    let headers = vec![Header { name: "X-Name".into(), value: "$server_name".into() }];
    let proxy_set_headers = Some(HeaderList { headers });
    proxy.defaults(LocationPolicy { proxy_set_headers, ..LocationPolicy::default() });
    for name in ["a.test", "b.test", "re7.net:81"] {
        assert_eq!(get(&proxy, name, "/").status, 200, "{name}");
    }
    let told: Vec<_> = origins[0].seen().iter().map(|it| it.all("x-name").concat()).collect();
    assert_eq!(told, ["a.test"; 3]);
}

#[test]
fn aliases_lead_to_their_host_in_nginx_order() {
    let (mut proxy, _origins) = proxy(&[
        ("a.test", host(&["one.example", "*.example", "b.test", "~^re[0-9]+"], false)),
        ("b.test", host(&["one.example", "*.sub.example", "www.*"], false)),
        ("*.wild.test", host(&[], false)),
        ("z.test", host(&["special.wild.test", "~wild"], false)),
    ]);
    for (name, host) in [
        ("one.example", "a.test"),
        ("ONE.example:8080", "a.test"),
        ("x.y.example", "a.test"),
        ("x.sub.example", "b.test"),
        ("sub.example", "a.test"),
        ("example", ""),
        ("www.net", "b.test"),
        ("b.test", "b.test"),
        ("re7.net", "a.test"),
        ("re.net", ""),
        ("x.wild.test", "*.wild.test"),
        ("special.wild.test", "z.test"),
        ("x.y.wild.test", "z.test"),
    ] {
        assert_eq!(taker(&proxy, name), host, "{name}");
    }
    proxy.config(vec![("a.test", host(&[], false))]);
    assert_eq!(taker(&proxy, "one.example"), "b.test", "the next one that claims it");
    assert_eq!((taker(&proxy, "x.example"), taker(&proxy, "re7.net")), (String::new(), String::new()));
}

#[test]
fn the_other_name_of_a_host_is_redirected_unless_it_is_a_host() {
    let (mut proxy, _origins) = proxy(&[
        ("a.test", host(&[], true)),
        ("www.b.test", host(&[], true)),
        ("c.test", host(&[], true)),
        ("www.c.test", host(&[], false)),
        ("d.test", host(&["www.a.test"], false)),
    ]);
    let port = proxy.http.port();
    for (name, target, location) in [
        ("www.a.test", "/foo/?x=1", format!("http://a.test:{port}/foo/?x=1")),
        ("www.a.test:80", "/foo/", format!("http://a.test:{port}/foo")),
        ("b.test", "/", format!("http://www.b.test:{port}")),
    ] {
        let response = get(&proxy, name, target);
        assert_eq!((response.status, response.all("location")), (308, vec![&*location]), "{name}{target}");
    }
    assert_eq!(
        (taker(&proxy, "a.test"), taker(&proxy, "www.c.test")),
        ("a.test".into(), "www.c.test".into())
    );
    // Whatever the location says about trailing slashes of redirects.
    let policy = LocationPolicy {
        http_redirect_code: Some(301),
        preserve_trailing_slash: Some(true),
        ..LocationPolicy::default()
    };
    let route = Route { paths: vec![to("/", PathType::Prefix, "s0")], policy, ..Route::default() };
    proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
    let response = get(&proxy, "www.a.test", "/foo/");
    let location = format!("http://a.test:{port}/foo");
    assert_eq!((response.status, response.all("location")), (301, vec![&*location]));
    // Without the host, only the alias is left.
    proxy.config(vec![("a.test", host(&[], false))]);
    assert_eq!(taker(&proxy, "www.a.test"), "d.test");
}
