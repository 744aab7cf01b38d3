//! A folder that is read again when something in it changes; files that did not change are not.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use super::slices::{self, Demo};

/// Without a watcher (no inotify instance left) the folder is looked at this often.
const LOOK: Duration = Duration::from_secs(1);

/// What the folder asks for.
pub(super) struct Read {
    /// In the order of paths and places in files.
    pub(super) demos: Vec<Demo>,
    /// Files that could not be read, each told once.
    pub(super) problems: Vec<String>,
}

/// A folder of manifests and what was read of it.
pub(super) struct Folder {
    dir: PathBuf,
    files: BTreeMap<PathBuf, File>,
    changed: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
}

struct File {
    stamp: Stamp,
    demos: Vec<Demo>,
}

/// Equal stamps: nothing was written.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: Option<SystemTime>,
}

impl Folder {
    /// Watches a folder from now on.
    pub(super) fn open(dir: &Path) -> Self {
        let changed = Arc::new(Notify::new());
        Self { watcher: watch(dir, &changed).ok(), dir: dir.to_owned(), files: BTreeMap::new(), changed }
    }

    /// Returns when something may have changed.
    pub(super) async fn changed(&self) {
        match self.watcher {
            Some(_) => self.changed.notified().await,
            None => tokio::time::sleep(LOOK).await,
        }
    }

    /// Reads what changed. A file that is no YAML now keeps what it asked for.
    pub(super) fn read(&mut self) -> Read {
        let mut problems = Vec::new();
        let mut found = BTreeMap::new();
        if let Err(error) = walk(&self.dir, &mut found) {
            // A folder that is gone for a moment ends nothing.
            problems.push(format!("{}: cannot be read: {error}", self.dir.display()));
            return self.wanted(problems);
        }
        let mut before = std::mem::take(&mut self.files);
        for (path, stamp) in found {
            let known = before.remove(&path);
            let file = match known {
                Some(file) if file.stamp == stamp => file,
                known => {
                    let read = fs::read_to_string(&path).map_err(|error| error.to_string());
                    let demos = read.and_then(|text| slices::parse(&text).map_err(|_| String::new()));
                    let demos = demos.unwrap_or_else(|error| {
                        if !error.is_empty() {
                            problems.push(format!("{}: cannot be read: {error}", path.display()));
                        }
                        known.map(|file| file.demos).unwrap_or_default()
                    });
                    File { stamp, demos }
                }
            };
            self.files.insert(path, file);
        }
        self.wanted(problems)
    }

    fn wanted(&self, problems: Vec<String>) -> Read {
        let demos = self.files.values().flat_map(|file| file.demos.clone());
        Read { demos: demos.collect(), problems }
    }
}

fn watch(dir: &Path, changed: &Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let changed = Arc::clone(changed);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| is_reading(event.kind)) {
            return;
        }
        // One permit at most is kept: a thousand events are one reading.
        changed.notify_one();
    })?;
    watcher.watch(dir, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Reading a file is an event too, which would make every reading cause the next one.
fn is_reading(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        kind => kind.is_access(),
    }
}

/// Manifests below a folder, by path. Names with a leading dot are not looked at.
fn walk(dir: &Path, found: &mut BTreeMap<PathBuf, Stamp>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        // What a link points at counts; what went away meanwhile is not there.
        let Some(metadata) = fs::metadata(&path).ok().filter(|_| !hidden) else {
            continue;
        };
        if metadata.is_dir() {
            walk(&path, found)?;
        } else if path.extension().is_some_and(|it| ["yaml", "yml", "json"].iter().any(|known| it == *known))
        {
            let stamp = Stamp { size: metadata.len(), modified: metadata.modified().ok() };
            found.insert(path, stamp);
        }
    }
    Ok(())
}
