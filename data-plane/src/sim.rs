//! A proxy's end of the stream without its edges, for the simulator and the load of `integration-tests`: the real session
//! with the real tables, or without them, and nobody who waits.
//!
//! **Invariant:** nothing is decided here.

mod follower;

use std::sync::Arc;
use std::time::Duration;

use shared::clock;
use shared::delta::Removal;
use shared::entry::Entry;
use shared::kind::{Lane, ResourceKey};
use shared::proto::config::{ControlMessage, ProxyMessage};
use shared::snapshot::{BUCKETS, Snapshot};
use shared::version::Seq;

use crate::subscribe::session::{Actions, Identity, Session};
use crate::table::apply::Audit;
use crate::table::{Action, Match, Writer};

pub use follower::{Follower, States};

/// One process.
#[derive(Debug)]
pub struct Proxy {
    session: Session,
    writer: Writer,
}

/// What a proxy does after a message.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Said {
    /// Its answers.
    pub answers: Vec<ProxyMessage>,
    /// It ends the stream, for this fault.
    pub fault: Option<String>,
    /// It was asked to go on at another replica, after this.
    pub moves: Option<Duration>,
}

impl Proxy {
    /// A process that has just started, with nothing.
    pub fn new(id: &str) -> Self {
        let identity = Identity {
            proxy_id: id.to_owned(),
            node: "node".to_owned(),
            group: "default".to_owned(),
            ..Identity::default()
        };
        Self { session: Session::new(identity, clock::now), writer: Writer::new() }
    }

    /// Begins a stream.
    pub fn hello(&mut self) -> ProxyMessage {
        self.session.hello(&self.writer)
    }

    /// Takes in what came.
    pub fn on(&mut self, message: ControlMessage) -> Said {
        said(self.session.on(message, &mut self.writer))
    }

    /// What it has and serves is something else from now on, and nothing tells it: a fault of its own.
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

    /// What it has on a lane.
    pub fn has(&self, lane: Lane) -> &Snapshot {
        self.writer.has(lane)
    }

    /// What workers look at that is not what it has, all of which is set right.
    pub fn audit(&mut self) -> Vec<String> {
        let mut audit = Audit::default();
        let mut faults = Vec::new();
        for _ in 0..BUCKETS {
            faults.extend(audit.step(&mut self.writer));
        }
        faults.into_iter().map(|(key, fault)| format!("{key}: {}", fault.as_str())).collect()
    }

    /// How many resources it has and cannot serve.
    pub fn refused(&self, lane: Lane) -> usize {
        self.writer.refused(lane).count()
    }

    /// Where it is on a lane.
    pub fn seq(&self, lane: Lane) -> Seq {
        self.session.seq(lane)
    }

    /// Whether both lanes were complete once: from then on it serves.
    pub fn is_complete(&self) -> bool {
        self.session.is_complete()
    }

    /// Where a request to the host goes at `/`: the Service's name, and how many endpoints it has. `None`: nowhere.
    pub fn endpoints_at(&self, host: &str) -> Option<(String, usize)> {
        let table = self.writer.tables().current();
        match table.host(host)?.route(b"/", &shared::pattern::Steps::new()) {
            Match::Path(path) => match &path.action {
                Action::Backend(upstream) => {
                    Some((path.service.to_string(), upstream.cell.endpoints().list.len()))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

fn said(actions: Actions) -> Said {
    let fault = actions.close.map(|close| close.to_string());
    Said { answers: actions.say, fault, moves: actions.moves.map(|(after, _)| after) }
}
