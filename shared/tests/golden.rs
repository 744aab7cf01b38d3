//! The canonical bytes of one resource of each kind, as they were when their compile revision was made.
//!
//! Versions and roots are hashes of these bytes: were they to change unnoticed, every proxy of a fleet would be sent
//! everything again at the next update, and replicas of two builds would never agree.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::{Path as File, PathBuf};
use std::{env, fs};

use bytes::Bytes;
use shared::entry::Entry;
use shared::kind::Kind;
use shared::resource::{
    Backend, Canary, Certificate, Chain, Denial, EndpointPort, Endpoints, Guard, Host, Listener, Path,
    PathType, PortRule, Protocol, Resource, Route, Settings, Tls,
};
use shared::schema::COMPILE_REVISION;

const ADVICE: &str = "\
The canonical bytes are not those of this compile revision. If that was not meant, undo it: versions and roots are
hashes of these bytes. If it was: raise `COMPILE_REVISION` in shared/src/schema.rs, say what changed in
proto/firth/config/v1/schema.md, and run this test with FIRTH_WRITE_GOLDEN=1, which writes the file of the new revision.
The files of older revisions stay as they are.";

/// One of each kind, with every field set.
fn samples() -> Vec<(&'static str, Resource)> {
    let text = |text: &str| text.to_owned();
    let denied = || Some(Denial { reason: text("Ingress default/web asks for auth-url") });
    vec![
        (
            "default",
            Resource::Settings(Settings {
                default_certificate: text("default/fallback"),
                ssl_redirect: Some(true),
                force_ssl_redirect: Some(false),
                guards: vec![Guard::GlobalAuth, Guard::Addresses],
            }),
        ),
        ("https", Resource::Listener(Listener { protocol: Protocol::Https })),
        (
            "*.example.com",
            Resource::Host(Host {
                tls: Some(Tls { certificates: vec![text("default/one"), text("default/two")] }),
                denied: denied(),
            }),
        ),
        (
            "default/web/example.com",
            Resource::Route(Route {
                paths: vec![
                    Path { path: text("/"), kind: PathType::Prefix, backend: None },
                    Path {
                        path: text("/api"),
                        kind: PathType::Exact,
                        backend: Some(text("default/api/http")),
                    },
                ],
                denied: denied(),
                ssl_redirect: Some(false),
                force_ssl_redirect: Some(true),
                global_auth: Some(false),
            }),
        ),
        (
            "default/api/http",
            Resource::Backend(Backend {
                port: Some(PortRule { name: text("http"), target_port: Some(8080) }),
                alternatives: vec![text("default/api-next/http")],
                canary: Some(Canary {
                    header: text("x-canary"),
                    header_value: text("yes"),
                    header_pattern: text("^y"),
                    cookie: text("canary"),
                    weight: 10,
                    weight_total: 1000,
                }),
            }),
        ),
        (
            "default/api-abc12",
            Resource::Endpoints(Endpoints {
                service: text("default/api"),
                ports: vec![EndpointPort { name: text("http"), port: 8080 }],
                ipv4: vec!["10.1.2.3".parse().unwrap(), "10.1.2.4".parse().unwrap()],
                ipv6: vec!["fd00::1".parse().unwrap()],
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
    ]
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

/// A line each: kind, key, schema revision, version, body.
fn lines() -> String {
    samples().into_iter().fold(String::new(), |mut all, (key, resource)| {
        let entry = Entry::encode(key, &resource);
        let (kind, schema, version) = (entry.kind(), entry.min_schema, entry.version);
        let _ = writeln!(all, "{kind} {key} {schema} {version} {}", hex(&entry.body));
        all
    })
}

#[test]
fn the_bytes_are_those_of_the_compile_revision() {
    let file = folder().join(format!("revision-{COMPILE_REVISION}.txt"));
    if env::var_os("FIRTH_WRITE_GOLDEN").is_some() && !file.exists() {
        fs::write(&file, lines()).unwrap();
    }
    let golden =
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}\n{ADVICE}", file.display()));
    for (golden, now) in golden.lines().zip(lines().lines()) {
        assert_eq!(now, golden, "\n{ADVICE}");
    }
    assert_eq!(lines().lines().count(), golden.lines().count(), "\n{ADVICE}");
}

#[test]
fn every_kind_has_a_sample() {
    let samples = samples();
    // Nothing of the kind Material is made yet.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Material) {
        assert!(samples.iter().any(|(_, it)| it.kind() == kind), "no sample of {kind}");
    }
}

#[test]
fn what_older_revisions_wrote_is_still_understood() {
    let mut count = 0;
    for file in fs::read_dir(folder()).unwrap() {
        for line in fs::read_to_string(file.unwrap().path()).unwrap().lines() {
            let parts: Vec<&str> = line.split(' ').collect();
            let kind = Kind::parse(parts[0]).unwrap();
            let read = Resource::decode(kind, unhex(parts[4]));
            assert!(read.is_ok(), "{line}: {read:?}");
            count += 1;
        }
    }
    assert!(count > 0, "no golden file");
}
