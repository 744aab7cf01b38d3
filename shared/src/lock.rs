//! Locks a folder for one process at a time. The kernel releases the lock when the process ends, in whatever way: the
//! file that remains locks nobody out.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process;

use thiserror::Error;

use crate::private;

/// Name of the file.
pub const FILE: &str = "lock";
/// Bytes of the file that are read: a process id and a host name.
const MOST: u64 = 300;

/// Why a folder cannot be locked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process has the lock.
    #[error("another process keeps its state in {}{}", dir.display(), HeldBy(by.as_ref()))]
    Taken {
        /// The folder.
        dir: PathBuf,
        /// Its holder, if known.
        by: Option<Holder>,
    },
    /// The system does not support the lock.
    #[error("{}: {reason}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
}

/// The holder of a lock, as written in the file. The process id alone is not enough: folders are mounted by containers,
/// each with process ids of its own, and by other hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its host or pod name; may be empty.
    pub host: String,
}

/// Acquires the lock of a folder, which is held as long as the file is open.
///
/// # Errors
/// If another process has it, or locking is not possible.
pub fn take(dir: &Path) -> Result<File, LockError> {
    let path = dir.join(FILE);
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let system = |reason| LockError::System { path: path.clone(), reason };
    let mut file = open.map_err(system)?;
    match file.try_lock() {
        Ok(()) => {
            // Only informative: a full disk has room for a lock, but perhaps not for this.
            let _ = sign(&mut file);
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            Err(LockError::Taken { dir: dir.to_owned(), by: Holder::read(&mut file) })
        }
        Err(TryLockError::Error(reason)) => Err(system(reason)),
    }
}

/// Whether this is still the lock of the folder, which may have been removed or moved: then another process gets a lock
/// of its own.
pub fn is_of(lock: &File, dir: &Path) -> bool {
    private::is_at(lock, &dir.join(FILE))
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    file.write_all(format!("{} {}\n", process::id(), host.trim()).as_bytes())
}

impl Holder {
    fn read(file: &mut File) -> Option<Self> {
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text).ok()?;
        let text = text.trim();
        let (pid, host) = text.split_once(' ').unwrap_or((text, ""));
        let host = host.chars().filter(char::is_ascii_graphic).collect();
        pid.parse().ok().map(|pid| Self { pid, host })
    }
}

/// `: process 7 of node-1`, or nothing.
struct HeldBy<'a>(Option<&'a Holder>);

impl fmt::Display for HeldBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Holder { pid, host }) = self.0 else { return Ok(()) };
        write!(f, ": process {pid}")?;
        if host.is_empty() { Ok(()) } else { write!(f, " of {host}") }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn taken(dir: &Path) -> String {
        let error = take(dir).unwrap_err();
        assert!(matches!(error, LockError::Taken { .. }), "{error}");
        error.to_string()
    }

    #[test]
    fn one_at_a_time_and_who_it_is_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let lock = take(dir.path()).unwrap();
        let said = taken(dir.path());
        let whole =
            format!("another process keeps its state in {}: process {}", dir.path().display(), process::id());
        assert!(said.starts_with(&whole), "{said}");
        assert!(fs::metadata(dir.path().join(FILE)).unwrap().len() < MOST);
        assert!(is_of(&lock, dir.path()));
        fs::remove_file(dir.path().join(FILE)).unwrap();
        assert!(!is_of(&lock, dir.path()));
        drop(lock);
        let again = take(dir.path()).unwrap();
        assert!(is_of(&again, dir.path()));
    }

    /// The kernel releases the locks of a process that ends; the file of a killed process stays.
    #[test]
    fn a_file_that_was_left_keeps_nobody_out() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "4294967295 a-host-with-a-longer-name-than-this-one-has\n").unwrap();
        let _lock = take(dir.path()).unwrap();
        let said = taken(dir.path());
        assert!(said.contains(&format!(": process {}", process::id())) && !said.contains("longer"), "{said}");
    }

    #[test]
    fn whatever_stands_in_the_file_is_no_more_than_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = take(dir.path()).unwrap();
        let whole = format!("another process keeps its state in {}", dir.path().display());
        for (text, more) in [
            ("", ""),
            ("x", ""),
            ("-1 a", ""),
            ("7", ": process 7"),
            ("7 a\u{1b}[2Jb\n", ": process 7 of a[2Jb"),
        ] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert_eq!(taken(dir.path()), format!("{whole}{more}"), "{text:?}");
        }
    }

    #[test]
    fn where_there_can_be_none_is_told_from_one_that_is_taken() {
        for dir in ["/proc", "/proc/firth"] {
            assert!(matches!(take(Path::new(dir)), Err(LockError::System { .. })), "{dir}");
        }
    }
}
