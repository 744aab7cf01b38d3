//! The folder on the disk: walks it, reads its files, and asks the kernel to be told of changes.
//!
//! Read are `*.yaml`, `*.yml` and `*.json` in the folder and the folders in it. Names with a dot in front are not:
//! writers rename into place. Links to files are followed, links to folders are not, for they may lead in a circle.
//!
//! **Invariant:** a folder is watched before it is listed, so that nothing falls between the two.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path as FilePath, PathBuf};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use super::document;
use super::folder::{Content, Path};
use super::notice::Touched;

/// A file larger than this, in bytes, is not read: it is no manifest.
const MAX_FILE: u64 = 256 << 20;

/// What a look found, by path.
pub(super) type Found = BTreeMap<Path, Content>;

/// What a look at everything found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) found: Found,
    /// Folders that are there but could not be read: nobody knows what is in them and below.
    pub(super) unread: BTreeSet<Path>,
}

impl Scan {
    /// Whether a file was not looked for: its absence says nothing.
    pub(super) fn is_unread(&self, file: &str) -> bool {
        let mut folders = file.rmatch_indices('/').map(|(at, _)| &file[..at]);
        folders.any(|folder| self.unread.contains(folder))
    }
}

/// The folder, and the watch on it.
#[derive(Debug)]
pub(super) struct Disk {
    root: PathBuf,
    watcher: RecommendedWatcher,
    /// Files and folders that are there but could not be read: a change of their mode may help.
    unreadable: BTreeSet<Path>,
}

impl Disk {
    /// The folder at `root`, which `watcher` is to watch.
    pub(super) fn new(root: PathBuf, watcher: RecommendedWatcher) -> Self {
        Self { root, watcher, unreadable: BTreeSet::new() }
    }

    /// Reads everything.
    ///
    /// # Errors
    /// Where the folder itself cannot be watched or listed. A part of it that cannot is only logged.
    pub(super) fn scan(&mut self) -> io::Result<Scan> {
        let mut scan = Scan::default();
        self.walk("", &mut scan)?;
        Ok(scan)
    }

    /// Reads what stands at some paths.
    pub(super) fn look(&mut self, touched: &BTreeMap<PathBuf, Touched>) -> Found {
        let mut scan = Scan::default();
        for (path, touched) in touched {
            let Some(place) = place(&self.root, path) else {
                continue;
            };
            let Place::Shown(name) = place else {
                // A mounted ConfigMap or Secret: its files are links through `..data`, which was just replaced.
                if let Place::Mount(folder) = place {
                    self.walk_part(&folder, &mut scan);
                }
                continue;
            };
            if *touched == Touched::Mode && !self.unreadable.contains(&*name) {
                continue;
            }
            match fs::metadata(path) {
                Ok(meta) if meta.is_dir() => {
                    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
                        self.walk_part(&name, &mut scan);
                    }
                }
                Ok(_) if is_manifest(path) => self.read(name, path, &mut scan.found),
                Ok(_) => {}
                Err(error) if is_absent(&error) => {
                    self.unreadable.remove(&name);
                    scan.found.insert(name, Content::Gone);
                }
                Err(error) if is_manifest(path) => self.failed(name, &error, &mut scan.found),
                Err(_) => {}
            }
        }
        scan.found
    }

    /// As [`Self::walk`], where the rest of the folder goes on without.
    fn walk_part(&mut self, folder: &str, scan: &mut Scan) {
        match self.walk(folder, scan) {
            Err(error) if !is_absent(&error) => {
                tracing::warn!(
                    "the folder {} cannot be read, what it had stays: {error}",
                    self.root.join(folder).display()
                );
                self.unreadable.insert(folder.into());
                scan.unread.insert(folder.into());
            }
            Ok(()) | Err(_) => {
                self.unreadable.remove(folder);
            }
        }
    }

    /// Watches and reads a folder and those in it. `folder` is its path within the root, empty for the root.
    fn walk(&mut self, folder: &str, scan: &mut Scan) -> io::Result<()> {
        let at = self.root.join(folder);
        self.watcher.watch(&at, RecursiveMode::NonRecursive).map_err(into_io)?;
        for entry in fs::read_dir(&at)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            let path: Path = if folder.is_empty() { name.into() } else { format!("{folder}/{name}").into() };
            if entry.file_type()?.is_dir() {
                self.walk_part(&path, scan);
            } else if is_manifest(&entry.path()) {
                self.read(path, &entry.path(), &mut scan.found);
            }
        }
        Ok(())
    }

    fn read(&mut self, name: Path, path: &FilePath, found: &mut Found) {
        match read(path) {
            Ok(Some(text)) => {
                self.unreadable.remove(&name);
                found.insert(name, Content::Text(document::parse(&text)));
            }
            // No file: a folder of that name, a pipe.
            Ok(None) => {}
            Err(error) if is_absent(&error) => {
                self.unreadable.remove(&name);
                found.insert(name, Content::Gone);
            }
            Err(error) => self.failed(name, &error, found),
        }
    }

    fn failed(&mut self, name: Path, error: &io::Error, found: &mut Found) {
        self.unreadable.insert(Path::clone(&name));
        found.insert(name, Content::Unreadable(format!("expected a readable file: {error}")));
    }
}

/// Reads a file; `None` for what is none.
fn read(path: &FilePath) -> io::Result<Option<String>> {
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Ok(None);
    }
    if meta.len() > MAX_FILE {
        return Err(io::Error::other(format!("it has {} bytes of at most {MAX_FILE}", meta.len())));
    }
    fs::read_to_string(path).map(Some)
}

/// Where an event says that something happened.
enum Place {
    /// At a path that is read, as it is called within the root.
    Shown(Path),
    /// In the folder of that path, all of whose links have a new target.
    Mount(String),
}

/// `None` for what is not read: the root itself, and all with a dot in front.
fn place(root: &FilePath, path: &FilePath) -> Option<Place> {
    let within = path.strip_prefix(root).ok()?;
    let mut names = Vec::new();
    for part in within.components() {
        let Component::Normal(name) = part else {
            return None;
        };
        names.push(name.to_str()?);
    }
    let last = names.pop()?;
    if names.iter().any(|name| name.starts_with('.')) {
        return None;
    }
    match last {
        "..data" => Some(Place::Mount(names.join("/"))),
        _ if last.starts_with('.') => None,
        _ => {
            names.push(last);
            Some(Place::Shown(names.join("/").into()))
        }
    }
}

fn is_manifest(path: &FilePath) -> bool {
    let extension = path.extension().and_then(|it| it.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

/// A file, a link's target, or a folder on the way to it is not there.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn into_io(error: notify::Error) -> io::Error {
    match error.kind {
        notify::ErrorKind::Io(error) => error,
        notify::ErrorKind::PathNotFound => io::Error::from(ErrorKind::NotFound),
        notify::ErrorKind::MaxFilesWatch => {
            io::Error::other("the limit of watches is reached: raise fs.inotify.max_user_watches")
        }
        _ => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let root = FilePath::new("/srv/.hidden/conf");
        let shown = |path: &str| match place(root, FilePath::new(path)) {
            Some(Place::Shown(name)) => Some(name.to_string()),
            Some(Place::Mount(folder)) => Some(format!("{folder}!")),
            None => None,
        };
        assert_eq!(shown("/srv/.hidden/conf/a/b.yaml").as_deref(), Some("a/b.yaml"));
        assert_eq!(shown("/srv/.hidden/conf/.b.yaml.tmp"), None);
        assert_eq!(shown("/srv/.hidden/conf/.git/b.yaml"), None);
        assert_eq!(shown("/srv/.hidden/conf"), None);
        assert_eq!(shown("/srv/other"), None);
        assert_eq!(shown("/srv/.hidden/conf/m/..data").as_deref(), Some("m!"));
        assert_eq!(shown("/srv/.hidden/conf/..data").as_deref(), Some("!"));
        assert_eq!(shown("/srv/.hidden/conf/..data_tmp"), None);
    }

    #[test]
    fn extensions() {
        for (name, read) in
            [("a.yaml", true), ("a.yml", true), ("a.json", true), ("a.yaml.tmp", false), ("yaml", false)]
        {
            assert_eq!(is_manifest(FilePath::new(name)), read, "{name}");
        }
    }
}
