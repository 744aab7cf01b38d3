//! The history on disk: a file of `--state-dir` to which each version of the configuration is appended as what differs
//! from the one before.
//!
//! A thread of its own writes it. When that thread falls behind, or the disk fails, the file is written anew with the next
//! version; nobody waits for it. CONFIG has no secrets, so the file has none.
//!
//! One process writes it: the folder is locked as long as the thread lives. Where there can be no lock (a disk that became
//! read-only or full, a network file system without) it goes on without, aloud: a control plane that starts there is worth more
//! than one that does not.
//!
//! Each record says what it is of: a cluster or a folder, and a fleet's group. A file that is of something else, copied from there
//! perhaps, is put aside when this process knows what it reads itself. One that does not say is of an earlier build, and our own.
//!
//! **Invariant:** what is read back is a run of versions whose roots were computed again; the first record that does not
//! fit, and all after it, are dropped.

mod record;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use shared::lock::{self, LockError};
use shared::private;
use shared::snapshot::Snapshot;
use thiserror::Error;
use tracing::warn;

use super::history::{Bounds, History, PastVersion};
use record::Found;

/// Name of the file.
const FILE: &str = "history";
/// Versions that the thread may be behind.
const BEHIND: usize = 64;

/// Why the history of a folder cannot be gone on with.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Somebody else does.
    #[error(transparent)]
    Taken(LockError),
    /// It cannot be made or read.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The writer's handle.
#[derive(Debug)]
pub struct Journal {
    jobs: SyncSender<Job>,
    /// The file does not end with the newest version: write it anew.
    broken: Arc<AtomicBool>,
    /// What the versions are of, once that is known.
    of: Option<Arc<str>>,
    /// The file is of something else, and nobody was told yet to put it aside.
    foreign: bool,
}

/// What is to be written, and what it is of.
#[derive(Debug)]
struct Job {
    what: What,
    of: Option<Arc<str>>,
}

#[derive(Debug)]
enum What {
    Append {
        before: Box<Snapshot>,
        version: Arc<PastVersion>,
    },
    Anew {
        history: History,
        /// In place of a file that is put aside.
        foreign: bool,
    },
}

impl Journal {
    /// Reads the history of a state folder, which is made where it is missing, and goes on with it.
    ///
    /// One that cannot be read is put aside: a control plane that starts is worth more than a history.
    ///
    /// # Errors
    /// Where another process does, or the folder cannot be made.
    pub fn open(dir: &Path, bounds: Bounds) -> Result<(Self, History), JournalError> {
        private::folder(dir)?;
        let lock = lock(dir)?;
        let path = dir.join(FILE);
        let bytes = private::read(&path).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                give_up(&path, &error);
            }
            Vec::new()
        });
        let Found { history, of, left } = record::read_all(&bytes, bounds);
        if left > 0 {
            keep_damaged(&path, left, &history);
        }
        // An append to a file with a broken end would never be read.
        let broken = Arc::new(AtomicBool::new(left > 0 || history.is_empty()));
        let (jobs, queue) = sync_channel(BEHIND);
        let spare = bounds.bytes as u64;
        let said = Arc::clone(&broken);
        let mut writer = Writer { path, lock, file: None, spare, whole: 0, foreign: false, broken: said };
        std::thread::Builder::new().name("history".to_owned()).spawn(move || writer.run(&queue))?;
        Ok((Self { jobs, broken, of, foreign: false }, history))
    }

    /// What the versions are of from now on. False: those in the file are of something else, and it is put aside before the next
    /// one is written.
    pub(super) fn is_of(&mut self, of: Arc<str>) -> bool {
        let is_ours = self.of.as_ref().is_none_or(|it| *it == of);
        self.foreign |= !is_ours;
        self.of = Some(of);
        is_ours
    }

    /// Puts the newest version of `history` on disk, some time soon.
    pub(super) fn note(&mut self, before: Option<Snapshot>, history: &History) {
        let append = before
            .zip(history.newest())
            .map(|(before, version)| What::Append { before: Box::new(before), version: Arc::clone(version) });
        let is_broken = self.broken.swap(false, Ordering::AcqRel) || self.foreign;
        let what = match append {
            Some(append) if !is_broken => append,
            _ => What::Anew { history: history.clone(), foreign: self.foreign },
        };
        match self.jobs.try_send(Job { what, of: self.of.clone() }) {
            Ok(()) => self.foreign = false,
            Err(_) => self.broken.store(true, Ordering::Release),
        }
    }
}

/// The lock of the folder; `None` where the system has none to give.
fn lock(dir: &Path) -> Result<Option<File>, JournalError> {
    match lock::take(dir) {
        Ok(lock) => Ok(Some(lock)),
        Err(taken @ LockError::Taken { .. }) => Err(JournalError::Taken(taken)),
        Err(error) => {
            warn!("{} cannot be locked against a second process: {error}", dir.display());
            Ok(None)
        }
    }
}

/// Keeps a copy of a file whose last `left` bytes cannot be read, in case somebody needs them: it is written anew soon.
fn keep_damaged(path: &Path, left: usize, history: &History) {
    let kept = path.with_extension("damaged");
    let versions = history.len();
    // A copy: what could be read is lost only when it was written anew.
    match fs::copy(path, &kept) {
        Ok(_) => warn!(
            versions,
            bytes = left,
            "the end of the history in {} is damaged and forgotten; a copy is kept as {}",
            path.display(),
            kept.display()
        ),
        Err(error) => {
            warn!(versions, bytes = left, %error, "the end of the history in {} is damaged and forgotten", path.display());
        }
    }
}

/// Keeps a file that cannot be read, and says so.
fn give_up(path: &Path, error: &io::Error) {
    match put_aside(path, "unreadable") {
        Ok(name) => {
            warn!(%error, "the history in {} cannot be read: {}", path.display(), kept_as(name.as_deref()))
        }
        // It is written anew in its place, as soon as that is possible.
        Err(fixed) => warn!(%error, %fixed, "the history in {} cannot be read, nor moved", path.display()),
    }
}

/// Keeps a file that is of something else, for whom it belongs to.
fn give_back(path: &Path) -> io::Result<()> {
    if let Some(name) = put_aside(path, "foreign")? {
        warn!(
            "the history in {} is of another cluster, folder or group than this control plane: {}",
            path.display(),
            kept_as(Some(&name))
        );
    }
    Ok(())
}

fn kept_as(name: Option<&Path>) -> String {
    let kept = name.map(|name| format!("it is kept as {}, and ", name.display()));
    format!("{}a new one begins", kept.unwrap_or_default())
}

/// Moves a file that is there to a name that no other one has.
fn put_aside(path: &Path, why: &str) -> io::Result<Option<PathBuf>> {
    let mut name = path.with_extension(why);
    let mut number = 1;
    while fs::symlink_metadata(&name).is_ok() {
        number += 1;
        name = path.with_extension(format!("{why}-{number}"));
    }
    match fs::rename(path, &name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        renamed => renamed.map(|()| Some(name)),
    }
}

/// The thread that writes.
struct Writer {
    path: PathBuf,
    /// Held until the thread ends, which is after its last write.
    lock: Option<File>,
    file: Option<(File, u64)>,
    /// Bytes that the file may grow by before it is written anew with what is still remembered: as many as that took last,
    /// and as many as are remembered at most.
    spare: u64,
    whole: u64,
    /// The file is of something else, and still in its place.
    foreign: bool,
    broken: Arc<AtomicBool>,
}

impl Writer {
    fn run(&mut self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            let of = job.of.as_ref();
            let done = self.guard().and_then(|()| match job.what {
                What::Append { before, version } => self.append(&before, &version, of),
                What::Anew { history, foreign } => {
                    self.foreign |= foreign;
                    self.write_anew(&history, of)
                }
            });
            if let Err(error) = done {
                let path = self.path.display();
                warn!(%error, "the history cannot be written to {path}; it is tried again with the next version");
                self.file = None;
                self.broken.store(true, Ordering::Release);
            }
        }
    }

    /// Nothing is written without the lock, where there can be one: a disk that could not be locked may be well again, and another
    /// process' by now.
    fn guard(&mut self) -> io::Result<()> {
        let Some(dir) = self.path.parent() else { return Ok(()) };
        if self.lock.as_ref().is_some_and(|lock| lock::is_of(lock, dir)) {
            return Ok(());
        }
        // Somebody may have taken the folder away, and the lock with it.
        self.lock = None;
        private::folder(dir)?;
        match lock::take(dir) {
            Ok(lock) => self.lock = Some(lock),
            Err(taken @ LockError::Taken { .. }) => return Err(io::Error::other(taken)),
            // Said at the start.
            Err(_) => {}
        }
        Ok(())
    }

    fn append(&mut self, before: &Snapshot, version: &PastVersion, of: Option<&Arc<str>>) -> io::Result<()> {
        let (file, size) = match &mut self.file {
            Some((file, _)) if !private::is_at(file, &self.path) => {
                return Err(io::Error::new(io::ErrorKind::NotFound, "somebody took the file away"));
            }
            Some(open) => open,
            none => {
                let file = File::options().append(true).open(&self.path)?;
                let size = file.metadata()?.len();
                none.insert((file, size))
            }
        };
        let record = record::write(before, version, of);
        file.write_all(&record)?;
        *size += record.len() as u64;
        if *size > self.whole.saturating_mul(2).saturating_add(self.spare) {
            // The next version brings the whole history along.
            self.broken.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Beside the file, then into its place: a crash leaves the old one or the new one.
    fn write_anew(&mut self, history: &History, of: Option<&Arc<str>>) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut file = io::BufWriter::new(private::file(&beside)?);
        let mut size = 0;
        for record in record::write_all(history, of) {
            file.write_all(&record)?;
            size += record.len() as u64;
        }
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        if self.foreign {
            give_back(&self.path)?;
            self.foreign = false;
        }
        fs::rename(&beside, &self.path)?;
        self.file = Some((file, size));
        self.whole = size;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use tests::reopen;
