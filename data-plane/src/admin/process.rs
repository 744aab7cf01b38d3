//! The metrics that ingress-nginx exports about the nginx processes, for this process. A metric that the system does
//! not provide is left out.

use std::fmt::Write;

use shared::admin::Process;

use crate::metrics::{Metrics, PREFIX, head};

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
    process.append(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_told_of() {
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
        assert!(out.contains("\nprocess_resident_memory_bytes "), "{out}");
    }
}
