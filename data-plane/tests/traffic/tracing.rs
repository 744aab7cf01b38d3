//! Trace context that backends get (`enable-opentelemetry`).

use std::time::Duration;

use shared::policy::LocationPolicy;
use shared::resource::{Resource, Settings};

use super::harness::*;

const CLIENTS: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn a_backend_is_told_a_trace_where_its_location_says_so() {
    let origin = Origin::says("in");
    let on = LocationPolicy { enable_opentelemetry: Some(true), ..LocationPolicy::default() };
    let distrusting = LocationPolicy { opentelemetry_trust_incoming_span: Some(false), ..on.clone() };
    let paths = [("/on", on), ("/distrusting", distrusting), ("/off", LocationPolicy::default())];
    let mut proxy = Proxy::start();
    proxy.policies(false, &paths);
    for (path, _) in &paths {
        proxy.endpoints(&path[1..], &[origin.address]);
    }
    let told = |path: &str, parent: &str| -> Vec<String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{parent}\r\n");
        assert_eq!(Client::new(proxy.http).ask(&request).status, 200);
        let seen = origin.seen().pop().unwrap();
        seen.all("traceparent").into_iter().map(str::to_owned).collect()
    };
    let sent = format!("traceparent: {CLIENTS}\r\n");
    for (path, parent, continues) in
        [("/on", "", false), ("/on", &*sent, true), ("/distrusting", &sent, false)]
    {
        let told = told(path, parent);
        assert_eq!((told.len(), told[0].len()), (1, CLIENTS.len()), "{path} {parent}: {told:?}");
        let (trace, span) = (&told[0][3..35], &told[0][36..52]);
        assert_eq!(trace == &CLIENTS[3..35], continues, "{path} {parent}: {told:?}");
        assert_ne!(span, &CLIENTS[36..52], "the span is ours");
    }
    assert_eq!(told("/off", ""), [""; 0]);
    assert_eq!(told("/off", &sent), [CLIENTS], "the client's own, as any header");
}

#[test]
fn the_log_has_the_trace_that_the_backend_was_told() {
    let origin = Origin::says("in");
    let on = LocationPolicy { enable_opentelemetry: Some(true), ..LocationPolicy::default() };
    let mut proxy = Proxy::start();
    proxy.policies(false, &[("/on", on), ("/off", LocationPolicy::default())]);
    for service in ["on", "off"] {
        proxy.endpoints(service, &[origin.address]);
    }
    let format = "$opentelemetry_context_traceparent 00-$opentelemetry_trace_id-$opentelemetry_span_id-01";
    let defaults = LocationPolicy { log_format_upstream: Some(format.to_owned()), ..Default::default() };
    proxy.config(vec![("default", Resource::Settings(Settings { defaults, ..Settings::default() }))]);
    let mut client = Client::new(proxy.http);
    for path in ["/on", "/off"] {
        assert_eq!(client.get(path).status, 200);
    }
    drop(client);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let told = origin.seen()[0].all("traceparent").concat();
    assert_eq!(log.lines().collect::<Vec<_>>(), [&format!("{told} {told}"), "- 00-----01"]);
}
