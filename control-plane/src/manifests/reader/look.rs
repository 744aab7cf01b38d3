//! Reads the files that changed, including those that change while it reads.
//!
//! Files are read one after another, while writers continue. If endpoints are first added to one file and then removed
//! from another, a reader may see the first file before and the second after its change: no endpoints at all, a state
//! that never existed.
//!
//! **Invariant:** what is reported was in all of the files at one moment, unless they do not stop changing for a while
//! ([`LONG`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::{FolderError, Reader};
use crate::manifests::disk::{Disk, Raw, Scan, ScannedFiles};
use crate::manifests::document;
use crate::manifests::folder::Path;
use crate::manifests::notice::{Pending, Touched};

/// Some writers replace a file without renaming (git, `cp`, some editors): they remove or empty it first, and write it
/// a moment later. Only waiting can tell that from a deletion: there is no sign that more will come.
pub(super) const REPLACED: Duration = Duration::from_millis(20);

/// A folder that is written continuously is reported as found after this time and this many scans: other files must not
/// wait for it. When the process starts, there is more patience.
const LONG: Duration = Duration::from_millis(200);
const LOOKS_MIN: usize = 8;
const LOOKS_MAX: usize = 16;

/// The results of one or more scans.
#[derive(Debug, Default)]
struct Seen {
    scan: Scan,
    /// The paths that were checked.
    paths: BTreeMap<PathBuf, Touched>,
    /// Those that were checked last; `None`: the whole folder.
    last: Option<BTreeMap<PathBuf, Touched>>,
    /// Files that were waited for because they may be about to be replaced.
    doubted: BTreeSet<Path>,
    /// Notifications were lost, for this reason.
    lost: Option<String>,
}

impl Reader {
    /// Checks the paths with notifications.
    pub(super) async fn look(&mut self, pending: Pending) -> Result<(), FolderError> {
        if let Some(reason) = pending.lost {
            return self.lost(&reason).await;
        }
        let mut seen = Seen::default();
        if !self.see(&mut seen, pending.paths).await? {
            return Ok(());
        }
        self.rest(&mut seen, Some(LONG)).await?;
        self.compare(seen.scan, Instant::now()).await?;
        if let Some(reason) = seen.lost {
            return self.lost(&reason).await;
        }
        self.believe().await
    }

    /// Continues until nothing changed during a scan, or its time is over; `None`: for [`LOOKS_MAX`] scans.
    async fn rest(&mut self, seen: &mut Seen, time: Option<Duration>) -> Result<(), FolderError> {
        let until = time.map(|time| Instant::now() + time);
        for look in 1..LOOKS_MAX {
            // A renamed file disappears here and appears there, in two events, and one that is replaced is missing or
            // empty for a moment. Changes shortly after are merged into one, so that its objects are not removed in
            // between.
            let is_doubtful = seen.doubt();
            if is_doubtful {
                tokio::time::sleep(REPLACED).await;
            }
            // After this, all writes before the last read were reported.
            self.disk(Disk::sync).await?;
            let more = self.notice.take();
            seen.lost = more.lost;
            let mut paths = more.paths;
            if seen.lost.is_some() || (paths.is_empty() && !is_doubtful) {
                return Ok(());
            }
            if !is_doubtful && self.are_apart(seen, &paths).await? {
                // Everything that had changed when the queue was last flushed was read, and is consistent: what was
                // read before had not changed until then, and what was read since has not changed since. The rest is
                // left to the next scan: otherwise a folder that is written continuously would never be reported.
                self.notice.put_back(paths);
                return Ok(());
            }
            if look >= LOOKS_MIN && until.is_some_and(|until| until <= Instant::now()) {
                self.notice.put_back(paths);
                return self.look_at_voids(seen).await;
            }
            if is_doubtful {
                // All of it again: a folder may have been created or removed over what was found before.
                paths.extend(seen.paths.keys().map(|path| (path.clone(), Touched::Content)));
            }
            if !self.see(seen, paths).await? {
                return Ok(());
            }
        }
        if seen.doubt() {
            tokio::time::sleep(REPLACED).await;
            self.look_at_voids(seen).await?;
        }
        Ok(())
    }

    /// Checks what seemed to be about to be replaced, which was waited for: it may have been.
    async fn look_at_voids(&mut self, seen: &mut Seen) -> Result<(), FolderError> {
        let voids = voids(&seen.scan.found).map(|path| (self.dir.join(&**path), Touched::Content));
        let voids: BTreeMap<_, _> = voids.collect();
        if !voids.is_empty() {
            self.see(seen, voids).await?;
        }
        Ok(())
    }

    /// Whether the changes do not affect what was checked last.
    async fn are_apart(
        &mut self,
        seen: &Seen,
        changed: &BTreeMap<PathBuf, Touched>,
    ) -> Result<bool, FolderError> {
        let (Some(read), changed) = (seen.last.clone(), changed.clone()) else {
            return Ok(false);
        };
        self.disk(move |disk| disk.are_apart(&read, &changed)).await
    }

    /// Adds the current contents of some paths. Returns false if the folder cannot be read.
    async fn see(&mut self, seen: &mut Seen, paths: BTreeMap<PathBuf, Touched>) -> Result<bool, FolderError> {
        let looked = paths.clone();
        match self.disk(move |disk| disk.look(&looked)).await? {
            Ok(later) => {
                seen.scan.found.extend(later.found);
                seen.last = later.whole.is_none().then(|| paths.clone());
                seen.scan.whole = later.whole.or_else(|| seen.scan.whole.take());
                seen.paths.extend(paths);
                Ok(true)
            }
            Err(error) => {
                self.lost_sight(&error).await?;
                Ok(false)
            }
        }
    }

    /// Completes a scan of the whole folder with what changed meanwhile.
    pub(super) async fn settled(&mut self, scan: Scan) -> Result<Scan, FolderError> {
        self.settled_within(scan, Some(LONG)).await
    }

    /// As [`Self::settled`], for the first scan.
    pub(super) async fn settled_first(&mut self, scan: Scan) -> Result<Scan, FolderError> {
        self.settled_within(scan, None).await
    }

    async fn settled_within(&mut self, scan: Scan, time: Option<Duration>) -> Result<Scan, FolderError> {
        let mut seen = Seen { scan, ..Seen::default() };
        // The caller compares missing files with the previous ones.
        seen.doubted = voids(&seen.scan.found).cloned().collect();
        self.rest(&mut seen, time).await?;
        if let Some(reason) = seen.lost {
            self.notice.lose(reason);
        }
        Ok(seen.scan)
    }
}

impl Seen {
    /// Whether a file may be about to be replaced and was not waited for.
    fn doubt(&mut self) -> bool {
        let new: Vec<_> =
            voids(&self.scan.found).filter(|path| !self.doubted.contains(*path)).cloned().collect();
        let is_doubtful = !new.is_empty();
        self.doubted.extend(new);
        is_doubtful
    }
}

/// The files that may be about to be replaced: they are missing, or have no documents.
fn voids(found: &ScannedFiles) -> impl Iterator<Item = &Path> {
    let is_void = |raw: &Raw| match raw {
        Raw::Gone => true,
        Raw::Text(text) => document::is_void(text),
        Raw::Unreadable(_) => false,
    };
    found.iter().filter(move |(_, raw)| is_void(raw)).map(|(path, _)| path)
}
