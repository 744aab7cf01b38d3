//! The history: earlier versions of the configuration.
//!
//! **Invariant:** bounded by number, by bytes and by age, and never without the newest version, the one before it and the one
//! that is pinned: there is always something to go back to.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use imbl::Vector;
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
            let is_pinned = self.versions.front().is_some_and(|it| Some(it.root) == self.pinned);
            let oldest = usize::from(is_pinned);
            if self.versions.len() <= ALWAYS + oldest || !self.is_too_much(oldest, &version) {
                return;
            }
            self.bytes -= self.versions.remove(oldest).cost();
        }
    }

    fn is_too_much(&self, place: usize, newest: &PastVersion) -> bool {
        let Bounds { count, bytes, age } = self.bounds;
        // A version that was compiled while a pin was in force replaced none that was offered.
        let is_released = self.versions.get(place).is_some_and(|it| it.released);
        let next = self.versions.iter().skip(place + 1).find(|it| it.released || !is_released);
        let replaced = next.map(|next| next.age(newest));
        self.versions.len() > count || self.bytes > bytes || replaced.is_some_and(|since| since > age)
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
mod tests {
    use super::*;

    fn version(seq: u64, root: [u8; 16], bytes: usize, hours: u64) -> PastVersion {
        PastVersion {
            seq: Seq(seq),
            root: Root(root),
            snapshot: Snapshot::default(),
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3600),
            made: None,
            cause: "test".into(),
            origin: Origin::default(),
            changed: 1,
            bytes,
            released: true,
        }
    }

    fn seqs(history: &History) -> Vec<u64> {
        history.newest_first().map(|version| version.seq.0).collect()
    }

    const BOUNDS: Bounds = Bounds { count: 10, bytes: 1 << 20, age: Duration::from_secs(24 * 3600) };

    #[test]
    fn bounded_by_number_and_bytes() {
        let mut history = History::new(BOUNDS);
        for seq in 0..15 {
            history.push(version(seq, [seq as u8; 16], 10, 1));
        }
        assert_eq!((history.len(), history.bytes()), (10, (10 + VERSION + CHANGE) * 10));

        history.push(version(20, [1; 16], 1 << 20, 1));
        assert_eq!(seqs(&history), [20, 14], "there is something to go back to, however large the newest is");
        history.push(version(21, [2; 16], 0, 1));
        assert_eq!(seqs(&history), [21, 20]);
    }

    /// Nothing changed for a month, then something broke: the good version must still be there.
    #[test]
    fn a_version_is_as_old_as_what_took_its_place() {
        let mut history = History::new(BOUNDS);
        for (seq, hours) in [(1, 0), (2, 1), (3, 720), (4, 721)] {
            history.push(version(seq, [seq as u8; 16], 0, hours));
        }
        assert_eq!(seqs(&history), [4, 3, 2]);
        history.push(version(5, [5; 16], 0, 745));
        assert_eq!(seqs(&history), [5, 4, 3]);
    }

    /// A clock that was ten years ahead for a moment left the newest two.
    #[test]
    fn a_clock_that_is_set_makes_no_version_old() {
        let start = shared::clock::now();
        let made = |seq: u64, hours: u64, after: u64| PastVersion {
            made: Some(start + Duration::from_secs(after * 3600)),
            ..version(seq, [seq as u8; 16], 0, hours)
        };
        let mut history = History::new(BOUNDS);
        for (seq, after) in [(1, 0), (2, 1), (3, 2)] {
            history.push(made(seq, after, after));
        }
        history.push(made(4, 87_600, 3));
        assert_eq!(seqs(&history), [4, 3, 2, 1]);
        history.push(made(5, 4, 26));
        assert_eq!(seqs(&history), [5, 4, 3, 2], "a day after the first was replaced");
        // Of an earlier process: there is only the wall clock.
        let mut history = History::new(BOUNDS);
        [(1, 0), (2, 1), (3, 2)]
            .into_iter()
            .for_each(|(seq, hours)| history.push(version(seq, [1; 16], 0, hours)));
        history.push(made(4, 26, 0));
        assert_eq!(seqs(&history), [4, 3, 2]);
    }

    /// A pinned version is older than all that are compiled meanwhile, and is the one that an operator knows to be
    /// good.
    #[test]
    fn a_version_that_is_pinned_stays_and_is_as_old_as_what_took_its_place() {
        let mut history = History::new(BOUNDS);
        history.push(version(1, [1; 16], 0, 0));
        history.push(version(2, [2; 16], 0, 1));
        history.pin(Some(Root([2; 16])));
        let held_back = |seq| PastVersion { released: false, ..version(seq, [seq as u8; 16], 0, 100 * seq) };
        (3..30).for_each(|seq| history.push(held_back(seq)));
        assert_eq!(seqs(&history), [29, 28, 2]);
        // The end of the pin.
        history.push(version(30, [29; 16], 0, 2_990));
        history.pin(None);
        history.push(version(31, [31; 16], 0, 3_000));
        assert_eq!(seqs(&history), [31, 30, 29, 2], "it was in force until ten hours ago");
        history.push(version(32, [32; 16], 0, 3_015));
        assert_eq!(seqs(&history), [32, 31, 30]);
    }

    #[test]
    fn what_this_process_made_stays_and_so_does_what_is_pinned_of_it() {
        let mut history = History::new(BOUNDS);
        history.push(version(0, [9; 16], 7, 0));
        history.push(version(1, [1; 16], 0, 1));
        history.pin(Some(Root([1; 16])));
        history.push(version(2, [2; 16], 0, 2));
        let mut kept = history.of_this_process();
        assert_eq!((seqs(&kept), kept.bytes()), (vec![2, 1], 2 * (VERSION + CHANGE)));
        (3..30).for_each(|seq| kept.push(version(seq, [seq as u8; 16], 0, 100 * seq)));
        assert_eq!(seqs(&kept), [29, 28, 1], "the pinned one");
    }

    #[test]
    fn digits_name_one_version_or_none() {
        let mut history = History::default();
        history.push(version(1, [0xab; 16], 0, 1));
        history.push(version(2, [0xac; 16], 0, 1));
        history.push(version(3, [0xab; 16], 0, 1));
        assert_eq!(history.find("ababab").unwrap().seq, Seq(3));
        assert_eq!(history.find("a").unwrap_err(), NotOne::Several);
        assert_eq!(history.find("ffffff").unwrap_err(), NotOne::None);
    }
}
