//! Files and folders that only their owner can read: state may contain names that others must not see.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions, set_permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Creates a folder, with its parents. An existing one keeps its mode: it may be a volume.
///
/// # Errors
/// I/O errors.
pub fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates an empty file; an existing one is truncated, and restricted to its owner.
///
/// # Errors
/// I/O errors.
pub fn file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Whether an open file is still the one at a path. It may have been removed or moved, alone or with its folder:
/// writing to it then is useless.
pub fn is_at(file: &File, path: &Path) -> bool {
    let place = |it: Metadata| (it.dev(), it.ino());
    file.metadata().is_ok_and(|file| fs::metadata(path).is_ok_and(|there| place(there) == place(file)))
}

/// Reads a regular file. Anything else, such as a pipe or a device, is an error and never blocks.
///
/// # Errors
/// I/O errors; [`ErrorKind::InvalidInput`] if it is not a regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Checked before opening: opening a pipe without a writer would block.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    fs::read(path)
}

/// Writes a file atomically, replacing an existing one, and returns once it is on the disk: with the metadata of what
/// was written, by which a caller can distinguish it from later writes of others.
///
/// It is written to a temporary file beside it; readers of the folder ignore names that end in `.draft`.
///
/// # Errors
/// I/O errors.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<Metadata> {
    let (draft, written) = draft(path, bytes)?;
    if let Err(error) = fs::rename(&draft, path) {
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    settle(path)?;
    Ok(written)
}

/// As [`replace`], if the file does not exist. Returns false if it exists, and leaves it alone.
///
/// # Errors
/// I/O errors.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let (draft, _) = draft(path, bytes)?;
    // A hard link can be created only once: of several concurrent writers one succeeds.
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        linked => {
            linked?;
            settle(path)?;
            Ok(true)
        }
    }
}

/// Writes bytes to disk beside a path, under a unique name.
fn draft(path: &Path, bytes: &[u8]) -> io::Result<(PathBuf, Metadata)> {
    let draft = path.with_extension(format!("{:016x}.draft", fastrand::u64(..)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| file.metadata());
    match written {
        Ok(written) => Ok((draft, written)),
        Err(error) => {
            // Frees space on a full disk.
            let _ = fs::remove_file(&draft);
            Err(error)
        }
    }
}

/// A name is durable only once its folder is synced.
fn settle(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        fs::write(&path, "of everybody").unwrap();
        let written = replace(&path, b"new").unwrap();
        let there = fs::metadata(&path).unwrap();
        assert_eq!((there.permissions().mode() & 0o777, there.len(), written.len()), (0o600, 3, 3));
        assert_eq!(names(dir.path()), ["ca.pem"], "nothing is left beside it");
        let folder = dir.path().join("x");
        fs::create_dir_all(folder.join("y")).unwrap();
        assert!(replace(&folder, b"no file goes there").is_err());
        assert_eq!(names(dir.path()).len(), 2, "nor where that failed: {:?}", names(dir.path()));
    }

    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("it");
        assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::NotFound);
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(read(dir.path()).unwrap_err().kind(), ErrorKind::InvalidInput);
        replace(&path, b"bytes").unwrap();
        assert_eq!(read(&path).unwrap(), b"bytes");
    }

    #[test]
    fn a_file_that_was_removed_moved_or_replaced_is_in_its_place_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a/it"), dir.path().join("b"));
        let open = || {
            folder(path.parent().unwrap()).unwrap();
            file(&path).unwrap()
        };
        let first = open();
        assert!(is_at(&first, &path) && !is_at(&first, &other));
        replace(&path, b"another").unwrap();
        assert!(!is_at(&first, &path));
        let second = open();
        fs::rename(path.parent().unwrap(), &other).unwrap();
        assert!(!is_at(&second, &path) && is_at(&second, &other.join("it")));
        let third = open();
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        assert!(!is_at(&third, &path));
    }

    #[test]
    fn of_many_who_make_a_file_one_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token.used");
        let made: Vec<bool> = std::thread::scope(|scope| {
            let mut tries = Vec::new();
            for it in 0..8_u8 {
                let path = &path;
                tries.push(scope.spawn(move || create(path, &[it; 1000]).unwrap()));
            }
            tries.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let first = made.iter().position(|made| *made).unwrap();
        assert_eq!(made.iter().filter(|made| **made).count(), 1);
        assert_eq!(fs::read(&path).unwrap(), [first as u8; 1000], "whole, and the first one's");
        assert_eq!(names(dir.path()), ["token.used"]);
    }

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
