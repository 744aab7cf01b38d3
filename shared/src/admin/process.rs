//! What the system reports about this process, and the metrics that say so on the pages of both planes.

use std::fmt::Write;
use std::fs;

/// Clock ticks per second, as Linux reports them to programs on all architectures (`USER_HZ`).
const TICKS: f64 = 100.0;

/// What Linux reports about this process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Seconds on processors.
    pub cpu: f64,
    /// When it began, in seconds since 1970.
    pub started: f64,
    /// Bytes of memory that it has.
    pub resident: f64,
    /// Bytes of memory that it may address.
    pub addressed: f64,
    /// Bytes that it has read and written.
    pub moved: Option<(f64, f64)>,
}

impl Process {
    /// Reads it; `None` on a system that does not report it.
    pub fn read() -> Option<Self> {
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

    /// Appends the metrics that each exporter has that is written in Go, ingress-nginx' controller among them.
    pub fn append(&self, out: &mut String) {
        for (name, kind, help, value) in [
            ("cpu_seconds_total", "counter", "Time on processors", self.cpu),
            ("start_time_seconds", "gauge", "When it began, since 1970", self.started),
            ("resident_memory_bytes", "gauge", "Memory that it has", self.resident),
            ("virtual_memory_bytes", "gauge", "Memory that it may address", self.addressed),
        ] {
            let _ = writeln!(
                out,
                "# HELP process_{name} {help}\n# TYPE process_{name} {kind}\nprocess_{name} {value}"
            );
        }
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
        let mut out = String::new();
        process.append(&mut out);
        for name in
            ["cpu_seconds_total", "start_time_seconds", "resident_memory_bytes", "virtual_memory_bytes"]
        {
            let sample = out.lines().find_map(|line| line.strip_prefix(&format!("process_{name} ")));
            assert!(sample.unwrap().parse::<f64>().unwrap() >= 0.0, "{name}");
        }
    }
}
