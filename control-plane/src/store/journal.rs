//! The history on disk: a file in `--state-dir` to which each version of the configuration is appended as the
//! difference from the previous one.
//!
//! A thread of its own writes it. If that thread falls behind, or the disk fails, the file is rewritten with the next
//! version; nothing waits for it. CONFIG has no secrets, so the file has none.
//!
//! One process writes it: the folder is locked as long as the thread lives. If locking is not possible (a disk that
//! became read-only or full, a network file system without locks) the process continues without, and logs that: a
//! control plane that runs is better than one that does not start.
//!
//! Each record names its source, a cluster or a folder, and the fleet's group. A file of another source, perhaps a
//! copy, is put aside once this process knows its own source. A file without a source was written by an earlier build,
//! and is kept.
//!
//! **Invariant:** what is read back is a sequence of versions whose roots were verified; the first record that does not
//! match, and all after it, are dropped.

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
use record::JournalContents;

/// Name of the file.
const FILE: &str = "history";
/// Versions that the thread may be behind.
const BEHIND: usize = 64;

/// Why the history of a folder cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process uses it.
    #[error(transparent)]
    Taken(LockError),
    /// The folder cannot be created, or the writing thread not be started.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The writer's handle.
#[derive(Debug)]
pub struct Journal {
    jobs: SyncSender<Job>,
    /// The file does not end with the newest version: rewrite it.
    broken: Arc<AtomicBool>,
    /// The source of the versions, once known.
    of: Option<Arc<str>>,
    /// The file is of another source, and the writer was not told yet to put it aside.
    foreign: bool,
}

/// A version to write, and its source.
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
        /// Put the current file aside first.
        foreign: bool,
    },
}

impl Journal {
    /// Reads the history in a state folder, creating that if it is missing, and continues it.
    ///
    /// A history that cannot be read is put aside: a control plane that runs is better than one that does not start.
    ///
    /// # Errors
    /// If another process uses the folder, or it cannot be created.
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
        let JournalContents { history, of, left } = record::read_all(&bytes, bounds);
        if left > 0 {
            keep_damaged(&path, left, &history);
        }
        // Records appended to a file with a damaged end could never be read.
        let broken = Arc::new(AtomicBool::new(left > 0 || history.is_empty()));
        let (jobs, queue) = sync_channel(BEHIND);
        let spare = bounds.bytes as u64;
        let flag = Arc::clone(&broken);
        let mut writer = Writer { path, lock, file: None, spare, whole: 0, foreign: false, broken: flag };
        std::thread::Builder::new().name("history".to_owned()).spawn(move || writer.run(&queue))?;
        Ok((Self { jobs, broken, of, foreign: false }, history))
    }

    /// Sets the source of the versions. Returns false if the file is of another source: it is put aside before the next
    /// version is written.
    pub(super) fn is_of(&mut self, of: Arc<str>) -> bool {
        let is_ours = self.of.as_ref().is_none_or(|it| *it == of);
        self.foreign |= !is_ours;
        self.of = Some(of);
        is_ours
    }

    /// Queues the newest version of `history` for writing.
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

/// The lock of the folder; `None` if the system does not support it.
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

/// Keeps a copy of a file whose last `left` bytes cannot be read, in case somebody needs them: it is rewritten soon.
fn keep_damaged(path: &Path, left: usize, history: &History) {
    let kept = path.with_extension("damaged");
    let versions = history.len();
    // A copy, so that the readable part is not lost before the file is rewritten.
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

/// Puts a file that cannot be read aside, and logs that.
fn give_up(path: &Path, error: &io::Error) {
    match put_aside(path, "unreadable") {
        Ok(name) => {
            warn!(%error, "the history in {} cannot be read: {}", path.display(), kept_as(name.as_deref()))
        }
        // The history is written over it, as soon as that is possible.
        Err(fixed) => warn!(%error, %fixed, "the history in {} cannot be read, nor moved", path.display()),
    }
}

/// Puts a file of another source aside, for its owner.
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

/// Renames a file, if it exists, to a name that is not in use. Returns the name.
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

/// The writing thread.
struct Writer {
    path: PathBuf,
    /// Held until the thread ends, after its last write.
    lock: Option<File>,
    file: Option<(File, u64)>,
    /// The file is rewritten with what is still remembered once it has grown by its size at the last rewrite plus this
    /// many bytes: the history's bound.
    spare: u64,
    whole: u64,
    /// The file is of another source, and not put aside yet.
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

    /// Nothing is written without the lock, if locking is possible: a disk that could not be locked may have recovered,
    /// and be used by another process by now.
    fn guard(&mut self) -> io::Result<()> {
        let Some(dir) = self.path.parent() else { return Ok(()) };
        if self.lock.as_ref().is_some_and(|lock| lock::is_of(lock, dir)) {
            return Ok(());
        }
        // The folder may have been removed, together with the lock.
        self.lock = None;
        private::folder(dir)?;
        match lock::take(dir) {
            Ok(lock) => self.lock = Some(lock),
            Err(taken @ LockError::Taken { .. }) => return Err(io::Error::other(taken)),
            // Logged at the start.
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
            // The next version is written with the whole history.
            self.broken.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Writes a temporary file and renames it: a crash leaves the old or the new file.
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
