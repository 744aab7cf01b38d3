//! Proxies that went without a goodbye and were forgotten: nothing says that they do not serve.
//!
//! **Invariant:** bounded, and never says that nobody is missed while somebody is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::SILENT_MAX;

/// A goodbye is told to other replicas for so long. They ask each 5 s.
const LEFT: Duration = Duration::from_secs(60);

/// They, by id, with the node of each.
#[derive(Debug, Default)]
pub(super) struct Missed {
    nodes: BTreeMap<Arc<str>, Arc<str>>,
    /// There were more than are kept. Nobody can take that back.
    is_more: bool,
    /// Those that did say goodbye, the newest last, and when.
    left: VecDeque<(Instant, Arc<str>)>,
}

impl Missed {
    pub(super) fn note(&mut self, id: Arc<str>, node: Arc<str>) {
        match self.nodes.len() < SILENT_MAX {
            true => _ = self.nodes.insert(id, node),
            false => self.is_more = true,
        }
    }

    /// It is connected again. Whether it was missed.
    pub(super) fn is_back(&mut self, id: &str) -> bool {
        self.nodes.remove(id).is_some()
    }

    /// Another process of that name and node is there in its place, if only one can be meant.
    pub(super) fn is_replaced(&mut self, by: &str, node: &str) {
        let is_namesake = |(id, of): &(&Arc<str>, &Arc<str>)| name_of(id) == name_of(by) && ***of == *node;
        let mut those = self.nodes.iter().filter(is_namesake).map(|(id, _)| Arc::clone(id));
        if let (Some(id), None) = (those.next(), those.next()) {
            self.nodes.remove(&id);
        }
    }

    /// It said goodbye.
    pub(super) fn has_left(&mut self, id: Arc<str>, now: Instant) {
        self.left.retain(|(at, _)| now.saturating_duration_since(*at) < LEFT);
        if self.left.len() >= SILENT_MAX {
            self.left.pop_front();
        }
        self.left.push_back((now, id));
    }

    /// Those that did not long ago.
    pub(super) fn left(&self, now: Instant) -> Vec<Arc<str>> {
        let is_new = |(at, _): &&(Instant, Arc<str>)| now.saturating_duration_since(*at) < LEFT;
        self.left.iter().filter(is_new).map(|(_, id)| Arc::clone(id)).collect()
    }

    pub(super) fn is_nobody(&self) -> bool {
        self.nodes.is_empty() && !self.is_more
    }
}

/// Pod or host name, without what tells processes of one name apart.
pub(crate) fn name_of(id: &str) -> &str {
    id.rsplit_once('-').map_or(id, |(name, _)| name)
}
