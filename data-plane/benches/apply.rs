//! What an edit costs the control thread. It must not grow with the number of hosts.

use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use data_plane::table::Writer;
use shared::entry::Entry;
use shared::resource::{Backend, EndpointPort, Endpoints, Host, Path, PathType, PortRule, Resource, Route};

fn entry(key: &str, resource: &Resource) -> Arc<Entry> {
    Arc::new(Entry::encode(key, resource))
}

fn slice(number: usize, last: u8) -> Arc<Entry> {
    let slice = Endpoints {
        service: format!("ns/s{number}"),
        ports: vec![EndpointPort { name: "http".into(), port: 8080, udp: false }],
        ipv4: (0..10).map(|i| [10, 0, last, i].into()).collect(),
        ipv6: Vec::new(),
    };
    entry(&format!("ns/e{number}"), &Resource::Endpoints(slice))
}

fn route(number: usize, path: &str) -> Arc<Entry> {
    let path = Path {
        path: path.into(),
        kind: PathType::Prefix,
        backend: Some(format!("ns/s{number}/80")),
        after_exact: false,
    };
    let route = Route { paths: vec![path], ..Route::default() };
    entry(&format!("ingress/ns/i{number}/h{number}.test"), &Resource::Route(route))
}

fn writer(services: usize) -> Writer {
    let port = Some(PortRule { name: "http".into(), target_port: Some(8080), udp: false });
    let backend = Resource::Backend(Backend { port, ..Backend::default() });
    let mut writer = Writer::new();
    writer.apply_live((0..services).map(|number| slice(number, 0)).collect(), &[]);
    let config = (0..services).flat_map(|number| {
        let host = entry(&format!("h{number}.test"), &Resource::Host(Host::default()));
        [host, route(number, "/"), entry(&format!("ns/s{number}/80"), &backend)]
    });
    writer.replace_config(config.collect());
    writer
}

fn apply(criterion: &mut Criterion) {
    for services in [1_000, 10_000] {
        let mut writer = writer(services);
        let slices = [slice(7, 1), slice(7, 2)];
        let mut turn = 0;
        criterion.bench_function(&format!("endpoints of one of {services} Services"), |bencher| {
            bencher.iter(|| {
                turn ^= 1;
                writer.apply_live(vec![Arc::clone(&slices[turn])], &[]);
            });
        });
        let routes = [route(7, "/"), route(7, "/other")];
        criterion.bench_function(&format!("route of one of {services} hosts"), |bencher| {
            bencher.iter(|| {
                turn ^= 1;
                writer.apply_config(vec![Arc::clone(&routes[turn])], &[]);
            });
        });
    }
}

criterion_group!(benches, apply);
criterion_main!(benches);
