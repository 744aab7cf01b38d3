//! The source that reads a folder of manifests, for who has no cluster.
//!
//! Owns the folder: what is in it (`folder`), how its files are read (`document`, `legacy`, `defaults`), when (`notice`,
//! `watches`, `tree`, `disk`, `backlog`, `reader`), and the decisions on record beside it (`record`, `pins`). Every `*.yaml`, `*.yml`
//! and `*.json` below the folder counts, sub-folders and what links lead to included, dot-files not. A file that parses replaces its objects whole; an empty one has none; what a bad one had
//! stays, as broken. Files deleted or rewritten are announcements; files that are merely absent when the whole folder is
//! read again are not, and obey [`crate::removal`].
//!
//! **Invariant:** what the events say is a function of the files, whatever order they changed in.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;

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
mod bell;
mod defaults;
mod disk;
mod document;
mod folder;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod legacy;
mod meant;
mod notice;
mod pins;
mod reader;
mod record;
mod tree;
mod watches;

/// Kinds of which a folder has an object, or it counts as not there yet and is read again before it is believed.
pub const ESSENTIAL: [ObjectKind; 3] = [ObjectKind::Ingress, ObjectKind::Service, ObjectKind::EndpointSlice];

/// Why a folder cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It is not there, or it is no folder, or may not be read.
    #[error("expected a folder of manifests at {}: {reason}", path.display())]
    Unreadable {
        /// The folder.
        path: PathBuf,
        /// Why: part of what is said, and so no source, which is said behind it.
        reason: io::Error,
    },
    /// The records of decisions cannot be listed.
    #[error("the decisions in {} cannot be read: {reason}", path.display())]
    Decisions {
        /// The state folder.
        path: PathBuf,
        /// Why: part of what is said, and so no source, which is said behind it.
        reason: io::Error,
    },
    /// The reader of events is gone: the process is ending.
    #[error("nobody reads the events of the folder any more")]
    Closed,
}

/// Who runs beside a folder, hears what is in it, and adds what nobody wrote down: `firth up` plays Services.
///
/// Each time something is heard is answered once, with nothing where nothing is added. The first answer belongs to the
/// first reading of the folder: before it no list is complete.
#[derive(Debug)]
pub struct Companion {
    /// What the folder says. The first time all of it, even where that is nothing.
    pub heard: mpsc::Sender<Vec<Event>>,
    /// What is added. Nobody else may have objects of these names.
    pub added: mpsc::Receiver<Vec<Event>>,
}

/// Reads a folder, and tells of what changes in it.
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
    /// How often stamps are compared.
    pace: Option<Duration>,
    freshness: Freshness,
    barrier: Barrier,
}

impl FolderSource {
    /// Opens a folder. Holds are on record below `state_dir`; without one they end with the process.
    ///
    /// # Errors
    /// Where `dir` is no folder, or the kernel does not tell of its changes, or what is on record cannot be listed.
    pub fn open(dir: PathBuf, state_dir: Option<PathBuf>) -> Result<Self, FolderError> {
        let unreadable = |reason| FolderError::Unreadable { path: dir.clone(), reason };
        std::fs::read_dir(&dir).map_err(unreadable)?;
        // Absolute, for the events' paths are compared with it and the working folder may change.
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
        })
    }

    /// With somebody beside it.
    pub fn beside(self, companion: Option<Companion>) -> Self {
        Self { companion, ..self }
    }

    /// Reads the folder anew for each round of it.
    #[must_use]
    pub fn refreshed_by(self, barrier: Barrier) -> Self {
        Self { barrier, ..self }
    }

    /// Its health, for metrics and readiness.
    pub fn freshness(&self) -> Freshness {
        self.freshness.clone()
    }

    /// Reads the folder and follows it as long as the process lives.
    ///
    /// Secrets are sent whether wanted or not: they are in the folder's files, and who reads those has them.
    ///
    /// # Errors
    /// Where the folder cannot be read at the start, or nobody reads the events any more.
    pub async fn run(
        self,
        inputs: Inputs,
        holds: mpsc::Receiver<HoldRequest>,
        pins: mpsc::Receiver<PinRequest>,
    ) -> Result<(), FolderError> {
        let Self { dir, disk, notice, records, pin, folder, on_record, companion, pace, freshness, barrier } =
            self;
        if !records.are_kept() {
            tracing::info!(
                "without --state-dir, holds and pins are lost when the process ends: a restart begins with the files as they are"
            );
        }
        let mut reader = Reader::new(dir, disk, notice, records, folder, freshness, inputs);
        reader.set_companion(companion);
        reader.set_pin(pin);
        reader.set_barrier(barrier);
        reader.start(on_record).await?;
        reader.follow(holds, pins, pace).await
    }
}

#[cfg(test)]
mod real;
#[cfg(test)]
mod tests;
