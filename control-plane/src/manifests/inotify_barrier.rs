//! Waits until every change that the kernel knows of has been delivered.
//!
//! inotify has one queue: an event for a file of our own, touched at that moment, comes after all earlier events.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

/// The watching thread reads the queue at once, unless it has ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// An in-memory file whose opening causes an event.
#[derive(Debug)]
pub(super) struct InotifyBarrier {
    _file: File,
    path: PathBuf,
    count: Mutex<u64>,
    changed: Condvar,
}

impl InotifyBarrier {
    /// A barrier that is not watched yet.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(super) fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("bell", MemfdFlags::CLOEXEC)?);
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Ok(Self { _file: file, path, count: Mutex::default(), changed: Condvar::new() })
    }

    /// The path under which it is watched and reported.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its event was received.
    pub(super) fn reached(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Causes an event, and waits until it was received. Returns false if that takes longer than a second.
    pub(super) fn wait(&self) -> bool {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *count;
        if File::open(&self.path).is_err() {
            return false;
        }
        let waited = self.changed.wait_timeout_while(count, PATIENCE, |count| *count == before);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use notify::{RecursiveMode, Watcher as _};

    use super::*;

    #[test]
    fn events_from_before_the_barrier_are_delivered_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let (barrier, created) = (Arc::new(InotifyBarrier::new().unwrap()), Arc::new(Mutex::new(0)));
        let (events, counts) = (Arc::clone(&barrier), Arc::clone(&created));
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let event = event.unwrap();
            if event.paths.iter().any(|path| path == events.path()) {
                return events.reached();
            }
            // A slow listener, so that events queue up.
            std::thread::sleep(Duration::from_millis(1));
            *counts.lock().unwrap() += usize::from(event.kind.is_create());
        })
        .unwrap();
        assert!(!barrier.wait(), "it is not watched yet");
        watcher.watch(barrier.path(), RecursiveMode::NonRecursive).unwrap();
        watcher.watch(dir.path(), RecursiveMode::NonRecursive).unwrap();
        for round in 1..=20 {
            for file in 0..5 {
                fs::write(dir.path().join(format!("{round}-{file}")), "").unwrap();
            }
            assert!(barrier.wait());
            assert_eq!(*created.lock().unwrap(), 5 * round);
        }
    }
}
