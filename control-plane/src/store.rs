//! The store: the state that is offered to proxies; both lanes, versioned, with their history.
//!
//! One writer (the pipeline) commits; everybody else takes the newest [`Head`] from a watch channel, in O(1), and may
//! keep it as long as needed.
//!
//! CONFIG is offered as compiled, or as the pinned version: see `view`.
//!
//! **Invariant:** a head is one moment of both lanes, and its CONFIG says which LIVE state it relies on.

mod commits;
mod frame;
mod history;
mod journal;
mod lane;
mod source;
mod view;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use shared::delta::Delta;
use shared::kind::Lane;
use shared::snapshot::Snapshot;
use shared::version::{Lineage, Root, Seq};
use tokio::sync::{broadcast, watch};

pub use commits::Commits;
pub use frame::{Chunks, Frame};
pub use history::{Bounds, History, NotOne, PastVersion};
pub use journal::Journal;
use lane::LaneLog;
pub use lane::LaneState;
use view::{Step, View};

use crate::origin::Origin;
use crate::pin::Pin;
use crate::placement::LogPositions;

/// Capacity of the broadcast of notes: a watcher that lags further loses the oldest.
const NOTES: usize = 1_024;

/// Everything that is offered at one moment.
#[derive(Clone, Debug)]
pub struct Head {
    /// This process' log.
    pub lineage: Lineage,
    /// Settings, listeners, hosts, routes, backends.
    pub config: LaneState,
    /// Endpoints, certificates, secret material.
    pub live: LaneState,
    /// Earlier versions of the configuration.
    pub history: History,
    /// CONFIG as compiled: what is offered if no pin is in force.
    pub compiled: Snapshot,
    /// The pin that is in force.
    pub pin: Option<Arc<Pin>>,
    /// The revision of the stored pin, also if it cannot be read or is not in force yet.
    pub on_record: Option<Arc<str>>,
    /// When the last commits were made.
    pub commits: Commits,
}

impl Head {
    /// Number of resources in which the compiled state differs from the offered one.
    pub fn unreleased(&self) -> usize {
        match self.pin {
            Some(_) => Delta::between(&self.config.snapshot, &self.compiled).len(),
            None => 0,
        }
    }

    /// The positions from which on everything compiled so far is offered.
    pub fn log_positions(&self) -> LogPositions {
        LogPositions {
            config: self.config.seq,
            live: self.live.seq,
            version: self.compiled.root(),
            is_pinned: self.pin.is_some(),
        }
    }

    /// One of the lanes.
    pub fn lane(&self, lane: Lane) -> &LaneState {
        match lane {
            Lane::Config => &self.config,
            Lane::Live => &self.live,
        }
    }

    /// Whether there is anything to offer: the first lists of all kinds are complete.
    pub fn is_ready(&self) -> bool {
        self.config.seq > Seq::default()
    }
}

/// One commit, for tasks that wait until proxies have acknowledged it, if anything of it is offered.
#[derive(Clone, Debug)]
pub struct Note {
    /// CONFIG's position in the log after it.
    pub config_seq: Seq,
    /// LIVE's position in the log after it.
    pub live_seq: Seq,
    /// The CONFIG root after it.
    pub version: Root,
    /// Whether the configuration itself changed.
    pub config: bool,
    /// What changed, one line.
    pub cause: Arc<str>,
    /// Resources that changed.
    pub changed: usize,
    /// Resources of CONFIG that were compiled and are held back by a pin.
    pub held_back: usize,
    /// When the source first heard of the change.
    pub heard: Instant,
    /// When it was made.
    pub at: Instant,
}

impl Note {
    /// Whether anything that is offered changed: else everybody has it already.
    pub fn is_offered(&self) -> bool {
        self.config || self.changed > 0
    }
}

/// Input of a commit.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Of the CONFIG lane.
    pub config: Delta,
    /// Of the LIVE lane.
    pub live: Delta,
    /// What changed, one line.
    pub cause: String,
    /// The object that it names first.
    pub origin: Origin,
    /// The pin that is in force from now on.
    pub pin: Option<Arc<Pin>>,
    /// See [`Head::on_record`].
    pub on_record: Option<Arc<str>>,
    /// When the source first heard of the change; `None`: a timer caused it.
    pub heard: Option<Instant>,
}

/// Result of a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Number of CONFIG resources whose offered state changed.
    pub config: usize,
    /// The same for LIVE.
    pub live: usize,
    /// Number of CONFIG resources that were compiled and are held back by a pin.
    pub held_back: usize,
    /// Whether a pin was set, replaced or removed.
    pub is_pin_news: bool,
    /// What changed, one line.
    pub cause: Arc<str>,
}

/// Read access to the store. A clone is cheap.
#[derive(Clone, Debug)]
pub struct Published {
    heads: watch::Receiver<Arc<Head>>,
    notes: broadcast::Sender<Arc<Note>>,
}

impl Published {
    /// The newest head.
    pub fn head(&self) -> Arc<Head> {
        Arc::clone(&self.heads.borrow())
    }

    /// A receiver of the newest head and all later ones.
    pub fn heads(&self) -> watch::Receiver<Arc<Head>> {
        self.heads.clone()
    }

    /// Notes of commits from now on. A receiver that lags loses the oldest.
    pub fn notes(&self) -> broadcast::Receiver<Arc<Note>> {
        self.notes.subscribe()
    }
}

/// Write access to the store: there is one writer.
#[derive(Debug)]
pub struct Store {
    lineage: Lineage,
    config: LaneLog,
    live: LaneLog,
    view: View,
    on_record: Option<Arc<str>>,
    history: History,
    commits: Commits,
    journal: Option<Journal>,
    heads: watch::Sender<Arc<Head>>,
    notes: broadcast::Sender<Arc<Note>>,
}

impl Store {
    /// The empty store of a process that starts, and read access to it.
    pub fn new(lineage: Lineage, now: Instant) -> (Self, Published) {
        let config = LaneLog::new(Lane::Config, now);
        let live = LaneLog::new(Lane::Live, now);
        let (notes, _) = broadcast::channel(NOTES);
        let (heads, receiver) = watch::channel(Arc::new(Head {
            lineage,
            config: config.state.clone(),
            live: live.state.clone(),
            history: History::default(),
            compiled: Snapshot::default(),
            pin: None,
            on_record: None,
            commits: Commits::default(),
        }));
        let published = Published { heads: receiver, notes: notes.clone() };
        let (view, history, commits) = (View::default(), History::default(), Commits::default());
        let store = Self {
            lineage,
            config,
            live,
            view,
            on_record: None,
            history,
            commits,
            journal: None,
            heads,
            notes,
        };
        (store, published)
    }

    /// Sets the bounds of the history. Must be called before the first commit.
    pub fn bound(&mut self, bounds: Bounds) {
        self.history = History::new(bounds);
    }

    /// Continues the history of earlier processes, and keeps it on disk from now on. Must be called before the first
    /// commit.
    pub fn remember(&mut self, journal: Journal, history: History) {
        self.journal = Some(journal);
        self.history = history;
    }

    /// Computes the next state of each lane that changes, and publishes both as one head if anything differs.
    ///
    /// The first commit has both lanes even if LIVE is empty: "has everything" and "has nothing yet" differ.
    pub fn commit(&mut self, changes: Changes, now: Instant, time: SystemTime) -> Committed {
        let first = self.config.state.seq == Seq::default();
        let Changes { config, live, cause, origin, pin, on_record, heard } = changes;
        let is_record_news = std::mem::replace(&mut self.on_record, on_record.clone()) != on_record;
        let before = self.view.pin.clone();
        let Step { offered, held_back, is_pin_news } =
            self.view.step(&self.config.state.snapshot, config, pin);
        let live = view::effective(&self.live.state.snapshot, live);
        let cause: Arc<str> = cause.into();
        let mut done = Committed {
            config: offered.len(),
            live: live.len(),
            held_back: held_back.len(),
            is_pin_news,
            cause: Arc::clone(&cause),
        };
        let live_changes = first || !live.is_empty();
        if live_changes {
            self.live.commit(live, now);
        }
        if !held_back.is_empty() {
            self.remember_held_back(&held_back, cause, origin.clone(), (now, time));
        }
        let config_changes = first || !offered.is_empty();
        if is_pin_news {
            done.cause = self.pin_change(&offered, before.as_deref(), time);
        }
        if config_changes {
            let origin = if is_pin_news { Origin::default() } else { origin };
            self.commit_config(offered, &done.cause, origin, (now, time));
            self.view.settle(&self.config.state.snapshot);
        }
        // Only now, so that the commit that ends a pin does not drop the pinned version.
        self.history.pin(self.view.pin.as_ref().map(|pin| pin.version));
        if config_changes || live_changes {
            self.commits.push(self.config.state.seq, self.live.state.seq, now);
        }
        if config_changes || live_changes || is_pin_news || is_record_news || done.held_back > 0 {
            self.publish();
        }
        // What the pin itself does is not an edit that it holds back.
        let is_held_back = done.held_back > 0 && !is_pin_news;
        if config_changes || live_changes || is_held_back {
            self.note(config_changes, &done, heard.unwrap_or(now), now);
        }
        done
    }

    /// Describes a pin that was set or removed. `before`: the one that was in force.
    fn pin_change(&self, offered: &Delta, before: Option<&Pin>, time: SystemTime) -> Arc<str> {
        if let Some(pin) = &self.view.pin {
            return pin.to_string().into();
        }
        let ended = match before.filter(|pin| pin.until() <= time) {
            Some(pin) => format!("{} expired", pin.how.as_str()),
            None => "unpin".to_owned(),
        };
        let released = match offered.len() {
            1 => "1 resource".to_owned(),
            count => format!("{count} resources"),
        };
        format!("{ended}: {released} released").into()
    }

    /// What is offered now.
    pub fn head(&self) -> Arc<Head> {
        Arc::clone(&self.heads.borrow())
    }

    /// The newest version: the CONFIG root.
    pub fn version(&self) -> Root {
        self.config.state.root
    }

    fn commit_config(
        &mut self,
        delta: Delta,
        cause: &Arc<str>,
        origin: Origin,
        (now, time): (Instant, SystemTime),
    ) {
        let first = self.config.state.seq == Seq::default();
        let version = PastVersion {
            seq: self.config.state.seq.next(),
            changed: delta.len(),
            bytes: delta.wire_size(),
            time,
            made: Some(now),
            cause: Arc::clone(cause),
            origin,
            released: true,
            skipped: 0,
            root: Root::default(),
            snapshot: Snapshot::default(),
        };
        self.config.commit(delta, now);
        self.config.state.relies_on = self.live.state.seq;
        let state = &self.config.state;
        let version = PastVersion { root: state.root, snapshot: state.snapshot.clone(), ..version };
        self.remember_version(version, first);
    }

    /// What is compiled while a pin is in force can be inspected, and pinned itself.
    fn remember_held_back(
        &mut self,
        delta: &Delta,
        cause: Arc<str>,
        origin: Origin,
        (now, time): (Instant, SystemTime),
    ) {
        let first = self.config.state.seq == Seq::default();
        let compiled = &self.view.compiled;
        let version = PastVersion {
            seq: Seq::default(),
            root: compiled.root(),
            snapshot: compiled.clone(),
            time,
            made: Some(now),
            cause,
            origin,
            changed: delta.len(),
            bytes: delta.wire_size(),
            released: false,
            skipped: 0,
        };
        self.remember_version(version, first);
    }

    /// `first`: if an earlier process stopped at this version, that entry is continued.
    fn remember_version(&mut self, mut version: PastVersion, first: bool) {
        let before = self.history.newest().map(|newest| newest.snapshot.clone());
        if first && self.history.adopt(&version) {
            return;
        }
        if first && let Some(before) = &before {
            version.changed = Delta::between(before, &version.snapshot).len();
        }
        self.history.push(version);
        if let Some(journal) = &mut self.journal {
            journal.note(before, &self.history);
        }
    }

    fn note(&self, config: bool, done: &Committed, heard: Instant, now: Instant) {
        // It does not matter if there are no receivers.
        let _ = self.notes.send(Arc::new(Note {
            config_seq: self.config.state.seq,
            live_seq: self.live.state.seq,
            version: self.config.state.root,
            config,
            cause: Arc::clone(&done.cause),
            changed: done.config + done.live,
            held_back: if done.is_pin_news { 0 } else { done.held_back },
            heard,
            at: now,
        }));
    }

    fn publish(&self) {
        self.heads.send_replace(Arc::new(Head {
            lineage: self.lineage,
            config: self.config.state.clone(),
            live: self.live.state.clone(),
            history: self.history.clone(),
            compiled: self.view.compiled.clone(),
            pin: self.view.pin.clone(),
            on_record: self.on_record.clone(),
            commits: self.commits.clone(),
        }));
    }
}

#[cfg(test)]
mod tests;
