//! Services of type ExternalName: where requests go while the DNS responds, is slow, changes its response or fails.

use std::time::{Duration, Instant};

use data_plane::table::apply::names::Answer;
use shared::resource::{Backend, ExternalName, PathType, Resource};

use super::harness::*;

/// `/far` has a DNS name as its backend, `/near` an origin of its own.
fn proxy(port: u16) -> (Proxy, Origin) {
    let mut proxy = Proxy::start();
    let near = Origin::says("near");
    proxy.host("a.test", false, &[("/far", PathType::Prefix, "far"), ("/near", PathType::Prefix, "near")]);
    proxy.endpoints("near", &[near.address]);
    follow(&mut proxy, "far.test", port);
    (proxy, near)
}

fn follow(proxy: &mut Proxy, name: &str, port: u16) {
    let external = Some(ExternalName { name: name.into(), port, local: true });
    let backend = Backend { external, ..Backend::default() };
    proxy.config(vec![("ns/far/80", Resource::Backend(backend))]);
}

fn answer(proxy: &mut Proxy, name: &str, answer: Answer) {
    let due = proxy.writer.names().wake().unwrap().unwrap_or_else(Instant::now);
    assert_eq!(proxy.writer.names().next(due).as_deref(), Some(name));
    proxy.writer.answered(name, answer, due);
}

fn at(origin: &Origin) -> Answer {
    Answer::Found { addresses: vec![origin.address.ip()], ttl: Duration::from_secs(1) }
}

/// The origin that responds, or the status if none does.
fn who(proxy: &Proxy, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let response = Client::new(proxy.http).ask(&request);
    if response.status == 200 { response.text().to_owned() } else { response.status.to_string() }
}

#[test]
fn a_name_that_is_not_answered_yet_is_nobody_elses_matter() {
    let origin = Origin::says("far");
    let (mut proxy, _near) = proxy(origin.address.port());
    // It is being resolved, and no server responds.
    assert!(proxy.writer.names().next(Instant::now()).is_some());
    for _ in 0..3 {
        assert_eq!((who(&proxy, "/far"), who(&proxy, "/near")), ("503".into(), "near".into()));
    }
    proxy.writer.answered("far.test", at(&origin), Instant::now());
    assert_eq!((who(&proxy, "/far"), who(&proxy, "/near")), ("far".into(), "near".into()));
}

#[test]
fn requests_go_where_the_last_answer_says() {
    let origin = Origin::says("far");
    let (mut proxy, _near) = proxy(origin.address.port());
    answer(&mut proxy, "far.test", at(&origin));
    assert_eq!(who(&proxy, "/far"), "far");
    answer(&mut proxy, "far.test", Answer::Failed);
    assert_eq!(who(&proxy, "/far"), "far", "a failure is no answer");
    answer(&mut proxy, "far.test", Answer::Nothing);
    assert_eq!((who(&proxy, "/far"), who(&proxy, "/near")), ("503".into(), "near".into()));
    answer(&mut proxy, "far.test", at(&origin));
    assert_eq!(who(&proxy, "/far"), "far");
}

#[test]
fn a_service_that_gets_another_name_loses_no_request() {
    let (one, two) = (Origin::says("one"), Origin::says("two"));
    let (mut proxy, _near) = proxy(one.address.port());
    answer(&mut proxy, "far.test", at(&one));
    assert_eq!(who(&proxy, "/far"), "one");
    follow(&mut proxy, "other.test", two.address.port());
    assert_eq!(who(&proxy, "/far"), "one", "until the other name is answered");
    answer(&mut proxy, "other.test", at(&two));
    assert_eq!(who(&proxy, "/far"), "two");
}
