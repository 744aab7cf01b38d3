//! Checks the proxy's `reader.rs` and `retire.rs` under every interleaving of a writer and its readers, and the
//! endpoint averages of `balance/latency.rs` under every interleaving of workers.
//!
//! The files are the product's own. Their synchronization primitives (`table/sync.rs`, `balance/sync.rs`) are replaced
//! by loom's, and a table is a generation that knows who may free it.
//!
//! `cargo test --manifest-path data-plane/loom/Cargo.toml`

#![allow(dead_code, missing_docs, reason = "the included files are linted where they belong")]

#[path = "../../src/balance/latency.rs"]
pub mod latency;
#[path = "../../src/table/reader.rs"]
pub mod reader;
#[path = "../../src/table/retire.rs"]
pub mod retire;
pub mod sync;

use loom::thread::{self, ThreadId};
pub use reader::{TableReader, Tables};

/// A table that only the writer may free.
#[derive(Debug, Default)]
pub struct HostTable {
    pub generation: u64,
    pub owner: Option<ThreadId>,
}

impl Drop for HostTable {
    fn drop(&mut self) {
        if let Some(owner) = self.owner {
            assert_eq!(thread::current().id(), owner, "table {} is freed by a reader", self.generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::latency::{Latency, Moment};
    use super::retire::Retired;
    use super::*;

    fn publish(tables: &Tables, retired: &mut Retired, generation: u64) {
        let owner = Some(thread::current().id());
        retired.push(tables.publish(HostTable { generation, owner }));
    }

    /// A writer that publishes twice and collects after each, and a reader that loads and is dropped.
    fn race(looks: usize) {
        loom::model(move || {
            let tables = Tables::new();
            let mut retired = Retired::default();
            publish(&tables, &mut retired, 1);
            let mut reader = tables.reader();
            let worker = thread::spawn(move || {
                let mut last = 0;
                for _ in 0..looks {
                    let generation = reader.load().generation;
                    assert!(generation >= last, "a reader never goes back");
                    last = generation;
                }
            });
            publish(&tables, &mut retired, 2);
            retired.collect(&tables);
            publish(&tables, &mut retired, 3);
            retired.collect(&tables);
            worker.join().unwrap();
            retired.collect(&tables);
            assert_eq!(retired.len(), 0, "nobody looks any more");
        });
    }

    /// Two workers that add to an average, and one that reads it.
    #[test]
    fn an_average_is_one_of_those_that_there_can_be() {
        loom::model(|| {
            let latency = sync::Arc::new(Latency::default());
            let at = |seconds| Moment::after_origin(Duration::from_secs(seconds));
            let observe = |took, now| {
                let latency = sync::Arc::clone(&latency);
                thread::spawn(move || latency.observe(Duration::from_secs(took), at(now)))
            };
            let workers = [observe(1, 100), observe(3, 110)];
            let score = latency.score(at(110));
            // No sample, one of them, or both, at its current age or a moment ago.
            assert!((0.0..=3.0).contains(&score), "{score}");
            for worker in workers {
                worker.join().unwrap();
            }
            let both = 3.0 - 2.0 * (-1.0_f64).exp();
            let known = latency.known().unwrap();
            assert!([1.0, 3.0, both].iter().any(|it| (it - known).abs() < 1e-9), "{known}");
            // A worker whose sample was dropped has left the average usable.
            latency.observe(Duration::from_secs(9), at(1_000_000));
            assert!(latency.known().unwrap() > 8.9);
        });
    }

    #[test]
    fn a_reader_that_looks_never_frees_a_table() {
        race(2);
    }

    #[test]
    fn a_reader_that_leaves_never_frees_a_table() {
        race(1);
    }

    /// A worker that starts while the writer is at work.
    #[test]
    fn a_reader_that_comes_never_frees_a_table() {
        loom::model(|| {
            let tables = Tables::new();
            let mut retired = Retired::default();
            publish(&tables, &mut retired, 1);
            let theirs = sync::Arc::clone(&tables);
            let worker = thread::spawn(move || {
                let mut reader = theirs.reader();
                // The last access of the process to these tables is the writer's.
                drop(theirs);
                assert!(reader.load().generation >= 1);
            });
            publish(&tables, &mut retired, 2);
            retired.collect(&tables);
            worker.join().unwrap();
            retired.collect(&tables);
            assert_eq!(retired.len(), 0);
        });
    }
}
