//! The counts, compared with their limits.

use std::fmt::Write as _;
use std::{fs, io};

use super::traced::{self, Calls};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/costs/limits.txt");

const ABOUT: &str = "\
# What a request may cost the worker that serves it: written by UPDATE_COSTS=1 cargo test --workspace --test costs,
# in the dev profile, and compared by the same without UPDATE_COSTS. docs/benchmarks.md says more.
#
# case            allocations  bytes  system calls, with two waits for readiness
";

const MEMORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/costs/memory.txt");

const ABOUT_MEMORY: &str = "\
# Bytes that a proxy holds for an idle connection, for one that has sent half a head, for a route (its Host and itself),
# and for a route to a Service of its own (also its Backend and one EndpointSlice). As limits.txt.
#
# case         bytes
";

/// By case.
pub(crate) type Counts = Vec<(&'static str, Cost)>;

/// The cost of one request.
#[derive(Debug)]
pub(crate) struct Cost {
    allocations: f64,
    bytes: f64,
    calls: io::Result<Calls>,
    requests: usize,
}

/// The allowed cost.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Limit {
    allocations: f64,
    bytes: f64,
    calls: f64,
}

/// Allocations caused by ticks or timers rather than by requests vary with the speed of the machine: differences up to
/// this are ignored.
const SLACK: f64 = 0.6;

/// An additional field in a request or connection is not a relevant change: growth up to this percentage is ignored.
const GROWTH: u32 = 15;

impl Cost {
    pub(crate) fn new(requests: usize, (blocks, bytes): (u64, u64), calls: io::Result<Calls>) -> Self {
        let each = |count| count as f64 / requests as f64;
        Self { allocations: each(blocks), bytes: each(bytes), calls, requests }
    }

    /// `None` if this machine does not allow tracing. Calls made less than every second time are caused by ticks,
    /// whose number depends on the speed of the machine.
    fn calls(&self) -> Option<f64> {
        let calls = self.calls.as_ref().ok()?;
        Some(calls.values().map(|count| (*count as f64 / self.requests as f64).round()).sum())
    }

    /// The individual system calls.
    fn described(&self) -> String {
        let calls = match &self.calls {
            Ok(calls) => calls,
            Err(error) => return format!("not counted: {error}"),
        };
        let each =
            calls.iter().map(|(number, count)| (traced::name(*number), *count as f64 / self.requests as f64));
        let often: Vec<_> = each.filter(|(_, count)| *count >= 0.01).collect();
        often.iter().map(|(name, count)| format!("{name} {count:.2}")).collect::<Vec<_>>().join(", ")
    }
}

/// Compares with the committed limits, or writes them.
pub(crate) fn compare(counts: &Counts) {
    for (name, cost) in counts {
        eprintln!(
            "{name}: {:.1} allocations, {:.0} bytes, system calls: {}",
            cost.allocations,
            cost.bytes,
            cost.described()
        );
    }
    if std::env::var_os("UPDATE_COSTS").is_some() {
        fs::write(FILE, written(counts)).unwrap();
        return;
    }
    let limits = read(&fs::read_to_string(FILE).unwrap());
    let mut wrong = String::new();
    for (name, cost) in counts {
        let limit = limits.iter().find(|(found, _)| found == name);
        let (_, limit) = limit.unwrap_or_else(|| panic!("limits.txt has no line for {name}"));
        let pairs = [
            ("allocations", Some(cost.allocations), limit.allocations, SLACK),
            ("bytes allocated", Some(cost.bytes), limit.bytes, limit.bytes * f64::from(GROWTH) / 100.0),
            ("system calls", cost.calls(), limit.calls, 0.0),
        ];
        for (what, counted, allowed, slack) in pairs {
            let Some(counted) = counted else { continue };
            if counted > allowed + slack {
                let _ =
                    writeln!(wrong, "{name}: {counted:.1} {what} a request, where {allowed:.1} are allowed");
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "a request has become dearer:\n{wrong}Find what asks for more, or, where it is worth its price, say so in the commit \
         that raises tests/costs/limits.txt (UPDATE_COSTS=1 writes it).\nWhat was counted:\n{}",
        counts.iter().map(|(name, cost)| format!("{name}: {}\n", cost.described())).collect::<String>()
    );
}

/// Compares the held memory with the committed limits, or writes them.
pub(crate) fn compare_memory(held: &[(&'static str, i64)]) {
    let text: String = held.iter().map(|(name, bytes)| format!("{name:<12} {bytes:>7}\n")).collect();
    eprint!("{text}");
    if std::env::var_os("UPDATE_COSTS").is_some() {
        fs::write(MEMORY, format!("{ABOUT_MEMORY}{text}")).unwrap();
        return;
    }
    let limits = fs::read_to_string(MEMORY).unwrap();
    for (name, bytes) in held {
        let mut lines = limits.lines().filter_map(|line| line.split_once(' '));
        let limit = lines.find(|(found, _)| found == name);
        let (_, limit) = limit.unwrap_or_else(|| panic!("memory.txt has no line for {name}"));
        let limit: i64 = limit.trim().parse().unwrap();
        assert!(
            *bytes <= limit + limit * i64::from(GROWTH) / 100,
            "{name} holds {bytes} bytes, where {limit} are allowed. Find what holds more, or, where it is worth its price, \
             say so in the commit that raises tests/costs/memory.txt (UPDATE_COSTS=1 writes it)."
        );
    }
}

fn written(counts: &Counts) -> String {
    let mut text = ABOUT.to_owned();
    for (name, cost) in counts {
        let calls = cost.calls().unwrap_or_else(|| panic!("system calls were {}", cost.described()));
        // Writing to memory never fails.
        let _ = writeln!(text, "{name:<17} {:>11.1} {:>6.0} {calls:>13}", cost.allocations, cost.bytes);
    }
    text
}

fn read(text: &str) -> Vec<(String, Limit)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let limits = lines.map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let number = |place: usize| fields[place].parse().unwrap();
        (fields[0].to_owned(), Limit { allocations: number(1), bytes: number(2), calls: number(3) })
    });
    limits.collect()
}
