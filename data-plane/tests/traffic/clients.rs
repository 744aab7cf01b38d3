//! Fleet-wide settings of client connections.

use std::io::Read as _;
use std::time::Duration;

use data_plane::local::Limits;
use shared::policy::{Buffers, LocationPolicy};
use shared::resource::{Host, Resource};

use super::harness::*;

/// One Service behind `a.test`, with these fleet settings.
fn saying(origin: &Origin, defaults: LocationPolicy) -> Proxy {
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    proxy.defaults(defaults);
    proxy
}

#[test]
fn a_connection_lasts_as_long_as_the_fleet_says() {
    let origin = Origin::says("hello");
    let said = |idle, requests| LocationPolicy {
        keep_alive: idle,
        keep_alive_requests: requests,
        ..LocationPolicy::default()
    };
    let short = saying(&origin, said(Some(1), None));
    let mut client = Client::new(short.http);
    assert_eq!(client.get("/").all("connection"), ["keep-alive"]);
    let begun = std::time::Instant::now();
    assert!(client.ended());
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(10), "{took:?}");
    for (idle, requests, kept) in
        [(Some(0), None, 0), (None, Some(0), 0), (None, Some(3), 2), (Some(60), None, 5)]
    {
        let proxy = saying(&origin, said(idle, requests));
        let mut client = Client::new(proxy.http);
        let keeps = |client: &mut Client| client.get("/").all("connection") == ["keep-alive"];
        let seen = (0..5).take_while(|_| keeps(&mut client)).count();
        assert_eq!(seen, kept, "{idle:?} {requests:?}");
    }
}

#[test]
fn clients_connect_to_the_addresses_that_the_fleet_says() {
    let origin = Origin::says("hello");
    let at = |address: &str| saying(&origin, bound_to(address));
    assert_eq!(Client::new(at("127.0.0.1").http).get("/").status, 200);
    assert_eq!(Client::new(at("fd00::1").http).get("/").status, 200, "it says nothing of IPv4");
    let mut elsewhere = at("127.0.0.9");
    assert!(Client::new(elsewhere.http).ended());
    assert!(Client::new(elsewhere.https).ended());
    assert_eq!(elsewhere.metrics.worker(0).refused.value(), 2);
    elsewhere.defaults(LocationPolicy::default());
    assert_eq!(Client::new(elsewhere.http).get("/").status, 200);
}

#[test]
fn a_head_may_be_as_long_as_the_fleet_says() {
    let origin = Origin::says("hello");
    let ask = |proxy: &Proxy, path: usize, field: usize| {
        let (path, field) = ("x".repeat(path), "x".repeat(field));
        Client::new(proxy.http)
            .ask(&format!("GET /{path} HTTP/1.1\r\nHost: a.test\r\nX-Long: {field}\r\n\r\n"))
            .status
    };
    let with = |number, size| {
        let buffers = Some(Buffers { number, size });
        saying(&origin, LocationPolicy { large_client_header_buffers: buffers, ..LocationPolicy::default() })
    };
    let usual = saying(&origin, LocationPolicy::default());
    let many = |count| {
        let fields = format!("X-Long: {}\r\n", "x".repeat(7_000)).repeat(count);
        Client::new(usual.http).ask(&format!("GET / HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n"))
    };
    assert_eq!((many(4).status, many(5).status), (200, 400), "four buffers");
    assert!(many(5).text().contains("<title>400 Request Header Or Cookie Too Large</title>"));
    assert_eq!((ask(&usual, 7_000, 7_000), ask(&usual, 9_000, 1), ask(&usual, 1, 9_000)), (200, 414, 400));
    let large = with(4, 32 << 10);
    assert_eq!(
        (ask(&large, 20_000, 20_000), ask(&large, 33_000, 1), ask(&large, 1, 33_000)),
        (200, 414, 400)
    );
    let first = |size| LocationPolicy { client_header_buffer_size: Some(size), ..LocationPolicy::default() };
    let longer = saying(&origin, first(16 << 10));
    assert_eq!((ask(&longer, 12_000, 1), ask(&longer, 1, 12_000), ask(&longer, 17_000, 1)), (200, 200, 414));
    let small = with(2, 1 << 10);
    assert_eq!((ask(&small, 800, 800), ask(&small, 1_100, 1), ask(&small, 1, 1_100)), (200, 414, 400));
}

#[test]
fn a_head_has_as_long_as_the_fleet_says() {
    let origin = Origin::says("hello");
    let said = LocationPolicy { client_header_timeout: Some(1), ..LocationPolicy::default() };
    let proxy = saying(&origin, said);
    let mut client = Client::new(proxy.http);
    client.send("GET / HTTP/1.1\r\nHost:");
    let begun = std::time::Instant::now();
    assert!(client.ended());
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn a_health_check_is_answered_in_the_said_type() {
    let origin = Origin::says("hello");
    for (said, media_type) in [(None, "text/html"), (Some("text/x-none"), "text/x-none")] {
        let defaults = LocationPolicy { default_type: said.map(str::to_owned), ..LocationPolicy::default() };
        let mut proxy = saying(&origin, defaults);
        proxy.config(vec![("_", Resource::Host(Host::default()))]);
        let answer = Client::new(proxy.http).ask("GET /healthz HTTP/1.1\r\nHost: nobody.test\r\n\r\n");
        assert_eq!((answer.status, answer.all("content-type")), (200, vec![media_type]));
        // Error pages are not affected.
        let answer = Client::new(proxy.http).ask("GET / HTTP/1.1\r\nHost: nobody.test\r\n\r\n");
        assert_eq!((answer.status, answer.all("content-type")), (404, vec!["text/html"]));
    }
}

#[test]
fn a_health_check_is_answered_where_the_fleet_says() {
    let origin = Origin::says("hello");
    for (said, there, elsewhere) in [(None, "/healthz", "/up"), (Some("/up"), "/up/x?y", "/healthz")] {
        let health_check_path = said.map(str::to_owned);
        let mut proxy = saying(&origin, LocationPolicy { health_check_path, ..LocationPolicy::default() });
        proxy.config(vec![("_", Resource::Host(Host::default()))]);
        let mut client = Client::new(proxy.http);
        let mut status =
            |path: &str| client.ask(&format!("GET {path} HTTP/1.1\r\nHost: nobody.test\r\n\r\n")).status;
        assert_eq!((status(there), status(elsewhere)), (200, 404), "{said:?}");
    }
}

#[test]
fn http_2_is_spoken_unless_the_fleet_says_no() {
    let origin = Origin::says("hello");
    for (said, spoken) in [(None, true), (Some(true), true), (Some(false), false)] {
        let proxy = saying(&origin, LocationPolicy { use_http2: said, ..LocationPolicy::default() });
        let mut client = Client::new(proxy.http);
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        let mut first = [0; 9];
        client.stream.read_exact(&mut first).unwrap();
        // A SETTINGS frame, or an HTTP/1.1 refusal.
        assert_eq!((first[3] == 4, first.starts_with(b"HTTP/1.1 ")), (spoken, !spoken), "{said:?}");
    }
}
