//! Who may use what: reads the source of every crate and fails where a file names a crate that its place may not know.
//!
//! Data flows one way (kube or a folder, index, compile, store, serve, subscribe, table, http), and each step knows
//! only what it needs: a core without I/O stays one because this test says so, not because everybody remembers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A group of crates that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    /// Generated messages, and what encodes them.
    Prost,
    Tonic,
    Kube,
    Tokio,
    Hyper,
    /// Types of requests and responses.
    Http,
    Rustls,
    DashMap,
}

use Family::{DashMap, Http, Hyper, Kube, Prost, Rustls, Tokio, Tonic};

const FAMILIES: [(Family, &[&str]); 8] = [
    (Prost, &["prost", "prost_types", "prost_reflect", "proto"]),
    (Tonic, &["tonic", "tonic_prost", "tonic_reflection"]),
    (Kube, &["kube", "k8s_openapi"]),
    (Tokio, &["tokio", "tokio_stream"]),
    (Hyper, &["hyper", "hyper_util", "http_body", "http_body_util"]),
    (Http, &["http"]),
    (Rustls, &["rustls", "tokio_rustls"]),
    (DashMap, &["dashmap"]),
];

/// What files may use beside the standard library and plain data crates. The first row that fits a file is its own;
/// `*` stands for any text.
const TABLE: &[(&str, &[Family])] = &[
    // The language of both planes.
    ("shared/src/proto.rs", &[Prost]),
    ("shared/src/convert*", &[Prost]),
    ("shared/src/drain.rs", &[Tokio]),
    ("shared/src/tasks.rs", &[Tokio]),
    ("shared/src/telemetry.rs", &[Tokio]),
    // The few pages that every process has are served in one place.
    ("shared/src/admin.rs", &[Tokio, Http, Hyper]),
    ("shared/src/*", &[]),
    // Sans-I/O: an event and the time go in, actions come out.
    ("control-plane/src/serve/session*", &[]),
    ("data-plane/src/subscribe/session*", &[Prost]),
    // The only place that knows Kubernetes' own types.
    ("control-plane/src/kube*", &[Kube, Tokio, Http]),
    ("control-plane/src/manifests*", &[Tokio]),
    ("control-plane/src/index*", &[]),
    // Whether a key belongs to its certificate is asked of the library that will serve both.
    ("control-plane/src/compile/certificate.rs", &[Rustls]),
    ("control-plane/src/compile*", &[]),
    ("control-plane/src/annotations*", &[]),
    ("control-plane/src/objects*", &[]),
    ("control-plane/src/event/inputs.rs", &[Tokio]),
    ("control-plane/src/event.rs", &[]),
    ("control-plane/src/problem.rs", &[]),
    ("control-plane/src/removal.rs", &[]),
    ("control-plane/src/pipeline*", &[Tokio]),
    // A commit's frame is encoded once, where it is made.
    ("control-plane/src/store*", &[Tokio, Prost]),
    ("control-plane/src/serve/registry*", &[Prost, Tokio, DashMap]),
    ("control-plane/src/serve*", &[Prost, Tonic, Tokio, Http]),
    ("control-plane/src/inspect*", &[Prost, Tonic, Tokio]),
    ("control-plane/src/app*", &[Tokio, Tonic]),
    ("control-plane/src/admin.rs", &[Tokio, Http]),
    ("control-plane/src/main.rs", &[Tokio]),
    ("control-plane/src/*", &[]),
    // The proxy.
    ("data-plane/src/subscribe*", &[Prost, Tonic, Tokio]),
    // A key and its certificate are made ready for handshakes once, where tables are written.
    ("data-plane/src/table/certified.rs", &[Rustls]),
    ("data-plane/src/table*", &[Http]),
    // The codec is pure, but for the traits of the streams that it reads from and writes to.
    ("data-plane/src/codec/outgoing.rs", &[Tokio]),
    ("data-plane/src/codec/stream.rs", &[Tokio]),
    ("data-plane/src/codec*", &[Http]),
    ("data-plane/src/local*", &[]),
    ("data-plane/src/http*", &[Tokio, Hyper, Http, Rustls]),
    ("data-plane/src/upstream/pool*", &[Tokio, Hyper, Http, Rustls, DashMap]),
    ("data-plane/src/upstream*", &[Tokio, Hyper, Http, Rustls]),
    ("data-plane/src/tls*", &[Tokio, Rustls]),
    ("data-plane/src/worker*", &[Tokio, Rustls]),
    ("data-plane/src/listen.rs", &[Tokio]),
    ("data-plane/src/app*", &[Tokio, Rustls]),
    ("data-plane/src/admin*", &[Tokio, Http]),
    ("data-plane/src/main.rs", &[Tokio]),
    ("data-plane/src/*", &[]),
    ("cli/src/*", &[Prost, Tonic, Tokio, Hyper, Http]),
];

/// Crates of ours that a folder's code may not name.
const STRANGERS: &[(&str, &[&str])] = &[
    ("shared/src/*", &["control_plane", "data_plane", "integration_tests"]),
    ("control-plane/src/*", &["data_plane", "integration_tests"]),
    ("data-plane/src/*", &["control_plane", "integration_tests"]),
    ("cli/src/*", &["integration_tests"]),
];

/// Whether a text fits a pattern with `*`.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, "")) => text.starts_with(before),
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && fits(after, &rest[at..]))
        }),
    }
}

/// The code of a file without comments, and without the tests at its end: those may use what they like.
fn code(text: &str) -> String {
    let ends = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    let lines = text[..ends].lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// First names of paths: `tokio` in `tokio::net` and `use tokio;`, but not in `crate::tokio::net`. What a module of ours
/// is called is no such name, with one exception: `proto` stands for generated messages wherever it is named.
fn named(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in code.match_indices("::") {
        let name: String = code[..at].chars().rev().take_while(|c| is_name(*c)).collect();
        let name: String = name.chars().rev().collect();
        let before = code[..at - name.len()].trim_end();
        let inner = before.ends_with("::") && !before.ends_with(" ::");
        if name == "proto" || !inner {
            names.insert(name);
        }
    }
    for line in code.lines() {
        if let Some(rest) = line.trim().strip_prefix("use ") {
            names.insert(rest.chars().take_while(|c| is_name(*c)).collect());
        }
    }
    // Inside braces: `use shared::{delta::Delta, proto::config}` is found above; `{proto, version}` here.
    for piece in code.split(['{', ',', '}', ';']).map(str::trim) {
        if piece == "proto" {
            names.insert(piece.to_owned());
        }
    }
    names
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Breaches of one file.
fn breaches(file: &str, text: &str) -> Vec<String> {
    let names = named(&code(text));
    let Some((row, allowed)) = TABLE.iter().find(|(pattern, _)| fits(pattern, file)) else {
        return vec![format!("{file}: no row of the table fits it")];
    };
    let mut found = Vec::new();
    for (family, crates) in FAMILIES {
        if allowed.contains(&family) {
            continue;
        }
        for name in crates.iter().filter(|name| names.contains(**name)) {
            found.push(format!("{file}: names {name}, which the row {row:?} does not allow"));
        }
    }
    for (pattern, strangers) in STRANGERS {
        if fits(pattern, file) {
            let named = strangers.iter().filter(|name| names.contains(**name));
            found.extend(named.map(|name| format!("{file}: names {name}")));
        }
    }
    found
}

#[test]
fn every_file_keeps_to_its_side() {
    let root = root();
    let mut found = Vec::new();
    let mut count = 0;
    for folder in ["shared", "control-plane", "data-plane", "cli"] {
        let mut files = Vec::new();
        sources(&root.join(folder).join("src"), &mut files);
        files.sort();
        for file in files {
            let name = file.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
            // The tests of a module in folders of their own.
            if name.contains("/tests/") {
                continue;
            }
            count += 1;
            found.extend(breaches(&name, &fs::read_to_string(&file).unwrap()));
        }
    }
    assert!(count > 50, "only {count} files were found below {}", root.display());
    assert!(found.is_empty(), "{} breaches:\n{}", found.len(), found.join("\n"));
}

#[test]
fn manifests_keep_to_the_same_borders() {
    for (folder, banned) in [
        ("shared", &["kube", "k8s-openapi", "tonic", "control-plane", "data-plane"][..]),
        ("control-plane", &["data-plane", "hyper"]),
        ("data-plane", &["control-plane", "kube", "k8s-openapi"]),
    ] {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let normal = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        for name in banned {
            let depends = normal.lines().any(|line| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with([' ', '.', '=']))
            });
            assert!(!depends, "{folder} depends on {name}");
        }
    }
}

#[test]
fn a_breach_is_found() {
    let file = "control-plane/src/index/refs.rs";
    assert_eq!(breaches(file, "use std::fmt;\nuse crate::kube::x;\n"), Vec::<String>::new());
    assert_eq!(
        breaches(file, "// tokio::spawn\n#[cfg(test)]\nmod tests {\nuse tokio::net;\n}"),
        Vec::<String>::new()
    );
    for code in [
        "use tokio::sync::mpsc;",
        "fn f() { let x = tokio::time::sleep(y); }",
        "use ::kube::Client;",
        "use shared::proto::config;",
        "use shared::{proto, version};",
        "use data_plane::app;",
    ] {
        assert_eq!(breaches(file, code).len(), 1, "{code}");
    }
    assert_eq!(breaches("control-plane/src/kube/watch.rs", "use kube::Client;"), Vec::<String>::new());
    assert_eq!(breaches("data-plane/src/subscribe/session.rs", "use tokio::time;").len(), 1);
    assert_eq!(breaches("somewhere/else.rs", "").len(), 1);
}
