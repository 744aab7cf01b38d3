//! One process writes to a folder at a time. The kernel lets go of the lock with the process, however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a folder cannot be written to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// By another process.
    #[error("another process keeps its state in {}", .0.display())]
    Taken(PathBuf),
    /// The system has none for it.
    #[error("{}: {reason}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
}

/// Takes the lock of a folder, as long as the file lives.
///
/// # Errors
/// Where another process has it, or there can be none.
pub fn take(dir: &Path) -> Result<File, LockError> {
    let path = dir.join("lock");
    let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let system = |reason| LockError::System { path: path.clone(), reason };
    let file = open.map_err(system)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LockError::Taken(dir.to_owned())),
        Err(TryLockError::Error(reason)) => Err(system(reason)),
    }
}
