//! Body size limits of a location or of the fleet, and whether bodies are buffered or streamed.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use data_plane::local::Limits;
use data_plane::table::Timeouts;
use shared::policy::LocationPolicy;
use shared::resource::{PathType, Resource, Route, Settings};

use super::harness::*;

const HOUR: Duration = Duration::from_secs(3600);

fn most(bytes: u64) -> LocationPolicy {
    LocationPolicy { proxy_body_size: Some(bytes), ..LocationPolicy::default() }
}

fn streamed() -> LocationPolicy {
    LocationPolicy { proxy_request_buffering: Some(false), ..LocationPolicy::default() }
}

/// A location with each policy, all with one endpoint.
fn proxy(origin: &Origin, paths: &[(&str, LocationPolicy)]) -> Proxy {
    let timeouts = Timeouts { client_body: HOUR, connect: HOUR, send: HOUR, read: HOUR, tries: 1 };
    let mut proxy = Proxy::with(Limits { timeouts, ..Limits::default() });
    proxy.policies(false, paths);
    for (path, _) in paths {
        proxy.endpoints(path.trim_start_matches('/'), &[origin.address]);
    }
    proxy
}

fn counting() -> Origin {
    Origin::new(|seen| (ok(&seen.body.len().to_string()), true))
}

/// The response to a body of this size, with or without a declared length.
fn posted(proxy: &Proxy, path: &str, bytes: usize, chunked: bool) -> (u16, String) {
    let body = "x".repeat(bytes);
    let head = format!("POST {path} HTTP/1.1\r\nHost: a.test\r\n");
    let answer = Client::new(proxy.http).ask(&match chunked {
        true => format!("{head}Transfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n{body}\r\n0\r\n\r\n"),
        false => format!("{head}Content-Length: {bytes}\r\n\r\n{body}"),
    });
    (answer.status, answer.text().to_owned())
}

/// As in nginx, whose catch-all host has the fleet's limit.
#[test]
fn a_body_that_is_too_long_for_the_fleet_is_not_not_found() {
    let mut proxy = Proxy::with(Limits::default());
    let posted = |proxy: &Proxy, bytes: usize| {
        let head = format!("POST / HTTP/1.1\r\nHost: unknown.test\r\nContent-Length: {bytes}\r\n\r\n");
        Client::new(proxy.http).ask(&(head + &"x".repeat(bytes))).status
    };
    proxy.config(vec![("_", Resource::Host(Default::default()))]);
    assert_eq!([10, (1 << 20) + 1].map(|bytes| posted(&proxy, bytes)), [404, 413]);
    let settings = Settings { defaults: most(10), ..Settings::default() };
    proxy.config(vec![("default", Resource::Settings(settings))]);
    assert_eq!([10, 11].map(|bytes| posted(&proxy, bytes)), [404, 413]);
}

/// nginx finds the location with the slash first, and the size of that one counts.
#[test]
fn a_body_that_is_too_long_is_not_redirected_to_the_slash() {
    let origin = counting();
    let mut proxy = proxy(&origin, &[("/other", most(0))]);
    let paths = vec![to("/below/", PathType::Prefix, "other")];
    let route = Route { paths, policy: most(10), ..Route::default() };
    proxy.config(vec![("ingress/ns/below/a.test", Resource::Route(route))]);
    let statuses = [10, 11].map(|bytes| posted(&proxy, "/below", bytes, false).0);
    assert_eq!(statuses, [301, 413]);
}

#[test]
fn each_location_has_its_own_size() {
    let origin = counting();
    let both = LocationPolicy { proxy_body_size: Some(2048), ..streamed() };
    let paths = [("/small", most(2048)), ("/any", most(0)), ("/usual", most(1 << 20)), ("/streamed", both)];
    let mut proxy = proxy(&origin, &paths);
    for chunked in [false, true] {
        for path in ["/small", "/streamed"] {
            assert_eq!(posted(&proxy, path, 2048, chunked), (200, "2048".into()), "{path}");
            assert_eq!(posted(&proxy, path, 2049, chunked).0, 413, "{path}");
        }
        assert_eq!(posted(&proxy, "/any", 3_000_000, chunked), (200, "3000000".into()));
        assert_eq!(posted(&proxy, "/usual", 1 << 20, chunked).0, 200);
        assert_eq!(posted(&proxy, "/usual", (1 << 20) + 1, chunked).0, 413);
    }
    // Refused before any of it is sent.
    let mut client = Client::new(proxy.http);
    client.send("POST /small HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2049\r\n\r\n");
    assert_eq!(client.receive(false).unwrap().status, 413);
    // The fleet's limit applies at once, if a location has none.
    proxy.policies(false, &[("/usual", LocationPolicy::default())]);
    let defaults = most(100);
    proxy.defaults(defaults);
    assert_eq!(posted(&proxy, "/usual", 100, false).0, 200);
    assert_eq!(posted(&proxy, "/usual", 101, false).0, 413);
    assert_eq!(posted(&proxy, "/small", 2048, false).0, 200);
}

#[test]
fn little_and_much_memory_carry_the_same_bytes() {
    let origin = Origin::new(|seen| (ok(std::str::from_utf8(&seen.body).unwrap()), true));
    let memory = |bytes| LocationPolicy { client_body_buffer_size: Some(bytes), ..most(0) };
    let proxy =
        proxy(&origin, &[("/none", memory(0)), ("/much", memory(64 << 20)), ("/all", memory(u64::MAX))]);
    for path in ["/none", "/much", "/all"] {
        for bytes in [1, 100_000, 2_000_000] {
            let (status, body) = posted(&proxy, path, bytes, false);
            assert_eq!((status, body.len()), (200, bytes), "{path}");
        }
    }
}

#[test]
fn a_streamed_body_is_seen_before_its_end_and_may_be_answered_then() {
    let origin = Origin::raw(|mut stream, _, _| {
        let mut seen = Vec::new();
        while !seen.ends_with(b"beginning") {
            let mut some = [0; 1024];
            let Ok(count @ 1..) = stream.read(&mut some) else { return };
            seen.extend_from_slice(&some[..count]);
        }
        let _ = stream.write_all(&ok("early"));
        let _ = stream.read(&mut [0; 1]);
    });
    let proxy = proxy(&origin, &[("/streamed", streamed())]);
    let mut client = Client::new(proxy.http);
    client.send("POST /streamed HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000\r\n\r\nbeginning");
    assert_eq!(client.receive(false).unwrap().text(), "early");
}

#[test]
fn a_body_that_stays_away_has_the_said_time_however_it_is_sent_on() {
    let origin = counting();
    let patient = |policy| LocationPolicy { client_body_timeout: Some(1), ..policy };
    let paths = [("/whole", patient(LocationPolicy::default())), ("/streamed", patient(streamed()))];
    let proxy = proxy(&origin, &paths);
    for (path, _) in paths {
        let mut client = Client::new(proxy.http);
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nabc"));
        assert!(client.ended(), "{path}");
    }
    assert_eq!(proxy.stop(Duration::ZERO, PATIENCE).matches(" HTTP/1.1\" 408 0 ").count(), 2);
    assert!(origin.seen().is_empty());
}

/// A response whose head has this many bytes.
fn headed(bytes: usize) -> Origin {
    Origin::new(move |_| {
        let bare = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: \r\n\r\n";
        let filler = "x".repeat(bytes - bare.len());
        (format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: {filler}\r\n\r\nok").into(), true)
    })
}

#[test]
fn the_head_of_an_answer_fits_the_said_buffer_or_is_502() {
    let buffer = |bytes| LocationPolicy { proxy_buffer_size: Some(bytes), ..LocationPolicy::default() };
    let paths =
        [("/usual", LocationPolicy::default()), ("/large", buffer(128 << 10)), ("/any", buffer(u64::MAX))];
    for (bytes, statuses) in [
        (4096, [200, 200, 200]),
        (4097, [502, 200, 200]),
        (128 << 10, [502, 200, 200]),
        ((128 << 10) + 1, [502, 502, 200]),
        ((256 << 10) + 1, [502, 502, 502]),
    ] {
        let origin = headed(bytes);
        let proxy = proxy(&origin, &paths);
        let got = paths.clone().map(|(path, _)| Client::new(proxy.http).get(path).status);
        assert_eq!(got, statuses, "{bytes}");
    }
}
