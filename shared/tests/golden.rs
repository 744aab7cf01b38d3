//! Canonical bytes, versions and roots, as they were when their compile revision was created.
//!
//! Versions and roots are hashes of these bytes: if they changed unnoticed, every proxy of a fleet would be sent
//! everything again at the next upgrade, and replicas of two builds would never agree.
//!
//! Lines are added to the file of a revision, and none is removed: each field of a policy has a line of its own, at
//! every depth, and so does each value of an enum, found through the descriptors. A field without a line fails the
//! test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path as File, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use bytes::Bytes;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, Value};
use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};
use shared::policy::{BackendPolicy, Canary, HostPolicy, LocationPolicy};
use shared::proto::DESCRIPTORS;
use shared::resource::{
    Authorities, Backend, BackendIdentity, Certificate, Chain, Denial, EndpointPort, Endpoints, ExternalName,
    Guard, Host, Listener, Material, Path, PathType, PortRule, Resource, Route, Settings, StreamService,
    TicketKeys, Tls, Transport, User,
};
use shared::schema::COMPILE_REVISION;
use shared::snapshot::{BUCKETS, Snapshot, bucket_of};

const ADVICE: &str = "\
The canonical bytes are not those of this compile revision. If that was not meant, undo it: versions and roots are
hashes of these bytes. If it was: raise `COMPILE_REVISION` in shared/src/schema.rs, say what changed in
proto/firth/config/v1/schema.md, and run this test with FIRTH_WRITE_GOLDEN=1, which writes the file of the new revision.
The files of older revisions stay as they are.";

const MISSING: &str = "\
A field has no golden line yet. Run this test with FIRTH_WRITE_GOLDEN=1, which adds the lines that are missing to the
file of this revision and changes no other, and commit them with the field.";

/// One of each kind, with every field set but those of policies, which come by themselves.
#[allow(clippy::needless_update, reason = "policies grow by fields")]
fn samples() -> Vec<(&'static str, Resource)> {
    let text = |text: &str| text.to_owned();
    let denied = || Some(Denial { reason: text("Ingress default/web asks for auth-url") });
    vec![
        (
            "default",
            Resource::Settings(Settings {
                default_certificate: text("default/fallback"),
                defaults: LocationPolicy { ssl_redirect: Some(true), ..LocationPolicy::default() },
                guards: vec![Guard::Addresses],
                ..Settings::default()
            }),
        ),
        (
            "with-default-backend",
            Resource::Settings(Settings {
                default_backend: text("default/fallback/default"),
                ..Settings::default()
            }),
        ),
        (
            "of-backends",
            Resource::Settings(Settings {
                backend_defaults: BackendPolicy { service_upstream: Some(true), ..BackendPolicy::default() },
                ..Settings::default()
            }),
        ),
        ("https", Resource::Listener(Listener::Https)),
        (
            "tcp-5432",
            Resource::Listener(Listener::Service(StreamService {
                transport: Transport::Tcp,
                port: 5432,
                backend: text("default/db/5432/tcp"),
                takes_proxy_header: true,
                sends_proxy_header: true,
            })),
        ),
        (
            "udp-53",
            Resource::Listener(Listener::Service(StreamService {
                transport: Transport::Udp,
                port: 53,
                backend: text("default/dns/dns/udp"),
                takes_proxy_header: false,
                sends_proxy_header: false,
            })),
        ),
        (
            "*.example.com",
            Resource::Host(Host {
                tls: Some(Tls { certificates: vec![text("default/one"), text("default/two")] }),
                denied: denied(),
                policy: HostPolicy::default(),
            }),
        ),
        (
            "ingress/default/web/example.com",
            Resource::Route(Route {
                paths: vec![
                    Path { path: text("/"), kind: PathType::Prefix, backend: None, after_exact: false },
                    Path {
                        path: text("/api"),
                        kind: PathType::Exact,
                        backend: Some(text("default/api/http")),
                        after_exact: false,
                    },
                ],
                denied: denied(),
                policy: LocationPolicy { ssl_redirect: Some(false), ..LocationPolicy::default() },
            }),
        ),
        (
            "ingress/default/other/example.com",
            Resource::Route(Route {
                paths: vec![Path {
                    path: text("/api"),
                    kind: PathType::Prefix,
                    backend: None,
                    after_exact: true,
                }],
                ..Route::default()
            }),
        ),
        (
            "default/api/http",
            Resource::Backend(Backend {
                port: Some(PortRule { name: text("http"), target_port: Some(8080), udp: false }),
                alternatives: vec![text("default/api-next/http")],
                policy: BackendPolicy {
                    canary: Some(Canary { weight: 10, ..Canary::default() }),
                    ..BackendPolicy::default()
                },
                ..Backend::default()
            }),
        ),
        (
            "default/dns/dns/udp",
            Resource::Backend(Backend {
                port: Some(PortRule { name: text("dns"), target_port: Some(53), udp: true }),
                ..Backend::default()
            }),
        ),
        ("default/gone/80", Resource::Backend(Backend { without_service: true, ..Backend::default() })),
        (
            "default/far/443",
            Resource::Backend(Backend {
                external: Some(ExternalName { name: text("far.test."), port: 443, local: true }),
                ..Backend::default()
            }),
        ),
        (
            "default/front/80",
            Resource::Backend(Backend {
                port: Some(PortRule { name: text(""), target_port: Some(8080), udp: false }),
                service: Some("10.96.0.7:80".parse().unwrap()),
                ..Backend::default()
            }),
        ),
        (
            "default/front6/80",
            Resource::Backend(Backend {
                port: Some(PortRule { name: text(""), target_port: None, udp: false }),
                service: Some("[fd00::7]:80".parse().unwrap()),
                ..Backend::default()
            }),
        ),
        (
            "default/api-abc12",
            Resource::Endpoints(Endpoints {
                service: text("default/api"),
                ports: vec![EndpointPort { name: text("http"), port: 8080, udp: false }],
                ipv4: vec!["10.1.2.3".parse().unwrap(), "10.1.2.4".parse().unwrap()],
                ipv6: vec!["fd00::1".parse().unwrap()],
            }),
        ),
        (
            "default/dns-abc12",
            Resource::Endpoints(Endpoints {
                service: text("default/dns"),
                ports: vec![EndpointPort { name: text("dns"), port: 53, udp: true }],
                ipv4: vec!["10.1.2.5".parse().unwrap()],
                ipv6: vec![],
            }),
        ),
        (
            "default/one",
            Resource::Certificate(Certificate {
                leaf: Bytes::from_static(b"leaf"),
                key: Bytes::from_static(b"key"),
                chain: Some(text("0123456789abcdef0123456789abcdef")),
            }),
        ),
        (
            "0123456789abcdef0123456789abcdef",
            Resource::Chain(Chain {
                certificates: vec![Bytes::from_static(b"first"), Bytes::from_static(b"second")],
            }),
        ),
        (
            "default/users/auth-file",
            Resource::Material(Material::Users(vec![User { name: text("ann"), hash: text("{SHA}x") }])),
        ),
        ("default/ca/auth-tls", Resource::Material(Material::Authorities(authorities()))),
        (
            "default/backend/proxy-ssl",
            Resource::Material(Material::BackendIdentity(BackendIdentity {
                authorities: Some(authorities()),
                certificates: vec![Bytes::from_static(b"leaf")],
                key: Bytes::from_static(b"key"),
            })),
        ),
        (
            "firth/ticket-keys",
            Resource::Material(Material::TicketKeys(TicketKeys(vec![
                Bytes::from_static(&[1; 32]),
                Bytes::from_static(&[2; 48]),
            ]))),
        ),
    ]
}

fn authorities() -> Authorities {
    Authorities {
        certificates: vec![Bytes::from_static(b"root")],
        revocations: vec![Bytes::from_static(b"list")],
    }
}

fn folder() -> PathBuf {
    File::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Bytes {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

// --- policies, a field at a time --------------------------------------------------------------------------------------

/// The resource that carries each policy, and where.
const CARRIERS: [(Kind, &str, &str); 3] =
    [(Kind::Route, "Route", "policy"), (Kind::Host, "Host", "policy"), (Kind::Backend, "Backend", "policy")];

/// Messages in which one thing alone is said, with its name: each field at every depth, each value of an enum.
fn sayings(of: &MessageDescriptor) -> Vec<(String, DynamicMessage)> {
    let mut all = Vec::new();
    for field in of.fields() {
        for (name, value) in values(&field) {
            let mut message = DynamicMessage::new(of.clone());
            let value = if field.is_list() { Value::List(vec![value.clone(), value]) } else { value };
            message.set_field(&field, value);
            all.push((format!("{}{name}", field.name()), message));
        }
    }
    all
}

fn values(field: &FieldDescriptor) -> Vec<(String, Value)> {
    use prost_reflect::Kind;
    let one = |value| vec![(String::new(), value)];
    match field.kind() {
        Kind::Message(it) => {
            let inner = sayings(&it).into_iter().map(|(name, it)| (format!(".{name}"), Value::Message(it)));
            std::iter::once((String::new(), Value::Message(DynamicMessage::new(it)))).chain(inner).collect()
        }
        Kind::Enum(it) => {
            let numbers = it.values().filter(|value| value.number() != 0);
            numbers.map(|value| (format!("={}", value.name()), Value::EnumNumber(value.number()))).collect()
        }
        Kind::Bool => one(Value::Bool(true)),
        Kind::String => one(Value::String("text".to_owned())),
        Kind::Bytes => one(Value::Bytes(Bytes::from_static(b"bytes"))),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => one(Value::I32(-7)),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => one(Value::I64(-7)),
        Kind::Uint32 | Kind::Fixed32 => one(Value::U32(7)),
        Kind::Uint64 | Kind::Fixed64 => one(Value::U64(7)),
        // Their bytes are canonical no more than they are equal to themselves.
        Kind::Double | Kind::Float => panic!("{}: a policy has no floating point", field.full_name()),
    }
}

fn policy_lines(lines: &mut BTreeMap<String, String>) {
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    for (kind, carrier, place) in CARRIERS {
        let carrier = pool.get_message_by_name(&format!("firth.config.v1.{carrier}")).unwrap();
        let place = carrier.get_field_by_name(place).unwrap();
        let policy = place.kind().as_message().unwrap().clone();
        for (name, said) in sayings(&policy) {
            let mut body = DynamicMessage::new(carrier.clone());
            body.set_field(&place, Value::Message(said));
            let resource = Resource::decode(kind, &body.encode_to_vec().into()).unwrap();
            add(lines, &format!("{}.{name}", policy.name()), &resource);
        }
    }
}

/// A line: kind, key, schema revision, version, body. By kind and key.
fn add(lines: &mut BTreeMap<String, String>, key: &str, resource: &Resource) {
    let entry = Entry::encode(key, resource);
    let (kind, schema, version) = (entry.kind(), entry.min_schema, entry.version);
    let rest = format!("{schema} {version} {}", hex(&entry.body));
    assert!(lines.insert(format!("{kind} {key}"), rest).is_none(), "{kind} {key} twice");
}

// --- roots ------------------------------------------------------------------------------------------------------------

/// Sets of entries of every kind, small and large: the largest has some in every bucket.
fn root_lines(lines: &mut BTreeMap<String, String>) {
    for count in [0, 1, 2, 3, 100, 20_000] {
        let entry = |number: usize| {
            let kind = Kind::ALL[number % Kind::ALL.len()];
            let body = blake3::hash(&number.to_le_bytes()).as_bytes()[..number % 32].to_vec();
            Arc::new(Entry::from_body(ResourceKey::new(kind, format!("vector/{number}")), 1, body.into()))
        };
        let mut snapshot = Snapshot::default();
        snapshot.extend((0..count).map(entry));
        lines.insert(format!("root of-{count}"), format!("- {} -", snapshot.root()));
    }
}

#[test]
fn every_bucket_counts_in_the_root() {
    let mut snapshot = Snapshot::default();
    let mut roots = vec![snapshot.root()];
    let mut left = BUCKETS;
    let mut seen = vec![false; BUCKETS];
    for number in 0.. {
        let key = ResourceKey::new(Kind::Route, format!("bucket/{number}"));
        let bucket = usize::from(bucket_of(&key));
        if !std::mem::replace(&mut seen[bucket], true) {
            snapshot.insert(Arc::new(Entry::from_body(key, 1, Bytes::new())));
            roots.push(snapshot.root());
            left -= 1;
        }
        if left == 0 {
            break;
        }
    }
    roots.sort_unstable_by_key(ToString::to_string);
    roots.dedup();
    assert_eq!(roots.len(), BUCKETS + 1, "an entry in some bucket does not change the root");
}

// --- the file ---------------------------------------------------------------------------------------------------------

fn lines() -> BTreeMap<String, String> {
    let mut lines = BTreeMap::new();
    for (key, resource) in samples() {
        add(&mut lines, key, &resource);
    }
    policy_lines(&mut lines);
    root_lines(&mut lines);
    lines
}

/// The first two words, and the others.
fn split(line: &str) -> (String, String) {
    let mut words = line.splitn(3, ' ');
    let mut next = || words.next().unwrap_or_default();
    (format!("{} {}", next(), next()), next().to_owned())
}

#[test]
fn the_bytes_are_those_of_the_compile_revision() {
    let file = folder().join(format!("revision-{COMPILE_REVISION}.txt"));
    let write = env::var_os("FIRTH_WRITE_GOLDEN").is_some();
    if write && !file.exists() {
        fs::write(&file, "").unwrap();
    }
    let golden =
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}\n{ADVICE}", file.display()));
    let mut missing = lines();
    for line in golden.lines() {
        let (name, rest) = split(line);
        let now = missing.remove(&name);
        assert_eq!(now.as_deref(), Some(rest.as_str()), "{name}\n{ADVICE}");
    }
    if write {
        let added: String = missing.iter().map(|(name, rest)| format!("{name} {rest}\n")).collect();
        // In order, so that what two branches add seldom meets.
        let mut all: Vec<String> = golden.lines().chain(added.lines()).map(str::to_owned).collect();
        all.sort();
        fs::write(&file, all.join("\n") + "\n").unwrap();
        return;
    }
    let missing: Vec<_> = missing.keys().collect();
    assert!(missing.is_empty(), "{missing:?}\n{MISSING}");
}

#[test]
fn every_kind_has_a_sample() {
    let samples = samples();
    for kind in Kind::ALL {
        assert!(samples.iter().any(|(_, it)| it.kind() == kind), "no sample of {kind}");
    }
}

#[test]
fn what_older_revisions_wrote_is_still_understood() {
    let mut count = 0;
    for file in fs::read_dir(folder()).unwrap() {
        for line in fs::read_to_string(file.unwrap().path()).unwrap().lines() {
            let parts: Vec<&str> = line.split(' ').collect();
            let Some(kind) = Kind::parse(parts[0]) else {
                assert_eq!(parts[0], "root", "{line}");
                continue;
            };
            let read = Resource::decode_whole(kind, &unhex(parts[4]));
            assert!(read.is_ok(), "{line}: {read:?}");
            count += 1;
        }
    }
    assert!(count > 0, "no golden file");
}
