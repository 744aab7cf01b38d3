//! The source that reads a folder of manifests, for use without a cluster.
//!
//! Owns the folder: what is in it (`folder`), how its files are parsed (`document`, `legacy`, `defaults`), when they
//! are read (`notice`, `watches`, `tree`, `disk`, `backlog`, `reader`), and the decisions stored beside it (`record`,
//! `pins`). It reads every `*.yaml`, `*.yml` and `*.json` below the folder, including sub-folders and the targets of
//! links, except dot-files. A file that parses replaces all its objects; an empty one has none; the objects of a file
//! that does not parse stay, as broken. Files that are seen to be deleted or rewritten take effect at once; files that
//! are merely absent when the whole folder is read again obey [`crate::removal`].
//!
//! **Invariant:** what the events say is a function of the files, whatever order they changed in.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use self::disk::Disk;
use self::folder::Folder;
use self::notice::Notice;
use self::pins::PinFile;
use self::reader::Reader;
use self::record::Records;
use self::watches::Watches;
use crate::barrier::Barrier;
use crate::event::{Event, HoldRequest, Inputs, PinRequest};
use crate::freshness::Freshness;
use crate::objects::ObjectKind;

mod backlog;
mod defaults;
mod disk;
mod document;
mod folder;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod inotify_barrier;
mod legacy;
mod misspelt;
mod notice;
pub mod once;
mod pins;
mod reader;
mod record;
mod tree;
mod watches;

/// A folder without objects of one of these kinds may not be mounted yet, so it is read again before it is trusted.
pub const ESSENTIAL: [ObjectKind; 3] = [ObjectKind::Ingress, ObjectKind::Service, ObjectKind::EndpointSlice];

/// Why a folder cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It does not exist, is no folder, or may not be read.
    #[error("expected a folder of manifests at {}: {reason}", path.display())]
    Unreadable {
        /// The folder.
        path: PathBuf,
        /// The reason. It is part of the message, so it is not a `source`, which would be printed again.
        reason: io::Error,
    },
    /// The records of decisions cannot be listed.
    #[error("the decisions in {} cannot be read: {reason}", path.display())]
    Decisions {
        /// The state folder.
        path: PathBuf,
        /// The reason. It is part of the message, so it is not a `source`, which would be printed again.
        reason: io::Error,
    },
    /// The receiver of events was dropped: the process is ending.
    #[error("nobody reads the events of the folder any more")]
    Closed,
}

/// A task that runs beside a folder, receives its events, and adds objects: `firth up` uses it to run Services.
///
/// Each message is answered once, with an empty list if there is nothing to add. The first answer belongs to the first
/// reading of the folder: no list is complete before it.
#[derive(Debug)]
pub struct Companion {
    /// Events of the folder. The first message has all of them, even if there are none.
    pub heard: mpsc::Sender<Vec<Event>>,
    /// Events that the companion adds. Only the companion may have objects of these names.
    pub added: mpsc::Receiver<Vec<Event>>,
    /// API version and kind of objects that are in the folder and are not read; set before the events of their files are
    /// sent. They only become more: a kind stays when its last object is removed.
    pub ignored: watch::Sender<BTreeSet<String>>,
}

/// Reads a folder, and sends its changes as events.
#[derive(Debug)]
pub struct FolderSource {
    dir: PathBuf,
    disk: Disk,
    notice: Notice,
    records: Records,
    pin: PinFile,
    folder: Folder,
    on_record: Vec<Event>,
    companion: Option<Companion>,
    /// Interval at which timestamps of files are compared.
    pace: Option<Duration>,
    freshness: Freshness,
    barrier: Barrier,
    questions: Barrier,
}

impl FolderSource {
    /// Opens a folder. Holds are stored below `state_dir`; without one they end with the process.
    ///
    /// # Errors
    /// If `dir` is no folder, the kernel cannot report its changes, or the stored decisions cannot be listed.
    pub fn open(dir: PathBuf, state_dir: Option<PathBuf>) -> Result<Self, FolderError> {
        let unreadable = |reason| FolderError::Unreadable { path: dir.clone(), reason };
        std::fs::read_dir(&dir).map_err(unreadable)?;
        // Absolute: events' paths are compared with it, and the working folder may change.
        let dir = std::path::absolute(&dir).map_err(unreadable)?;
        let notice = Notice::new(dir.clone());
        let watches = Watches::telling(&notice).unwrap_or_else(|error| {
            tracing::warn!(
                "changes are noticed a few seconds late, because the kernel does not report them: {error}"
            );
            Watches::none()
        });
        let records = Records::new(&dir, state_dir.as_deref());
        let mut pin = PinFile::new(&dir, state_dir.as_deref());
        let read = records.look().and_then(|loaded| Ok((loaded, pin.look()?)));
        let (mut loaded, pinned) =
            read.map_err(|reason| FolderError::Decisions { path: state_dir.unwrap_or_default(), reason })?;
        loaded.events.extend(pinned);
        Ok(Self {
            disk: Disk::new(dir.clone(), watches),
            dir,
            notice,
            records,
            pin,
            folder: Folder::new(loaded.by_file),
            on_record: loaded.events,
            companion: None,
            pace: Some(reader::PACE),
            freshness: Freshness::default(),
            barrier: Barrier::default(),
            questions: Barrier::default(),
        })
    }

    /// Adds a companion.
    pub fn with_companion(self, companion: Option<Companion>) -> Self {
        Self { companion, ..self }
    }

    /// Reads the folder again for each round of the freshness barrier.
    #[must_use]
    pub fn with_barrier(self, barrier: Barrier) -> Self {
        Self { barrier, ..self }
    }

    /// Reads what has changed in the folder for each round of questions.
    #[must_use]
    pub fn with_questions(self, questions: Barrier) -> Self {
        Self { questions, ..self }
    }

    /// Its health, for metrics and readiness.
    pub fn freshness(&self) -> Freshness {
        self.freshness.clone()
    }

    /// Reads the folder and follows it as long as the process lives.
    ///
    /// Secrets are sent whether wanted or not: whoever can read the folder's files has them anyway.
    ///
    /// # Errors
    /// If the folder cannot be read at the start, or the receiver of events was dropped.
    pub async fn run(
        self,
        inputs: Inputs,
        holds: mpsc::Receiver<HoldRequest>,
        pins: mpsc::Receiver<PinRequest>,
    ) -> Result<(), FolderError> {
        let Self {
            dir,
            disk,
            notice,
            records,
            pin,
            folder,
            on_record,
            companion,
            pace,
            freshness,
            barrier,
            questions,
        } = self;
        if !records.are_kept() {
            tracing::info!(
                "without --state-dir, holds and pins are lost when the process ends: a restart begins with the files as they are"
            );
        }
        let mut reader = Reader::new(dir, disk, notice, records, folder, freshness, inputs);
        reader.set_companion(companion);
        reader.set_pin(pin);
        reader.set_barriers(barrier, questions);
        reader.start(on_record).await?;
        reader.follow(holds, pins, pace).await
    }
}

#[cfg(test)]
mod tests;
