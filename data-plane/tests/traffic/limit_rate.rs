//! Responses that are sent no faster than their location allows.

use std::time::{Duration, Instant};

use shared::policy::LocationPolicy;

use super::harness::*;

const KILO: usize = 1024;

fn paced(rate: u32, after: Option<u32>) -> LocationPolicy {
    LocationPolicy { limit_rate: Some(rate), limit_rate_after: after, ..LocationPolicy::default() }
}

/// `/plain` and `/own` of `a.test`, with a backend whose body has this size.
fn serving(size: usize, defaults: LocationPolicy, own: LocationPolicy) -> Proxy {
    let body: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
    let origin = Origin::new(move |request| {
        let mut answer = match request.line().contains("chunks") {
            true => format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n").into_bytes(),
            false => format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").into_bytes(),
        };
        answer.extend(&body);
        if request.line().contains("chunks") {
            answer.extend(b"\r\n0\r\n\r\n");
        }
        (answer, true)
    });
    let mut proxy = Proxy::start();
    proxy.policies(false, &[("/plain", LocationPolicy::default()), ("/own", own)]);
    proxy.defaults(defaults);
    for service in ["plain", "own"] {
        proxy.endpoints(service, &[origin.address]);
    }
    proxy
}

fn took(client: &mut Client, target: &str, size: usize) -> Duration {
    let begun = Instant::now();
    let answer = client.get(target);
    assert_eq!((answer.status, answer.body.len()), (200, size), "{target}");
    assert!(answer.body.iter().enumerate().all(|(n, byte)| *byte == (n % 251) as u8), "in order");
    begun.elapsed()
}

#[test]
fn limit_rate_slows_the_response_and_keeps_the_connection() {
    let size = 60 * KILO;
    let proxy = serving(size, paced(30, None), paced(0, None));
    let mut client = Client::new(proxy.http);
    // One second's worth is sent at once.
    for target in ["/plain", "/plain/chunks"] {
        let time = took(&mut client, target, size);
        assert!(time > Duration::from_millis(700) && time < Duration::from_secs(8), "{time:?}");
    }
    let free = took(&mut client, "/own", size);
    assert!(free < Duration::from_millis(700), "0 is no limit: {free:?}");
}

#[test]
fn bytes_below_limit_rate_after_are_not_limited() {
    let size = 60 * KILO;
    let proxy = serving(size, LocationPolicy::default(), paced(10, Some(60)));
    let time = took(&mut Client::new(proxy.http), "/own", size);
    assert!(time < Duration::from_millis(700), "{time:?}");
}

#[test]
fn limit_rate_delay_is_no_read_timeout_of_the_backend() {
    let size = 40 * KILO;
    let own = LocationPolicy { proxy_read_timeout: Some(1), ..paced(10, None) };
    let proxy = serving(size, LocationPolicy::default(), own);
    let time = took(&mut Client::new(proxy.http), "/own", size);
    assert!(time > Duration::from_millis(2_500), "{time:?}");
}
