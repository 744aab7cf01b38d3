//! Collects the kernel's notifications about the folder until they are read.
//!
//! The thread that receives them never waits: paths are collected in a set, so a file that is written a hundred times
//! meanwhile is read once. If there are too many, or the kernel lost some, the whole folder is read again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind};
use tokio::sync::Notify;

use super::inotify_barrier::InotifyBarrier;

/// With more paths than this, reading everything costs no more.
const MAX_PATHS: usize = 65_536;

/// What happened at a path; the later variant is the stronger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Touched {
    /// Its mode or owner changed.
    Mode,
    /// It was created, deleted or written.
    Content,
}

/// What must be checked.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// These paths, if not everything.
    pub(super) paths: BTreeMap<PathBuf, Touched>,
    /// Everything: notifications were lost, for this reason.
    pub(super) lost: Option<String>,
}

impl Pending {
    /// Whether nothing has changed.
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.lost.is_none()
    }
}

/// The collector. Clones share state.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    root: Arc<PathBuf>,
    pending: Arc<Mutex<Pending>>,
    wake: Arc<Notify>,
    /// `None` if there is no descriptor for one.
    barrier: Option<Arc<InotifyBarrier>>,
}

impl Notice {
    /// For the folder at `root`.
    pub(super) fn new(root: PathBuf) -> Self {
        let barrier = InotifyBarrier::new().ok().map(Arc::new);
        Self { root: Arc::new(root), pending: Arc::default(), wake: Arc::default(), barrier }
    }

    /// The barrier that confirms that all notifications were received, once it is watched.
    pub(super) fn barrier(&self) -> Option<Arc<InotifyBarrier>> {
        self.barrier.clone()
    }

    /// Resolves when there is something. Cancel-safe: nothing is taken.
    pub(super) async fn some(&self) {
        self.wake.notified().await;
    }

    /// Takes what was collected.
    pub(super) fn take(&self) -> Pending {
        std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts back what was taken, for the next time.
    pub(super) fn put_back(&self, paths: BTreeMap<PathBuf, Touched>) {
        self.add(paths);
    }

    fn add(&self, paths: impl IntoIterator<Item = (PathBuf, Touched)>) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for (path, touched) in paths {
            let entry = pending.paths.entry(path).or_insert(touched);
            *entry = touched.max(*entry);
        }
        if pending.paths.len() > MAX_PATHS {
            pending.paths.clear();
            pending.lost = Some(format!("more than {MAX_PATHS} files changed at once"));
        }
        drop(pending);
        self.wake.notify_one();
    }

    fn gather(&self, result: notify::Result<notify::Event>) {
        let event = match result {
            Ok(event) if event.need_rescan() => {
                return self.lose("the kernel's queue of events was full".to_owned());
            }
            Ok(event) => event,
            Err(error) => return self.lose(error.to_string()),
        };
        if let Some(barrier) =
            self.barrier.as_ref().filter(|barrier| event.paths.iter().any(|it| it == barrier.path()))
        {
            return barrier.reached();
        }
        let Some(touched) = touched(&event.kind) else {
            return;
        };
        if is_new_file(&event.kind) && event.paths.iter().all(|path| is_being_written(path)) {
            return;
        }
        if event.paths.contains(&*self.root) {
            if touched == Touched::Content {
                self.lose("the folder itself was moved or removed".to_owned());
            }
            return;
        }
        self.add(event.paths.into_iter().map(|path| (path, touched)));
    }

    /// Requests a complete scan, because notifications were lost.
    pub(super) fn lose(&self, reason: String) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).lost = Some(reason);
        self.wake.notify_one();
    }
}

impl notify::EventHandler for Notice {
    fn handle_event(&mut self, event: notify::Result<notify::Event>) {
        self.gather(event);
    }
}

fn is_new_file(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Create(CreateKind::File | CreateKind::Any | CreateKind::Other))
}

/// Whether its writer will close a new file: then that is the time to read it. A link is complete at once, symbolic or
/// hard.
fn is_being_written(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.nlink() <= 1)
}

/// Whether an event is relevant, and its strength.
///
/// Writes are not, nor is truncation, but the closing after writing is: a file that is written in place is empty for a
/// moment, and an empty file has no objects.
fn touched(kind: &EventKind) -> Option<Touched> {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Create(CreateKind::Folder | CreateKind::File | CreateKind::Any | CreateKind::Other)
        | EventKind::Modify(ModifyKind::Name(_))
        | EventKind::Remove(_) => Some(Touched::Content),
        EventKind::Modify(ModifyKind::Metadata(_)) => Some(Touched::Mode),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{DataChange, Flag, RenameMode};

    use super::*;

    fn event(kind: EventKind, path: &str) -> notify::Result<notify::Event> {
        Ok(notify::Event::new(kind).add_path(path.into()))
    }

    #[test]
    fn only_finished_writes_count_and_the_stronger_stays() {
        let notice = Notice::new("/r".into());
        notice.gather(event(EventKind::Modify(ModifyKind::Data(DataChange::Any)), "/r/a"));
        notice.gather(event(EventKind::Access(AccessKind::Open(AccessMode::Any)), "/r/a"));
        assert!(notice.take().paths.is_empty());
        notice.gather(event(EventKind::Modify(ModifyKind::Name(RenameMode::To)), "/r/a"));
        notice
            .gather(event(EventKind::Modify(ModifyKind::Metadata(notify::event::MetadataKind::Any)), "/r/a"));
        let pending = notice.take();
        assert_eq!((pending.paths[&PathBuf::from("/r/a")], pending.lost), (Touched::Content, None));
        assert!(notice.take().paths.is_empty());
    }

    #[test]
    fn a_new_file_counts_when_it_is_closed_and_a_link_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let notice = Notice::new(dir.path().into());
        fs::write(at("file"), "a").unwrap();
        std::os::unix::fs::symlink("file", at("soft")).unwrap();
        let created = |name: &str| event(EventKind::Create(CreateKind::File), at(name).to_str().unwrap());
        notice.gather(created("file"));
        assert!(notice.take().paths.is_empty());
        let closed = EventKind::Access(AccessKind::Close(AccessMode::Write));
        notice.gather(event(closed, at("file").to_str().unwrap()));
        notice.gather(created("soft"));
        fs::hard_link(at("file"), at("hard")).unwrap();
        notice.gather(created("hard"));
        let names: Vec<_> = notice.take().paths.into_keys().collect();
        assert_eq!(names, [at("file"), at("hard"), at("soft")]);
    }

    #[test]
    fn what_is_lost_is_said() {
        let notice = Notice::new("/r".into());
        notice.gather(Ok(notify::Event::new(EventKind::Other).set_flag(Flag::Rescan)));
        assert!(notice.take().lost.is_some());
        notice.gather(event(EventKind::Remove(notify::event::RemoveKind::Folder), "/r"));
        assert!(notice.take().lost.is_some());
        for file in 0..=MAX_PATHS {
            notice.gather(event(EventKind::Create(CreateKind::File), &format!("/r/{file}")));
        }
        let pending = notice.take();
        assert!(pending.lost.is_some() && pending.paths.len() < MAX_PATHS);
    }
}
