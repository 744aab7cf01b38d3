//! Properties of all resources, snapshots and deltas: the invariants that the modules state.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::{collection, option};
use shared::delta::{Delta, Removal};
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::policy::{BackendPolicy, Canary, HostPolicy, LocationPolicy};
use shared::resource::{
    Authorities, Backend, BackendIdentity, Certificate, Chain, Denial, EndpointPort, Endpoints, ExternalName,
    Guard, Host, Listener, Material, Path, PathType, PortRule, Resource, Route, Settings, StreamService, Tls,
    Transport, User,
};
use shared::snapshot::{BUCKETS, Snapshot, bucket_of, root_of};
use shared::{proto, schema};

// --- resources of every kind ----------------------------------------------------------------------------------------

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9./*-]{0,12}", any::<String>()]
}

fn some_text() -> impl Strategy<Value = String> {
    "[a-z0-9./-]{1,12}"
}

fn flag() -> impl Strategy<Value = Option<bool>> {
    option::of(any::<bool>())
}

fn denial() -> impl Strategy<Value = Option<Denial>> {
    option::of(text().prop_map(|reason| Denial { reason }))
}

fn bytes(least: usize) -> impl Strategy<Value = Bytes> {
    collection::vec(any::<u8>(), least..60).prop_map(Bytes::from)
}

/// The policies' own fields are tried in `policies.rs`.
#[allow(clippy::needless_update, reason = "policies grow by fields")]
fn location() -> impl Strategy<Value = LocationPolicy> {
    (flag(), flag(), flag()).prop_map(|(ssl_redirect, force_ssl_redirect, enable_global_auth)| {
        LocationPolicy { ssl_redirect, force_ssl_redirect, enable_global_auth, ..LocationPolicy::default() }
    })
}

#[allow(clippy::needless_update, reason = "policies grow by fields")]
fn settings() -> impl Strategy<Value = Resource> {
    let guard = Just(Guard::Addresses);
    let guards = collection::vec(guard, 0..3);
    let said = (text(), location(), flag(), text(), guards);
    said.prop_map(|(default_certificate, defaults, service_upstream, default_backend, guards)| {
        let backend_defaults = BackendPolicy { service_upstream, ..BackendPolicy::default() };
        Resource::Settings(Settings {
            default_certificate,
            defaults,
            backend_defaults,
            default_backend,
            guards,
        })
    })
}

fn listener() -> impl Strategy<Value = Resource> {
    let transport = prop_oneof![Just(Transport::Tcp), Just(Transport::Udp)];
    let service = (transport, 1..=u16::MAX, some_text(), any::<[bool; 2]>()).prop_map(
        |(transport, port, backend, [takes, sends])| {
            let is_tcp = transport == Transport::Tcp;
            let (takes_proxy_header, sends_proxy_header) = (takes && is_tcp, sends && is_tcp);
            StreamService { transport, port, backend, takes_proxy_header, sends_proxy_header }
        },
    );
    let service = service.prop_map(Listener::Service);
    prop_oneof![Just(Listener::Http), Just(Listener::Https), service].prop_map(Resource::Listener)
}

fn host() -> impl Strategy<Value = Resource> {
    let tls = collection::vec(text(), 0..3).prop_map(|certificates| Tls { certificates });
    (option::of(tls), denial())
        .prop_map(|(tls, denied)| Resource::Host(Host { tls, denied, policy: HostPolicy::default() }))
}

fn route() -> impl Strategy<Value = Resource> {
    let kind = prop_oneof![Just(PathType::Exact), Just(PathType::Prefix)];
    let path = (text(), kind, option::of(some_text()), any::<bool>()).prop_map(
        |(path, kind, backend, after_exact)| Path { path: format!("/{path}"), kind, backend, after_exact },
    );
    (collection::vec(path, 0..4), denial(), location())
        .prop_map(|(paths, denied, policy)| Resource::Route(Route { paths, denied, policy }))
}

#[allow(clippy::needless_update, reason = "policies grow by fields")]
fn backend() -> impl Strategy<Value = Resource> {
    let port = (text(), option::of(1..=u16::MAX), any::<bool>())
        .prop_map(|(name, target_port, udp)| PortRule { name, target_port, udp });
    let canary = (text(), text(), text(), text(), any::<i64>(), any::<i64>()).prop_map(
        |(header, header_value, header_pattern, cookie, weight, weight_total)| Canary {
            header,
            header_value,
            header_pattern,
            cookie,
            weight,
            weight_total,
        },
    );
    let name = ("[a-z]([a-z0-9-]{0,5}[a-z0-9])?(\\.[a-z]{1,4}){0,2}\\.?", 1..=u16::MAX, any::<bool>())
        .prop_map(|(name, port, local)| ExternalName { name, port, local });
    let place = prop_oneof![
        option::of(port).prop_map(|port| (port, None)),
        name.prop_map(|external| (None, Some(external))),
    ];
    let address = (any::<std::net::IpAddr>(), 1..=u16::MAX).prop_map(Into::into);
    (place, option::of(address), collection::vec(text(), 0..3), option::of(canary), any::<bool>()).prop_map(
        |((port, external), service, alternatives, canary, without_service)| {
            let policy = BackendPolicy { canary, ..BackendPolicy::default() };
            Resource::Backend(Backend { port, external, service, alternatives, policy, without_service })
        },
    )
}

fn endpoints() -> impl Strategy<Value = Resource> {
    let port =
        (text(), 1..=u16::MAX, any::<bool>()).prop_map(|(name, port, udp)| EndpointPort { name, port, udp });
    let ports = collection::vec(port, 0..3);
    let ipv4 = collection::vec(any::<std::net::Ipv4Addr>(), 0..5);
    let ipv6 = collection::vec(any::<std::net::Ipv6Addr>(), 0..5);
    (text(), ports, ipv4, ipv6).prop_map(|(service, ports, ipv4, ipv6)| {
        Resource::Endpoints(Endpoints { service, ports, ipv4, ipv6 })
    })
}

fn certificate() -> impl Strategy<Value = Resource> {
    (bytes(1), bytes(1), option::of(some_text()))
        .prop_map(|(leaf, key, chain)| Resource::Certificate(Certificate { leaf, key, chain }))
}

fn chain() -> impl Strategy<Value = Resource> {
    collection::vec(bytes(0), 0..4).prop_map(|certificates| Resource::Chain(Chain { certificates }))
}

fn material() -> impl Strategy<Value = Resource> {
    let users = collection::btree_map("[a-z]{1,4}", text(), 0..4).prop_map(|users| {
        let users = users.into_iter().map(|(name, hash)| User { name, hash });
        Material::Users(users.collect())
    });
    let identity =
        (option::of(authorities()), option::of((bytes(0), bytes(1)))).prop_map(|(authorities, own)| {
            let (certificates, key) = own.map_or_else(Default::default, |(leaf, key)| (vec![leaf], key));
            Material::BackendIdentity(BackendIdentity { authorities, certificates, key })
        });
    prop_oneof![users, authorities().prop_map(Material::Authorities), identity].prop_map(Resource::Material)
}

fn authorities() -> impl Strategy<Value = Authorities> {
    (collection::vec(bytes(1), 1..4), collection::vec(bytes(0), 0..3))
        .prop_map(|(certificates, revocations)| Authorities { certificates, revocations })
}

fn resource() -> impl Strategy<Value = Resource> {
    let secret = prop_oneof![certificate(), chain(), material()];
    prop_oneof![settings(), listener(), host(), route(), backend(), endpoints(), secret]
}

proptest! {
    #[test]
    fn every_resource_comes_back_as_it_was(resource in resource(), key in text()) {
        let entry = Entry::encode(key.as_str(), &resource);
        let back = Resource::decode_whole(entry.kind(), &entry.body).unwrap();
        prop_assert_eq!(&back, &resource);
        prop_assert_eq!(&back.encode(), &entry.body, "the same value gives the same bytes");
        prop_assert!(entry.min_schema <= schema::CURRENT);

        let wire = entry.to_wire();
        let kind = Kind::from_wire(wire.kind).unwrap();
        let again = Entry::from_body(ResourceKey::new(kind, wire.key.as_str()), wire.min_schema, wire.body);
        prop_assert_eq!(again, entry);
    }

    #[test]
    fn a_body_from_a_stranger_never_panics(kind in 0..Kind::ALL.len(), body in bytes(0)) {
        let kind = Kind::ALL[kind];
        if let Ok(resource) = Resource::decode(kind, &body) {
            // What was understood can be said again.
            prop_assert_eq!(Resource::decode(kind, &resource.encode()), Ok(resource));
        }
    }

    #[test]
    fn the_version_tells_kind_key_and_body_apart(
        a in (resource(), text()), b in (resource(), text()),
    ) {
        let (one, other) = (Entry::encode(a.1.as_str(), &a.0), Entry::encode(b.1.as_str(), &b.0));
        let same = one.key == other.key && one.body == other.body;
        prop_assert_eq!(one.version == other.version, same);
    }

    #[test]
    fn secrets_are_not_shown(key in "[a-f]{40}") {
        let leaf = Bytes::from_static(b"leaf");
        let resource = Resource::Certificate(Certificate { leaf, key: key.clone().into(), chain: None });
        let entry = Entry::encode("a/b", &resource);
        let shown = format!("{resource:?} {entry:?}");
        prop_assert!(!shown.contains(&key), "{}", shown);
    }
}

#[test]
fn kinds_and_lanes_are_the_wire_s() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_wire(kind.to_wire()), Some(kind));
        assert_eq!(Kind::any_from_wire(kind.to_wire()), Some(kind));
        assert_eq!(Kind::parse(kind.as_str()), Some(kind));
        assert_eq!(proto::config::Kind::try_from(kind.to_wire()).unwrap() as i32, kind.to_wire());
    }
    for no_kind in [0, -1, 256, i32::MAX] {
        assert_eq!((Kind::from_wire(no_kind), Kind::any_from_wire(no_kind)), (None, None), "{no_kind}");
    }
    // One of a later schema is kept under its number, on the lane that the number says.
    for (number, lane) in [(9, Lane::Config), (250, Lane::Live)] {
        let later = Kind::any_from_wire(number).unwrap();
        assert_eq!(Kind::from_wire(number), None);
        assert_eq!((later.to_wire(), later.lane(), later.is_secret()), (number, lane, true));
    }
    let mut sorted = Kind::ALL;
    sorted.sort();
    assert_eq!(sorted, Kind::ALL, "ordered by the wire's numbers");
    for lane in Lane::ALL {
        assert_eq!(Lane::from_wire(lane.to_wire()), Some(lane));
    }
    assert_eq!((Lane::from_wire(0), Lane::from_wire(3)), (None, None));
}

// --- snapshots and deltas -------------------------------------------------------------------------------------------

/// Few keys, so that sets overlap; few bodies, so that versions repeat.
fn entry() -> impl Strategy<Value = Arc<Entry>> {
    // Two of them are of a later schema.
    let numbers = prop_oneof![1..=6_i32, 16..=20_i32];
    (numbers, 0..12_u8, 0..3_u8).prop_map(|(number, key, body)| {
        let kind = Kind::any_from_wire(number).unwrap();
        let key = ResourceKey::new(kind, format!("k{key}"));
        Arc::new(Entry::from_body(key, 1, Bytes::copy_from_slice(&[body])))
    })
}

fn entries() -> impl Strategy<Value = Vec<Arc<Entry>>> {
    collection::vec(entry(), 0..40)
}

fn snapshot_of(entries: &[Arc<Entry>]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.extend(entries.iter().cloned());
    snapshot
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    entries().prop_map(|entries| snapshot_of(&entries))
}

/// One for each key, the last one.
fn distinct(entries: &[Arc<Entry>]) -> BTreeMap<ResourceKey, Arc<Entry>> {
    entries.iter().map(|entry| (entry.key.clone(), Arc::clone(entry))).collect()
}

fn delta() -> impl Strategy<Value = Delta> {
    (entries(), entries(), any::<bool>()).prop_map(|(up, removed, gone)| {
        let up = distinct(&up);
        let removed = distinct(&removed).into_keys().filter(|key| !up.contains_key(key));
        Delta { removed: removed.map(|key| Removal { key, gone }).collect(), up: up.into_values().collect() }
    })
}

fn applied(delta: &Delta, to: &Snapshot) -> Snapshot {
    let mut snapshot = to.clone();
    delta.apply(&mut snapshot);
    snapshot
}

proptest! {
    #[test]
    fn the_difference_leads_from_one_to_the_other(a in snapshot(), b in snapshot()) {
        let delta = Delta::between(&a, &b);
        let reached = applied(&delta, &a);
        prop_assert_eq!(&reached, &b);
        prop_assert_eq!(reached.root(), b.root());
        prop_assert_eq!(delta.is_empty(), a == b, "nothing is said twice");
        prop_assert_eq!(a == b, a.root() == b.root());
    }

    #[test]
    fn squashed_deltas_do_what_both_do(start in snapshot(), first in delta(), second in delta()) {
        let both = applied(&second, &applied(&first, &start));
        let squashed = first.clone().squash(second.clone());
        prop_assert_eq!(applied(&squashed, &start), both);

        let mut keys: Vec<_> = squashed.up.iter().map(|entry| &entry.key).collect();
        keys.extend(squashed.removed.iter().map(|removal| &removal.key));
        let count = keys.len();
        keys.sort();
        keys.dedup();
        prop_assert_eq!(keys.len(), count, "each key stands in it once");
        for removal in &squashed.removed {
            let later = second.removed.iter().find(|other| other.key == removal.key);
            let last = later.or_else(|| first.removed.iter().find(|other| other.key == removal.key));
            prop_assert_eq!(last, Some(removal), "the last word about a key counts, `gone` included");
        }
    }

    #[test]
    fn the_root_knows_no_order(entries in entries(), order in any::<prop::sample::Index>()) {
        let whole = snapshot_of(&entries);
        let mut shuffled: Vec<_> = distinct(&entries).into_values().collect();
        if !shuffled.is_empty() {
            let middle = order.index(shuffled.len());
            shuffled.rotate_left(middle);
        }
        let mut one_by_one = Snapshot::default();
        for entry in shuffled.iter().rev() {
            one_by_one.insert(Arc::clone(entry));
        }
        prop_assert_eq!(one_by_one.root(), whole.root());
        prop_assert_eq!(one_by_one.len(), distinct(&entries).len());

        for entry in &shuffled {
            one_by_one.remove(&entry.key);
        }
        prop_assert!(one_by_one.is_empty());
        prop_assert_eq!(one_by_one.root(), Snapshot::default().root(), "what lost all is as what never had any");
    }

    #[test]
    fn a_clone_is_left_alone(a in snapshot(), delta in delta()) {
        let (root, kept) = (a.root(), a.clone());
        let changed = applied(&delta, &a);
        prop_assert_eq!(kept.root(), root);
        prop_assert_eq!(&kept, &a);
        for entry in &delta.up {
            prop_assert_eq!(changed.get(&entry.key), Some(entry));
            prop_assert_eq!(changed.version(&entry.key), Some(entry.version));
        }
        for removal in &delta.removed {
            prop_assert_eq!(changed.get(&removal.key), None);
        }
    }

    #[test]
    fn the_buckets_together_are_the_whole(snapshot in snapshot()) {
        let mut seen = Vec::new();
        for bucket in 0..BUCKETS as u16 {
            let entries: Vec<_> = snapshot.bucket(bucket).cloned().collect();
            prop_assert!(entries.iter().all(|entry| bucket_of(&entry.key) == bucket));
            prop_assert_eq!(entries.is_empty(), snapshot.bucket_digest(bucket) == [0; 16]);
            seen.extend(entries);
        }
        let whole: Vec<_> = snapshot.iter().cloned().collect();
        prop_assert_eq!(seen, whole);
    }
}

#[test]
fn a_root_is_made_of_the_digests_of_all_buckets_and_no_more() {
    let whole = Snapshot::default();
    let mut digests = whole.digests();
    assert_eq!(root_of(&digests), Some(whole.root()));
    digests.push(Default::default());
    assert_eq!(root_of(&digests), None);
    digests.truncate(digests.len() - 2);
    assert_eq!(root_of(&digests), None);
    assert_eq!(root_of(&[]), None);
}

#[test]
fn keys_spread_over_all_buckets() {
    let mut counts = vec![0_u32; BUCKETS];
    for number in 0..100_000 {
        let key = ResourceKey::new(Kind::Endpoints, format!("default/service-{number}"));
        counts[usize::from(bucket_of(&key))] += 1;
    }
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    // 98 on average, with a deviation of 10.
    assert!(*least > 45 && *most < 160, "from {least} to {most} of 100,000 keys in a bucket");
}
