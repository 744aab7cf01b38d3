//! A proxy's end of the stream without I/O, for the simulator and the load tests of `integration-tests`: the real
//! session, with or without the real tables, and nothing that waits.
//!
//! **Invariant:** no decisions are made here.

mod follower;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use shared::clock;
use shared::delta::Removal;
use shared::entry::Entry;
use shared::kind::{Lane, ResourceKey};
use shared::proto::config::{ControlMessage, ProxyMessage};
use shared::snapshot::{BUCKETS, Snapshot};
use shared::version::Seq;

use crate::journal::StoredLane;
use crate::subscribe::session::{Actions, Identity, Session};
use crate::table::apply::Audit;
use crate::table::{Action, Match, Writer};

pub use follower::{Follower, States};

/// One proxy process.
#[derive(Debug)]
pub struct Proxy {
    session: Session,
    writer: Writer,
}

/// What a proxy's journal holds: one state that it was in.
#[derive(Clone, Debug)]
pub struct Kept {
    config: StoredLane,
    live: StoredLane,
}

/// The reaction of a proxy to a message.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reaction {
    /// Its replies.
    pub answers: Vec<ProxyMessage>,
    /// It ends the stream, because of this error.
    pub fault: Option<String>,
    /// It was asked to move to another replica after this delay.
    pub moves: Option<Duration>,
}

impl Proxy {
    /// A process that has just started, without state.
    pub fn new(id: &str) -> Self {
        let identity = Identity {
            proxy_id: id.to_owned(),
            node: "node".to_owned(),
            group: "default".to_owned(),
            ..Identity::default()
        };
        Self { session: Session::new(identity, clock::now), writer: Writer::new() }
    }

    /// A process that has just started, from what the journal of an earlier one holds.
    pub fn from_kept(id: &str, kept: &Kept) -> Self {
        let mut proxy = Self::new(id);
        // LIVE first: a table is never published before its endpoints.
        for (lane, stored) in [(Lane::Live, &kept.live), (Lane::Config, &kept.config)] {
            proxy.writer.apply(proxy.writer.first(lane, stored.has.clone()));
            proxy.session.resume(lane, stored.position, true);
        }
        proxy
    }

    /// What its journal is handed now; `None`: a proxy cannot start from what it has.
    pub fn kept(&self) -> Option<Kept> {
        let places = self.session.places().filter(|_| self.session.is_welcome())?;
        let lane = |lane, position| StoredLane::of(&self.writer, lane, position);
        Some(Kept { config: lane(Lane::Config, places.config), live: lane(Lane::Live, places.live) })
    }

    /// Begins a stream.
    pub fn hello(&mut self) -> ProxyMessage {
        self.session.hello(&self.writer)
    }

    /// Processes a message.
    pub fn on(&mut self, message: ControlMessage) -> Reaction {
        reaction(self.session.on(message, &mut self.writer))
    }

    /// Simulates a fault: its state changes without any message.
    pub fn differ(
        &mut self,
        lane: Lane,
        up: Vec<Arc<Entry>>,
        removed: impl IntoIterator<Item = ResourceKey>,
    ) {
        let removed: Vec<_> = removed.into_iter().map(|key| Removal { key, gone: true }).collect();
        match lane {
            Lane::Config => self.writer.apply_config(up, &removed),
            Lane::Live => self.writer.apply_live(up, &removed),
        }
    }

    /// Its resources on a lane.
    pub fn has(&self, lane: Lane) -> &Snapshot {
        self.writer.has(lane)
    }

    /// Differences between what workers use and what it has, all of which are repaired.
    pub fn audit(&mut self) -> Vec<String> {
        let mut audit = Audit::default();
        let mut faults = Vec::new();
        for _ in 0..BUCKETS {
            faults.extend(audit.step(&mut self.writer));
        }
        faults.into_iter().map(|(key, fault)| format!("{key}: {}", fault.as_str())).collect()
    }

    /// Number of its resources that cannot be served.
    pub fn refused(&self, lane: Lane) -> usize {
        self.writer.refused(lane).count()
    }

    /// Its position on a lane.
    pub fn seq(&self, lane: Lane) -> Seq {
        self.session.seq(lane)
    }

    /// Whether both lanes were complete once: from then on it serves.
    pub fn is_complete(&self) -> bool {
        self.session.is_complete()
    }

    /// The tables of another process that has the same.
    #[must_use]
    pub fn rebuilt(&self) -> Self {
        let mut other = Self::new("rebuilt");
        for lane in Lane::ALL {
            other.writer.apply(other.writer.first(lane, self.has(lane).clone()));
        }
        other
    }

    /// Where a request to the host goes for `/`: the Service's name, and its endpoints. `None`: nowhere.
    pub fn endpoints_at(&self, host: &str) -> Option<(String, Vec<SocketAddr>)> {
        let table = self.writer.tables().current();
        match table.host(host)?.route(b"/", &shared::pattern::Steps::new()) {
            Match::Path(path) => match &path.action {
                Action::Backend(upstream) => {
                    let set = upstream.cell.endpoints();
                    let addresses = set.list.iter().map(|endpoint| endpoint.address).collect();
                    Some((path.service().to_owned(), addresses))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

fn reaction(actions: Actions) -> Reaction {
    let fault = actions.close.map(|close| close.to_string());
    Reaction { answers: actions.say, fault, moves: actions.moves.map(|(after, _)| after) }
}
