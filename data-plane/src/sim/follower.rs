//! A proxy without traffic: the real session, and only as much of the resources as their roots are computed from.
//!
//! A thousand of them fit on one machine, because followers with the same state share it: see [`States`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use shared::clock;
use shared::delta::Removal;
use shared::entry::Entry;
use shared::kind::{Lane, ResourceKey};
use shared::proto::config::{ControlMessage, ProxyMessage};
use shared::snapshot::Snapshot;
use shared::version::{Root, Seq};

use super::{Reaction, reaction};
use crate::subscribe::session::{Holdings, Identity, Session};
use crate::table::apply::Refused;

/// Number of states that are remembered for each lane, enough for followers that are close to each other.
const REMEMBERED: usize = 8;

/// The resources of a follower.
#[derive(Debug, Default)]
struct Bare {
    config: Snapshot,
    live: Snapshot,
}

impl Bare {
    fn changed(
        &self,
        lane: Lane,
        up: Vec<Arc<Entry>>,
        removed: impl IntoIterator<Item = ResourceKey>,
    ) -> (Lane, Snapshot) {
        let mut has = self.has(lane).clone();
        has.change(up, removed);
        (lane, has)
    }
}

impl Holdings for Bare {
    type Change = (Lane, Snapshot);

    fn has(&self, lane: Lane) -> &Snapshot {
        match lane {
            Lane::Config => &self.config,
            Lane::Live => &self.live,
        }
    }

    fn refused(&self, _: Lane) -> impl Iterator<Item = (&ResourceKey, &Refused)> {
        std::iter::empty()
    }

    fn config_of(&self, up: Vec<Arc<Entry>>) -> Self::Change {
        self.config_from(Snapshot::default(), up, Vec::new())
    }

    fn config_from(&self, mut set: Snapshot, up: Vec<Arc<Entry>>, removed: Vec<Removal>) -> Self::Change {
        set.change(up, removed.into_iter().map(|removal| removal.key));
        (Lane::Config, set)
    }

    fn config_after(&self, up: Vec<Arc<Entry>>, removed: Vec<Removal>) -> Self::Change {
        self.changed(Lane::Config, up, removed.into_iter().map(|removal| removal.key))
    }

    fn live_of(&self, up: Vec<Arc<Entry>>, brought: impl Fn(&ResourceKey) -> bool) -> Self::Change {
        let lacks = self.live.iter().map(|entry| entry.key.clone()).filter(|key| !brought(key));
        self.changed(Lane::Live, up, lacks)
    }

    fn live_differing(&self, up: Vec<Arc<Entry>>, removed: &[Removal]) -> Self::Change {
        self.live_after(up, removed)
    }

    fn live_after(&self, up: Vec<Arc<Entry>>, removed: &[Removal]) -> Self::Change {
        self.changed(Lane::Live, up, removed.iter().map(|removal| removal.key.clone()))
    }

    fn leads_to((_, has): &Self::Change) -> Root {
        has.root()
    }

    fn apply(&mut self, (lane, has): Self::Change) {
        match lane {
            Lane::Config => self.config = has,
            Lane::Live => self.live = has,
        }
    }

    fn settle(&mut self) {}

    fn mark(&self) -> u64 {
        0
    }

    fn leave(&mut self, _: u64) {}
}

/// Recent states of followers, each stored once. Every follower computes its own roots from the received bytes; only
/// then does it use the shared copy.
#[derive(Debug, Default)]
pub struct States {
    config: VecDeque<(Root, Snapshot)>,
    live: VecDeque<(Root, Snapshot)>,
}

impl States {
    fn share(&mut self, lane: Lane, root: Root, has: &mut Snapshot) {
        let known = match lane {
            Lane::Config => &mut self.config,
            Lane::Live => &mut self.live,
        };
        if let Some((_, there)) = known.iter().find(|(other, _)| *other == root) {
            has.clone_from(there);
            return;
        }
        known.push_front((root, has.clone()));
        known.truncate(REMEMBERED);
    }
}

/// One proxy process.
#[derive(Debug)]
pub struct Follower {
    session: Session,
    has: Bare,
    roots: [Root; 2],
}

impl Follower {
    /// A process that has just started, without state.
    pub fn new(id: &str, node: &str, group: &str) -> Self {
        let identity = Identity {
            proxy_id: id.to_owned(),
            node: node.to_owned(),
            group: group.to_owned(),
            ..Identity::default()
        };
        let has = Bare::default();
        let roots = [Lane::Config, Lane::Live].map(|lane| has.root(lane));
        Self { session: Session::new(identity, clock::now), has, roots }
    }

    /// Begins a stream.
    pub fn hello(&mut self) -> ProxyMessage {
        self.session.hello(&self.has)
    }

    /// Processes a message, and shares the resulting state with others that have the same.
    pub fn on(&mut self, message: ControlMessage, states: &mut States) -> Reaction {
        let done = reaction(self.session.on(message, &mut self.has));
        for lane in [Lane::Config, Lane::Live] {
            let root = self.has.root(lane);
            let known = &mut self.roots[usize::from(lane == Lane::Live)];
            if *known != root {
                *known = root;
                let has = match lane {
                    Lane::Config => &mut self.has.config,
                    Lane::Live => &mut self.has.live,
                };
                states.share(lane, root, has);
            }
        }
        done
    }

    /// The root of a lane.
    pub fn root(&self, lane: Lane) -> Root {
        self.roots[usize::from(lane == Lane::Live)]
    }

    /// Number of its resources on a lane.
    pub fn count(&self, lane: Lane) -> usize {
        self.has.has(lane).len()
    }

    /// Its position on a lane.
    pub fn seq(&self, lane: Lane) -> Seq {
        self.session.seq(lane)
    }

    /// Whether the Welcome of this stream has arrived.
    pub fn is_welcome(&self) -> bool {
        self.session.is_welcome()
    }

    /// Whether it has reached the position announced at the beginning of its stream, and was complete once.
    pub fn is_in_sync(&self) -> bool {
        self.session.has_arrived()
    }

    /// How long the control plane may be silent; `None` until it has said.
    pub fn silence_limit(&self) -> Option<Duration> {
        self.session.silence_limit()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shared::kind::Kind;

    use super::*;

    fn snapshot(body: &'static str) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let key = ResourceKey::new(Kind::Endpoints, "ns/e");
        snapshot.insert(Arc::new(Entry::from_body(key, 1, Bytes::from_static(body.as_bytes()))));
        snapshot
    }

    #[test]
    fn followers_with_equal_state_share_it() {
        let mut states = States::default();
        let (mut one, mut two, mut other) = (snapshot("a"), snapshot("a"), snapshot("b"));
        for has in [&mut one, &mut two, &mut other] {
            let root = has.root();
            states.share(Lane::Live, root, has);
        }
        let first = |has: &Snapshot| Arc::as_ptr(has.iter().next().unwrap());
        assert_eq!(first(&one), first(&two));
        assert_ne!(first(&one), first(&other));
        assert_eq!(states.live.len(), 2);
        assert!(states.config.is_empty());
    }
}
