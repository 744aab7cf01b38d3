//! Cross-origin requests: the CORS headers of responses, and preflights that the proxy itself answers.

use data_plane::local::Limits;
use shared::policy::{LocationPolicy, TextList};
use shared::resource::{Denial, Host, PathType, Resource, Route, Tls};

use super::harness::*;

fn said(origins: &[&str]) -> LocationPolicy {
    let values = origins.iter().map(|it| (*it).to_owned()).collect();
    LocationPolicy {
        enable_cors: Some(true),
        cors_allow_origin: Some(TextList { values }),
        ..LocationPolicy::default()
    }
}

fn route(policy: LocationPolicy) -> Route {
    let paths = vec![to("/", PathType::Prefix, "echo"), to("/nobody", PathType::Prefix, "nobody")];
    Route { paths, policy, ..Route::default() }
}

fn proxy(origin: &Origin, route: Route) -> Proxy {
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    proxy.service("nobody", Default::default());
    proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
    proxy
}

fn ask(client: &mut Client, method: &str, target: &str, origin: &str) -> Answer {
    client.ask(&format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\nOrigin: {origin}\r\n\r\n"))
}

#[test]
fn an_allowed_origin_is_told_so_by_every_answer_in_place_of_the_backend_s() {
    let origin = Origin::new(|request| {
        let status = if request.line().contains("broken") { "500 Oops" } else { "200 OK" };
        let head =
            "access-control-allow-origin: https://own.test\r\nAccess-Control-Max-Age: 1\r\nContent-Length: 0";
        (format!("HTTP/1.1 {status}\r\n{head}\r\n\r\n").into_bytes(), true)
    });
    let proxy = proxy(&origin, route(said(&["https://a.com"])));
    let mut client = Client::new(proxy.http);
    for (target, status) in [("/", 200), ("/broken", 500), ("/nobody", 503)] {
        let response = ask(&mut client, "GET", target, "https://A.com");
        assert_eq!(response.status, status);
        assert_eq!(response.all("access-control-allow-origin"), ["https://A.com"], "{target}");
        assert_eq!(response.all("access-control-allow-credentials"), ["true"]);
        assert_eq!(response.all("access-control-max-age"), ["1728000"]);
        assert!(response.all("access-control-expose-headers").is_empty());
    }
    let stranger = ask(&mut client, "GET", "/", "https://b.com");
    assert_eq!(stranger.all("access-control-allow-origin"), ["https://own.test"], "the backend's own");
    assert!(
        ask(&mut client, "GET", "/nobody", "https://b.com").all("access-control-allow-origin").is_empty()
    );
}

#[test]
fn a_preflight_is_answered_before_the_redirect_and_without_the_backend() {
    let origin = Origin::says("options");
    let mut proxy = proxy(&origin, route(said(&["https://a.com"])));
    proxy.config(vec![("a.test", Resource::Host(Host { tls: Some(Tls::default()), ..Host::default() }))]);
    let mut client = Client::new(proxy.http);
    let response = ask(&mut client, "OPTIONS", "/", "https://a.com");
    assert_eq!((response.status, response.all("content-type")), (204, vec![]));
    assert_eq!(response.all("content-length"), ["0"], "as in ingress-nginx");
    assert_eq!(response.all("access-control-allow-methods"), ["GET, PUT, POST, DELETE, PATCH, OPTIONS"]);
    let usual = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization";
    assert_eq!(response.all("access-control-allow-headers"), [usual]);
    assert_eq!(ask(&mut client, "GET", "/", "https://a.com").status, 308);
    assert_eq!(ask(&mut client, "OPTIONS", "/", "https://b.com").status, 308);
    assert!(origin.seen().is_empty());
    proxy.config(vec![("a.test", Resource::Host(Host::default()))]);
    let stranger = ask(&mut client, "OPTIONS", "/", "https://b.com");
    assert_eq!((stranger.status, stranger.text()), (200, "options"));
}

#[test]
fn lists_of_headers_are_those_of_the_location() {
    let origin = Origin::says("in");
    let policy = LocationPolicy {
        cors_allow_headers: Some("X-Asks".into()),
        cors_expose_headers: Some("X-Shown, X-Also".into()),
        ..said(&["https://a.com"])
    };
    let proxy = proxy(&origin, route(policy));
    for method in ["GET", "OPTIONS"] {
        let response = ask(&mut Client::new(proxy.http), method, "/", "https://a.com");
        assert_eq!(response.all("access-control-allow-headers"), ["X-Asks"], "{method}");
        assert_eq!(response.all("access-control-expose-headers"), ["X-Shown, X-Also"], "{method}");
    }
}

#[test]
fn a_denied_location_says_nothing_of_it() {
    let origin = Origin::says("");
    let denied = Some(Denial { reason: "it is".to_owned() });
    let proxy = proxy(&origin, Route { denied, ..route(said(&["*"])) });
    let response = ask(&mut Client::new(proxy.http), "OPTIONS", "/", "https://a.com");
    assert_eq!(response.status, 503);
    assert!(response.all("access-control-allow-origin").is_empty());
}

/// As in nginx, which checks the length of a body before anything else in the location.
#[test]
fn a_preflight_with_a_body_that_is_too_long_is_no_preflight() {
    let origin = Origin::says("x");
    let proxy = proxy(&origin, route(LocationPolicy { proxy_body_size: Some(1), ..said(&["*"]) }));
    let asks = |length| {
        let head = format!(
            "OPTIONS / HTTP/1.1\r\nHost: a.test\r\nOrigin: https://a.com\r\nContent-Length: {length}"
        );
        let mut client = Client::new(proxy.http);
        client.send(format!("{head}\r\n\r\n{}", "x".repeat(length)));
        client.receive(false).unwrap().status
    };
    assert_eq!([asks(1), asks(2)], [204, 413]);
}

/// When disabled, a browser does not let scripts read responses to requests with its user's cookies.
#[test]
fn credentials_are_allowed_unless_it_is_said_otherwise() {
    let origin = Origin::says("in");
    for (credentials, told) in [(None, &["true"][..]), (Some(true), &["true"]), (Some(false), &[])] {
        let policy = LocationPolicy { cors_allow_credentials: credentials, ..said(&["https://a.com"]) };
        let proxy = proxy(&origin, route(policy));
        for method in ["GET", "OPTIONS"] {
            let response = ask(&mut Client::new(proxy.http), method, "/", "https://a.com");
            assert_eq!(response.all("access-control-allow-origin"), ["https://a.com"]);
            assert_eq!(response.all("access-control-allow-credentials"), told, "{credentials:?} {method}");
        }
    }
}
