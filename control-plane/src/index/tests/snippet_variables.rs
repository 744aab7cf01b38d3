//! Variables that snippets set, where headers and annotations use them.

use serde_json::json;
use shared::kind::Kind;
use shared::resource::{Resource, Route};

use super::fixture::*;

fn world(allowed: &str, annotations: &[(&str, &str)]) -> World {
    let mut world = World::default();
    let allowed = json!({"allow-snippet-annotations": allowed, "annotations-risk-level": "Critical"});
    world.apply(configmap(allowed));
    let web = ingress("web").rule("a.test", &[("/", "echo")]);
    world.apply(annotations.iter().fold(web, |web, (name, text)| web.annotation(name, text)));
    world
}

fn route(world: &World) -> Route {
    match world.get(Kind::Route, "ingress/default/web/a.test") {
        Some(Resource::Route(route)) => route,
        other => panic!("{other:?}"),
    }
}

/// The `Host` of requests to backends, and the values of variables; `None`: the paths answer 503.
fn served(annotations: &[(&str, &str)]) -> Option<(String, Vec<String>)> {
    let Route { policy, denied, .. } = route(&world("true", annotations));
    let variables = policy.variables.unwrap_or_default().variables;
    let cases =
        variables.iter().flat_map(|it| it.cases.iter().map(|case| format!("{} {}", it.name, case.value)));
    denied.is_none().then(|| (policy.upstream_vhost.unwrap_or_default(), cases.collect()))
}

const CHOICE: &str = "set $h one.test; if ($http_x = 2) { set $h two.test; }";

#[test]
fn the_host_of_requests_may_be_said_by_a_snippet() {
    let snippet = "configuration-snippet";
    let choice = format!("{CHOICE} proxy_set_header Host $h;");
    let vhost = ("upstream-vhost", "b.test");
    for (annotations, expected) in [
        (vec![(snippet, "proxy_set_header Host other.test;")], Some(("other.test", 0))),
        (vec![(snippet, "proxy_set_header Host $subdomain.inner;")], Some(("$subdomain.inner", 0))),
        (vec![(snippet, "proxy_set_header Host $http_host;"), vhost], Some(("b.test", 0))),
        (vec![(snippet, &*choice)], Some(("$h", 2))),
        (vec![("server-snippet", CHOICE), (snippet, "proxy_set_header host $h;")], Some(("$h", 2))),
        (vec![(snippet, CHOICE), ("upstream-vhost", "$h")], Some(("$h", 2))),
        (vec![("server-snippet", CHOICE), ("upstream-vhost", "$h")], Some(("$h", 2))),
        (vec![(snippet, "proxy_set_header Host other.test;"), vhost], None),
        (vec![(snippet, "proxy_set_header Host a.test; proxy_set_header Host b.test;")], None),
        (vec![(snippet, "proxy_set_header Host $unknown;")], None),
        (vec![(snippet, "proxy_set_header Host 'a b';")], None),
        (vec![(snippet, "proxy_set_header Host $1.test;"), ("rewrite-target", "/$1")], None),
        (vec![(snippet, CHOICE), ("upstream-vhost", "$other")], None),
        (vec![("auth-snippet", "proxy_set_header Host other.test;"), ("auth-url", "http://c.test/")], None),
    ] {
        let found = served(&annotations);
        let found = found.as_ref().map(|(host, cases)| (host.as_str(), cases.len()));
        assert_eq!(found, expected, "{annotations:?}");
    }
    let policy = route(&world("false", &[(snippet, "proxy_set_header Host other.test;")])).policy;
    assert_eq!(policy.upstream_vhost, None, "nobody allows snippets");
}

#[test]
fn locations_use_what_their_server_snippet_sets() {
    let (server, location) = ("server-snippet", "configuration-snippet");
    let named = "if ($host ~* ^(?<Sub>[a-z]+)[.]) { set $x 1; }";
    for (annotations, expected) in [
        (
            vec![(server, CHOICE), (location, "proxy_set_header X-Tenant $h;")],
            Some(vec!["h two.test", "h one.test"]),
        ),
        (vec![(server, named), (location, "add_header X-Sub $sub;")], Some(vec!["sub ${1}"])),
        // All have the same value.
        (vec![(server, "set $h one.test;"), (location, "add_header X-A $h;")], Some(vec![])),
        (vec![(server, CHOICE), (location, "if ($h = two.test) { return 403; }")], Some(vec![])),
        (vec![(server, CHOICE), ("upstream-hash-by", "$h")], Some(vec!["h two.test", "h one.test"])),
        // By then the path is another one.
        (vec![(server, "set $h $uri; rewrite ^/a /b;"), (location, "proxy_set_header X-Tenant $h;")], None),
    ] {
        let found = served(&annotations).map(|(_, cases)| cases);
        let expected = expected.map(|it| it.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(found, expected, "{annotations:?}");
    }
}

/// ingress-nginx sets a variable of that name itself, where it answers preflights.
#[test]
fn a_flag_needs_no_first_value_unless_something_else_sets_it() {
    let recipe =
        "if ($http_origin ~ a) { set $cors true; } if ($request_method = OPTIONS) { set $cors \"${cors}o\"; }
        if ($cors = trueo) { add_header A b; return 204; }";
    let snippet = ("configuration-snippet", recipe);
    assert!(served(&[snippet]).is_some());
    assert_eq!(served(&[snippet, ("enable-cors", "true")]), None);
    assert_eq!(served(&[snippet, ("server-snippet", "set $cors x; rewrite ^/a /b;")]), None);
}
