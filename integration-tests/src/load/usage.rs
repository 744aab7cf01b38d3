//! Resource usage of a local process: processor time and memory, as the kernel counts them.

use std::fs;
use std::io;
use std::time::Duration;

/// A moment of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// On a processor, all threads that are there now.
    pub cpu: Duration,
    /// Resident now, in bytes.
    pub memory: u64,
    /// The most that ever was.
    pub peak: u64,
}

impl Usage {
    /// Of a process now.
    ///
    /// # Errors
    /// If it is not there.
    pub fn of(process: u32) -> io::Result<Self> {
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            // One that has ended meanwhile says no more.
            let said = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
            nanos += said.split_whitespace().next().and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        }
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        Ok(Self {
            cpu: Duration::from_nanos(nanos),
            memory: kilobytes(&status, "VmRSS:")? * 1024,
            peak: kilobytes(&status, "VmHWM:")? * 1024,
        })
    }
}

fn kilobytes(status: &str, name: &str) -> io::Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("expected {name} of a process")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_some_of_both() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.memory > 0 && usage.peak >= usage.memory);
        assert!(usage.cpu > Duration::ZERO);
        assert!(kilobytes("VmRSS:\t  12 kB\n", "VmRSS:").is_ok_and(|kb| kb == 12));
        assert!(kilobytes("", "VmRSS:").is_err());
    }
}
