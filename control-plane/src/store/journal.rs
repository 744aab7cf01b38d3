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
}

#[derive(Debug)]
enum Job {
    Append { before: Box<Snapshot>, version: Arc<PastVersion> },
    Anew(History),
}

impl Journal {
    /// Reads the history of a state folder, which is made where it is missing, and goes on with it.
    ///
    /// # Errors
    /// Where another process does, the folder cannot be made, or the file not read.
    pub fn open(dir: &Path, bounds: Bounds) -> Result<(Self, History), JournalError> {
        private::folder(dir)?;
        let lock = lock(dir)?;
        let path = dir.join(FILE);
        let (history, is_whole) = match fs::read(&path) {
            Ok(bytes) => {
                let (history, left) = record::read_all(&bytes, bounds);
                if left > 0 {
                    keep_damaged(&path, left, &history);
                }
                let is_whole = left == 0 && !history.is_empty();
                (history, is_whole)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (History::new(bounds), false),
            Err(error) => return Err(error.into()),
        };
        // An append to a file with a broken end would never be read.
        let broken = Arc::new(AtomicBool::new(!is_whole));
        let (jobs, queue) = sync_channel(BEHIND);
        let spare = bounds.bytes as u64;
        let mut writer = Writer { path, lock, file: None, spare, whole: 0, broken: Arc::clone(&broken) };
        std::thread::Builder::new().name("history".to_owned()).spawn(move || writer.run(&queue))?;
        Ok((Self { jobs, broken }, history))
    }

    /// Puts the newest version of `history` on disk, some time soon.
    pub(super) fn note(&self, before: Option<Snapshot>, history: &History) {
        let append = before
            .zip(history.newest())
            .map(|(before, version)| Job::Append { before: Box::new(before), version: Arc::clone(version) });
        let job = match append {
            Some(append) if !self.broken.swap(false, Ordering::AcqRel) => append,
            _ => Job::Anew(history.clone()),
        };
        if self.jobs.try_send(job).is_err() {
            self.broken.store(true, Ordering::Release);
        }
    }
}

/// The lock of the folder; `None` where the system has none to give.
fn lock(dir: &Path) -> Result<Option<File>, JournalError> {
    match lock::take(dir) {
        Ok(lock) => Ok(Some(lock)),
        Err(taken @ LockError::Taken { .. }) => Err(JournalError::Taken(taken)),
        Err(error) => {
            warn!("nothing keeps a second process from writing to {}: {error}", dir.display());
            Ok(None)
        }
    }
}

/// Keeps a file of which the last `left` bytes cannot be read, for who needs what was in them: it is written anew soon.
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
    broken: Arc<AtomicBool>,
}

impl Writer {
    fn run(&mut self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            let done = self.guard().and_then(|()| match job {
                Job::Append { before, version } => self.append(&before, &version),
                Job::Anew(history) => self.write_anew(&history),
            });
            if let Err(error) = done {
                let path = self.path.display();
                warn!(%error, "the history cannot be written to {path}; it is tried again with the next version");
                self.file = None;
                self.broken.store(true, Ordering::Release);
            }
        }
    }

    /// A disk that could not be locked may be well again, and another process' by now.
    fn guard(&mut self) -> io::Result<()> {
        let Some(dir) = self.path.parent() else { return Ok(()) };
        if self.lock.is_some() {
            return Ok(());
        }
        match lock::take(dir) {
            Ok(lock) => self.lock = Some(lock),
            Err(taken @ LockError::Taken { .. }) => return Err(io::Error::other(taken)),
            // Said at the start.
            Err(_) => {}
        }
        Ok(())
    }

    fn append(&mut self, before: &Snapshot, version: &PastVersion) -> io::Result<()> {
        let (file, size) = match &mut self.file {
            Some(open) => open,
            none => {
                let file = File::options().append(true).open(&self.path)?;
                let size = file.metadata()?.len();
                none.insert((file, size))
            }
        };
        let record = record::write(before, version);
        file.write_all(&record)?;
        *size += record.len() as u64;
        if *size > self.whole.saturating_mul(2).saturating_add(self.spare) {
            // The next version brings the whole history along.
            self.broken.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Beside the file, then into its place: a crash leaves the old one or the new one.
    fn write_anew(&mut self, history: &History) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut file = io::BufWriter::new(private::file(&beside)?);
        let mut size = 0;
        for record in record::write_all(history) {
            file.write_all(&record)?;
            size += record.len() as u64;
        }
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
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
