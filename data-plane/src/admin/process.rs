//! The metrics that ingress-nginx exports about the nginx processes, for this process. A metric that the system does
//! not provide is left out.

use std::fmt::Write;
use std::fs;

use crate::metrics::{Metrics, PREFIX, head};

/// Clock ticks per second, as Linux reports them to programs on all architectures (`USER_HZ`).
const TICKS: f64 = 100.0;

/// Appends connections, requests, and the resource usage of the process.
pub(super) fn append(metrics: &Metrics, constant: &str, out: &mut String) {
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(&str, f64)]| {
        let name = format!("nginx_process_{name}");
        head(out, &name, kind, help);
        for (state, value) in samples {
            let state = if state.is_empty() { String::new() } else { format!(",state=\"{state}\"") };
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{PREFIX}{name}{{{constant}{state}}} {value}");
        }
    };
    let (accepted, handled) = metrics.connections();
    let (open, busy) = (metrics.open(), metrics.busy());
    // Heads are read by the connection's task: connections that have received part of one are not distinguished.
    let states = [
        ("active", open as f64),
        ("reading", 0.0),
        ("writing", busy as f64),
        ("waiting", open.saturating_sub(busy) as f64),
    ];
    family("connections", "gauge", "Client connections by state", &states);
    let totals = [("accepted", accepted as f64), ("handled", handled as f64)];
    family("connections_total", "counter", "Client connections so far", &totals);
    family("requests_total", "counter", "Requests of clients so far", &[("", metrics.answered() as f64)]);
    family("num_procs", "gauge", "Processes", &[("", 1.0)]);
    let Some(process) = Process::read() else { return };
    family("cpu_seconds_total", "counter", "Time on processors", &[("", process.cpu)]);
    family("oldest_start_time_seconds", "gauge", "When it began, since 1970", &[("", process.started)]);
    family("resident_memory_bytes", "gauge", "Memory that it has", &[("", process.resident)]);
    family("virtual_memory_bytes", "gauge", "Memory that it may address", &[("", process.addressed)]);
    if let Some((read, written)) = process.moved {
        family("read_bytes_total", "counter", "Bytes that it read", &[("", read)]);
        family("write_bytes_total", "counter", "Bytes that it wrote", &[("", written)]);
    }
    // As each exporter has them that is written in Go, ingress-nginx among them.
    for (name, kind, help, value) in [
        ("cpu_seconds_total", "counter", "Time on processors", process.cpu),
        ("start_time_seconds", "gauge", "When it began, since 1970", process.started),
        ("resident_memory_bytes", "gauge", "Memory that it has", process.resident),
        ("virtual_memory_bytes", "gauge", "Memory that it may address", process.addressed),
    ] {
        let _ = writeln!(
            out,
            "# HELP process_{name} {help}\n# TYPE process_{name} {kind}\nprocess_{name} {value}"
        );
    }
}

/// What Linux reports about this process.
struct Process {
    cpu: f64,
    started: f64,
    resident: f64,
    addressed: f64,
    moved: Option<(f64, f64)>,
}

impl Process {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // After the name, which may contain anything: from the third field of proc(5) on.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
        };
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())?;
        let moved = fs::read_to_string("/proc/self/io").ok().and_then(|io| {
            let of = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            Some((of("rchar:")?, of("wchar:")?))
        });
        Some(Self {
            cpu: (field(14)? + field(15)?) / TICKS,
            started: boot + field(22)? / TICKS,
            addressed: kilobytes("VmSize:")?,
            resident: kilobytes("VmRSS:")?,
            moved,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_told_of() {
        let process = Process::read().unwrap();
        assert!(process.resident > 0.0 && process.addressed >= process.resident);
        assert!(process.started > 1e9, "{}", process.started);
        let (metrics, mut out) = (Metrics::new(1), String::new());
        metrics.worker(0).accepted.add(3);
        metrics.worker(0).refused.add(1);
        append(&metrics, "a=\"b\"", &mut out);
        for line in [
            "nginx_ingress_controller_nginx_process_connections_total{a=\"b\",state=\"accepted\"} 3",
            "nginx_ingress_controller_nginx_process_connections_total{a=\"b\",state=\"handled\"} 2",
            "nginx_ingress_controller_nginx_process_requests_total{a=\"b\"} 0",
        ] {
            assert!(out.lines().any(|found| found == line), "{line} is not in\n{out}");
        }
        for name in
            ["cpu_seconds_total", "start_time_seconds", "resident_memory_bytes", "virtual_memory_bytes"]
        {
            let sample = out.lines().find_map(|line| line.strip_prefix(&format!("process_{name} ")));
            assert!(sample.unwrap().parse::<f64>().unwrap() >= 0.0, "{name}");
        }
    }
}
