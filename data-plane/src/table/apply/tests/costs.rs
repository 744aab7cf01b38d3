//! What an edit costs where one Service is large, counted as work.

use std::net::Ipv4Addr;

use shared::resource::{EndpointPort, Endpoints};

use super::*;

/// Addresses that were looked at by what is done.
fn looked(writer: &mut Writer, what: impl FnOnce(&mut Writer)) -> u64 {
    let count = |writer: &Writer| writer.counters().endpoints_joined.load(Ordering::Relaxed);
    let before = count(writer);
    what(writer);
    count(writer) - before
}

/// A slice of a hundred endpoints, of which all but the last are its own.
fn hundred(number: u32, last: u32) -> Arc<Entry> {
    let addresses = (number * 1000..number * 1000 + 99).chain([last]);
    let slice = Endpoints {
        service: "ns/s1".into(),
        ports: vec![EndpointPort { name: "http".into(), port: 8080 }],
        ipv4: addresses.map(|bits| Ipv4Addr::from_bits(0x0a00_0000 + bits)).collect(),
        ipv6: Vec::new(),
    };
    entry(&format!("ns/e{number:04}"), Resource::Endpoints(slice))
}

#[test]
fn one_slice_of_a_service_of_a_hundred_thousand_endpoints() {
    let mut writer = two_hosts();
    let slices = |last: u32| (0..1000).map(move |number| hundred(number, number * 1000 + last)).collect();
    assert_eq!(looked(&mut writer, |writer| writer.apply_live(slices(99), &[])), 100_001);
    let cell = action(&writer, "a.test").unwrap();
    let addresses =
        |cell: &BackendCell| cell.endpoints().list.iter().map(|it| it.address).collect::<Vec<_>>();
    assert_eq!(addresses(&cell).len(), 100_000);
    // One endpoint is another; then one slice has what a later one has; then both are gone, one after the other.
    let changes = [
        (vec![hundred(500, 777_777)], vec![]),
        (vec![hundred(500, 501_000)], vec![]),
        (vec![], vec![gone(&key(Kind::Endpoints, "ns/e0500"))]),
        (vec![], vec![gone(&key(Kind::Endpoints, "ns/e0501"))]),
        (vec![hundred(501, 5)], vec![]),
    ];
    for (up, removed) in changes {
        let looked = looked(&mut writer, |writer| writer.apply_live(up, &removed));
        assert!((100..=500).contains(&looked), "{looked} addresses were looked at");
        let mut scratch = two_hosts();
        scratch.apply_live(vec![], &[gone(&key(Kind::Endpoints, "ns/e1"))]);
        scratch.apply_live(writer.has(Lane::Live).iter().cloned().collect(), &[]);
        assert_eq!(addresses(&cell), addresses(&action(&scratch, "a.test").unwrap()));
    }
}
