//! Timeouts of a location or of the fleet. The worker's own are an hour, so that a test that ends has seen the
//! configured one.

use std::time::Duration;

use data_plane::local::Limits;
use data_plane::table::Timeouts;
use shared::policy::LocationPolicy;
use shared::resource::{PathType, Resource, Route, SETTINGS_KEY, Settings};

use super::harness::*;

const HOUR: Duration = Duration::from_secs(3600);

fn limits() -> Limits {
    let timeouts = Timeouts { client_body: HOUR, connect: HOUR, send: HOUR, read: HOUR, tries: 1 };
    Limits { timeouts, ..Limits::default() }
}

fn reading(seconds: u32) -> LocationPolicy {
    LocationPolicy { proxy_read_timeout: Some(seconds), ..LocationPolicy::default() }
}

/// One location with this policy, and these fleet settings.
fn proxy(limits: Limits, origin: &Origin, said: LocationPolicy, defaults: LocationPolicy) -> Proxy {
    let mut proxy = Proxy::serving(limits, &[origin.address]);
    let paths = vec![to("/", PathType::Prefix, "echo")];
    let route = Route { paths, policy: said, ..Route::default() };
    proxy.config(vec![
        (SETTINGS_KEY, Resource::Settings(Settings { defaults, ..Settings::default() })),
        ("ingress/ns/web/a.test", Resource::Route(route)),
    ]);
    proxy
}

/// Reads a request and does not respond.
fn silent() -> Origin {
    Origin::raw(|mut stream, connection, _| {
        let _ = read_request(&mut stream, connection);
        let _ = read_request(&mut stream, connection);
    })
}

/// Responds with half a body and nothing more.
fn half() -> Origin {
    Origin::raw(|mut stream, connection, _| {
        use std::io::Write as _;
        let _ = read_request(&mut stream, connection);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        let _ = read_request(&mut stream, connection);
    })
}

#[test]
fn an_endpoint_that_says_nothing_has_the_location_s_time() {
    let origin = silent();
    let proxy = proxy(limits(), &origin, reading(1), LocationPolicy::default());
    assert_eq!(Client::new(proxy.http).get("/").status, 504);
}

#[test]
fn a_body_that_stops_has_the_location_s_time() {
    let origin = half();
    let proxy = proxy(limits(), &origin, reading(1), LocationPolicy::default());
    let mut client = Client::new(proxy.http);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(String::from_utf8(client.rest()).unwrap().ends_with("half"));
}

#[test]
fn the_fleet_s_time_counts_where_the_location_says_none() {
    let origin = silent();
    let proxy = proxy(limits(), &origin, LocationPolicy::default(), reading(1));
    assert_eq!(Client::new(proxy.http).get("/").status, 504);
}

#[test]
fn the_location_s_time_counts_over_the_fleet_s() {
    let origin = silent();
    let proxy = proxy(limits(), &origin, reading(1), reading(3600));
    assert_eq!(Client::new(proxy.http).get("/").status, 504);
}
