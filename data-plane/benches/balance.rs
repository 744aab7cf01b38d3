//! What consistent hashing costs: per request (finding an endpoint) and on the control thread (applying a change).

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use data_plane::balance::Ring;
use data_plane::table::Endpoint;

fn endpoint(number: u32) -> Arc<Endpoint> {
    let [_, b, c, d] = number.to_be_bytes();
    Arc::new(Endpoint::new(number.into(), SocketAddr::from(([10, b, c, d], 8080))))
}

fn rings(criterion: &mut Criterion) {
    for count in [3, 100, 1_000, 100_000] {
        let endpoints: Vec<_> = (0..count).map(endpoint).collect();
        let ring = Ring::new(endpoints.iter().cloned());
        let mut key = 0u32;
        criterion.bench_function(&format!("key, {count} endpoints"), |bencher| {
            bencher.iter(|| {
                key = key.wrapping_add(2_654_435_761);
                black_box(ring.find(black_box(key)).map(Arc::clone))
            });
        });
        let mut next = 0;
        criterion.bench_function(&format!("one leaves of {count} endpoints"), |bencher| {
            bencher.iter_batched(
                || {
                    next = (next + 1) % endpoints.len();
                    Arc::clone(&endpoints[next])
                },
                |left| ring.changed([left], []),
                BatchSize::PerIteration,
            );
        });
    }
}

criterion_group!(benches, rings);
criterion_main!(benches);
