//! Bodies that do not fit in memory: anonymous temporary files that only their request can open, and that vanish with
//! it.
//!
//! While memory is plentiful, a body of ordinary size needs no file: a megabyte through a file costs five times as
//! much as through memory. No client and no endpoint can tell the difference.
//!
//! Written on a thread that may wait for the disk, in bounded parts; read where they are needed, from the kernel's
//! page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use shared::budget::{Budget, Held, Level};
use shared::telemetry::Seldom;
use shared::{clock, private};
use tracing::warn;

use crate::codec::error::{Kind, ProxyError};

/// Bytes that are read from a file at a time.
const PART: usize = 16 * 1024;

/// The divisor for the part of the files that responses may have: clients that read slowly must not keep others from
/// sending.
const OF_RESPONSES: usize = 2;

/// Minimum interval between log messages that bodies cannot be stored.
const WARNINGS: Duration = Duration::from_secs(10);

/// The folder of the files, and the limits on their total size.
#[derive(Clone, Debug)]
pub struct Spill {
    dir: PathBuf,
    budget: Budget,
    /// Budget of memory that bodies may use instead of files.
    spare: Budget,
    /// Shared by all workers.
    warning: Arc<Mutex<Seldom>>,
}

impl Spill {
    /// Default for the total size of all files.
    pub const TOTAL: usize = 1 << 30;

    /// In this folder, with this total size, and no memory to use instead.
    pub fn new(dir: PathBuf, bytes: usize) -> Self {
        let warning = Arc::new(Mutex::new(Seldom::new(WARNINGS)));
        Self { dir, budget: Budget::new(bytes), spare: Budget::new(0), warning }
    }

    /// With this much memory that bodies may use instead of files.
    #[must_use]
    pub fn with_spare(self, bytes: usize) -> Self {
        Self { spare: Budget::new(bytes), ..self }
    }

    /// In this folder, with the default total size.
    pub fn into_dir(dir: PathBuf) -> Self {
        Self::new(dir, Self::TOTAL)
    }

    /// Whether a response may be written to a file.
    pub(crate) fn takes_responses(&self) -> bool {
        self.used() < self.budget.limit() / OF_RESPONSES
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.budget.used()
    }

    /// Reserves more of the memory that replaces files, if it is plentiful.
    pub(crate) fn stretch(&self, held: &mut Option<Held>, more: usize) -> bool {
        if self.spare.level() != Level::Calm {
            return false;
        }
        match held {
            Some(held) => held.resize(held.amount() + more),
            none => {
                *none = self.spare.take(more);
                none.is_some()
            }
        }
    }

    /// An empty file.
    ///
    /// # Errors
    /// The folder is not writable.
    pub(crate) async fn file(&self) -> io::Result<SpillFile> {
        let dir = self.dir.clone();
        let file = blocking(move || nameless(&dir)).await?;
        let held = self.budget.take(0).ok_or_else(no_more)?;
        Ok(SpillFile { file: Arc::new(file), held })
    }

    /// Logs from time to time that a response cannot be stored.
    pub(crate) fn waits(&self, error: &io::Error) {
        self.tell(error, "a response cannot be kept in a file: its backend waits for the client");
    }

    /// Logs from time to time that a body cannot be stored; returns the error for its request.
    pub(crate) fn failed(&self, error: io::Error) -> ProxyError {
        self.tell(&error, "a body cannot be kept in a file: its request is answered 503");
        ProxyError::of(Kind::NoDisk, error)
    }

    fn tell(&self, error: &io::Error, what: &str) {
        if let Some(missed) = self.is_told() {
            let folder = self.dir.display();
            warn!(%folder, %error, missed, "{what}");
        }
    }

    /// Whether it is time to log, and how many messages were skipped.
    fn is_told(&self) -> Option<u64> {
        self.warning.lock().unwrap_or_else(PoisonError::into_inner).now(clock::now())
    }
}

/// One body. The file has no name, and is deleted when this is dropped.
#[derive(Debug)]
pub(crate) struct SpillFile {
    file: Arc<File>,
    held: Held,
}

impl SpillFile {
    /// Appends to it.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) async fn append(&mut self, pieces: impl IntoIterator<Item = Bytes>) -> io::Result<()> {
        let pieces: Vec<Bytes> = pieces.into_iter().collect();
        let from = self.held.amount();
        let length: usize = pieces.iter().map(Bytes::len).sum();
        if !self.held.resize(from + length) {
            return Err(no_more());
        }
        let file = Arc::clone(&self.file);
        blocking(move || {
            let mut at = from as u64;
            for piece in &pieces {
                file.write_all_at(piece, at)?;
                at += piece.len() as u64;
            }
            Ok(())
        })
        .await
    }

    /// Its length in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.held.amount() as u64
    }

    /// The part at this index; `None` at the end.
    ///
    /// # Errors
    /// An I/O error.
    pub(crate) fn part(&self, place: usize) -> io::Result<Option<Bytes>> {
        self.reader().part(place.saturating_mul(PART) as u64, self.length())
    }

    /// Reads it while it is written.
    pub(crate) fn reader(&self) -> SpillReader {
        SpillReader { file: Arc::clone(&self.file) }
    }
}

/// Reads a [`SpillFile`], which may still be written.
#[derive(Debug)]
pub(crate) struct SpillReader {
    file: Arc<File>,
}

impl SpillReader {
    /// A part of what lies between these positions, which was written; `None`: nothing does.
    ///
    /// # Errors
    /// An I/O error.
    pub(crate) fn part(&self, from: u64, until: u64) -> io::Result<Option<Bytes>> {
        let length = usize::try_from(until.saturating_sub(from)).unwrap_or(PART).min(PART);
        if length == 0 {
            return Ok(None);
        }
        let mut part = vec![0; length];
        self.file.read_exact_at(&mut part, from)?;
        Ok(Some(part.into()))
    }
}

/// Recreates the folder if somebody has removed it.
fn nameless(dir: &Path) -> io::Result<File> {
    match tempfile::tempfile_in(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            private::folder(dir)?;
            tempfile::tempfile_in(dir)
        }
        made => made,
    }
}

fn no_more() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the limit for all buffered bodies is reached (--spill-bytes)")
}

/// Runs work that may wait for the disk on a thread for that.
async fn blocking<R: Send + 'static>(work: impl FnOnce() -> io::Result<R> + Send + 'static) -> io::Result<R> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn spill_file_is_read_back_and_leaves_nothing_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let spill = Spill::new(dir.path().to_owned(), 100_000);
        let mut file = spill.file().await.unwrap();
        let text: Vec<u8> = (0..50_000_u32).map(|n| n as u8).collect();
        for pieces in text.chunks(7_000) {
            file.append(pieces.chunks(3_000).map(Bytes::copy_from_slice)).await.unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name");
        let parts: Vec<Bytes> = (0..).map_while(|place| file.part(place).unwrap()).collect();
        assert_eq!((parts.concat(), file.length(), spill.used()), (text, 50_000, 50_000));
        let mut other = spill.file().await.unwrap();
        let error = other.append([Bytes::from_static(&[0; 50_001])]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        drop(file);
        assert_eq!(spill.used(), 0);
        other.append([Bytes::from_static(&[0; 50_001])]).await.unwrap();
    }

    #[tokio::test]
    async fn a_folder_that_was_taken_away_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("a/b");
        let spill = Spill::new(below.clone(), 100);
        for _ in 0..2 {
            spill.file().await.unwrap().append([Bytes::from_static(b"x")]).await.unwrap();
            assert!(below.is_dir());
            std::fs::remove_dir_all(dir.path().join("a")).unwrap();
        }
    }

    #[test]
    fn memory_stands_in_while_there_is_plenty() {
        let (mut one, mut other) = (None, None);
        let spill = Spill::into_dir(std::env::temp_dir());
        assert!(!spill.stretch(&mut one, 1), "nobody said that there is any");
        let spill = spill.with_spare(100);
        assert!(spill.stretch(&mut one, 40) && spill.stretch(&mut one, 40));
        assert!(!spill.stretch(&mut one, 1) && !spill.stretch(&mut other, 1), "not much is left");
        drop(one);
        assert!(spill.stretch(&mut other, 80), "it was given back");
    }

    #[tokio::test]
    async fn a_disk_that_refuses_is_an_error() {
        let spill = Spill::new("/dev/null/at/all".into(), 100);
        let error = spill.file().await.unwrap_err();
        assert_eq!(spill.failed(error).kind, Kind::NoDisk);
        assert_eq!(spill.clone().is_told(), None, "the log was told, for all workers");
        let spill = Spill::new(std::env::temp_dir(), 100);
        let mut file = spill.file().await.unwrap();
        file.file = Arc::new(File::open("/dev/null").unwrap());
        assert!(file.append([Bytes::from_static(b"x")]).await.is_err());
    }
}
