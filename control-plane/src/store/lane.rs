//! One lane's log: the newest state, and the order in which its resources changed.
//!
//! `by_seq` holds each key once, at the seq of its newest change. "What comes after the cursor 17" is therefore one
//! range scan, coalesced by construction, and a full sync is the same with a cursor of 0.
//!
//! **Invariant:** replaying everything after a cursor that is not below the horizon gives the newest state.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use imbl::OrdMap;
use shared::delta::{Delta, Removal};
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::snapshot::Snapshot;
use shared::version::{Root, Seq};

use super::frame::{Chunks, Frame, Span};

/// Minimum number of remembered removals.
const TOMBSTONES_MIN: usize = 10_000;
/// Maximum number of remembered removals, however young.
const TOMBSTONES_MAX: usize = 200_000;
/// How long removals are remembered at least, within that limit.
const TOMBSTONE_AGE: Duration = Duration::from_secs(600);

/// The newest change of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Change {
    Up(Arc<Entry>),
    Removed { gone: bool },
}

/// One commit of a lane, in the form that is sent to streams that are exactly one commit behind.
#[derive(Debug)]
struct LastCommit {
    delta: Delta,
    /// Encoded by the first stream that needs it.
    frames: OnceLock<Arc<[Frame]>>,
}

/// The state of a lane at one moment. Immutable; a clone is cheap and shares everything.
#[derive(Clone, Debug)]
pub struct LaneState {
    /// Which lane.
    pub lane: Lane,
    /// Position in the log. 0: nothing was committed yet.
    pub seq: Seq,
    /// Digest of `snapshot`.
    pub root: Root,
    /// All resources.
    pub snapshot: Snapshot,
    /// CONFIG: the LIVE seq that must be sent before this state. LIVE: 0.
    pub relies_on: Seq,
    /// When the newest commit was made.
    pub committed: Instant,
    /// Resources by kind, in the order of [`Kind::ALL`].
    counts: [usize; Kind::ALL.len()],
    by_seq: OrdMap<(Seq, ResourceKey), Change>,
    /// The seq of each key in `by_seq`.
    newest: OrdMap<ResourceKey, Seq>,
    horizon: Seq,
    last: Option<Arc<LastCommit>>,
    /// The start of a full sync: created by the first stream that needs one.
    full: Arc<OnceLock<Chunks>>,
}

impl LaneState {
    /// Chunks of a full sync that are encoded once for all streams. A stream that has not answered is sent no more than
    /// these, and so uses no memory of its own.
    pub const BEGUN: usize = 2;

    fn new(lane: Lane, now: Instant) -> Self {
        let snapshot = Snapshot::default();
        Self {
            lane,
            seq: Seq::default(),
            root: snapshot.root(),
            snapshot,
            relies_on: Seq::default(),
            committed: now,
            counts: [0; Kind::ALL.len()],
            by_seq: OrdMap::new(),
            newest: OrdMap::new(),
            horizon: Seq::default(),
            last: None,
            full: Arc::default(),
        }
    }

    /// Everything, as a batch that replaces whatever the proxy has.
    pub fn full(&self) -> Chunks {
        let begun = self.full.get_or_init(|| {
            let delta = Delta { up: self.snapshot.iter().cloned().collect(), removed: Vec::new() };
            Chunks::new(self.span(Seq::default()), delta).begin(Self::BEGUN)
        });
        begun.clone()
    }

    /// The batch that leads here from a proxy's state with the root `base`.
    pub fn differing(&self, base: Root, delta: Delta) -> Chunks {
        Chunks::new(Span { base: Some(base), ..self.span(Seq::default()) }, delta)
    }

    /// The changes after `cursor`, each key once; `None` if removals since then are not remembered, or if the cursor is
    /// not of this log.
    pub fn after(&self, cursor: Seq) -> Option<Chunks> {
        if !self.reaches(cursor) {
            return None;
        }
        let least = ResourceKey::new(Kind::Settings, "");
        let mut delta = Delta::default();
        for ((_, key), change) in self.by_seq.range((cursor.next(), least)..) {
            match change {
                Change::Up(entry) => delta.up.push(Arc::clone(entry)),
                Change::Removed { gone } => delta.removed.push(Removal { key: key.clone(), gone: *gone }),
            }
        }
        Some(Chunks::new(self.span(cursor), delta))
    }

    /// Whether [`Self::after`] can answer for this cursor.
    pub fn reaches(&self, cursor: Seq) -> bool {
        cursor > Seq::default() && cursor >= self.horizon && cursor <= self.seq
    }

    /// The frames of the newest commit, for streams that are exactly one commit behind. Encoded once, shared by all.
    pub fn last_frames(&self) -> Option<Arc<[Frame]>> {
        let last = self.last.as_ref()?;
        let frames = last.frames.get_or_init(|| {
            let from = Seq(self.seq.0 - 1);
            Chunks::new(self.span(from), last.delta.clone()).collect()
        });
        Some(Arc::clone(frames))
    }

    /// When a resource last changed or was removed: 0 if that is not remembered.
    pub fn changed(&self, key: &ResourceKey) -> Seq {
        self.newest.get(key).copied().unwrap_or_default()
    }

    /// When the resources whose keys have a prefix last changed, including removed ones for a time.
    pub fn changes(&self, kind: Kind, prefix: &str) -> impl Iterator<Item = (&ResourceKey, Seq)> {
        let from = ResourceKey::new(kind, prefix);
        let begins = move |key: &ResourceKey| key.kind == kind && key.key.starts_with(prefix);
        self.newest.range(from..).map(|(key, seq)| (key, *seq)).take_while(move |(key, _)| begins(key))
    }

    /// Number of resources of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.counts[place(kind)]
    }

    fn span(&self, from: Seq) -> Span {
        Span { lane: self.lane, from, to: self.seq, root_after: self.root, base: None }
    }
}

/// The mutable state of a lane, for the writer.
#[derive(Debug)]
pub(super) struct LaneLog {
    pub(super) state: LaneState,
    /// The removals in `by_seq`, the oldest first, with their times. A removal that is followed by a later change of
    /// its key is dropped from both at once, so that keys that come and go have no lasting cost.
    graves: BTreeMap<(Seq, ResourceKey), Instant>,
}

impl LaneLog {
    pub(super) fn new(lane: Lane, now: Instant) -> Self {
        Self { state: LaneState::new(lane, now), graves: BTreeMap::new() }
    }

    /// Commits the next state.
    pub(super) fn commit(&mut self, delta: Delta, now: Instant) {
        let seq = self.state.seq.next();
        for removal in &delta.removed {
            self.state.counts[place(removal.key.kind)] -= 1;
            self.put(seq, &removal.key, Change::Removed { gone: removal.gone });
            self.graves.insert((seq, removal.key.clone()), now);
        }
        for entry in &delta.up {
            if self.state.snapshot.get(&entry.key).is_none() {
                self.state.counts[place(entry.key.kind)] += 1;
            }
            self.put(seq, &entry.key, Change::Up(Arc::clone(entry)));
        }
        delta.apply(&mut self.state.snapshot);
        self.state.seq = seq;
        self.state.root = self.state.snapshot.root();
        self.state.committed = now;
        self.state.full = Arc::default();
        // Before the first commit there is no state that a proxy could have.
        self.state.last = (seq > Seq(1)).then(|| Arc::new(LastCommit { delta, frames: OnceLock::new() }));
        self.collect(now);
    }

    fn put(&mut self, seq: Seq, key: &ResourceKey, change: Change) {
        if let Some(before) = self.state.newest.insert(key.clone(), seq) {
            let place = (before, key.clone());
            self.state.by_seq.remove(&place);
            self.graves.remove(&place);
        }
        self.state.by_seq.insert((seq, key.clone()), change);
    }

    /// Drops removals that are old, while there are more than the minimum, and any that exceed the maximum. A cursor
    /// from before them gets a full sync.
    fn collect(&mut self, now: Instant) {
        let mut tombstones = self.graves.len();
        while let Some(oldest) = self.graves.first_entry() {
            let old = now.saturating_duration_since(*oldest.get()) > TOMBSTONE_AGE;
            if tombstones <= TOMBSTONES_MIN || (tombstones <= TOMBSTONES_MAX && !old) {
                return;
            }
            let (place, _) = oldest.remove_entry();
            self.state.newest.remove(&place.1);
            self.state.by_seq.remove(&place);
            self.state.horizon = place.0;
            tombstones -= 1;
        }
    }
}

/// A control plane makes no unknown kinds: those would share the last index.
fn place(kind: Kind) -> usize {
    Kind::ALL.iter().position(|known| *known == kind).unwrap_or(Kind::ALL.len() - 1)
}

#[cfg(test)]
mod tests;
