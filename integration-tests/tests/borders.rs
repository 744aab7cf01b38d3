//! Module borders: reads the source of every crate and fails if a file names a crate or module that it may not know.
//!
//! Data flows one way (kube or a folder, index, compile, store, serve, subscribe, table, http), and each step knows
//! only what it needs: this test keeps cores free of I/O. Inside a crate each module has a line in [`ORDER`], and may
//! name only those above it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A group of crates that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    /// Generated messages, and their encoder.
    Prost,
    Tonic,
    Kube,
    Tokio,
    Hyper,
    /// Types of requests and responses.
    Http,
    Rustls,
    DashMap,
    /// DNS resolution.
    Dns,
}

use Family::{DashMap, Dns, Http, Hyper, Kube, Prost, Rustls, Tokio, Tonic};

const FAMILIES: [(Family, &[&str]); 9] = [
    (Prost, &["prost", "prost_types", "prost_reflect", "proto"]),
    (Tonic, &["tonic", "tonic_prost", "tonic_reflection"]),
    (Kube, &["kube", "k8s_openapi"]),
    (Tokio, &["tokio", "tokio_stream"]),
    (Hyper, &["h2", "hyper", "hyper_util", "http_body", "http_body_util"]),
    (Http, &["http"]),
    (Rustls, &["rustls", "tokio_rustls"]),
    (DashMap, &["dashmap"]),
    (Dns, &["domain"]),
];

/// What files may use in addition to the standard library and plain data crates. The first row that matches a file
/// applies; `*` stands for any text.
const TABLE: &[(&str, &[Family])] = &[
    // The language of both planes.
    ("shared/src/proto.rs", &[Prost]),
    // The messages of policies are the types that all code uses.
    ("shared/src/policy.rs", &[Prost]),
    // The digest of a batch is computed where both planes share the code.
    ("shared/src/batch.rs", &[Prost]),
    ("shared/src/convert*", &[Prost]),
    ("shared/src/drain.rs", &[Tokio]),
    // To wait for a point in time.
    ("shared/src/clock.rs", &[Tokio]),
    ("shared/src/telemetry*", &[]),
    // The mutual authentication of the planes is shared by both ends.
    ("shared/src/tls.rs", &[Rustls]),
    ("shared/src/tls/pinned.rs", &[Rustls]),
    ("shared/src/tls/connect.rs", &[Tokio, Http, Hyper, Rustls]),
    // The admin pages of all processes have one server.
    ("shared/src/admin*", &[Tokio, Http, Hyper]),
    ("shared/src/*", &[]),
    // Sans-I/O: an event and the time go in, actions come out.
    ("control-plane/src/serve/session*", &[]),
    ("data-plane/src/subscribe/session*", &[Prost]),
    // The only place that uses Kubernetes' own types.
    ("control-plane/src/kube*", &[Kube, Tokio, Http]),
    ("control-plane/src/manifests*", &[Tokio]),
    ("control-plane/src/tasks.rs", &[Tokio]),
    ("control-plane/src/index*", &[]),
    // Whether a key belongs to its certificate is checked by the library that will serve them.
    ("control-plane/src/compile/certificate.rs", &[Rustls]),
    ("control-plane/src/compile*", &[]),
    ("control-plane/src/annotations*", &[]),
    ("control-plane/src/objects*", &[]),
    ("control-plane/src/event/inputs.rs", &[Tokio]),
    ("control-plane/src/barrier.rs", &[Tokio]),
    ("control-plane/src/event/pins.rs", &[Tokio]),
    // The stored form of a pin is a message.
    ("control-plane/src/pin/record.rs", &[Prost]),
    ("control-plane/src/pin.rs", &[]),
    ("control-plane/src/event.rs", &[]),
    ("control-plane/src/origin.rs", &[]),
    ("control-plane/src/problem.rs", &[]),
    ("control-plane/src/removal.rs", &[]),
    ("control-plane/src/pipeline*", &[Tokio]),
    // A commit's frame is encoded once, where the commit is made.
    ("control-plane/src/store*", &[Tokio, Prost]),
    // The rotation of keys is sans-I/O.
    ("control-plane/src/tickets/record.rs", &[]),
    ("control-plane/src/tickets*", &[Tokio]),
    ("control-plane/src/enrol/folder.rs", &[]),
    ("control-plane/src/enrol*", &[Tokio, Rustls]),
    // A connection begins with a handshake.
    ("control-plane/src/serve/admission/line.rs", &[Tokio, Tonic, Rustls]),
    // Requests of API servers are parsed without I/O.
    ("control-plane/src/webhook/review.rs", &[]),
    ("control-plane/src/webhook*", &[Tokio, Http, Hyper, Rustls]),
    ("control-plane/src/serve/roles.rs", &[]),
    ("control-plane/src/serve/registry*", &[Prost, Tokio, DashMap]),
    // Frames are passed to HTTP/2 unchanged.
    ("control-plane/src/serve/calls.rs", &[Tonic, Tokio, Http, Hyper]),
    ("control-plane/src/serve*", &[Prost, Tonic, Tokio, Http]),
    ("control-plane/src/inspect*", &[Prost, Tonic, Tokio]),
    ("control-plane/src/app*", &[Tokio, Tonic]),
    // Connections to other replicas use TLS and messages.
    ("control-plane/src/peers/ask.rs", &[Prost, Tonic, Tokio, Http, Rustls]),
    ("control-plane/src/peers*", &[Prost, Tokio]),
    ("control-plane/src/announce/edge.rs", &[Tokio]),
    ("control-plane/src/admin.rs", &[Tokio, Http]),
    ("control-plane/src/main.rs", &[Tokio]),
    // A replica is polled by hand.
    ("control-plane/src/sim.rs", &[Prost, Tokio]),
    ("control-plane/src/*", &[]),
    // The proxy.
    ("data-plane/src/subscribe*", &[Prost, Tonic, Tokio]),
    ("data-plane/src/dns*", &[Dns, Tokio]),
    ("data-plane/src/resolve*", &[Tokio]),
    // Signatures are verified as in handshakes.
    ("data-plane/src/staple/answer.rs", &[Rustls]),
    ("data-plane/src/staple/fetch.rs", &[Tokio]),
    ("data-plane/src/staple/question.rs", &[Http]),
    ("data-plane/src/staple/*", &[]),
    ("data-plane/src/staple.rs", &[Tokio]),
    // A key and its certificate are prepared for handshakes once, when tables are built.
    ("data-plane/src/table/certified.rs", &[Rustls]),
    ("data-plane/src/table/backend_tls.rs", &[Rustls]),
    // So are authorities; the TLS library verifies the signatures.
    ("data-plane/src/table/trust.rs", &[Rustls]),
    // Fields are found through their descriptors.
    ("data-plane/src/table/apply/config/tests.rs", &[Prost]),
    ("data-plane/src/table*", &[Http]),
    // The codec is pure, except for the traits of the streams that it reads and writes.
    ("data-plane/src/codec/outgoing.rs", &[Tokio]),
    // The socket that a body may be spliced from.
    ("data-plane/src/codec/body.rs", &[Tokio]),
    // Streams to clients, including TLS: written data may wait for more.
    ("data-plane/src/codec/stream.rs", &[Tokio, Rustls]),
    ("data-plane/src/codec/stream*", &[Tokio]),
    ("data-plane/src/codec*", &[Http]),
    // Files are written by blocking threads of the runtime.
    ("data-plane/src/local/spill.rs", &[Tokio]),
    // DNS resolution is asynchronous.
    ("data-plane/src/local/names*", &[Tokio]),
    // Hashes are compared asynchronously; the cache of results needs a random key.
    ("data-plane/src/local/passwords*", &[Tokio, Rustls]),
    ("data-plane/src/local/nonces.rs", &[Rustls]),
    ("data-plane/src/local/pipes*", &[Tokio]),
    ("data-plane/src/local/relay.rs", &[Tokio]),
    // It reads frames of HTTP/2 into its buffers.
    ("data-plane/src/local/buffers.rs", &[Tokio]),
    ("data-plane/src/local/stint.rs", &[Tokio]),
    ("data-plane/src/local*", &[]),
    ("data-plane/src/http*", &[Tokio, Hyper, Http, Rustls]),
    ("data-plane/src/upstream*", &[Tokio, Rustls]),
    ("data-plane/src/tls*", &[Tokio, Rustls]),
    ("data-plane/src/worker*", &[Tokio, Rustls]),
    // The journal has messages of its own.
    ("data-plane/src/journal/*", &[Prost]),
    ("data-plane/src/tcp*", &[Tokio]),
    ("data-plane/src/udp*", &[Tokio]),
    ("data-plane/src/listen/queue.rs", &[Tokio]),
    ("data-plane/src/app*", &[Tokio, Rustls]),
    ("data-plane/src/admin*", &[Tokio, Http]),
    ("data-plane/src/main.rs", &[Tokio]),
    ("data-plane/src/sim*", &[Prost]),
    ("data-plane/src/*", &[]),
    // It implements the protocols that it tests.
    ("test-kit/src/*", &[Tokio, Hyper, Http, Rustls]),
    ("cli/src/up/demo*", &[Tokio, Hyper, Rustls]),
    ("cli/src/*", &[Prost, Tonic, Tokio, Hyper, Http]),
];

/// Crates of ours that a folder's code may not name.
const STRANGERS: &[(&str, &[&str])] = &[
    ("shared/src/*", &["control_plane", "data_plane", "integration_tests", "test_kit"]),
    ("control-plane/src/*", &["data_plane", "integration_tests", "test_kit"]),
    ("data-plane/src/*", &["control_plane", "integration_tests", "test_kit"]),
    ("cli/src/*", &["integration_tests", "test_kit"]),
    ("test-kit/src/*", &["control_plane", "data_plane", "integration_tests"]),
];

/// The modules of each crate, those without dependencies first. A module may name itself and those before it, so there
/// are no cycles. `a/b` is a module inside `a` with a position of its own; `a` then comes after all of those.
const ORDER: &[(&str, &[&str])] =
    &[("shared", SHARED), ("control-plane", CONTROL_PLANE), ("data-plane", DATA_PLANE), ("cli", CLI)];

const DATA_PLANE: &[&str] = &[
    // Bytes to messages.
    "codec/error",
    "codec/guard",
    "codec/path",
    "codec/proxy_protocol",
    "codec/host",
    "codec/head",
    "codec/fcgi",
    "codec/h1",
    "codec/body",
    "codec/frame",
    "codec/hpack",
    "codec/h2",
    "codec/outgoing",
    "codec/stream",
    "codec",
    "der",
    // What is counted, written down and configured.
    "metrics",
    "access_log",
    "listen",
    "affinity",
    "balance",
    "password",
    "rate",
    "table",
    "tls",
    "dns",
    // What a worker lends.
    "local",
    // Endpoints.
    "upstream",
    // Connections and requests.
    "http/server",
    "http/peer",
    "http/facts",
    "http/patience",
    "tcp",
    "udp",
    "http/reply",
    "http/pipeline",
    "http/upgrade",
    "http/h2",
    "http/conn",
    "http",
    // The threads.
    "worker",
    "resolve",
    // What authorities say of certificates.
    "staple",
    // What is kept for the next start.
    "journal",
    "subscribe",
    "admin",
    "fuzz",
    "sim",
    "args",
    "app",
    "lib",
    "main",
];

const CONTROL_PLANE: &[&str] = &[
    // The language of all of them.
    "tasks",
    "zlib",
    "moment",
    "objects",
    "problem",
    "reference",
    "pin",
    "event",
    "barrier",
    "origin",
    "freshness",
    "hold",
    "placement",
    "removal",
    "selector",
    // Who is who between the planes.
    "authority",
    // What is written into the cluster.
    "publish",
    // The stored keys of session tickets.
    "tickets/record",
    // The sources.
    "kube",
    "manifests",
    "tickets",
    // What is made of objects, and of which.
    "annotations",
    "compile",
    "index",
    "store",
    "metrics",
    "pipeline",
    // Who is told.
    "enrol",
    "serve",
    "rollout",
    "announce",
    "peers",
    "admin",
    "inspect",
    "webhook",
    "fuzz",
    "sim",
    "args",
    "app",
    "lib",
    "main",
];

const SHARED: &[&str] = &[
    "address",
    "backoff",
    "budget",
    "clock",
    "drain",
    "duration",
    "few",
    "htpasswd",
    "pattern",
    "secret",
    "socket",
    "pem",
    "private",
    "proto",
    "policy",
    "telemetry",
    "template",
    "log_format",
    "admin",
    "lock",
    "kind",
    "version",
    "batch",
    "resource",
    "rewrites",
    "name",
    "schema",
    "entry",
    "identity",
    "tls",
    "snapshot",
    "delta",
    "convert",
    "lib",
];

const CLI: &[&str] = &[
    "args", "client", "identity", "lists", "moment", "output", "columns", "value", "ask", "token", "login",
    "unread", "snippets", "classes", "up", "check", "main",
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

/// The code of a file without comments, and without the tests at its end, which may use anything.
fn code(text: &str) -> String {
    let ends = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    let lines = text[..ends].lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// First names of paths: `tokio` in `tokio::net` and `use tokio;`, but not in `crate::tokio::net`. Names of our own
/// modules do not count, with one exception: `proto` always stands for generated messages.
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

/// The paths that begin here, braces unfolded: `a::{b, c::d}` is `a::b` and `a::c::d`. Gives where they end.
fn unfold(code: &str, mut at: usize, before: &[&str], found: &mut Vec<Vec<String>>) -> usize {
    let mut path: Vec<&str> = before.to_vec();
    loop {
        let rest = &code[at..];
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if length > 0 {
            path.push(&rest[..length]);
            at += length;
            if code[at..].starts_with("::") {
                at += 2;
                continue;
            }
        } else if rest.starts_with('{') {
            at += 1;
            loop {
                at += code[at..].find(|c: char| !c.is_whitespace() && c != ',').unwrap_or(code.len() - at);
                if at == code.len() || code[at..].starts_with('}') {
                    return (at + 1).min(code.len());
                }
                at = unfold(code, at, &path, found);
            }
        }
        found.push(path.iter().map(|name| (*name).to_owned()).collect());
        // What cannot be in a path is stepped over, lest it be met again.
        return if length > 0 { at } else { at + rest.chars().next().map_or(0, char::len_utf8) };
    }
}

/// The paths inside its crate that the code of a module names, from the crate's root.
fn own_paths(module: &[&str], code: &str) -> Vec<Vec<String>> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if !code[..at].ends_with(|c: char| is_name(c) || c == ':') {
                unfold(code, at, &[], &mut found);
            }
        }
    }
    let from_root = found.into_iter().map(|path| {
        let mut whole: Vec<String> = module.iter().map(|name| (*name).to_owned()).collect();
        for name in path {
            match name.as_str() {
                "crate" => whole.clear(),
                "super" => _ = whole.pop(),
                "self" => {}
                _ => whole.push(name),
            }
        }
        whole
    });
    from_root.collect()
}

/// The place of a module or of what is in it: that of the longest name in the order which it begins with.
fn place(order: &[&str], path: &[impl AsRef<str>]) -> Option<usize> {
    (1..=path.len()).rev().find_map(|length| {
        let name = path[..length].iter().map(AsRef::as_ref).collect::<Vec<_>>().join("/");
        order.iter().position(|other| *other == name)
    })
}

/// Where a file (`http/conn.rs`) of a crate names what stands behind it in the crate's order.
fn disorder(order: &[&str], file: &str, text: &str) -> Vec<String> {
    let module: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    let Some(own) = place(order, &module) else {
        return vec![format!("{file}: has no place in the order of modules")];
    };
    let root: &[&str] = if module == ["lib"] { &[] } else { &module };
    let mut found = BTreeSet::new();
    for path in own_paths(root, &code(text)) {
        if let Some(other) = place(order, &path).filter(|other| *other > own) {
            found.insert(format!(
                "{file}: names {}, and {} stands behind {}",
                path.join("::"),
                order[other],
                order[own]
            ));
        }
    }
    found.into_iter().collect()
}

/// The files of a crate that are compiled outside tests, as names from its folder of sources, with their text.
fn modules(root: &Path, folder: &str) -> Vec<(String, String)> {
    let source = root.join(folder).join("src");
    let mut files = Vec::new();
    sources(&source, &mut files);
    files.sort();
    let mut found: Vec<(String, String)> = Vec::new();
    let mut tests = Vec::new();
    for file in files {
        let name = file.strip_prefix(&source).unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&file).unwrap();
        let inside = match name.as_str() {
            "lib.rs" | "main.rs" => String::new(),
            name => format!("{}/", name.trim_end_matches(".rs")),
        };
        for declared in text.split("#[cfg(test)]\n").skip(1) {
            let line = declared.lines().next().unwrap_or_default();
            if let Some((_, module)) = line.strip_suffix(';').and_then(|line| line.split_once("mod ")) {
                tests.push(format!("{inside}{module}"));
            }
        }
        found.push((name, text));
    }
    // The tests of a module, in files and folders of their own.
    found.retain(|(name, _)| {
        let name = name.trim_end_matches(".rs");
        !tests.iter().any(|test| name == test || name.starts_with(&format!("{test}/")))
    });
    found
}

#[test]
fn every_file_keeps_to_its_side() {
    let root = root();
    let mut found = Vec::new();
    let mut count = 0;
    for folder in ["shared", "control-plane", "data-plane", "cli", "test-kit"] {
        for (name, text) in modules(&root, folder) {
            count += 1;
            found.extend(breaches(&format!("{folder}/src/{name}"), &text));
        }
    }
    assert!(count > 50, "only {count} files were found below {}", root.display());
    assert!(found.is_empty(), "{} breaches:\n{}", found.len(), found.join("\n"));
}

#[test]
fn modules_stand_in_order() {
    let root = root();
    let mut found = Vec::new();
    for (folder, order) in ORDER {
        let modules = modules(&root, folder);
        for (name, text) in &modules {
            let breaches = disorder(order, name, text).into_iter();
            found.extend(breaches.map(|breach| format!("{folder}/src/{breach}")));
        }
        for named in *order {
            let there = modules.iter().any(|(name, _)| name.strip_suffix(".rs") == Some(named));
            if !there {
                found.push(format!("{folder}: {named} has a place in the order, and is no module"));
            }
        }
    }
    assert!(found.is_empty(), "{} breaches:\n{}", found.len(), found.join("\n"));
}

#[test]
fn disorder_is_found() {
    let order = ["codec/head", "codec/h1", "codec", "table", "http/conn", "http", "lib"];
    for (file, code) in [
        ("table.rs", "use crate::codec::{head::Known, h1};"),
        ("table/paths.rs", "use super::cell; use crate::table::host::HostEntry;"),
        ("http/conn/session.rs", "use super::answer; use crate::table;"),
        ("http/conn.rs", "// use crate::http;\n#[cfg(test)]\nmod tests {\nuse crate::http::x;\n}"),
        ("lib.rs", "pub use crate::http::conn;"),
        ("table.rs", "fn f() { other::crate_::http(); x.super_(); }"),
    ] {
        assert_eq!(disorder(&order, file, code), Vec::<String>::new(), "{file}: {code}");
    }
    for (file, code) in [
        ("table.rs", "use crate::http::conn::Peer;"),
        ("table.rs", "fn f() -> crate::http::Reply { todo() }"),
        ("table.rs", "use crate::{codec::head, http as web};"),
        ("table.rs", "use crate::{\n    codec::{\n        head, h1,\n    },\n    http::conn,\n};"),
        ("table/paths.rs", "use super::super::http;"),
        ("codec/head/fields.rs", "use super::super::h1;"),
        ("codec/head.rs", "use super::h1::{self, Reader};"),
        ("codec/head.rs", "use super::Shared;"),
        ("new.rs", ""),
    ] {
        assert!(!disorder(&order, file, code).is_empty(), "{file}: {code}");
    }
}

#[test]
fn manifests_keep_to_the_same_borders() {
    for (folder, banned) in [
        ("shared", &["kube", "k8s-openapi", "tonic", "control-plane", "data-plane", "test-kit"][..]),
        ("control-plane", &["data-plane", "test-kit"]),
        ("data-plane", &["control-plane", "kube", "k8s-openapi", "test-kit"]),
        ("cli", &["test-kit"]),
        ("test-kit", &["control-plane", "data-plane"]),
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
