use proptest::prelude::*;
use shared::entry::Entry;
use shared::kind::ResourceKey;
use shared::policy::{BackendTls, BasicAuth, ClientCertificates, HostPolicy};
use shared::resource::{Backend, Host, Route, Settings, Tls};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn pin_of(config: Snapshot) -> Pin {
    Pin::new(How::Rollback, config.root(), config, UNIX_EPOCH + HOUR, 24 * HOUR, "bad\ncanary")
}

fn config(resources: Vec<(&str, Resource)>) -> Snapshot {
    let mut config = Snapshot::default();
    config.extend(resources.into_iter().map(|(key, it)| Arc::new(Entry::encode(key, &it))));
    config
}

fn read(packed: &Packed) -> Result<Pin, Unreadable> {
    let manifest = Manifest::read(&packed.manifest.text())?;
    unpack(&manifest, &packed.parts.concat(), &"7".into())
}

#[test]
fn a_pin_is_one_line_for_people() {
    let pin = pin_of(Snapshot::default());
    let expected = format!("rollback to {}, until 1970-01-02T01:00:00Z: bad canary", pin.version.short());
    assert_eq!(pin.to_string(), expected);
    let mut for_ever = pin;
    for_ever.until = u64::MAX;
    assert!(for_ever.to_string().contains("for ever") && for_ever.until() > clock_of(9_000));
}

fn clock_of(year: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs((year - 1970) * 365 * 86_400)
}

#[test]
fn a_pin_lists_the_live_resources_that_it_needs() {
    let backend_tls = |material: &str| BackendTls { material: material.to_owned(), ..BackendTls::default() };
    let policy = |users: &str, authorities: &str| LocationPolicy {
        basic_auth: Some(BasicAuth { users: users.to_owned(), ..BasicAuth::default() }),
        backend_tls: Some(backend_tls(authorities)),
        ..LocationPolicy::default()
    };
    let of_host = HostPolicy {
        backend_tls: Some(backend_tls("a/of-host/proxy-ssl")),
        client_certificates: Some(ClientCertificates {
            authorities: "a/clients/auth-tls".to_owned(),
            ..ClientCertificates::default()
        }),
        ..HostPolicy::default()
    };
    let tls = Some(Tls { certificates: vec!["a/cert".to_owned()] });
    let settings = Settings {
        default_certificate: "f/default".to_owned(),
        defaults: policy("f/all/auth-map", "f/ca/proxy-ssl"),
        ..Settings::default()
    };
    let mut config = config(vec![
        ("default", Resource::Settings(settings)),
        ("a.test", Resource::Host(Host { tls, policy: of_host, ..Host::default() })),
        (
            "ingress/a/web/a.test",
            Resource::Route(Route {
                policy: policy("a/users/auth-file", "a/ca/proxy-ssl"),
                ..Route::default()
            }),
        ),
        ("a/web/80", Resource::Backend(Backend::default())),
        ("a/web/http", Resource::Backend(Backend::default())),
    ]);
    config.insert(Arc::new(Entry::from_body(
        ResourceKey::new(shared::kind::Kind::Later(9), "x"),
        9,
        "?".into(),
    )));
    let needs = pin_of(config).needs;
    let reference = |what, namespace, name| Reference::new(what, ObjectName::new(namespace, name));
    let secrets = [
        reference(Use::Certificate, "a", "cert"),
        reference(Use::DefaultCertificate, "f", "default"),
        reference(Use::UsersFile, "a", "users"),
        reference(Use::UsersMap, "f", "all"),
        reference(Use::BackendTls, "a", "ca"),
        reference(Use::BackendTls, "a", "of-host"),
        reference(Use::BackendTls, "f", "ca"),
        reference(Use::ClientAuthorities, "a", "clients"),
    ];
    assert_eq!(needs.secrets, secrets.into());
    assert_eq!(needs.services, [ObjectName::new("a", "web")].into());
    assert_eq!(needs.unknown, 1);
}

#[test]
fn a_record_of_a_later_form_is_not_a_damaged_one() {
    let mut packed = pack(&pin_of(Snapshot::default())).unwrap();
    let text = packed.manifest.text().replace("\"format\": 1", "\"format\": 2, \"else\": []");
    let error = Manifest::read(&text).unwrap_err();
    assert_eq!(error, Unreadable::Later { format: 2 });
    assert!(!error.may_be_mended());
    assert!(Manifest::read("{").unwrap_err().may_be_mended());

    assert_eq!(packed.manifest.check_source("here"), Err(Unreadable::Unfinished));
    packed.manifest.source = "there".to_owned();
    assert_eq!(packed.manifest.check_source("here"), Err(Unreadable::Elsewhere));
    assert_eq!(packed.manifest.check_source("there"), Ok(()));
}

/// A few bytes of it could cost as many copies of a part as it has names.
#[test]
fn a_record_names_few_parts_and_each_once() {
    let read = |names: &[&str]| {
        let mut manifest = pack(&pin_of(Snapshot::default())).unwrap().manifest;
        manifest.parts = names.iter().map(|name| (*name).to_owned()).collect();
        Manifest::read(&manifest.text())
    };
    let names: Vec<_> = (0..17).map(|i| format!("firth-pin-{i}")).collect();
    let names: Vec<_> = names.iter().map(|name| &**name).collect();
    assert_eq!(read(&names[..16]).unwrap().parts.len(), 16);
    for bad in [&names[..], &["a", "b", "a"]] {
        let error = read(bad).unwrap_err();
        assert!(error.to_string().contains("16 parts") && error.may_be_mended(), "{error}");
    }
}

#[test]
fn a_record_longer_than_one_is_not_read() {
    let mut packed = pack(&pin_of(Snapshot::default())).unwrap();
    packed.parts = vec![vec![0; (12 << 20) + 1]];
    assert_eq!(read(&packed).unwrap_err(), Unreadable::Damaged { expected: "a record of 12 MiB at most" });
}

#[test]
fn a_record_that_swells_is_not_read() {
    let mut packed = pack(&pin_of(Snapshot::default())).unwrap();
    packed.parts = vec![compress(&vec![0; 200 << 20])];
    assert!(packed.parts[0].len() < 1 << 20, "it cost its writer little");
    assert_eq!(read(&packed).unwrap_err(), Unreadable::Damaged { expected: "compressed resources" });
}

fn compress(raw: &[u8]) -> Vec<u8> {
    crate::zlib::pack(raw)
}

/// What is not a resource costs two bytes, and cost a hundred.
#[test]
fn a_record_takes_no_more_memory_than_it_has_bytes() {
    let refused = |raw: Vec<u8>| {
        let mut packed = pack(&pin_of(Snapshot::default())).unwrap();
        let text = packed.manifest.text();
        let digest = |raw: &[u8]| blake3::hash(raw).to_hex()[..32].to_owned();
        let before = digest(&batch(&[], root(&[])));
        assert!(text.contains(&before), "{text}");
        packed.manifest = Manifest::read(&text.replace(&before, &digest(&raw))).unwrap();
        packed.parts = vec![compress(&raw)];
        let begun = shared::clock::now();
        let expected = Unreadable::Damaged { expected: "resources of CONFIG" };
        assert_eq!(read(&packed).map(|_| ()), Err(expected));
        begun.elapsed()
    };
    // Sixty million empty ones: decoded all together they are six GiB.
    assert!(refused([6 << 3 | 2, 0].repeat(60 << 20)) < Duration::from_secs(20));
    let entry = Entry::from_body(ResourceKey::new(shared::kind::Kind::Route, "a"), 1, "body".into());
    let wire = entry.to_wire();
    let other = Entry::from_body(ResourceKey::new(shared::kind::Kind::Route, "b"), 1, "body".into());
    let live = Entry::from_body(ResourceKey::new(shared::kind::Kind::Endpoints, "a"), 1, "body".into());
    let (whole, its) = ([&entry, &other], root(&[&entry]));
    refused(batch(&[wire.clone(), wire.clone()], its));
    refused(batch(&[other.to_wire(), wire.clone()], root(&whole)));
    refused(batch(&[shared::proto::config::Resource { version: bytes::Bytes::new(), ..wire.clone() }], its));
    refused(batch(&[live.to_wire()], root(&[&live])));
    refused(batch(&[wire], root(&[])));
}

/// What a record says of itself is no longer than what this build writes.
#[test]
fn a_note_that_is_too_long_is_cut_when_it_is_read() {
    let mut packed = pack(&pin_of(Snapshot::default())).unwrap();
    let text = packed.manifest.text();
    assert!(text.contains("bad canary"), "{text}");
    packed.manifest = Manifest::read(&text.replace("bad canary", &"ä".repeat(NOTE_MAX + 1))).unwrap();
    assert_eq!(read(&packed).unwrap().note, "ä".repeat(NOTE_MAX));
}

fn root(entries: &[&Entry]) -> Root {
    let mut all = Snapshot::default();
    all.extend(entries.iter().map(|entry| Arc::new((*entry).clone())));
    all.root()
}

fn batch(up: &[shared::proto::config::Resource], root_after: Root) -> Vec<u8> {
    use prost::Message as _;
    let batch = shared::proto::config::Batch {
        lane: shared::kind::Lane::Config.to_wire(),
        up: up.to_vec(),
        root_after: root_after.to_bytes(),
        ..Default::default()
    };
    batch.encode_to_vec()
}

#[test]
fn one_that_is_too_large_is_refused_with_its_size() {
    let mut config = Snapshot::default();
    let mut random = fastrand::Rng::with_seed(7);
    config.extend((0..20).map(|i| {
        let body: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(1 << 20).collect();
        Arc::new(Entry::from_body(
            ResourceKey::new(shared::kind::Kind::Route, format!("{i}")),
            1,
            body.into(),
        ))
    }));
    let error = pack(&pin_of(config)).unwrap_err();
    assert!(error.contains("20 MiB") && error.contains("12"), "{error}");
}

proptest! {
    #[test]
    fn what_is_packed_is_unpacked_and_nothing_else_is(
        bodies in prop::collection::vec((0..6_u8, "[a-z]{1,6}", prop::collection::vec(any::<u8>(), 0..200), 1..9_u32), 0..20),
        flip in any::<prop::sample::Index>(),
    ) {
        let mut config = Snapshot::default();
        config.extend(bodies.into_iter().map(|(kind, key, body, schema)| {
            let kind = shared::kind::Kind::any_from_wire(i32::from(kind) + 1).unwrap();
            Arc::new(Entry::from_body(ResourceKey::new(kind, key), schema, body.into()))
        }));
        let pin = pin_of(config);
        let mut packed = pack(&pin).unwrap();
        let back = read(&packed).unwrap();
        prop_assert_eq!(&back, &Pin { revision: "7".into(), ..pin.clone() });
        prop_assert_eq!(back.config.root(), pin.version);
        for (a, b) in back.config.iter().zip(pin.config.iter()) {
            prop_assert_eq!((&a.key, a.min_schema, &a.body), (&b.key, b.min_schema, &b.body));
        }
        // Any octet that is another one is noticed.
        let place = flip.index(packed.parts[0].len());
        packed.parts[0][place] ^= 1;
        prop_assert!(read(&packed).map_or(true, |it| it == back));
    }
}

#[test]
fn a_note_is_of_bounded_length() {
    let note = "ä".repeat(NOTE_MAX + 1);
    let pin = Pin::new(How::Pin, Root::default(), Snapshot::default(), UNIX_EPOCH, HOUR, &note);
    assert_eq!(pin.note, "ä".repeat(NOTE_MAX));
}

/// What a later build has decided may hold what this one cannot read.
#[test]
fn a_pin_of_a_later_build_is_told_by_its_schema_or_its_bytes() {
    let pin = || pin_of(Snapshot::default());
    assert!(!pin().is_of_later_build());
    assert!(Pin { schema: pin().schema + 1, ..pin() }.is_of_later_build());
    assert!(Pin { compile_revision: pin().compile_revision + 1, ..pin() }.is_of_later_build());
    assert!(!Pin { compile_revision: pin().compile_revision - 1, ..pin() }.is_of_later_build());
}
