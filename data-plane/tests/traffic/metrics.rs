//! Request metrics as a scrape sees them.

use std::sync::Arc;
use std::time::Duration;

use data_plane::local::Limits;
use data_plane::metrics::{Labels, Rules};
use shared::admin::Body;
use shared::delta::Removal;
use shared::kind::{Kind, ResourceKey};
use shared::policy::{HostPolicy, LocationPolicy, TextList};
use shared::resource::{CATCH_ALL, Host, PathType, Resource};

use super::harness::*;

/// Samples of a page, without the labels that all series have.
fn samples(proxy: &Proxy) -> Vec<String> {
    let page = proxy.metrics.requests(&Arc::new(Rules::default()), &Labels::default());
    let page = Body::Pieces(Box::new(page)).into_bytes();
    let page = str::from_utf8(&page).unwrap();
    let constant = Labels::default().text("k8s.io/ingress-nginx") + ",";
    let lines = page.lines().filter_map(|line| line.strip_prefix("nginx_ingress_controller_"));
    lines.map(|line| line.replace(&constant, "")).collect()
}

/// The samples once they satisfy the condition: workers publish them on their ticks.
fn eventually(proxy: &Proxy, what: impl Fn(&[String]) -> bool) -> Vec<String> {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let samples = samples(proxy);
        if what(&samples) {
            return samples;
        }
        assert!(std::time::Instant::now() < until, "{samples:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn counted(samples: &[String]) -> Vec<&str> {
    samples.iter().filter_map(|line| line.strip_prefix("requests")).collect()
}

#[test]
fn requests_are_counted_where_they_belong() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::start();
    proxy.host("a.test", false, &[("/foo", PathType::Prefix, "echo")]);
    proxy.host("*.b.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    proxy.config(vec![(CATCH_ALL, Resource::Host(Host::default()))]);
    let mut client = Client::new(proxy.http);
    for (method, target, host) in [
        ("GET", "/foo/x?y", "a.test"),
        ("GET", "/foo", "a.test"),
        ("BREW", "/foo", "a.test"),
        ("GET", "/nothing", "a.test"),
        ("GET", "/", "x.b.test"),
        ("GET", "/", "nobody.test"),
    ] {
        client.ask(&format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    }
    let samples = eventually(&proxy, |samples| counted(samples).len() == 4);
    let series = |host, method, path, service, status, count| {
        format!(
            "{{canary=\"\",host=\"{host}\",ingress=\"web\",method=\"{method}\",namespace=\"ns\",path=\"{path}\",\
             service=\"{service}\",status=\"{status}\"}} {count}"
        )
    };
    assert_eq!(
        counted(&samples),
        [
            series("*.b.test", "GET", "/", "echo", 200, 1),
            series("a.test", "GET", "/", "", 404, 1),
            series("a.test", "GET", "/foo", "echo", 200, 2),
            series("a.test", "OTHER", "/foo", "echo", 200, 1),
        ]
    );
    let of = |name: &str| samples.iter().filter(|line| line.starts_with(name)).count();
    // In ingress-nginx a server of its own sends the 404, which counts as an endpoint.
    assert_eq!((of("request_duration_seconds_count"), of("response_duration_seconds_count")), (4, 4));
    assert_eq!((of("connect_duration_seconds_bucket"), of("bytes_sent_bucket")), (4 * 12, 4 * 8));
}

/// As in ingress-nginx: an alias is a known host. It has the same location.
#[test]
fn request_by_an_alias_is_counted_under_the_alias() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::start();
    proxy.host("a.test", false, &[("/foo", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    let values = ["b.test", "a.test", "*.c.test", "~^d"].map(str::to_owned).into();
    let policy = HostPolicy { aliases: Some(TextList { values }), ..HostPolicy::default() };
    proxy.config(vec![("a.test", Resource::Host(Host { policy, ..Host::default() }))]);
    let mut client = Client::new(proxy.http);
    for host in ["a.test", "b.test", "x.c.test", "d.test"] {
        client.ask(&format!("GET /foo HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    }
    client.ask("GET /nothing HTTP/1.1\r\nHost: b.test\r\n\r\n");
    let samples = eventually(&proxy, |samples| counted(samples).len() == 3);
    let found: Vec<_> = counted(&samples)
        .iter()
        .map(|line| {
            let label =
                |name: &str| line.split_once(&format!("{name}=\"")).unwrap().1.split('"').next().unwrap();
            (label("host"), label("path"), label("ingress"), line.rsplit_once(' ').unwrap().1)
        })
        .collect();
    // Names matched only by a pattern or wildcard are counted under the host itself: clients cannot create series.
    assert_eq!(
        found,
        [("a.test", "/foo", "web", "3"), ("b.test", "/", "web", "1"), ("b.test", "/foo", "web", "1")]
    );
}

#[test]
fn counts_survive_another_policy_and_go_with_their_path() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::start();
    let limited = LocationPolicy { limit_rate: Some(1), ..LocationPolicy::default() };
    proxy.policies(false, &[("/echo", LocationPolicy::default()), ("/gone", LocationPolicy::default())]);
    proxy.endpoints("echo", &[origin.address]);
    proxy.endpoints("gone", &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.get("/echo");
    client.get("/gone");
    eventually(&proxy, |samples| counted(samples).len() == 2);
    proxy.policies(false, &[("/echo", limited)]);
    client.get("/echo");
    let key = ResourceKey::new(Kind::Route, "ingress/ns/gone/a.test".to_owned());
    proxy.writer.apply_config(vec![], &[Removal { key, gone: true }]);
    // The worker releases the old tables on its tick, and then the writer drops the path.
    let until = std::time::Instant::now() + PATIENCE;
    while counted(&samples(&proxy)).len() != 1 {
        assert!(std::time::Instant::now() < until, "{:#?}", samples(&proxy));
        std::thread::sleep(Duration::from_millis(20));
        proxy.writer.collect();
    }
    let samples = eventually(&proxy, |samples| counted(samples)[0].ends_with(" 2"));
    assert!(counted(&samples)[0].contains("path=\"/echo\""), "{samples:#?}");
}

#[test]
fn several_tries_have_no_times_of_their_own() {
    let proxy = Proxy::serving(Limits::default(), &[refusing()]);
    Client::new(proxy.http).get("/");
    let samples = eventually(&proxy, |samples| counted(samples).len() == 1);
    assert!(counted(&samples)[0].contains("status=\"502\""), "{samples:#?}");
    let has = |name: &str| samples.iter().any(|line| line.starts_with(name));
    assert!(
        has("request_duration_seconds_count") && !has("response_duration_seconds") && !has("header_duration")
    );
}

#[test]
fn connections_are_shown_to_whom_somebody_says() {
    let mut proxy = Proxy::start();
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.config(vec![(CATCH_ALL, Resource::Host(Host::default()))]);
    let ask = |proxy: &Proxy, host: &str| {
        let answer =
            Client::new(proxy.http).ask(&format!("GET /nginx_status HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    };
    let (status, text) = ask(&proxy, "nobody.test");
    assert_eq!(status, 200);
    assert!(
        text.starts_with("Active connections: 1 \nserver accepts handled requests\n 1 1 0 \nReading: 0 "),
        "{text}"
    );
    assert_eq!(ask(&proxy, "a.test").0, 503, "that of a host is its Ingress'");
    // By default it is shown only to this machine, whoever the request came through.
    let defaults = LocationPolicy {
        use_forwarded_headers: Some(true),
        proxy_real_ip_cidr: Some(TextList { values: vec!["127.0.0.0/8".to_owned()] }),
        ..LocationPolicy::default()
    };
    proxy.defaults(defaults);
    assert_eq!(ask(&proxy, "nobody.test\r\nX-Forwarded-For: 192.0.2.1").0, 403);
    let defaults = LocationPolicy {
        nginx_status_ipv4_whitelist: Some(TextList { values: vec!["192.0.2.0/24".to_owned()] }),
        ..LocationPolicy::default()
    };
    proxy.defaults(defaults);
    assert_eq!(ask(&proxy, "nobody.test").0, 403);
}

#[test]
fn figures_are_those_of_a_request_and_of_its_endpoint() {
    const FIRST: &str = "path=\"/first\"";
    const KEPT: &str = "path=\"/kept\"";
    let origin = Origin::says("hello");
    let mut proxy = Proxy::start();
    let paths = ["/first", "/kept"].map(|path| (path, PathType::Prefix, "echo"));
    proxy.host("a.test", false, &paths);
    proxy.endpoints("echo", &[origin.address]);
    let body = "x".repeat(1_000);
    let request = |path: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let mut client = Client::new(proxy.http);
    let answer = client.ask(&request("/first"));
    assert_eq!(client.ask(&request("/kept")).status, 200);
    let samples = eventually(&proxy, |samples| counted(samples).len() == 2);
    let sum = |name: &str, path: &str| {
        let begin = format!("{name}_sum{{");
        let line = samples.iter().find(|line| line.starts_with(&begin) && line.contains(path));
        line.unwrap_or_else(|| panic!("{name} {path}: {samples:#?}")).rsplit(' ').next().unwrap()
    };
    let came = request("/first").len().to_string();
    let sent = (answer.head.len() + answer.body.len()).to_string();
    let sizes = ["request_size", "response_size", "bytes_sent"].map(|name| sum(name, FIRST));
    assert_eq!(sizes, [&*came, &sent, &sent]);
    // Only the first one had to connect; both had to wait for an answer.
    assert_ne!(sum("connect_duration_seconds", FIRST), "0");
    assert_eq!(sum("connect_duration_seconds", KEPT), "0");
    assert_ne!(sum("header_duration_seconds", KEPT), "0");
}
