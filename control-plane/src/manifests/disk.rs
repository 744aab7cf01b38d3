//! The folder on disk: finds the files that changed since they were read, from the kernel's notifications and from file stamps.
//!
//! For a notification about a file only that file is checked; if a folder or a link is concerned, all stamps are compared, and only files
//! that differ are read. The full comparison is also made every few seconds.
//!
//! **Invariant:** after a full comparison, what was reported equals what is on disk, whatever happened in between.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Component, Path as FilePath, PathBuf};
use std::time::UNIX_EPOCH;

use shared::clock;
use shared::version::first_half;

use super::folder::Path;
use super::notice::Touched;
use super::tree::{self, Stamp, Trail, Tree, is_absent, is_manifest};
use super::watches::Watches;

/// Files larger than this, in bytes, are not manifests and are not read.
const MAX_FILE: u64 = 256 << 20;

/// Within this many seconds of a change another one may leave the same timestamp: clocks of file systems are coarse.
const TICK: i64 = 2;

/// The content of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Raw {
    /// It does not exist.
    Gone,
    /// A text file.
    Text(String),
    /// A file that cannot be read, and why.
    Unreadable(String),
}

/// The results of a scan, by path.
pub(super) type ScannedFiles = BTreeMap<Path, Raw>;

/// The differences that a scan found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) found: ScannedFiles,
    /// The state of the whole folder, if all of it was scanned.
    pub(super) whole: Option<Whole>,
}

/// The state of the whole folder, apart from contents.
#[derive(Debug, Default)]
pub(super) struct Whole {
    /// The files that exist, or may reappear in a moment.
    pub(super) present: BTreeSet<Path>,
    /// Folders that exist but could not be read, and why.
    pub(super) unread: BTreeMap<Path, String>,
    /// Files that look like manifests and are not read, and why.
    pub(super) skipped: BTreeMap<Path, String>,
}

impl Whole {
    /// Whether the file could not be looked for: its absence means nothing.
    pub(super) fn is_unread(&self, file: &str) -> bool {
        self.unread.keys().any(|folder| is_at_or_below(file, folder))
    }

    /// Files and folders that are not read, and why; `unread` is the reason for a folder with an error.
    pub(super) fn not_read(self, unread: impl Fn(&str) -> String) -> BTreeMap<Path, String> {
        let Self { present: _, unread: folders, mut skipped } = self;
        skipped.extend(folders.into_iter().map(|(folder, error)| (folder, unread(&error))));
        skipped
    }
}

/// Which differences are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    /// All.
    None,
    /// Not files that are being written, until the kernel reports that they were closed.
    Written,
    /// Only what did not change since the previous scan.
    Still,
}

/// The folder, and what was read from it.
#[derive(Debug)]
pub(super) struct Disk {
    root: PathBuf,
    watches: Watches,
    /// Boxed: up to half of a hash table is unused. `None` for a file that could not be read.
    known: HashMap<Path, Option<Box<Known>>>,
    folders: BTreeSet<Path>,
    unread: BTreeSet<Path>,
    trails: BTreeMap<Path, Trail>,
    /// Differences that the last comparison left alone; `None` for a file that did not exist.
    unsettled: HashMap<Path, Option<Stamp>>,
    /// What was looked at since a walk began beside; `None` without one, and once everything was compared since.
    beside: Option<BTreeSet<Path>>,
}

/// A file as it was last read.
#[derive(Debug)]
struct Known {
    stamp: Stamp,
    /// The first half of BLAKE3's.
    digest: [u8; 16],
    /// It was read so soon after a change that its stamp may miss another one.
    is_fresh: bool,
}

impl Disk {
    /// The folder at `root`, with as many kernel watches as `watches` can set.
    pub(super) fn new(root: PathBuf, watches: Watches) -> Self {
        Self {
            root,
            watches,
            known: HashMap::new(),
            folders: BTreeSet::new(),
            unread: BTreeSet::new(),
            trails: BTreeMap::new(),
            unsettled: HashMap::new(),
            beside: None,
        }
    }

    /// Returns once all events that the kernel has now were received, and whether they tell of every change.
    pub(super) fn sync(&mut self) -> bool {
        self.watches.sync()
    }

    /// Reads everything that differs.
    ///
    /// # Errors
    /// If the folder itself cannot be read. An unreadable part of it is only noted.
    pub(super) fn scan(&mut self) -> io::Result<Scan> {
        let mut scan = Scan::default();
        self.compare(Patience::None, Vec::new(), &mut scan)?;
        Ok(scan)
    }

    /// Begins a comparison of all stamps. What it returns walks the folder, on any thread: a large one takes a while,
    /// and single files can be looked at meanwhile.
    pub(super) fn begin_poll(&mut self) -> impl FnOnce() -> io::Result<Tree> + Send + use<> {
        self.beside = Some(BTreeSet::new());
        let root = self.root.clone();
        move || tree::walk(&root, &mut |_, _| {})
    }

    /// Ends a comparison: reads what differs since the previous one.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub(super) fn end_poll(&mut self, mut tree: Tree) -> io::Result<Scan> {
        let mut scan = Scan::default();
        let looked = self.beside.take();
        // Of what was not looked at, nothing that is known is newer than the walk.
        let is_valid = looked.is_some_and(|looked| {
            looked.iter().all(|path| tree.look_again(&self.root, path))
                && self.watches.cover(&self.root, &tree)
        });
        if is_valid {
            self.compare_with(tree, Patience::Still, Vec::new(), &mut scan);
        } else {
            self.compare(Patience::Still, Vec::new(), &mut scan)?;
        }
        Ok(scan)
    }

    /// Checks some paths, or everything if they are not just files.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub(super) fn look(&mut self, touched: &BTreeMap<PathBuf, Touched>) -> io::Result<Scan> {
        let mut scan = Scan::default();
        let mut moved = Vec::new();
        let mut is_more = false;
        for (path, touched) in touched {
            // Its effect depends on where links lead now.
            is_more |= self.watches.is_on_the_way(path);
            match place(&self.root, path) {
                None => {}
                // A mounted ConfigMap or Secret: its files are links through `..data`, which was just replaced.
                Some(Place::Mount(folder)) => moved.push(folder.into()),
                Some(Place::Shown(name)) => {
                    if let Some(beside) = &mut self.beside {
                        beside.insert(Path::clone(&name));
                    }
                    if self.look_at(&name, path, *touched, &mut scan.found) {
                        moved.push(name);
                    }
                }
            }
        }
        if is_more || !moved.is_empty() {
            self.compare(Patience::Written, moved, &mut scan)?;
        }
        Ok(scan)
    }

    /// Whether changes at some paths cannot affect what was read at others: they are other files, and no link is
    /// involved.
    pub(super) fn are_apart(
        &self,
        read: &BTreeMap<PathBuf, Touched>,
        changed: &BTreeMap<PathBuf, Touched>,
    ) -> bool {
        let is_apart = |path: &PathBuf, others: &BTreeMap<PathBuf, Touched>| match place(&self.root, path) {
            None => true,
            Some(Place::Mount(_)) => false,
            Some(Place::Shown(_)) => {
                !others.contains_key(path) && fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
            }
        };
        self.trails.is_empty()
            && changed.keys().all(|path| is_apart(path, read))
            && read.keys().all(|path| is_apart(path, changed))
    }

    /// Checks one path. Returns true if that is not enough.
    fn look_at(&mut self, name: &Path, path: &FilePath, touched: Touched, found: &mut ScannedFiles) -> bool {
        let is_folder = self.folders.contains(name) || self.unread.contains(name);
        if touched == Touched::Mode {
            let has_failed = self.known.get(name).is_some_and(Option::is_none);
            if has_failed {
                self.read(name, found);
            }
            return self.unread.contains(name);
        }
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_file() && !is_folder => {
                if is_manifest(name) {
                    self.read(name, found);
                }
                false
            }
            Ok(meta) => meta.is_dir() || meta.is_symlink() || is_folder || is_manifest(name),
            Err(error) if is_absent(&error) && !is_folder => {
                if self.known.remove(name).is_some() {
                    found.insert(Path::clone(name), Raw::Gone);
                }
                self.trails.contains_key(name)
            }
            Err(_) => true,
        }
    }

    /// Compares all stamps. What disappeared at or below the paths in `moved` is certainly gone.
    fn compare(&mut self, patience: Patience, moved: Vec<Path>, scan: &mut Scan) -> io::Result<()> {
        let watches = &mut self.watches;
        let tree = tree::walk(&self.root, &mut |folder, id| watches.watch(folder, id))?;
        self.beside = None;
        self.compare_with(tree, patience, moved, scan);
        Ok(())
    }

    /// As [`Self::compare`], with what a walk found.
    fn compare_with(&mut self, tree: Tree, patience: Patience, mut moved: Vec<Path>, scan: &mut Scan) {
        self.watches.settle(&self.root, &tree);
        // A link with a new target is treated as a rewritten file.
        let turned =
            tree.trails.iter().filter(|(at, trail)| self.trails.get(*at).is_some_and(|it| it != *trail));
        moved.extend(turned.map(|(at, _)| Path::clone(at)));

        let mut unsettled = HashMap::new();
        for (path, stamp) in &tree.files {
            match stamp {
                // A link's target may be outside of the watches, so that its closing is not reported.
                Ok(stamp)
                    if patience == Patience::Written
                        && tree.trails.contains_key(path)
                        && self.differs(path, stamp) =>
                {
                    self.read(path, &mut scan.found);
                }
                Ok(stamp) if self.is_read(path, stamp, patience, &mut unsettled) => match patience {
                    Patience::Still => {
                        if let Err(other) = self.read_still(path, stamp, &mut scan.found) {
                            unsettled.insert(Path::clone(path), other);
                        }
                    }
                    Patience::None | Patience::Written => self.read(path, &mut scan.found),
                },
                Ok(_) => {}
                Err(error) => self.failed(path, error, &mut scan.found),
            }
        }
        let mut present: BTreeSet<Path> = tree.files.keys().cloned().collect();
        let mut known = std::mem::take(&mut self.known);
        known.retain(|path, _| {
            if tree.files.contains_key(path) || tree.is_unread(path) {
                return true;
            }
            if moved.iter().any(|moved| is_at_or_below(path, moved)) {
                scan.found.insert(Path::clone(path), Raw::Gone);
                return false;
            }
            let may_return = patience == Patience::Still && self.unsettled.get(path) != Some(&None);
            if may_return {
                unsettled.insert(Path::clone(path), None);
                present.insert(Path::clone(path));
            }
            may_return
        });
        self.known = known;
        // Other scans do not count: they may come just after the comparison.
        if patience != Patience::Written {
            self.unsettled = unsettled;
        }
        let Tree { folders, unread, skipped, trails, files: _ } = tree;
        self.folders = folders.into_keys().collect();
        self.unread = unread.keys().cloned().collect();
        self.trails = trails;
        scan.whole = Some(Whole { present, unread, skipped });
    }

    fn known_at(&self, path: &Path) -> Option<&Known> {
        self.known.get(path)?.as_deref()
    }

    fn differs(&self, path: &Path, stamp: &Stamp) -> bool {
        self.known_at(path).is_none_or(|known| known.stamp != *stamp)
    }

    /// Whether a file is read now.
    fn is_read(
        &self,
        path: &Path,
        stamp: &Stamp,
        patience: Patience,
        unsettled: &mut HashMap<Path, Option<Stamp>>,
    ) -> bool {
        let known = self.known_at(path).map(|known| (known.stamp, known.is_fresh));
        match (known, patience) {
            (Some((known, is_fresh)), Patience::Still) if known == *stamp => is_fresh,
            (Some((known, _)), _) if known == *stamp => false,
            (_, Patience::None) => true,
            (Some((known, _)), Patience::Written) => !known.is_of(stamp),
            (None, Patience::Written) => true,
            (_, Patience::Still) => {
                let is_still = self.unsettled.get(path) == Some(&Some(*stamp));
                if !is_still {
                    unsettled.insert(Path::clone(path), Some(*stamp));
                }
                is_still
            }
        }
    }

    /// Reads a file that had this stamp a moment ago.
    ///
    /// # Errors
    /// Its current stamp, `None` if it does not exist any more: it is being written, and its content may be incomplete.
    fn read_still(
        &mut self,
        name: &Path,
        stamp: &Stamp,
        found: &mut ScannedFiles,
    ) -> Result<(), Option<Stamp>> {
        let read = read(&self.root.join(&**name));
        match &read {
            Ok(Some((now, _))) if now != stamp => return Err(Some(*now)),
            Err(error) if is_absent(error) => return Err(None),
            _ => self.take(name, read, found),
        }
        Ok(())
    }

    /// Reads a file, and records it if its content changed.
    fn read(&mut self, name: &Path, found: &mut ScannedFiles) {
        self.take(name, read(&self.root.join(&**name)), found);
    }

    fn take(&mut self, name: &Path, read: io::Result<Option<(Stamp, String)>>, found: &mut ScannedFiles) {
        match read {
            Ok(Some((stamp, text))) => {
                let digest = first_half(&blake3::hash(text.as_bytes()));
                let now = clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                let is_fresh = i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(stamp.second()) <= TICK;
                let known = Box::new(Known { stamp, digest, is_fresh });
                let before = self.known.insert(Path::clone(name), Some(known)).flatten();
                if before.map(|before| before.digest) != Some(digest) {
                    found.insert(Path::clone(name), Raw::Text(text));
                }
            }
            // Not a regular file: a folder with that name, a pipe.
            Ok(None) => {}
            Err(error) if is_absent(&error) => {
                self.known.remove(name);
                found.insert(Path::clone(name), Raw::Gone);
            }
            Err(error) => self.failed(name, &error.to_string(), found),
        }
    }

    fn failed(&mut self, name: &Path, error: &str, found: &mut ScannedFiles) {
        self.known.insert(Path::clone(name), None);
        found.insert(Path::clone(name), Raw::Unreadable(format!("expected a readable file: {error}")));
    }
}

/// Reads a file; `None` if it is not a regular file. The stamp is the one from before the read.
fn read(path: &FilePath) -> io::Result<Option<(Stamp, String)>> {
    // Reading a pipe would block.
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = File::open(path)?;
    let meta = file.metadata()?;
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len().min(MAX_FILE)).unwrap_or(0));
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it has more than {MAX_FILE} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))?;
    Ok(Some((Stamp::of(&meta), text)))
}

fn is_at_or_below(path: &str, folder: &str) -> bool {
    let below = || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    folder.is_empty() || path == folder || below()
}

/// The place of an event.
enum Place {
    /// At a path that is read, relative to the root.
    Shown(Path),
    /// In the folder at that path, all of whose links have a new target.
    Mount(String),
}

/// `None` for what is not read: the root itself, and names that begin with a dot.
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

#[cfg(test)]
mod tests;
