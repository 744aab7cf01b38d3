//! Walks a folder: finds its files with their stamps, and what is skipped and why. Reads names, never contents.
//!
//! It finds `*.yaml`, `*.yml` and `*.json` in the folder and its sub-folders, except names that begin with a dot:
//! writers rename files into place. Links are followed, including those to folders, each real folder once: by its own
//! path if it is below the root, else by the first link to it. So cycles end, and a link never makes a file count
//! twice.
//!
//! **Invariant:** the result of a walk is a function of the disk's contents: nothing is remembered, and order is by
//! name.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path as FilePath, PathBuf};

use super::folder::Path;

/// With more folders than this, a link leads to something other than manifests.
const MAX_FOLDERS: usize = 16_384;

/// Limit of consecutive links, as in the kernel.
const MAX_LINKS: usize = 40;

/// Identifies a file or folder, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Id {
    device: u64,
    inode: u64,
}

impl Id {
    pub(super) fn of(meta: &Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino() }
    }
}

/// Equal stamps mean: the same file, and it was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    id: Id,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(meta: &Metadata) -> Self {
        Self {
            id: Id::of(meta),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// Whether it is the same file, written or not.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// The time of its last change in seconds.
    pub(super) fn second(&self) -> i64 {
        self.modified.0.max(self.changed.0)
    }
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Manifests; an error if not even their stamp can be read.
    pub(super) files: BTreeMap<Path, Result<Stamp, String>>,
    /// The folders that were read, by path within the root.
    pub(super) folders: BTreeMap<Path, Id>,
    /// Folders that exist but could not be read: what is below them is unknown.
    pub(super) unread: BTreeMap<Path, String>,
    /// Files that look like manifests and are not read, and why.
    pub(super) skipped: BTreeMap<Path, String>,
    /// By path of a link within the root: every link that is followed on its way. Empty path: on the way to the root.
    pub(super) trails: BTreeMap<Path, Trail>,
}

/// The links on the way to something, each with its target.
pub(super) type Trail = Vec<(PathBuf, PathBuf)>;

impl Tree {
    /// Whether the file could not be looked for: its absence means nothing.
    pub(super) fn is_unread(&self, file: &str) -> bool {
        let mut folders = file.rmatch_indices('/').map(|(at, _)| &file[..at]);
        folders.any(|folder| self.unread.contains_key(folder)) || self.unread.contains_key("")
    }

    /// Looks again at a path that may have changed since the walk. Returns false if that takes another walk: it is
    /// neither a file nor absent, or is in a folder that the walk did not find.
    pub(super) fn look_again(&mut self, root: &FilePath, path: &Path) -> bool {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let meta = fs::symlink_metadata(root.join(&**path));
        let is_plain = !self.trails.contains_key(path) && meta.as_ref().map_or(true, Metadata::is_file);
        if !is_plain || !self.folders.contains_key(folder) {
            return false;
        }
        self.files.remove(path);
        if is_manifest(path) {
            self.note_file(Path::clone(path), meta);
        }
        true
    }

    fn note_file(&mut self, path: Path, meta: io::Result<Metadata>) {
        match meta {
            Ok(meta) => {
                self.files.insert(path, Ok(Stamp::of(&meta)));
            }
            Err(error) if is_absent(&error) => {}
            Err(error) => {
                self.files.insert(path, Err(error.to_string()));
            }
        }
    }
}

/// Walks a folder. `enter` is called for each folder before it is listed, so that no change is missed in between.
///
/// # Errors
/// If the folder itself cannot be read.
pub(super) fn walk(root: &FilePath, enter: &mut dyn FnMut(&FilePath, Id)) -> io::Result<Tree> {
    let around = fs::canonicalize(root)?;
    let mut walk =
        Walk { root, around, enter, tree: Tree::default(), seen: HashMap::new(), links: BTreeSet::new() };
    walk.note_trail("".into(), root);
    walk.list("")?;
    while let Some(link) = walk.links.pop_first() {
        walk.follow(link);
    }
    Ok(walk.tree)
}

struct Walk<'a> {
    root: &'a FilePath,
    /// The root with all links resolved.
    around: PathBuf,
    enter: &'a mut dyn FnMut(&FilePath, Id),
    tree: Tree,
    seen: HashMap<Id, Path>,
    /// Links to folders that were not followed yet.
    links: BTreeSet<Path>,
}

impl Walk<'_> {
    /// Lists a folder and its sub-folders.
    fn list(&mut self, folder: &str) -> io::Result<()> {
        let at = self.root.join(folder);
        let id = Id::of(&fs::metadata(&at)?);
        (self.enter)(&at, id);
        let mut entries = fs::read_dir(&at)?.collect::<io::Result<Vec<_>>>()?;
        self.seen.insert(id, folder.into());
        self.tree.folders.insert(folder.into(), id);
        entries.sort_by_cached_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                self.skip(join(folder, &name.to_string_lossy()), "its name is not UTF-8");
                continue;
            };
            // In a file system's root: for its repair, and readable by root only.
            if name.starts_with('.') || name == "lost+found" {
                continue;
            }
            let path = join(folder, name);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.enter_part(path),
                Ok(kind) if kind.is_symlink() => self.link(path),
                // Asked of the folder that is open: the kernel need not find the way to each file again.
                Ok(kind) if kind.is_file() => self.file(path, || entry.metadata()),
                Ok(_) => self.skip(path, "it is neither a file nor a folder"),
                Err(_) => self.file_at(path),
            }
        }
        Ok(())
    }

    /// As [`Self::list`], but errors do not end the walk.
    fn enter_part(&mut self, folder: Path) {
        if self.tree.folders.len() >= MAX_FOLDERS {
            self.skip_folder(folder, format!("there are more than {MAX_FOLDERS} folders"));
            return;
        }
        match self.list(&folder) {
            Err(error) if !is_absent(&error) => {
                self.tree.unread.insert(folder, error.to_string());
            }
            Ok(()) | Err(_) => {}
        }
    }

    fn link(&mut self, path: Path) {
        let at = self.root.join(&*path);
        match fs::metadata(&at) {
            Ok(meta) if meta.is_dir() => {
                self.links.insert(path);
                return;
            }
            Ok(meta) if meta.is_file() => self.file_at(Path::clone(&path)),
            Ok(_) => self.skip(Path::clone(&path), "it leads neither to a file nor to a folder"),
            Err(error) if is_absent(&error) => self.skip(Path::clone(&path), "it is a link to nothing"),
            Err(error) => {
                self.skip(Path::clone(&path), &format!("it is a link that cannot be followed: {error}"))
            }
        }
        if is_manifest(&path) {
            self.note_trail(path, &at);
        }
    }

    /// Follows a link to a folder.
    fn follow(&mut self, link: Path) {
        let at = self.root.join(&*link);
        self.note_trail(Path::clone(&link), &at);
        let Ok(meta) = fs::metadata(&at) else {
            // It was deleted meanwhile.
            return;
        };
        if let Some(first) = self.seen.get(&Id::of(&meta)) {
            let first = if first.is_empty() { "." } else { first };
            let reason = format!("it leads to {first}, which is read already");
            self.skip_folder(link, reason);
            return;
        }
        let target = fs::canonicalize(&at);
        if target.is_ok_and(|target| self.around.starts_with(target)) {
            self.skip_folder(link, "it leads to a folder around this one".to_owned());
            return;
        }
        self.enter_part(link);
    }

    fn file_at(&mut self, path: Path) {
        let at = self.root.join(&*path);
        self.file(path, || fs::metadata(at));
    }

    fn file(&mut self, path: Path, meta: impl FnOnce() -> io::Result<Metadata>) {
        if is_manifest(&path) {
            self.tree.note_file(path, meta());
        }
    }

    fn note_trail(&mut self, path: Path, at: &FilePath) {
        let trail = trail(at);
        if !trail.is_empty() {
            self.tree.trails.insert(path, trail);
        }
    }

    /// Files that are not named like manifests are not reported.
    fn skip(&mut self, path: Path, reason: &str) {
        if is_manifest(&path) {
            self.tree.skipped.insert(path, reason.to_owned());
        }
    }

    fn skip_folder(&mut self, path: Path, reason: String) {
        self.tree.skipped.insert(path, reason);
    }
}

/// The links on the way to a path, as far as it exists.
fn trail(path: &FilePath) -> Trail {
    let mut trail = Trail::new();
    let mut at = PathBuf::new();
    let mut rest: VecDeque<OsString> = components(path);
    while let Some(name) = rest.pop_front() {
        at.push(&name);
        let Ok(target) = fs::read_link(&at) else {
            continue;
        };
        trail.push((at.clone(), target.clone()));
        if trail.len() > MAX_LINKS {
            break;
        }
        at.pop();
        for name in components(&target).into_iter().rev() {
            rest.push_front(name);
        }
    }
    trail
}

/// An absolute path begins with its root, which replaces what it is pushed to; `..` is kept, as the kernel resolves it.
fn components(path: &FilePath) -> VecDeque<OsString> {
    let is_said = |it: &Component<'_>| !matches!(it, Component::CurDir);
    path.components().filter(is_said).map(|it| it.as_os_str().to_owned()).collect()
}

fn join(folder: &str, name: &str) -> Path {
    if folder.is_empty() { name.into() } else { format!("{folder}/{name}").into() }
}

/// Whether a file with that name is read.
pub(super) fn is_manifest(path: &str) -> bool {
    let extension = FilePath::new(path).extension().and_then(|it| it.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

/// Whether a file, a link's target, or a folder on the way to it does not exist.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Paths of files, and of what is skipped.
    fn walked(root: &FilePath) -> (Vec<String>, Vec<String>) {
        let tree = walk(root, &mut |_, _| {}).unwrap();
        assert_eq!(tree.unread, BTreeMap::new());
        let said = tree.skipped.iter().map(|(path, reason)| format!("{path}: {reason}"));
        (tree.files.keys().map(ToString::to_string).collect(), said.collect())
    }

    fn fill(root: &FilePath, files: &[&str]) {
        for file in files {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
    }

    #[test]
    fn extensions() {
        for (name, read) in
            [("a.yaml", true), ("a.yml", true), ("a.json", true), ("a.yaml.tmp", false), ("yaml", false)]
        {
            assert_eq!(is_manifest(name), read, "{name}");
        }
    }

    #[test]
    fn each_real_folder_is_read_once_and_circles_end() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fill(&root, &["a/x.yaml", "b/c/y.json", ".hidden/z.yaml", "..1/deep/v.yml", "notes.txt"]);
        fill(dir.path(), &["outside/o.yaml", "outside/in/p.yaml"]);
        for (link, target) in [
            ("a/up", ".."),
            ("b/loop", "../b"),
            ("b/self", "self"),
            ("deep", "..1/deep"),
            ("again", "deep"),
            ("out", "../outside"),
            ("wide", "/"),
            ("l.yaml", "a/x.yaml"),
            ("none.yaml", "nowhere"),
            ("none", "nowhere"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        let (files, skipped) = walked(&root);
        // `again` sorts before `deep`, and both lead to the same folder.
        assert_eq!(files, ["a/x.yaml", "again/v.yml", "b/c/y.json", "l.yaml", "out/in/p.yaml", "out/o.yaml"]);
        assert_eq!(
            skipped,
            [
                "a/up: it leads to ., which is read already",
                "b/loop: it leads to b, which is read already",
                "deep: it leads to again, which is read already",
                "none.yaml: it is a link to nothing",
                "wide: it leads to a folder around this one",
            ]
        );
    }

    #[test]
    fn a_trail_names_every_link() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fill(&root, &["v1/web.yaml"]);
        symlink("v1", root.join("now")).unwrap();
        symlink(root.join("now/web.yaml"), root.join("web.yaml")).unwrap();
        let links: Vec<_> = trail(&root.join("web.yaml")).into_iter().map(|(link, _)| link).collect();
        assert_eq!(links, [root.join("web.yaml"), root.join("now")]);
        assert_eq!(trail(&root.join("v1/web.yaml")), []);
        symlink("circle", root.join("circle")).unwrap();
        assert_eq!(trail(&root.join("circle")).len(), MAX_LINKS + 1);
    }

    #[test]
    fn what_is_no_file_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let socket = std::os::unix::net::UnixListener::bind(dir.path().join("s.yaml")).unwrap();
        fs::create_dir(dir.path().join("d.yaml")).unwrap();
        let (files, skipped) = walked(dir.path());
        assert_eq!((files.len(), skipped), (0, vec!["s.yaml: it is neither a file nor a folder".to_owned()]));
        drop(socket);
    }
}
