//! The state of a fleet: which proxies are connected and up to date, and what was measured.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use data_plane::sim::States;
use shared::kind::Lane;
use shared::version::Root;
use tokio::sync::Notify;

use super::edits::Edits;
use super::figures::Figures;

/// Shared by all proxies of a fleet.
#[derive(Debug, Default)]
pub struct World {
    board: Mutex<Board>,
    news: Notify,
}

/// Figures of a fleet.
#[derive(Debug, Default)]
pub struct Board {
    /// Proxies with an accepted stream.
    pub connected: usize,
    /// Those of them that are up to date.
    pub in_sync: usize,
    /// From the first packet to the Welcome.
    pub connects: Figures,
    /// From the first packet until both lanes are complete.
    pub syncs: Figures,
    /// From the end of a stream until both lanes are complete again.
    pub outages: Figures,
    /// How lanes of streams began.
    pub starts: BTreeMap<String, u64>,
    /// How streams ended that were not ended by this side.
    pub ends: BTreeMap<String, u64>,
    /// Acknowledged batches.
    pub batches: u64,
    /// Resources that were added or removed in them.
    pub changes: u64,
    /// The part of these, and of the bytes of all messages, that came on a stream before its proxy was in sync.
    pub caught_up: CaughtUp,
    /// Edits under way.
    pub edits: Edits,
    /// Proxies that are connected, by control plane.
    places: HashMap<SocketAddr, usize>,
    /// Number of proxies per root.
    roots: [HashMap<Root, usize>; 2],
    pub(super) states: States,
}

/// What was measured of a fleet for a time; the words are those of [`Board`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "see Board")]
pub struct Tally {
    pub connects: Figures,
    pub syncs: Figures,
    pub outages: Figures,
    pub starts: BTreeMap<String, u64>,
    pub ends: BTreeMap<String, u64>,
    pub caught_up: CaughtUp,
}

/// The cost of bringing proxies up to date.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CaughtUp {
    /// Resources that came or went.
    pub changes: u64,
    /// Bytes of messages.
    pub bytes: u64,
}

impl Board {
    /// Number of proxies with exactly this root on a lane.
    pub fn at(&self, lane: Lane, root: Root) -> usize {
        self.roots[place(lane)].get(&root).copied().unwrap_or(0)
    }

    /// The root that most proxies have on a lane.
    pub fn root(&self, lane: Lane) -> Option<Root> {
        let most = self.roots[place(lane)].iter().max_by_key(|(_, count)| **count);
        most.map(|(root, _)| *root)
    }

    /// How many proxies are connected to a control plane.
    pub fn connected_to(&self, control_plane: SocketAddr) -> usize {
        self.places.get(&control_plane).copied().unwrap_or(0)
    }

    /// The measurements since the last call. The current state is kept.
    pub fn take(&mut self) -> Tally {
        Tally {
            connects: std::mem::take(&mut self.connects),
            syncs: std::mem::take(&mut self.syncs),
            outages: std::mem::take(&mut self.outages),
            starts: std::mem::take(&mut self.starts),
            ends: std::mem::take(&mut self.ends),
            caught_up: std::mem::take(&mut self.caught_up),
        }
    }

    pub(super) fn came(&mut self, control_plane: SocketAddr) {
        *self.places.entry(control_plane).or_default() += 1;
    }

    pub(super) fn left(&mut self, control_plane: SocketAddr) {
        if let Some(count) = self.places.get_mut(&control_plane) {
            *count -= 1;
        }
    }

    pub(super) fn moved(&mut self, lane: Lane, from: Option<Root>, to: Root) {
        let roots = &mut self.roots[place(lane)];
        if let Some(from) = from
            && let Some(count) = roots.get_mut(&from)
        {
            *count -= 1;
            if *count == 0 {
                roots.remove(&from);
            }
        }
        *roots.entry(to).or_default() += 1;
    }
}

impl World {
    /// The figures now.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies of a change.
    pub(super) fn tell(&self) {
        self.news.notify_waiters();
    }

    /// Waits until a condition holds, and returns when it did.
    pub async fn until(&self, mut is_so: impl FnMut(&mut Board) -> bool) -> Instant {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // From here on no notification is missed.
            news.as_mut().enable();
            if is_so(&mut self.board()) {
                return Instant::now();
            }
            news.await;
        }
    }
}

fn place(lane: Lane) -> usize {
    usize::from(lane == Lane::Live)
}
