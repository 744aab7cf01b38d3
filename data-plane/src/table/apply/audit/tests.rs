//! The audit finds nothing wrong however a state was reached, and finds and repairs whatever a fault changes.

use bytes::Bytes;
use proptest::prelude::*;
use shared::resource::{Endpoints, Host};

use super::*;
use crate::table::apply::source::Source;
use crate::table::world::{World, backend, dump, host, route, slice, steps};
use crate::table::{EndpointSet, HostTable};

/// The findings of one full round.
fn round(writer: &mut Writer) -> Vec<(ResourceKey, Fault)> {
    let mut audit = Audit::default();
    let mut faults = audit.step(writer);
    while audit.next != 0 {
        faults.extend(audit.step(writer));
    }
    faults
}

/// Two hosts with one backend each.
fn writer() -> Writer {
    let mut writer = Writer::new();
    writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1]), slice("ns/e2", "ns/s2", &[2])], &[]);
    writer.replace_config(vec![
        host("a.test", None),
        host("b.test", None),
        route("ingress/ns/i/a.test", &[("/", "ns/s1/80"), ("/x", "ns/s2/80")]),
        route("ingress/ns/i/b.test", &[("/", "ns/s2/80")]),
        backend("ns/s1/80"),
        backend("ns/s2/80"),
    ]);
    writer
}

/// A fault is found once, under these keys, and then everything is as before.
fn mends(what: &str, keys: &[&str], fault: Fault, harm: impl FnOnce(&mut Writer)) {
    let mut writer = writer();
    let whole = dump(&writer.tables().current());
    harm(&mut writer);
    let mut found = round(&mut writer);
    found.sort();
    let expected: Vec<_> = keys.iter().map(|key| (*key, fault)).collect();
    let configured: Vec<_> = found.iter().map(|(key, fault)| (&*key.key, *fault)).collect();
    assert_eq!(configured, expected, "{what}");
    assert_eq!(dump(&writer.tables().current()), whole, "{what}: set right");
    assert_eq!(round(&mut writer), [], "{what}: once");
    assert_eq!(writer.counters().audit_faults.load(Ordering::Relaxed), keys.len() as u64);
}

/// Publishes a modified table to the workers.
fn publish(writer: &Writer, change: impl FnOnce(&mut HostTable)) {
    let now = writer.tables.current();
    let mut table = HostTable {
        generation: now.generation,
        hosts: now.hosts.clone(),
        aliases: now.aliases.clone(),
        www: now.www,
        default_certificate: now.default_certificate.clone(),
        policy: Arc::clone(&now.policy),
        client_tls: Arc::clone(&now.client_tls),
        ticket_keys: Arc::clone(&now.ticket_keys),
        proxy_protocol: Arc::clone(&now.proxy_protocol),
        addresses: Arc::clone(&now.addresses),
        streams: Arc::clone(&now.streams),
        unclaimed: now.unclaimed.clone(),
    };
    change(&mut table);
    drop(writer.tables.publish(table));
}

#[test]
fn a_table_that_workers_should_not_see_is_replaced() {
    mends("a host is missing", &["a.test"], Fault::Live, |writer| {
        writer.hosts.remove("a.test");
        publish(writer, |table| table.hosts.remove("a.test"));
    });
    mends("a host has no paths", &["a.test"], Fault::Live, |writer| {
        publish(writer, |table| table.hosts.insert(Arc::new(HostEntry::empty("a.test"))));
    });
    mends("a host of nobody", &["c.test"], Fault::Live, |writer| {
        let stray = Arc::new(HostEntry::empty("c.test"));
        writer.hosts.insert(Arc::clone(&stray));
        publish(writer, |table| table.hosts.insert(stray));
    });
    mends("a host has another one's paths", &["b.test"], Fault::Live, |writer| {
        let other = writer.tables.current().hosts.named("a.test").cloned().unwrap();
        let stranger = HostEntry::new("b.test".into(), None, other.routing().clone());
        publish(writer, |table| table.hosts.insert(Arc::new(stranger)));
    });
}

#[test]
fn audit_rereads_resources_that_differ_from_their_bytes() {
    mends("a host", &["a.test"], Fault::Read, |writer| {
        writer
            .config
            .hosts
            .insert("a.test".into(), Some(Host { tls: Some(Default::default()), ..Host::default() }.into()));
    });
    mends("a backend that is missing", &["ns/s1/80"], Fault::Read, |writer| {
        writer.config.backends.remove("ns/s1/80");
    });
}

#[test]
fn endpoints_that_differ_are_joined_again() {
    mends("a slice", &["ns/e1"], Fault::Read, |writer| {
        writer.cells.put(&"ns/e1".into(), Endpoints { service: "ns/s1".into(), ..Endpoints::default() });
        writer.cells.flush();
    });
    mends("a slice of another service", &["ns/e1"], Fault::Read, |writer| {
        let entry = slice("ns/e1", "ns/s2", &[1]);
        let Ok(Resource::Endpoints(same)) = Resource::decode(Kind::Endpoints, &entry.body) else { panic!() };
        writer.cells.put(&"ns/e1".into(), same);
        writer.cells.flush();
    });
    mends("endpoints that workers do not see", &["ns/e1"], Fault::Live, |writer| {
        let cell = writer.cells.cell(&"ns/s1/80".into(), Source::Nowhere);
        drop(cell.store(EndpointSet::default()));
    });
}

#[test]
fn bytes_that_changed_are_no_longer_had_and_what_was_read_of_them_is_served_on() {
    let mut writer = writer();
    let (whole, roots) = (dump(&writer.tables().current()), Lane::ALL.map(|lane| writer.root(lane)));
    let key = ResourceKey::new(Kind::Route, "ingress/ns/i/a.test");
    let entry = Arc::clone(writer.has_config.get(&key).unwrap());
    let mut body = entry.body.to_vec();
    body[3] ^= 0x10;
    let corrupt = Entry { body: Bytes::from(body), ..(*entry).clone() };
    writer.has_config.insert(Arc::new(corrupt));
    assert_eq!(Lane::ALL.map(|lane| writer.root(lane)), roots, "a root says nothing of it");
    assert_eq!(round(&mut writer), [(key.clone(), Fault::Bytes)]);
    assert!(writer.has_config.get(&key).is_none() && writer.root(Lane::Config) != roots[1]);
    assert_eq!(dump(&writer.tables().current()), whole);
    // It is sent again.
    writer.apply_config(vec![entry], &[]);
    assert_eq!((round(&mut writer), writer.root(Lane::Config)), (Vec::new(), roots[1]));
    assert_eq!(dump(&writer.tables().current()), whole);
}

#[test]
fn a_step_looks_at_few_of_many() {
    let mut writer = Writer::new();
    let many: Vec<_> =
        (0..20_000).map(|at| slice(&format!("ns/e{at}"), &format!("ns/s{at}"), &[1])).collect();
    writer.apply_live(many, &[]);
    let mut audit = Audit::default();
    let looked = |writer: &Writer| writer.counters().audited.load(Ordering::Relaxed);
    let mut steps = 0;
    loop {
        let before = looked(&writer);
        assert_eq!(audit.step(&mut writer), []);
        let step = looked(&writer) - before;
        assert!(step < RESOURCES as u64 + 100, "{step} in one step");
        steps += 1;
        if audit.next == 0 {
            break;
        }
    }
    assert_eq!(looked(&writer), 20_000, "each once");
    assert!((70..=128).contains(&steps), "{steps} steps");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// However a state was reached, with whatever removals, nothing is found and nothing changed.
    #[test]
    fn nothing_is_wrong_with_what_came_the_usual_way(steps in steps(60), kinds in prop::collection::vec(any::<bool>(), 60)) {
        let mut world = World::default();
        let mut writer = Writer::new();
        for (step, gone) in steps.iter().zip(kinds) {
            let (lane, mut delta) = world.step(step);
            delta.removed.iter_mut().for_each(|removal| removal.gone = gone);
            match lane {
                Lane::Live => writer.apply_live(delta.up, &delta.removed),
                Lane::Config => writer.apply_config(delta.up, &delta.removed),
            }
            let published = writer.counters().tables_published.load(Ordering::Relaxed);
            prop_assert_eq!(round(&mut writer), []);
            prop_assert_eq!(writer.counters().tables_published.load(Ordering::Relaxed), published);
        }
    }
}
