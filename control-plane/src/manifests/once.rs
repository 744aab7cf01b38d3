//! Manifests that are read once, and not followed.

use std::collections::BTreeSet;
use std::path::Path;

use super::FolderError;
use super::backlog;
use super::disk::{Disk, Raw, Scan, ScannedFiles, Whole};
use super::folder::{Folder, Outcome};
use super::watches::Watches;
use crate::event::Event;

/// What is in manifests.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Manifests {
    /// Objects, and problems of files.
    pub events: Vec<Event>,
    /// API version and kind of objects that are not read.
    pub ignored: BTreeSet<String>,
}

impl Manifests {
    /// Those below a folder, as `--manifests` reads them.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn below(dir: &Path) -> Result<Self, FolderError> {
        let unreadable = |reason| FolderError::Unreadable { path: dir.to_owned(), reason };
        let root = std::path::absolute(dir).map_err(unreadable)?;
        let Scan { found, whole } = Disk::new(root, Watches::none()).scan().map_err(unreadable)?;
        Ok(Self::read(found, whole.unwrap_or_default()))
    }

    /// Those in texts, each with the name by which its problems say where they are.
    pub fn of_texts(texts: impl IntoIterator<Item = (String, String)>) -> Self {
        let found: ScannedFiles =
            texts.into_iter().map(|(name, text)| (name.into(), Raw::Text(text))).collect();
        Self::read(found, Whole::default())
    }

    fn read(found: ScannedFiles, whole: Whole) -> Self {
        let mut folder = Folder::default();
        let Outcome { mut events, ignored } = folder.update(backlog::parse(found));
        events.extend(folder.skip(whole.not_read(|error| format!("the folder cannot be read: {error}"))));
        Self { events, ignored }
    }
}
