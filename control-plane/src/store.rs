//! What is offered to proxies: both lanes, versioned, with their history.
//!
//! One writer (the pipeline) commits; everybody else takes the newest [`Head`] from a watch channel, in O(1), and may
//! keep it as long as it likes.
//!
//! **Invariant:** a head is one moment of both lanes, and its CONFIG says which LIVE state it relies on.

mod frame;
mod history;
mod journal;
mod lane;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use shared::delta::Delta;
use shared::kind::Lane;
use shared::version::{Lineage, Root, Seq};
use tokio::sync::{broadcast, watch};

pub use frame::{Chunks, Frame};
pub use history::{Bounds, History, NotOne, PastVersion};
pub use journal::Journal;
use lane::LaneLog;
pub use lane::LaneState;

use crate::origin::Origin;

/// Notes that a slow watcher may lag behind before it loses some.
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
    /// Versions of the configuration that were.
    pub history: History,
}

impl Head {
    /// One of the lanes.
    pub fn lane(&self, lane: Lane) -> &LaneState {
        match lane {
            Lane::Config => &self.config,
            Lane::Live => &self.live,
        }
    }

    /// Whether there is anything to offer: the first lists of all kinds are in.
    pub fn is_ready(&self) -> bool {
        self.config.seq > Seq::default()
    }
}

/// One commit, for those who wait until proxies have acknowledged it.
#[derive(Clone, Debug)]
pub struct Note {
    /// CONFIG's place in the log after it.
    pub config_seq: Seq,
    /// LIVE's place in the log after it.
    pub live_seq: Seq,
    /// The CONFIG root after it.
    pub version: Root,
    /// Whether the configuration itself changed.
    pub config: bool,
    /// What changed, one line.
    pub cause: Arc<str>,
    /// Resources that changed.
    pub changed: usize,
    /// When.
    pub at: Instant,
}

/// What is to be committed.
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
}

/// The reading side. A clone is cheap.
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

    /// The newest head, and word of each newer one.
    pub fn heads(&self) -> watch::Receiver<Arc<Head>> {
        self.heads.clone()
    }

    /// Commits from now on. Who lags loses the oldest.
    pub fn notes(&self) -> broadcast::Receiver<Arc<Note>> {
        self.notes.subscribe()
    }
}

/// The writing side: there is one.
#[derive(Debug)]
pub struct Store {
    lineage: Lineage,
    config: LaneLog,
    live: LaneLog,
    history: History,
    journal: Option<Journal>,
    heads: watch::Sender<Arc<Head>>,
    notes: broadcast::Sender<Arc<Note>>,
}

impl Store {
    /// An empty store of a process that starts, and its reading side.
    pub fn new(lineage: Lineage, now: Instant) -> (Self, Published) {
        let config = LaneLog::new(Lane::Config, now);
        let live = LaneLog::new(Lane::Live, now);
        let (notes, _) = broadcast::channel(NOTES);
        let (heads, receiver) = watch::channel(Arc::new(Head {
            lineage,
            config: config.state.clone(),
            live: live.state.clone(),
            history: History::default(),
        }));
        let published = Published { heads: receiver, notes: notes.clone() };
        let store = Self { lineage, config, live, history: History::default(), journal: None, heads, notes };
        (store, published)
    }

    /// Remembers so much from now on. Before the first commit.
    pub fn bound(&mut self, bounds: Bounds) {
        self.history = History::new(bounds);
    }

    /// Goes on with a history of processes before, and keeps it on disk from now on. Before the first commit.
    pub fn remember(&mut self, journal: Journal, history: History) {
        self.journal = Some(journal);
        self.history = history;
    }

    /// Makes the next state of each lane that changes and publishes both as one head. Returns how many resources
    /// changed; with 0 nothing was published.
    ///
    /// The first commit is one of both lanes even where LIVE has nothing: "has everything" and "has nothing yet" differ.
    pub fn commit(&mut self, changes: Changes, now: Instant, time: SystemTime) -> usize {
        let first = self.config.state.seq == Seq::default();
        let Changes { config, live, cause, origin } = changes;
        let config = self.config.effective(config);
        let live = self.live.effective(live);
        let changed = config.len() + live.len();
        let config_changes = first || !config.is_empty();
        if first || !live.is_empty() {
            self.live.commit(live, now);
        } else if !config_changes {
            return 0;
        }
        let cause: Arc<str> = cause.into();
        if config_changes {
            self.commit_config(config, &cause, origin, now, time);
        }
        self.publish(Note {
            config_seq: self.config.state.seq,
            live_seq: self.live.state.seq,
            version: self.config.state.root,
            config: config_changes,
            cause,
            changed,
            at: now,
        });
        changed
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
        now: Instant,
        time: SystemTime,
    ) {
        let first = self.config.state.seq == Seq::default();
        let mut changed = delta.len();
        let bytes = delta.up.iter().map(|entry| entry.wire_size()).sum();
        self.config.commit(delta, now);
        self.config.state.relies_on = self.live.state.seq;
        let state = &self.config.state;
        let before = self.history.newest().map(|newest| newest.snapshot.clone());
        if first && let Some(before) = &before {
            if before.root() == state.root {
                self.history.adopt(state.seq);
                return;
            }
            changed = Delta::between(before, &state.snapshot).len();
        }
        self.history.push(PastVersion {
            seq: state.seq,
            root: state.root,
            snapshot: state.snapshot.clone(),
            time,
            cause: Arc::clone(cause),
            origin,
            changed,
            bytes,
        });
        if let Some(journal) = &self.journal {
            journal.note(before, &self.history);
        }
    }

    fn publish(&self, note: Note) {
        self.heads.send_replace(Arc::new(Head {
            lineage: self.lineage,
            config: self.config.state.clone(),
            live: self.live.state.clone(),
            history: self.history.clone(),
        }));
        // Nobody listening is fine.
        let _ = self.notes.send(Arc::new(note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::entry::Entry;
    use shared::kind::{Kind, ResourceKey};

    fn up(kind: Kind, key: &str, body: &'static str) -> Delta {
        Delta {
            up: vec![Arc::new(Entry::from_body(ResourceKey::new(kind, key), 1, body.into()))],
            removed: Vec::new(),
        }
    }

    fn commit(store: &mut Store, config: Delta, live: Delta) -> usize {
        let changes = Changes { config, live, cause: "test".to_owned(), ..Changes::default() };
        store.commit(changes, shared::clock::now(), shared::clock::wall())
    }

    #[test]
    fn lanes_count_apart_and_config_says_what_it_relies_on() {
        let (mut store, published) = Store::new(Lineage([1; 16]), shared::clock::now());
        let mut notes = published.notes();
        assert!(!published.head().is_ready());

        commit(&mut store, up(Kind::Host, "_", "a"), Delta::default());
        let head = published.head();
        assert!(head.is_ready());
        assert_eq!((head.config.seq, head.live.seq), (Seq(1), Seq(1)));

        commit(&mut store, Delta::default(), up(Kind::Endpoints, "a/b", "1"));
        commit(&mut store, Delta::default(), up(Kind::Endpoints, "a/b", "2"));
        commit(&mut store, up(Kind::Host, "_", "b"), Delta::default());
        let head = published.head();
        assert_eq!((head.config.seq, head.live.seq), (Seq(2), Seq(3)));
        assert_eq!(head.config.relies_on, Seq(3));
        assert_eq!(head.history.len(), 2);

        assert_eq!(commit(&mut store, up(Kind::Host, "_", "b"), Delta::default()), 0);
        assert_eq!(published.head().config.seq, Seq(2));
        let configs: Vec<_> = std::iter::from_fn(|| notes.try_recv().ok()).map(|note| note.config).collect();
        assert_eq!(configs, [true, false, false, true]);
    }
}
