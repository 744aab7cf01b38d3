//! Reads the files that changed, and those that change while it reads.
//!
//! Files are read one after another, and their writers do not wait. If endpoints are first added to one file and then removed from another, a
//! reader may see the first file before and the second after its change: no endpoints at all, a state that never existed.
//!
//! **Invariant:** what is reported was in all of the files at one moment, unless they never stop changing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::{FolderError, Reader};
use crate::manifests::disk::{Disk, Found, Raw, Scan};
use crate::manifests::document;
use crate::manifests::folder::Path;
use crate::manifests::notice::{Pending, Touched};

/// Who replaces a file without renaming (git, `cp`, some editors) removes or empties it first and writes it a moment
/// later. Only the clock can tell that from a file that goes: nothing says whether more will come.
pub(super) const REPLACED: Duration = Duration::from_millis(20);

/// A folder that is written without end is told as it was found after so many looks.
const LOOKS: usize = 16;

/// What was found, in one look or several.
#[derive(Debug, Default)]
struct Seen {
    scan: Scan,
    /// What was looked at.
    paths: BTreeMap<PathBuf, Touched>,
    /// What of that was looked at last; `None`: all of the folder.
    last: Option<BTreeMap<PathBuf, Touched>>,
    /// The files that were waited for as they may be about to be replaced.
    doubted: BTreeSet<Path>,
    /// Some notices were not heard, for this reason.
    lost: Option<String>,
}

impl Reader {
    /// Looks at what has been touched.
    pub(super) async fn look(&mut self, pending: Pending) -> Result<(), FolderError> {
        if let Some(reason) = pending.lost {
            return self.lost(&reason).await;
        }
        let mut seen = Seen::default();
        if !self.see(&mut seen, pending.paths).await? {
            return Ok(());
        }
        self.rest(&mut seen).await?;
        self.compare(seen.scan, Instant::now()).await?;
        if let Some(reason) = seen.lost {
            return self.lost(&reason).await;
        }
        self.believe().await
    }

    /// Looks on until nothing changed while it was looked at.
    async fn rest(&mut self, seen: &mut Seen) -> Result<(), FolderError> {
        for _ in 1..LOOKS {
            // A file that was renamed goes here and comes there, in two events, and one that is replaced is gone or empty
            // for a moment. What is known a little later counts as one change, so that its objects do not go in between.
            let is_doubtful = seen.doubt();
            if is_doubtful {
                tokio::time::sleep(REPLACED).await;
            }
            // Whatever was written before the last that was read has been told of after this.
            self.disk(Disk::hear).await?;
            let more = self.notice.take();
            seen.lost = more.lost;
            let mut paths = more.paths;
            if seen.lost.is_some() || (paths.is_empty() && !is_doubtful) {
                return Ok(());
            }
            if !is_doubtful && self.are_apart(seen, &paths).await? {
                // All that had changed when the queue was heard before was read, and all that was read stood so then: what was
                // read before has not changed until then, and what was read since has not changed since. The rest is for the
                // next look: a folder that is written without end would never come to rest.
                self.notice.put_back(paths);
                return Ok(());
            }
            if is_doubtful {
                // All of it, for a folder may have come or gone over what was found before.
                paths.extend(seen.paths.keys().map(|path| (path.clone(), Touched::Content)));
            }
            if !self.see(seen, paths).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether what changed is nothing of what was looked at last.
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

    /// Adds what is at some paths now. False where the folder cannot be read.
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

    /// What a look at all of the folder found, and what changed meanwhile.
    pub(super) async fn settled(&mut self, scan: Scan) -> Result<Scan, FolderError> {
        let mut seen = Seen { scan, ..Seen::default() };
        // Those that are gone are compared with what was there by who asks.
        seen.doubted = voids(&seen.scan.found).cloned().collect();
        self.rest(&mut seen).await?;
        if let Some(reason) = seen.lost {
            self.notice.lose(reason);
        }
        Ok(seen.scan)
    }
}

impl Seen {
    /// Whether there is a file that may be about to be replaced and was not waited for.
    fn doubt(&mut self) -> bool {
        let new: Vec<_> =
            voids(&self.scan.found).filter(|path| !self.doubted.contains(*path)).cloned().collect();
        let is_doubtful = !new.is_empty();
        self.doubted.extend(new);
        is_doubtful
    }
}

/// The files that may be about to be replaced: they are gone, or have no documents.
fn voids(found: &Found) -> impl Iterator<Item = &Path> {
    let is_void = |raw: &Raw| match raw {
        Raw::Gone => true,
        Raw::Text(text) => document::is_void(text),
        Raw::Unreadable(_) => false,
    };
    found.iter().filter(move |(_, raw)| is_void(raw)).map(|(path, _)| path)
}
