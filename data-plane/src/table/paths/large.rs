//! The paths of a host that has more than a few, or paths that several Routes declare.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::resource::PathType;

use super::nodes::{Node, Nodes, Slot};
use super::{Declared, split};
use crate::table::host::{Match, PathEntry};

/// By text and kind.
type Contested = BTreeMap<(Box<str>, PathType), Vec<Arc<PathEntry>>>;

/// Looks up the path of a request by its hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Large {
    pub(super) nodes: Nodes,
    /// Lengths of prefix paths, trailing slash included, the longest first; with the number of prefixes of that
    /// length.
    pub(super) lengths: Box<[(usize, usize)]>,
    /// No node has a longer text, so longer paths need not be looked up whole.
    longest: usize,
    /// Paths that more than one Route declares, by Route. The control plane resolves conflicts, so normally there are
    /// none.
    contested: Option<Arc<Contested>>,
}

impl Large {
    /// The match of a path.
    pub(super) fn route(&self, path: &[u8]) -> Match<'_> {
        let (bare, ends_in_slash) = split(path);
        if bare.len() <= self.longest
            && let Some(node) = self.nodes.find(bare)
        {
            let found = if ends_in_slash { node.below() } else { node.equal() };
            if let Some(found) = found {
                return found;
            }
        }
        for (length, _) in &self.lengths {
            let Some(prefix) = path.get(..*length).and_then(|prefix| prefix.strip_suffix(b"/")) else {
                continue;
            };
            if let Some(entry) = self.nodes.find(prefix).and_then(Node::prefix) {
                return Match::Path(entry);
            }
        }
        Match::None
    }

    /// All paths, in no order.
    pub(super) fn declared(&self) -> impl Iterator<Item = Declared> {
        let first = self.nodes.iter().flat_map(Node::declared);
        let others = self.contested.iter().flat_map(|it| &**it).flat_map(|((_, kind), claims)| {
            claims.iter().skip(1).map(|entry| Declared { kind: *kind, entry: Arc::clone(entry) })
        });
        first.chain(others)
    }

    /// Sets or removes what a Route declares.
    pub(super) fn change(
        &mut self,
        text: &str,
        kind: PathType,
        route: &Arc<str>,
        entry: Option<Arc<PathEntry>>,
    ) {
        let (bare, ends_in_slash) = split(text.as_bytes());
        let slot = Slot::new(kind, ends_in_slash);
        let held = self.nodes.find(bare).and_then(|node| node.get(slot));
        let is_own = held.is_none_or(|held| held.route() == route);
        let first = match self.contested.is_none() && is_own {
            true => entry,
            false => {
                let held = held.cloned();
                self.contest((text.into(), kind), held, route, entry)
            }
        };
        let was_prefix = self.has_prefix(bare);
        self.nodes.set(bare, slot, first);
        self.longest = self.longest.max(bare.len());
        match (was_prefix, self.has_prefix(bare)) {
            (false, true) => self.count(bare.len() + 1, true),
            (true, false) => self.count(bare.len() + 1, false),
            (false, false) | (true, true) => {}
        }
    }

    /// Changes what a Route declares for a path that others may declare, too. Returns the first by Route.
    fn contest(
        &mut self,
        path: (Box<str>, PathType),
        held: Option<Arc<PathEntry>>,
        route: &Arc<str>,
        entry: Option<Arc<PathEntry>>,
    ) -> Option<Arc<PathEntry>> {
        let contested = self.contested.as_ref().and_then(|it| it.get(&path)).cloned();
        let is_contested = contested.is_some();
        let mut claims = contested.unwrap_or_else(|| held.into_iter().collect());
        claims.retain(|claim| claim.route() != route);
        if let Some(entry) = entry {
            let place = claims.partition_point(|claim| claim.route() < route);
            claims.insert(place, entry);
        }
        let first = claims.first().cloned();
        if claims.len() > 1 {
            Arc::make_mut(self.contested.get_or_insert_default()).insert(path, claims);
        } else if is_contested && let Some(contested) = &mut self.contested {
            let contested = Arc::make_mut(contested);
            contested.remove(&path);
            if contested.is_empty() {
                self.contested = None;
            }
        }
        first
    }

    fn has_prefix(&self, bare: &[u8]) -> bool {
        self.nodes.find(bare).is_some_and(|node| node.prefix().is_some())
    }

    /// Adds or removes one prefix of this length.
    fn count(&mut self, length: usize, more: bool) {
        let found = self.lengths.binary_search_by(|(other, _)| length.cmp(other));
        let mut lengths = std::mem::take(&mut self.lengths).into_vec();
        match (found, more) {
            (Ok(at), true) => lengths[at].1 += 1,
            (Ok(at), false) if lengths[at].1 == 1 => drop(lengths.remove(at)),
            (Ok(at), false) => lengths[at].1 -= 1,
            (Err(at), true) => {
                lengths.reserve_exact(1);
                lengths.insert(at, (length, 1));
            }
            (Err(_), false) => {}
        }
        self.lengths = lengths.into();
    }
}
