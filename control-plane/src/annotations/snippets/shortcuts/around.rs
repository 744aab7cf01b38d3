//! What is known of a snippet's variables around and behind one of its directives.

use std::collections::{BTreeMap, BTreeSet};

use super::Node;
use crate::annotations::snippets::variables;

/// Where in a snippet values change for the last time.
#[derive(Default, Debug)]
pub(super) struct Last {
    /// Of variables that it sets.
    sets: BTreeMap<String, usize>,
    /// Of the path.
    moves: Option<usize>,
}

impl Last {
    pub(super) fn of(nodes: &[Node<'_>]) -> Self {
        let mut last = Self::default();
        for (at, node) in nodes.iter().enumerate() {
            for it in node.inner.iter().chain([node.directive]) {
                match it.name() {
                    "rewrite" => last.moves = Some(at),
                    "set" => last.sets.extend(variables::target(it).map(|name| (name, at))),
                    _ => {}
                }
            }
        }
        last
    }

    /// Whether a variable may have another value behind this place.
    pub(super) fn is_behind(&self, at: usize, name: &str) -> bool {
        self.moves.is_some_and(|it| it > at) || self.sets.get(name).is_some_and(|it| *it > at)
    }
}

/// What is known of the variables around a snippet.
#[derive(Default)]
pub(in super::super) struct Around {
    /// Those that something else uses.
    pub(in super::super) used: BTreeSet<String>,
    /// Those that may be set before; `None`: any.
    pub(in super::super) set_before: Option<BTreeSet<String>>,
}
