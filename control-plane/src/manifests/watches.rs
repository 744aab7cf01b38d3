//! The kernel's watches on folders, as far as they are available.
//!
//! Without inotify, beyond its limits, and on network file systems, changes are found by comparing stamps alone:
//! watches are never required, they only make that faster.
//!
//! **Invariant:** a folder that was replaced under its name is watched again.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use super::folder;
use super::inotify_barrier::InotifyBarrier;
use super::notice::Notice;
use super::tree::{Id, Tree};

/// The watches on the folder, its sub-folders, and those that its links lead through.
#[derive(Debug)]
pub(super) struct Watches {
    /// `None` if the kernel reports nothing.
    watcher: Option<RecommendedWatcher>,
    /// `None` if there is none, or it could not be watched.
    barrier: Option<Arc<InotifyBarrier>>,
    watched: HashMap<PathBuf, Id>,
    /// Links and targets outside of the folder: events of other names beside them are ignored.
    elsewhere: BTreeSet<PathBuf>,
    /// It was logged that the limit of watches is reached.
    is_short: bool,
}

impl Watches {
    /// Without any watches.
    pub(super) fn none() -> Self {
        Self {
            watcher: None,
            barrier: None,
            watched: HashMap::new(),
            elsewhere: BTreeSet::new(),
            is_short: false,
        }
    }

    /// Without watches yet.
    ///
    /// # Errors
    /// If the kernel cannot report changes.
    pub(super) fn telling(notice: &Notice) -> notify::Result<Self> {
        let mut watcher = notify::recommended_watcher(notice.clone())?;
        let barrier = notice
            .barrier()
            .filter(|barrier| watcher.watch(barrier.path(), RecursiveMode::NonRecursive).is_ok());
        Ok(Self { watcher: Some(watcher), barrier, ..Self::none() })
    }

    /// Whether something outside of the folder is on the way of a link.
    pub(super) fn is_on_the_way(&self, path: &Path) -> bool {
        self.elsewhere.contains(path)
    }

    /// Returns once all events that the kernel has now were received, and whether they tell of every change. If not,
    /// comparing stamps has to do.
    pub(super) fn sync(&self) -> bool {
        self.barrier.as_ref().is_some_and(|barrier| barrier.wait()) && !self.is_short
    }

    /// Whether the kernel reports what changes in these folders, if it reports anything.
    pub(super) fn cover(&self, root: &Path, tree: &Tree) -> bool {
        let is_watched =
            |(folder, id): (&folder::Path, &Id)| self.watched.get(&root.join(&**folder)) == Some(id);
        self.watcher.is_none() || tree.folders.iter().all(is_watched)
    }

    /// Watches a folder, unless it is already watched under that name.
    pub(super) fn watch(&mut self, folder: &Path, id: Id) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        match self.watched.get(folder) {
            Some(known) if *known == id => return,
            // The folder that had this name may still exist under another one.
            Some(_) => drop(watcher.unwatch(folder)),
            None => {}
        }
        match watcher.watch(folder, RecursiveMode::NonRecursive) {
            Ok(()) => {
                self.watched.insert(folder.to_owned(), id);
            }
            Err(error) => {
                self.watched.remove(folder);
                if !std::mem::replace(&mut self.is_short, true) {
                    tracing::warn!(
                        "changes in {} are noticed a few seconds late, because the kernel does not report them: {}",
                        folder.display(),
                        reason(error)
                    );
                }
            }
        }
    }

    /// Watches what the links of a walk lead through, and ends watches that are not needed.
    pub(super) fn settle(&mut self, root: &Path, tree: &Tree) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let inside = tree.folders.keys().map(|folder| root.join(&**folder));
        let mut wanted: BTreeSet<PathBuf> = inside.collect();
        self.watched.retain(|folder, _| {
            let is_outside = !wanted.contains(folder);
            let stays =
                !is_outside || tree.trails.values().flatten().any(|(link, _)| link.parent() == Some(folder));
            if !stays {
                // The kernel has ended it by itself if the folder was deleted.
                drop(watcher.unwatch(folder));
            }
            stays
        });
        self.elsewhere.clear();
        // Each folder has one watch, and its events one name: that within the root, if it has one.
        let known: HashMap<Id, &folder::Path> = tree.folders.iter().map(|(path, id)| (*id, path)).collect();
        let mut ways: Vec<PathBuf> = Vec::new();
        for (at, trail) in &tree.trails {
            ways.extend(trail.iter().map(|(link, _)| link.clone()));
            if !tree.folders.contains_key(at) {
                ways.extend(fs::canonicalize(root.join(&**at)));
            }
        }
        for way in ways {
            let (Some(folder), Some(name)) = (way.parent(), way.file_name()) else { continue };
            let Ok(id) = fs::metadata(folder).map(|meta| Id::of(&meta)) else { continue };
            if let Some(within) = known.get(&id) {
                self.elsewhere.insert(root.join(&***within).join(name));
            } else if wanted.insert(folder.to_owned()) {
                self.watch(folder, id);
            }
            self.elsewhere.insert(way);
        }
    }
}

fn reason(error: notify::Error) -> String {
    match error.kind {
        notify::ErrorKind::MaxFilesWatch => {
            "the limit of inotify watches is reached: raise fs.inotify.max_user_watches".to_owned()
        }
        _ => error.to_string(),
    }
}
