//! Where endpoints come from: slices, the address of the Service, a name.

use std::net::IpAddr;
use std::time::Duration;

use shared::policy::BackendPolicy;
use shared::resource::ExternalName;

use super::*;
use crate::table::apply::names::Answer;
use crate::table::endpoints::Endpoint;

fn writer_of(backend: Backend) -> Writer {
    let mut writer = Writer::new();
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1])], &[]);
    writer.replace_config(vec![
        host("a.test", None),
        route("ingress/ns/i/a.test", &[("/", "ns/s1/80")]),
        entry("ns/s1/80", Resource::Backend(backend)),
    ]);
    writer
}

fn put(writer: &mut Writer, backend: Backend) {
    writer.apply_config(vec![entry("ns/s1/80", Resource::Backend(backend))], &[]);
}

fn named(name: &str) -> Backend {
    let external = Some(ExternalName { name: name.into(), port: 443, local: false });
    Backend { external, ..Backend::default() }
}

fn of_slices() -> Backend {
    Backend {
        port: Some(PortRule { name: "http".into(), target_port: None, udp: false }),
        ..Backend::default()
    }
}

fn found(addresses: &[&str]) -> Answer {
    let addresses = addresses.iter().map(|ip| ip.parse::<IpAddr>().unwrap()).collect();
    Answer::Found { addresses, ttl: Duration::from_secs(5) }
}

/// Resolves the name that is due first with this result.
fn answer(writer: &mut Writer, answer: &Answer) -> String {
    let now = writer.names().wake().unwrap().unwrap_or_else(Instant::now);
    let name = writer.names().next(now).unwrap();
    writer.answered(&name, answer.clone(), now);
    name.to_string()
}

fn list(writer: &Writer) -> Vec<Arc<Endpoint>> {
    action(writer, "a.test").unwrap().endpoints().list.iter().map(Arc::clone).collect()
}

fn addresses(writer: &Writer) -> Vec<String> {
    list(writer).iter().map(|endpoint| endpoint.address.to_string()).collect()
}

#[test]
fn an_answer_fills_the_cell_and_touches_no_host() {
    let mut writer = writer_of(named("one.test"));
    assert_eq!(addresses(&writer), [""; 0]);
    let before = costs(&writer);
    assert_eq!(answer(&mut writer, &found(&["10.0.0.2", "10.0.0.1"])), "one.test");
    assert_eq!(addresses(&writer), ["10.0.0.1:443", "10.0.0.2:443"]);
    let after = costs(&writer);
    assert_eq!((after[0], after[2]), (before[0], before[2]), "neither a host nor a table");
    let first = list(&writer);
    answer(&mut writer, &found(&["10.0.0.3", "10.0.0.2"]));
    assert_eq!(addresses(&writer), ["10.0.0.2:443", "10.0.0.3:443"]);
    assert!(Arc::ptr_eq(&first[1], &list(&writer)[0]), "what is known of it stays");
}

#[test]
fn another_source_is_used_once_it_is_known() {
    let mut writer = writer_of(of_slices());
    let cell = action(&writer, "a.test").unwrap();
    put(&mut writer, named("one.test"));
    assert_eq!(addresses(&writer), ["10.0.0.1:8080"], "until the name is answered");
    answer(&mut writer, &found(&["10.0.0.2"]));
    assert_eq!(addresses(&writer), ["10.0.0.2:443"]);
    put(&mut writer, named("two.test"));
    assert_eq!(addresses(&writer), ["10.0.0.2:443"]);
    assert_eq!(answer(&mut writer, &Answer::Failed), "two.test", "the other one is asked for no longer");
    assert_eq!(addresses(&writer), [""; 0], "of this name nothing is known");
    put(&mut writer, of_slices());
    assert_eq!(addresses(&writer), ["10.0.0.1:8080"]);
    assert_eq!(writer.names().wake(), None);
    assert!(Arc::ptr_eq(&cell, &action(&writer, "a.test").unwrap()), "in one cell");
}

#[test]
fn a_name_that_no_table_names_is_asked_for_no_longer() {
    let mut writer = writer_of(named("one.test"));
    assert!(writer.names().wake().is_some());
    writer.apply_config(vec![], &[gone(&key(Kind::Route, "ingress/ns/i/a.test"))]);
    writer.apply_config(vec![], &[gone(&key(Kind::Backend, "ns/s1/80"))]);
    writer.collect();
    assert_eq!(writer.names().wake(), None);
}

#[test]
fn a_name_does_not_lead_into_the_proxys_own_machine() {
    let astray = [
        "127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "fd00:ec2::254",
        "224.0.0.1",
        "::1",
        "fe80::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
    ];
    let hostile = found(&[&astray[..], &["10.0.0.1"]].concat());
    let mut writer = writer_of(named("one.test"));
    answer(&mut writer, &hostile);
    assert_eq!(addresses(&writer), ["10.0.0.1:443"]);
    // Allowed for names that come from a folder.
    let external = Some(ExternalName { name: "one.test".into(), port: 443, local: true });
    put(&mut writer, Backend { external, ..Backend::default() });
    assert_eq!(addresses(&writer).len(), astray.len() + 1);
}

#[test]
fn the_address_of_the_service_is_used_where_it_is_asked_for() {
    let service = Some("10.96.0.7:80".parse().unwrap());
    let says = |service_upstream| BackendPolicy { service_upstream, ..BackendPolicy::default() };
    let backend = |configured| Backend { service, policy: says(configured), ..of_slices() };
    let fleet = |configured| {
        let settings = Settings { backend_defaults: says(configured), ..Settings::default() };
        entry("default", Resource::Settings(settings))
    };
    let (pod, own) = ("10.0.0.1:8080", "10.96.0.7:80");
    for (global, configured, expected) in [
        (None, None, pod),
        (None, Some(true), own),
        (Some(true), None, own),
        (Some(true), Some(false), pod),
        (Some(false), Some(true), own),
    ] {
        let mut writer = writer_of(backend(configured));
        writer.apply_config(vec![fleet(global)], &[]);
        assert_eq!(addresses(&writer), [expected], "{global:?} {configured:?}");
        // In either order.
        let mut writer = writer_of(of_slices());
        writer.apply_config(vec![fleet(global)], &[]);
        put(&mut writer, backend(configured));
        assert_eq!(addresses(&writer), [expected], "{global:?} {configured:?}");
    }
    // Without a cluster IP, or without the port, nothing changes.
    let headless = Backend { policy: says(Some(true)), ..of_slices() };
    assert_eq!(addresses(&writer_of(headless)), [pod]);
    let portless = Backend { service, policy: says(Some(true)), ..Backend::default() };
    assert_eq!(addresses(&writer_of(portless)), [""; 0]);
}
