//! What it costs a request to find its host and path.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use data_plane::table::{Match, TableReader, Writer};
use shared::entry::Entry;
use shared::resource::{Host, Path, PathType, Resource, Route};

/// A reader of a table with this many hosts, and this many paths on `h0.example.test`.
fn reader(hosts: usize, paths: usize) -> (Writer, TableReader) {
    let entry = |key: &str, resource: &Resource| Arc::new(Entry::encode(key, resource));
    let path = |number: usize| Path {
        path: format!("/section-{number}/page"),
        kind: PathType::Prefix,
        backend: None,
        after_exact: false,
    };
    let mut up = Vec::new();
    for number in 0..hosts {
        let name = format!("h{number}.example.test");
        let count = if number == 0 { paths } else { 1 };
        let route = Route { paths: (0..count).map(path).collect(), ..Route::default() };
        up.push(entry(&name, &Resource::Host(Host::default())));
        up.push(entry(&format!("ingress/ns/i{number}/{name}"), &Resource::Route(route)));
    }
    let mut writer = Writer::new();
    writer.replace_config(up);
    let reader = writer.tables().reader();
    (writer, reader)
}

fn lookup(criterion: &mut Criterion) {
    for hosts in [1_000, 100_000] {
        let (_writer, mut reader) = reader(hosts, 1);
        let names: Vec<String> = (0..1024).map(|i| format!("h{}.example.test", i * 97 % hosts)).collect();
        let mut next = 0;
        criterion.bench_function(&format!("host, {hosts} hosts"), |bencher| {
            bencher.iter(|| {
                next = (next + 1) % names.len();
                black_box(reader.load().host(black_box(&names[next])).is_some())
            });
        });
    }
    for paths in [1, 10, 1_000] {
        let (_writer, mut reader) = reader(1, paths);
        criterion.bench_function(&format!("path, {paths} prefixes"), |bencher| {
            bencher.iter(|| {
                let host = reader.load().host("h0.example.test");
                let path = black_box(b"/section-0/page/with/more/below.html");
                let found = host.map(|host| host.route(path, &shared::pattern::Steps::new()));
                black_box(matches!(found, Some(Match::Path(_))))
            });
        });
    }
}

criterion_group!(benches, lookup);
criterion_main!(benches);
