//! One process writes to a folder at a time. The kernel lets go of the lock with the process, however that ends: what is
//! left of it is a file, which keeps nobody out.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process;

use thiserror::Error;

use crate::private;

/// Name of the file.
const FILE: &str = "lock";
/// Bytes of it that are read: a number and a host's name.
const MOST: u64 = 300;

/// Why a folder cannot be written to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// By another process.
    #[error("another process keeps its state in {}{}", dir.display(), Said(by.as_ref()))]
    Taken {
        /// The folder.
        dir: PathBuf,
        /// Which one, where it said so.
        by: Option<Holder>,
    },
    /// The system has none for it.
    #[error("{}: {reason}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
}

/// Who has a lock, as it wrote into the file. A number alone says little: folders are mounted by containers, which number
/// their processes each for itself, and by other hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its number there.
    pub pid: u32,
    /// What the host, or the pod, is called; may be empty.
    pub host: String,
}

/// Takes the lock of a folder, as long as the file lives.
///
/// # Errors
/// Where another process has it, or there can be none.
pub fn take(dir: &Path) -> Result<File, LockError> {
    let path = dir.join(FILE);
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let system = |reason| LockError::System { path: path.clone(), reason };
    let mut file = open.map_err(system)?;
    match file.try_lock() {
        Ok(()) => {
            // Said for people alone: a full disk has room for a lock, if not for this.
            let _ = sign(&mut file);
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            Err(LockError::Taken { dir: dir.to_owned(), by: Holder::read(&mut file) })
        }
        Err(TryLockError::Error(reason)) => Err(system(reason)),
    }
}

/// Whether a lock still is that of a folder, which may have been removed or moved: whoever comes after that gets another one.
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
struct Said<'a>(Option<&'a Holder>);

impl fmt::Display for Said<'_> {
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

    /// The end of a process lets go of its locks; the file of one that was killed stays.
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
