//! Host lookup compared with a slow and simple one; and the lifetime of tables.

use proptest::prelude::*;
use shared::kind::{Kind, ResourceKey};
use shared::policy::{HostPolicy, TextList};
use shared::resource::{Host, Resource, Settings, Tls};

use self::world::{World, backend, certificate, entry, gone, host, route, slice};
use super::*;

mod race;
pub(crate) mod world;

fn served(names: &[(&str, Option<&[&str]>)]) -> Writer {
    let mut writer = Writer::new();
    writer.replace_config(names.iter().map(|(name, secrets)| host(name, *secrets)).collect());
    writer
}

proptest! {
    /// Exact, then the wildcard one label up, then the catch-all; for redirects, hosts without TLS are ignored.
    #[test]
    fn fast_equals_slow(
        hosts in prop::collection::btree_map(
            prop::sample::select(&["a.test", "*.test", "b.a.test", "*.a.test", "test", "_"][..]), any::<bool>(), 0..6),
        requests in prop::collection::vec(
            prop::sample::select(&["a.test", "b.test", "b.a.test", "c.a.test", "x.y.a.test", "test", ".test", "*.test",
                "a b.test", "B_-9.test", "\u{e9}.test", "", "_"][..]), 1..12),
    ) {
        let listed: Vec<_> = hosts.iter().map(|(name, tls)| (*name, tls.then_some(&[][..]))).collect();
        let table = served(&listed).tables().current();
        for request in requests {
            let wildcard = || {
                let (label, parent) = request.split_once('.')?;
                let good = !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
                good.then(|| format!("*.{parent}"))
            };
            // A wildcard is a pattern, not a name that can be requested.
            let exact = (!request.starts_with("*.")).then(|| request.to_owned());
            let candidates: Vec<String> = [exact, wildcard()].into_iter().flatten().collect();
            let there = candidates.iter().find(|name| hosts.contains_key(name.as_str()));
            let expected = there.map(String::as_str).or_else(|| hosts.contains_key("_").then_some("_"));
            prop_assert_eq!(table.host(request).map(|host| host.name()), expected, "{}", request);
            let with_tls = candidates.iter().any(|name| hosts.get(name.as_str()) == Some(&true));
            prop_assert_eq!(table.redirects_to_tls(request), with_tls, "{}", request);
        }
    }
}

#[test]
fn certificate_by_server_name() {
    let mut world = World::default();
    let config = [
        host("a.test", Some(&["ns/missing", "ns/other", "ns/a"])),
        host("plain.test", None),
        host("*.test", Some(&["ns/wild"])),
        host("bare.test", Some(&[])),
        entry(
            "default",
            Resource::Settings(Settings { default_certificate: "ns/default".into(), ..Settings::default() }),
        ),
    ];
    world.config.extend(config);
    let made = [
        ("ns/other", "other.test"),
        ("ns/a", "a.test"),
        ("ns/wild", "*.test"),
        ("ns/default", "default.test"),
    ];
    world.live.extend(made.map(|(key, name)| entry(key, Resource::Certificate(certificate(&[name])))));
    let mut writer = world.writer();
    let name_for = |writer: &Writer, name: Option<&str>| {
        writer.tables().current().certificate(name).map(|certificate| certificate.names()[0].clone())
    };
    let cases = [
        (Some("a.test"), "a.test"),
        (Some("plain.test"), "*.test"),
        (Some("other.test"), "*.test"),
        (Some("bare.test"), "default.test"),
        (Some("x.y.test"), "default.test"),
        (Some("nobody"), "default.test"),
        (None, "default.test"),
    ];
    for (name, expected) in cases {
        assert_eq!(name_for(&writer, name).as_deref(), Some(expected), "{name:?}");
    }
    let published = writer.tables().current().generation();
    let gone = gone(&ResourceKey::new(Kind::Certificate, "ns/a"));
    writer.apply_live(Vec::new(), &[gone]);
    assert_eq!(name_for(&writer, Some("a.test")).as_deref(), Some("default.test"));
    let renewed = entry("ns/a", Resource::Certificate(certificate(&["a.test"])));
    writer.apply_live(vec![renewed], &[]);
    assert_eq!(name_for(&writer, Some("a.test")).as_deref(), Some("a.test"));
    assert_eq!(writer.tables().current().generation(), published, "certificates touch no table");
}

/// A host with aliases.
fn named(name: &str, secrets: &[&str], aliases: &[&str], www: bool) -> Arc<shared::entry::Entry> {
    let values = aliases.iter().map(ToString::to_string).collect();
    let policy = HostPolicy { aliases: Some(TextList { values }), www: Some(www), ..HostPolicy::default() };
    let tls = Some(Tls { certificates: secrets.iter().map(ToString::to_string).collect() });
    entry(name, Resource::Host(Host { tls, policy, ..Host::default() }))
}

#[test]
fn other_names_of_a_host_have_its_certificate_where_that_covers_them() {
    let mut world = World::default();
    let wide = ["b.test", "alias.test", "www.b.test", "*.below.test"];
    world.config.extend([
        named("a.test", &["ns/a"], &["one.test", "*.lost.test"], true),
        named("b.test", &["ns/b"], &["alias.test", "*.below.test", "~^re[0-9]", "c.test"], true),
        named("c.test", &["ns/c"], &[], false),
        host("*.wild.test", Some(&["ns/wild"])),
        named("z.test", &["ns/z"], &["x.wild.test", "y.wild.test"], false),
        entry(
            "default",
            Resource::Settings(Settings { default_certificate: "ns/default".into(), ..Settings::default() }),
        ),
    ]);
    let made: [(&str, &[&str]); 6] = [
        ("ns/a", &["a.test"]),
        ("ns/b", &wide),
        ("ns/c", &["c.test"]),
        ("ns/wild", &["*.wild.test"]),
        ("ns/z", &["z.test", "x.wild.test"]),
        ("ns/default", &["default.test"]),
    ];
    world.live.extend(made.map(|(key, names)| entry(key, Resource::Certificate(certificate(names)))));
    let table = world.writer().tables().current();
    for (name, first, is_redirected) in [
        ("a.test", "a.test", true),
        // Names that the certificate of their host does not cover.
        ("one.test", "default.test", false),
        ("www.a.test", "default.test", false),
        ("x.lost.test", "default.test", false),
        // Covered names: an alias, a wildcard alias, a redirected name.
        ("alias.test", "b.test", true),
        ("x.below.test", "b.test", true),
        ("www.b.test", "b.test", true),
        // A pattern is not a name that a certificate could be issued for.
        ("re7.test", "default.test", false),
        // A host of that name, or a wildcard host, has its own.
        ("c.test", "c.test", true),
        ("x.wild.test", "z.test", true),
        ("y.wild.test", "*.wild.test", true),
    ] {
        let shown = table.certificate(Some(name)).map(|it| it.names()[0].clone());
        assert_eq!(shown.as_deref(), Some(first), "{name}");
        assert_eq!(table.redirects_to_tls(name), is_redirected, "{name}");
    }
}

#[test]
fn the_dump_has_a_hosts_other_names() {
    let mut world = World::default();
    world
        .config
        .extend([named("a.test", &[], &["~^re[0-9]", "two.test", "*.one.test"], true), host("b.test", None)]);
    let table = world.writer().tables().current();
    let dump = |name| crate::admin::entry_json(table.host(name).unwrap());
    assert_eq!(dump("a.test")["aliases"], serde_json::json!(["*.one.test", "two.test", "~^re[0-9]"]));
    assert_eq!(dump("a.test")["www"], true);
    assert_eq!(dump("two.test")["host"], "a.test", "and is found by them");
    assert_eq!((&dump("b.test")["aliases"], &dump("b.test")["www"]), (&serde_json::json!([]), &false.into()));
}

#[test]
fn old_tables_wait_for_readers() {
    let mut writer = Writer::new();
    let tables = Arc::clone(writer.tables());
    let mut idle = tables.reader();
    let mut busy = tables.reader();
    writer.replace_config(vec![host("a.test", None)]);
    let first = Arc::downgrade(&tables.current());
    busy.load();
    idle.load();
    writer.replace_config(vec![host("b.test", None)]);
    busy.load();
    writer.collect();
    assert!(first.strong_count() > 0, "the idle reader still looks at it");
    idle.load();
    assert_eq!(first.strong_count(), 1, "only the writer's queue has it");
    writer.collect();
    assert_eq!(first.strong_count(), 0);
    // A dropped reader holds nothing back.
    let second = Arc::downgrade(&tables.current());
    writer.replace_config(vec![host("c.test", None)]);
    busy.load();
    drop(idle);
    writer.collect();
    assert_eq!(second.strong_count(), 0);
}

#[test]
fn a_reader_sees_the_newest() {
    let mut writer = served(&[]);
    let mut reader = writer.tables().reader();
    assert!(reader.load().host("a.test").is_none());
    let config =
        vec![host("a.test", None), route("ingress/ns/i/a.test", &[("/", "ns/s/80")]), backend("ns/s/80")];
    writer.apply_live(vec![slice("ns/e", "ns/s", &[1, 2])], &[]);
    writer.replace_config(config);
    let table = reader.load();
    let Match::Path(path) = table.host("a.test").unwrap().route(b"/x", &shared::pattern::Steps::new()) else {
        panic!("no path");
    };
    let Action::Backend(upstream) = &path.action else {
        panic!("no backend: {path:?}");
    };
    assert_eq!(upstream.name().to_string(), "ns-s-80");
    assert_eq!(upstream.cell.endpoints().list.len(), 2);
    assert_eq!((path.owner(), path.service(), path.port()), ("ns/i", "s", "80"));
    assert!(path.policy.redirect.ssl && !path.policy.redirect.force_ssl);
}
