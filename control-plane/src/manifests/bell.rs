//! Tells when every change that the kernel knew of at some moment has been delivered.
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
pub(super) struct Bell {
    _file: File,
    path: PathBuf,
    heard: Mutex<u64>,
    changed: Condvar,
}

impl Bell {
    /// A bell that is not watched yet.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(super) fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("bell", MemfdFlags::CLOEXEC)?);
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Ok(Self { _file: file, path, heard: Mutex::default(), changed: Condvar::new() })
    }

    /// The path under which it is watched and reported.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its event was received.
    pub(super) fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Rings, and waits until the event was received. Returns false if that takes longer than a second.
    pub(super) fn ring(&self) -> bool {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *heard;
        if File::open(&self.path).is_err() {
            return false;
        }
        let waited = self.changed.wait_timeout_while(heard, PATIENCE, |heard| *heard == before);
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
    fn what_happened_before_it_rings_is_told_before_it_is_heard() {
        let dir = tempfile::tempdir().unwrap();
        let (bell, told) = (Arc::new(Bell::new().unwrap()), Arc::new(Mutex::new(0)));
        let (hears, counts) = (Arc::clone(&bell), Arc::clone(&told));
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let event = event.unwrap();
            if event.paths.iter().any(|path| path == hears.path()) {
                return hears.hear();
            }
            // A slow listener, so that events queue up.
            std::thread::sleep(Duration::from_millis(1));
            *counts.lock().unwrap() += usize::from(event.kind.is_create());
        })
        .unwrap();
        assert!(!bell.ring(), "nobody hears it yet");
        watcher.watch(bell.path(), RecursiveMode::NonRecursive).unwrap();
        watcher.watch(dir.path(), RecursiveMode::NonRecursive).unwrap();
        for round in 1..=20 {
            for file in 0..5 {
                fs::write(dir.path().join(format!("{round}-{file}")), "").unwrap();
            }
            assert!(bell.ring());
            assert_eq!(*told.lock().unwrap(), 5 * round);
        }
    }
}
