//! A writer and two readers at full speed, over tables and cells.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use shared::resource::{Backend, Denial, Host, PortRule};

use super::*;

const BASE: u16 = 10_000;
const BATCHES: u16 = 3_000;

/// The only endpoint of a table's only path.
fn port(table: &HostTable) -> u16 {
    let Match::Path(path) =
        table.host("a.test").expect("it is never gone").route(b"/", &shared::pattern::Steps::new())
    else {
        panic!("no path")
    };
    let Action::Backend(upstream) = &path.action else { panic!("no backend") };
    upstream.cell.endpoints().list[0].address.port()
}

/// The batch that leads to generation `number`: the port rule, which is in the cell, and a host that is recompiled.
fn batch(number: u16) -> Vec<Arc<shared::entry::Entry>> {
    let rule = PortRule { name: String::new(), target_port: Some(BASE + number), udp: false };
    let denied = number.is_multiple_of(2).then(|| Denial { reason: "even".into() });
    vec![
        entry("ns/s/80", Resource::Backend(Backend { port: Some(rule), ..Backend::default() })),
        entry("b.test", Resource::Host(Host { denied, ..Host::default() })),
    ]
}

#[test]
fn a_table_never_comes_before_its_cells() {
    let mut writer = Writer::new();
    let slice = shared::resource::Endpoints {
        service: "ns/s".into(),
        ipv4: vec![std::net::Ipv4Addr::LOCALHOST],
        ..shared::resource::Endpoints::default()
    };
    writer.apply_live(vec![entry("ns/e", Resource::Endpoints(slice))], &[]);
    let mut first = vec![host("a.test", None), route("ingress/ns/i/a.test", &[("/", "ns/s/80")])];
    first.extend(batch(1));
    writer.apply_config(first, &[]);
    assert_eq!((writer.tables().current().generation(), port(&writer.tables().current())), (1, BASE + 1));

    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = writer.tables().reader();
            let over = &over;
            scope.spawn(move || {
                let mut last = 0;
                while !over.load(Ordering::Relaxed) {
                    let table = reader.load();
                    let generation = table.generation();
                    assert!(generation >= last, "table {generation} after {last}");
                    last = generation;
                    let port = u64::from(port(table));
                    assert!(
                        port >= u64::from(BASE) + generation,
                        "table {generation} with a cell of {}",
                        port - u64::from(BASE)
                    );
                }
            });
        }
        for number in 2..=BATCHES {
            writer.apply_config(batch(number), &[]);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(writer.tables().current().generation(), u64::from(BATCHES));
    writer.collect();
    assert_eq!(writer.counters().tables_retired.load(Ordering::Relaxed), 0, "all readers left");
}
