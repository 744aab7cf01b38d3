//! Which folders the kernel tells about, as far as it does.
//!
//! Without inotify, past its limits, and on file systems that others write to, changes are found by comparing stamps
//! alone: nothing here is needed, it only makes that faster.
//!
//! **Invariant:** a folder that was replaced under its name is watched anew.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use super::bell::Bell;
use super::folder;
use super::notice::Notice;
use super::tree::{Id, Tree};

/// The watches on a folder, on those in it, and on those that its links lead through.
#[derive(Debug)]
pub(super) struct Watches {
    /// `None` where the kernel tells nothing.
    watcher: Option<RecommendedWatcher>,
    /// `None` where there is none, or nobody would hear it.
    bell: Option<Arc<Bell>>,
    watched: HashMap<PathBuf, Id>,
    /// Links and their targets that stand elsewhere: events of other names beside them are nothing.
    elsewhere: BTreeSet<PathBuf>,
    /// The limit of watches was said to be reached.
    is_short: bool,
}

impl Watches {
    /// Nothing is watched, and nothing can be.
    pub(super) fn none() -> Self {
        Self {
            watcher: None,
            bell: None,
            watched: HashMap::new(),
            elsewhere: BTreeSet::new(),
            is_short: false,
        }
    }

    /// Nothing is watched yet.
    ///
    /// # Errors
    /// Where the kernel will tell nothing.
    pub(super) fn telling(notice: &Notice) -> notify::Result<Self> {
        let mut watcher = notify::recommended_watcher(notice.clone())?;
        let bell =
            notice.bell().filter(|bell| watcher.watch(bell.path(), RecursiveMode::NonRecursive).is_ok());
        Ok(Self { watcher: Some(watcher), bell, ..Self::none() })
    }

    /// Whether something elsewhere is on the way of a link.
    pub(super) fn is_on_the_way(&self, path: &Path) -> bool {
        self.elsewhere.contains(path)
    }

    /// Returns once all is told that the kernel knows of now.
    pub(super) fn hear(&self) {
        // Where nothing is heard, comparing stamps has to do.
        let _ = self.bell.as_ref().is_some_and(|bell| bell.ring());
    }

    /// Watches a folder, if it is not the one that is watched by that name.
    pub(super) fn watch(&mut self, folder: &Path, id: Id) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        match self.watched.get(folder) {
            Some(known) if *known == id => return,
            // The folder that had this name may live on under another one.
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

    /// Watches what the links of a walk lead through, and ends what it did not come by.
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
                // The kernel has ended it by itself where the folder is gone.
                drop(watcher.unwatch(folder));
            }
            stays
        });
        self.elsewhere.clear();
        // One folder has one watch, and its events one name: that within the root, if it has one.
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
