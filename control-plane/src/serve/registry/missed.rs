//! Proxies that disappeared without a goodbye and were dropped: they may still be serving.
//!
//! **Invariant:** bounded, and never reports that none is missed while one is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::SILENT_MAX;

/// How long a goodbye is reported to other replicas, which ask every 5 s.
const LEFT: Duration = Duration::from_secs(60);

/// The missed proxies by id, with the node of each.
#[derive(Debug, Default)]
pub(super) struct Missed {
    nodes: BTreeMap<Arc<str>, Arc<str>>,
    /// More were missed than can be stored. This is never reset.
    is_more: bool,
    /// Proxies that said goodbye, the newest last, with the time.
    left: VecDeque<(Instant, Arc<str>)>,
}

impl Missed {
    pub(super) fn note(&mut self, id: Arc<str>, node: Arc<str>) {
        match self.nodes.len() < SILENT_MAX {
            true => _ = self.nodes.insert(id, node),
            false => self.is_more = true,
        }
    }

    /// It is connected again. Returns whether it was missed.
    pub(super) fn is_back(&mut self, id: &str) -> bool {
        self.nodes.remove(id).is_some()
    }

    /// Another process with that name and node replaces it, if that is unambiguous.
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

    /// Those that recently did.
    pub(super) fn left(&self, now: Instant) -> Vec<Arc<str>> {
        let is_new = |(at, _): &&(Instant, Arc<str>)| now.saturating_duration_since(*at) < LEFT;
        self.left.iter().filter(is_new).map(|(_, id)| Arc::clone(id)).collect()
    }

    pub(super) fn is_nobody(&self) -> bool {
        self.nodes.is_empty() && !self.is_more
    }
}

/// Pod or host name, without the suffix that distinguishes processes.
pub(crate) fn name_of(id: &str) -> &str {
    id.rsplit_once('-').map_or(id, |(name, _)| name)
}
