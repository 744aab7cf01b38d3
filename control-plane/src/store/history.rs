//! The history: earlier versions of the configuration.
//!
//! **Invariant:** bounded by number, by bytes and by age, and never without the newest version, the one before it and the one
//! that is pinned: there is always something to go back to. Where it is full, it is thinned ([`thin`]).

mod thin;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use imbl::Vector;
use shared::delta::Delta;
use shared::snapshot::Snapshot;
use shared::version::{Root, Seq};

use crate::origin::Origin;

/// Versions that are kept in any case.
const ALWAYS: usize = 2;
/// Memory of a version besides its resources: its own record, and the map nodes that it does not share. Included
/// because, counting bodies alone, a limit of 64 MiB led to 280 MB of memory.
const VERSION: usize = 8 * 1024;
const CHANGE: usize = 2 * 1024;

/// Bounds of the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Number of versions.
    pub count: usize,
    /// Their bytes; an unchanged resource is shared, and counted once, with its change.
    pub bytes: usize,
    /// How long a version is kept after it was replaced, however long it was in force.
    pub age: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { count: 1_000, bytes: 64 << 20, age: Duration::from_secs(7 * 24 * 3600) }
    }
}

/// One version of the configuration.
#[derive(Clone, Debug)]
pub struct PastVersion {
    /// Its position in the log; 0: it is of an earlier process, or was not released.
    pub seq: Seq,
    /// The version as users see it.
    pub root: Root,
    /// Its resources.
    pub snapshot: Snapshot,
    /// When it was made.
    pub time: SystemTime,
    /// The same on the monotonic clock; `None`: by an earlier process.
    pub made: Option<Instant>,
    /// What changed, in one line.
    pub cause: Arc<str>,
    /// The object that it names first.
    pub origin: Origin,
    /// Number of resources that differ from the previous version.
    pub changed: usize,
    /// Bytes of the resources that it added.
    pub bytes: usize,
    /// Whether it was offered; otherwise it was compiled while a pin was in force.
    pub released: bool,
    /// Number of versions between it and the previous one that have been forgotten: `changed` and `bytes` include what
    /// they changed.
    pub skipped: usize,
}

impl PastVersion {
    /// The memory that it is assumed to take, in bytes.
    fn cost(&self) -> usize {
        self.bytes + VERSION + self.changed * CHANGE
    }

    /// How long it had been there when `newest` was made. By the wall clock, if it was set meanwhile, all versions could
    /// be old at once.
    fn age(&self, newest: &Self) -> Duration {
        match (self.made, newest.made) {
            (Some(made), Some(newest)) => newest.saturating_duration_since(made),
            _ => newest.time.duration_since(self.time).unwrap_or_default(),
        }
    }
}

/// The history. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub struct History {
    versions: Vector<Arc<PastVersion>>,
    bytes: usize,
    bounds: Bounds,
    pinned: Option<Root>,
}

impl History {
    /// An empty history.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// The versions that this process has offered itself.
    pub(super) fn of_this_process(&self) -> Self {
        let mut kept = Self { pinned: self.pinned, ..Self::new(self.bounds) };
        for version in self.versions.iter().filter(|version| version.seq > Seq::default()) {
            kept.push(PastVersion::clone(version));
        }
        kept
    }

    /// Sets the version of the pin in force, which is kept until the pin ends.
    pub(super) fn pin(&mut self, version: Option<Root>) {
        self.pinned = version;
    }

    /// Adds the newest version, and drops old ones that exceed the bounds.
    pub(super) fn push(&mut self, version: PastVersion) {
        let version = Arc::new(version);
        self.bytes += version.cost();
        self.versions.push_back(Arc::clone(&version));
        loop {
            let kept = self.pinned.and_then(|root| self.place_in_force(root));
            let oldest = usize::from(kept == Some(0));
            let is_besides = |kept: usize| kept + ALWAYS < self.versions.len();
            if self.versions.len() <= ALWAYS + usize::from(kept.is_some_and(is_besides)) {
                return;
            }
            let place = match self.is_old(oldest, &version) {
                true => oldest,
                false if self.is_full() => {
                    thin::least_missed(self.versions.iter().map(|it| &**it), kept).unwrap_or(oldest)
                }
                false => return,
            };
            self.forget(place);
        }
    }

    /// The place of a version that is pinned; if it is there repeatedly, where it came into force last.
    fn place_in_force(&self, root: Root) -> Option<usize> {
        let in_force = self.versions.iter().rposition(|it| it.root == root && it.released);
        in_force.or_else(|| self.versions.iter().rposition(|it| it.root == root))
    }

    fn is_full(&self) -> bool {
        self.versions.len() > self.bounds.count || self.bytes > self.bounds.bytes
    }

    /// Whether a version was replaced too long ago.
    fn is_old(&self, place: usize, newest: &PastVersion) -> bool {
        // A version that was compiled while a pin was in force replaced none that was offered.
        let is_released = self.versions.get(place).is_some_and(|it| it.released);
        let next = self.versions.iter().skip(place + 1).find(|it| it.released || !is_released);
        next.is_some_and(|next| next.age(newest) > self.bounds.age)
    }

    /// Removes a version. The next one differs from the one before it by more then, and what it shares with the removed one
    /// stays in memory.
    fn forget(&mut self, place: usize) {
        let gone = self.versions.remove(place);
        self.bytes -= gone.cost();
        let Some(before) = place.checked_sub(1).and_then(|before| self.versions.get(before)) else { return };
        let before = Arc::clone(before);
        let Some(next) = self.versions.get_mut(place) else { return };
        self.bytes -= next.cost();
        let delta = Delta::between(&before.snapshot, &next.snapshot);
        let next = Arc::make_mut(next);
        next.changed = delta.len();
        next.bytes = delta.wire_size();
        next.skipped += gone.skipped + 1;
        self.bytes += next.cost();
    }

    /// The versions, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Arc<PastVersion>> {
        self.versions.iter().rev()
    }

    /// The versions, the oldest first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = &Arc<PastVersion>> {
        self.versions.iter()
    }

    /// The newest version.
    pub fn newest(&self) -> Option<&Arc<PastVersion>> {
        self.versions.back()
    }

    /// If the newest entry, of those that were offered or of those that were not, is this version, left by an earlier
    /// process, moves it to its position in the current log. Returns whether that is so.
    pub(super) fn adopt(&mut self, version: &PastVersion) -> bool {
        let place = self.versions.iter().rposition(|it| it.released == version.released);
        let Some(left) = place.and_then(|place| self.versions.get_mut(place)) else {
            return false;
        };
        let is_same = left.root == version.root;
        if is_same {
            Arc::make_mut(left).seq = version.seq;
        }
        is_same
    }

    /// Number of versions.
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Bytes of all changed resources.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The newest version whose hex digits begin with `prefix`.
    ///
    /// # Errors
    /// If no version matches, or more than one.
    pub fn find(&self, prefix: &str) -> Result<&Arc<PastVersion>, NotOne> {
        let mut found: Option<&Arc<PastVersion>> = None;
        for version in self.newest_first() {
            if !version.root.to_string().starts_with(prefix) {
                continue;
            }
            match found {
                Some(other) if other.root != version.root => return Err(NotOne::Several),
                Some(_) => {}
                None => found = Some(version),
            }
        }
        found.ok_or(NotOne::None)
    }
}

/// Why a prefix does not identify a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotOne {
    /// No version matches.
    None,
    /// Several versions match.
    Several,
}

#[cfg(test)]
mod tests;
