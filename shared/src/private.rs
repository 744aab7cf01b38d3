//! Files and folders for their owner alone: what a process keeps may name what others are not to know.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, set_permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// A folder, made with those above it where they are missing. One that is there keeps its mode: it may be a volume.
///
/// # Errors
/// The system's.
pub fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// An empty file to be written; one that is there is emptied, and is its owner's from then on.
///
/// # Errors
/// The system's.
pub fn file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn nobody_else_reads_what_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let inner = dir.path().join("a/b");
        folder(&inner).unwrap();
        folder(&inner).unwrap();
        assert_eq!((mode(&inner), mode(&dir.path().join("a"))), (0o700, 0o700));
        let path = inner.join("history");
        fs::write(&path, "old").unwrap();
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        file(&path).unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap().len()), (0o600, 0));
    }
}
