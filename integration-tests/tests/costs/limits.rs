//! The counts, compared with their limits.

use std::fmt::Write as _;
use std::fs;

use super::counted::Allocated;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/costs/limits.txt");

const ABOUT: &str = "\
# What an update may cost the control plane, from the line of a watch to the commit, and for each proxy from there to
# its acknowledgement: written by UPDATE_COSTS=1 cargo test --workspace --test costs, in the dev profile, and compared
# by the same without UPDATE_COSTS.
#
# case            allocations  bytes
";

/// What is ignored in percent, of allocations and of bytes: the shape of hash maps varies from run to run, and an
/// additional field is not a relevant change.
const SLACK: [f64; 2] = [5.0, 15.0];

/// Allocations and their bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Cost {
    allocations: f64,
    bytes: f64,
}

impl Cost {
    /// Adds what was allocated between pairs of moments.
    pub(crate) fn add(&mut self, spans: Vec<(Allocated, Allocated)>) {
        for (before, after) in spans {
            self.allocations += (after.blocks - before.blocks) as f64;
            self.bytes += (after.bytes - before.bytes) as f64;
        }
    }

    /// Of one among so many.
    pub(crate) fn each(self, count: usize) -> Self {
        Self { allocations: self.allocations / count as f64, bytes: self.bytes / count as f64 }
    }
}

/// Compares with the committed limits, or writes them.
pub(crate) fn compare(counts: &[(&str, Cost)]) {
    let mut text = ABOUT.to_owned();
    for (name, Cost { allocations, bytes }) in counts {
        // Writing to memory never fails.
        let _ = writeln!(text, "{name:<17} {allocations:>11.1} {bytes:>6.0}");
    }
    eprint!("{text}");
    if std::env::var_os("UPDATE_COSTS").is_some() {
        fs::write(FILE, text).unwrap();
        return;
    }
    let limits = fs::read_to_string(FILE).unwrap();
    for (name, cost) in counts {
        let line = limits.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = line.into_iter().find(|fields| fields.first() == Some(name));
        let line = line.unwrap_or_else(|| panic!("limits.txt has no line for {name}"));
        for (at, (what, counted)) in
            [("allocations", cost.allocations), ("bytes allocated", cost.bytes)].into_iter().enumerate()
        {
            let allowed: f64 = line[at + 1].parse().unwrap();
            assert!(
                counted <= allowed * (1.0 + SLACK[at] / 100.0),
                "{name}: {counted:.1} {what} an update, where {allowed:.1} are allowed. Find what asks for more, or, \
                 where it is worth its price, say so in the commit that raises tests/costs/limits.txt \
                 (UPDATE_COSTS=1 writes it)."
            );
        }
    }
}
