//! Folders for identities that end with their process: `firth up --listen ADDRESS:0` has another address at each start,
//! so nobody looks for its identity once it has ended.
//!
//! **Invariant:** a folder is removed only if it is marked as one of these, its lock shows that no process uses it, and
//! then only the files that `firth up` writes. `firth login` removes the mark, so what it wrote stays.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use shared::lock::{self, LockError};
use shared::private;

use super::{BY_UP, FILES};

/// The content of the mark.
const PASSING: &[u8] = b"passing\n";

/// Another process has the lock only while it removes what was there.
const TRIES: usize = 100;
const WAIT: Duration = Duration::from_millis(10);

/// A folder that is removed with this value.
#[derive(Debug)]
pub(crate) struct Passing {
    folder: PathBuf,
    lock: File,
}

impl Passing {
    /// Creates a folder and locks it. It is not marked yet.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn claim(folder: &Path) -> io::Result<Self> {
        for _ in 0..TRIES {
            private::folder(folder)?;
            match lock::take(folder) {
                Ok(lock) if lock::is_of(&lock, folder) => {
                    return Ok(Self { folder: folder.to_owned(), lock });
                }
                Ok(_) | Err(LockError::Taken { .. }) => {}
                Err(LockError::System { reason, .. }) if reason.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(io::Error::other(error)),
            }
            std::thread::sleep(WAIT);
        }
        Err(io::Error::new(ErrorKind::WouldBlock, "another process uses it"))
    }

    /// Whether a folder is marked as one of these.
    pub(crate) fn is_marked(folder: &Path) -> bool {
        private::read(&folder.join(BY_UP)).is_ok_and(|mark| mark == PASSING)
    }

    /// Marks the folder, which contains an identity now.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn mark(&self) -> io::Result<()> {
        private::replace(&self.folder.join(BY_UP), PASSING).map(drop)
    }

    fn remove(&self) {
        if !Self::is_marked(&self.folder) || !lock::is_of(&self.lock, &self.folder) {
            return;
        }
        // The lock last: until then no other process begins to write.
        for name in FILES.into_iter().chain([BY_UP, lock::FILE]) {
            let _ = fs::remove_file(self.folder.join(name));
        }
        // If somebody put another file there, it stays.
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes the folders whose processes were killed.
pub(crate) fn sweep(home: &Path) {
    for entry in fs::read_dir(home).into_iter().flatten().flatten() {
        // A link leads to a folder that somebody else made.
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            sweep_one(&entry.path());
        }
    }
}

fn sweep_one(folder: &Path) {
    if Passing::is_marked(folder)
        && let Ok(lock) = lock::take(folder)
    {
        Passing { folder: folder.to_owned(), lock }.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Somebody, folder};
    use super::*;

    fn written(at: &Path) -> Passing {
        let passing = Passing::claim(at).unwrap();
        Somebody::made_up().write_for_up(at, shared::clock::wall()).unwrap();
        passing.mark().unwrap();
        passing
    }

    /// As a process that is killed leaves it.
    fn killed(at: &Path) {
        let other = at.with_extension("other");
        let passing = written(&other);
        fs::create_dir(at).unwrap();
        for name in FILES.into_iter().chain([BY_UP, lock::FILE]) {
            fs::copy(other.join(name), at.join(name)).unwrap();
        }
        drop(passing);
    }

    #[test]
    fn the_folder_of_a_port_that_nobody_chose_ends_with_its_process() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().join(folder(None, "https://127.0.0.1:40001").unwrap().file_name().unwrap());
        let passing = written(&at);
        assert!(Somebody::read(&at, shared::clock::wall()).is_ok());
        sweep(home.path());
        assert!(Somebody::read(&at, shared::clock::wall()).is_ok(), "its process lives");
        drop(passing);
        assert!(!at.exists());
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for name in ["killed", "filled", "logged-in"] {
            killed(&at(name));
        }
        fs::write(at("filled").join("notes"), "mine").unwrap();
        Somebody::made_up().write_for_login(&at("logged-in")).unwrap();
        // Of a port that somebody chose.
        Somebody::made_up().write_for_up(&at("chosen"), shared::clock::wall()).unwrap();
        let outside = tempfile::tempdir().unwrap();
        killed(&outside.path().join("it"));
        std::os::unix::fs::symlink(outside.path().join("it"), at("link")).unwrap();
        fs::create_dir(at("empty")).unwrap();

        sweep(home.path());
        sweep(&at("nowhere"));
        assert!(!at("killed").exists());
        let left: Vec<_> = fs::read_dir(at("filled")).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, ["notes"]);
        for name in ["logged-in", "chosen", "link"] {
            assert!(Somebody::read(&at(name), shared::clock::wall()).is_ok(), "{name}");
        }
        assert!(at("empty").exists());
    }

    #[test]
    fn a_login_to_it_stays() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().join("it");
        let passing = written(&at);
        Somebody::made_up().write_for_login(&at).unwrap();
        drop(passing);
        assert!(Somebody::read(&at, shared::clock::wall()).is_ok());
    }

    #[test]
    fn a_folder_that_is_being_removed_is_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().join("it");
        killed(&at);
        let removes = Passing { folder: at.clone(), lock: lock::take(&at).unwrap() };
        let claims = std::thread::spawn({
            let at = at.clone();
            move || written(&at)
        });
        std::thread::sleep(3 * WAIT);
        drop(removes);
        let passing = claims.join().unwrap();
        assert!(Somebody::read(&at, shared::clock::wall()).is_ok() && Passing::is_marked(&at));
        drop(passing);
        assert!(!at.exists());
    }
}
