//! Keep-alive of connections to endpoints, as configured for the fleet.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use data_plane::local::Limits;
use shared::policy::{ConnectionHeader, LocationPolicy};
use shared::resource::{Resource, SETTINGS_KEY, Settings};

use super::harness::*;

/// One Service behind `a.test`, with these fleet settings.
fn saying(origin: &Origin, defaults: LocationPolicy) -> Proxy {
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    proxy.defaults(defaults);
    proxy
}

/// The connection of each of some consecutive requests.
fn connections(origin: &Origin) -> Vec<usize> {
    origin.seen().iter().map(|seen| seen.connection).collect()
}

#[test]
fn requests_carry_connection_close_without_upstream_keepalive() {
    let origin = Origin::says("hello");
    let proxy = saying(
        &origin,
        LocationPolicy { upstream_keepalive_connections: Some(0), ..LocationPolicy::default() },
    );
    let mut client = Client::new(proxy.http);
    (0..3).for_each(|_| assert_eq!(client.get("/").status, 200));
    assert_eq!(connections(&origin), [0, 1, 2]);
    assert!(origin.seen().iter().all(|seen| seen.all("connection") == ["close"]));
    // An upgrade request keeps its own Connection header.
    client.ask("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n");
    assert_eq!(origin.seen()[3].all("connection"), ["upgrade"]);
}

#[test]
fn upstream_keepalive_requests_limits_the_requests_of_a_connection() {
    let origin = Origin::says("hello");
    let said = LocationPolicy { upstream_keepalive_requests: Some(2), ..LocationPolicy::default() };
    let mut proxy = saying(&origin, said);
    let mut client = Client::new(proxy.http);
    (0..5).for_each(|_| assert_eq!(client.get("/").status, 200));
    assert_eq!(connections(&origin), [0, 0, 1, 1, 2]);
    // Unlimited, from the next connection on.
    proxy.config(vec![(SETTINGS_KEY, Resource::Settings(Settings::default()))]);
    (0..5).for_each(|_| assert_eq!(client.get("/").status, 200));
    assert_eq!(connections(&origin)[5..], [2, 3, 3, 3, 3]);
}

#[test]
fn upstream_keepalive_time_limits_the_age_of_a_connection() {
    let origin = Origin::says("hello");
    let said = LocationPolicy { upstream_keepalive_time: Some(500), ..LocationPolicy::default() };
    let proxy = saying(&origin, said);
    let begun = Instant::now();
    while connections(&origin).last() != Some(&1) {
        // Each by its own client: one may send a thousand requests, which a fast machine does in less time.
        assert_eq!(Client::new(proxy.http).get("/").status, 200);
    }
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
}

#[test]
fn upstream_keepalive_timeout_closes_idle_connections() {
    let ended: Arc<Mutex<Option<Instant>>> = Arc::default();
    let seen = Arc::clone(&ended);
    let origin = Origin::raw(move |mut stream, number, _| {
        while read_request(&mut stream, number).is_some() {
            stream.write_all(&ok("hello")).unwrap();
        }
        seen.lock().unwrap().get_or_insert_with(Instant::now);
    });
    let said = LocationPolicy { upstream_keepalive_timeout: Some(1), ..LocationPolicy::default() };
    let proxy = saying(&origin, said);
    let begun = Instant::now();
    assert_eq!(Client::new(proxy.http).get("/").status, 200);
    eventually("it is closed", || ended.lock().unwrap().is_some());
    let took = ended.lock().unwrap().unwrap().duration_since(begun);
    // A worker's clock is at most a tenth of a second behind.
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(10), "{took:?}");
}

/// Even if the endpoint leaves it open.
#[test]
fn a_connection_that_one_side_said_it_would_close_is_not_used_again() {
    let says_close = Origin::new(|_| {
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx".to_vec(), true)
    });
    let is_told = Origin::says("x");
    let close = LocationPolicy {
        connection_proxy_header: Some(ConnectionHeader::Close.into()),
        ..LocationPolicy::default()
    };
    for (origin, defaults) in [(says_close, LocationPolicy::default()), (is_told, close)] {
        let proxy = saying(&origin, defaults);
        let mut client = Client::new(proxy.http);
        (0..3).for_each(|_| assert_eq!(client.get("/").status, 200));
        assert_eq!(connections(&origin), [0, 1, 2]);
    }
}
