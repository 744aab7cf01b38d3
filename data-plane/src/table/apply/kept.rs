//! Deduplicates the policies of stored Hosts and Routes: equal ones are in memory once.
//!
//! Most Hosts and Routes have an empty policy, and an empty policy takes as much memory as a full one.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::quality::RandomState;
use shared::policy::LocationPolicy;
use shared::resource::{Denial, Path, Route};

/// A stored Route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeptRoute {
    pub(super) paths: Box<[Path]>,
    pub(super) denied: Option<Denial>,
    pub(super) policy: Arc<LocationPolicy>,
}

impl KeptRoute {
    /// Stores a Route.
    pub(super) fn new(route: Route, sayings: &mut Sayings<LocationPolicy>) -> Arc<Self> {
        let Route { paths, denied, policy } = route;
        Arc::new(Self { paths: paths.into(), denied, policy: sayings.one(policy) })
    }
}

/// Deduplicated values.
#[derive(Debug)]
pub(super) struct Sayings<T> {
    said: HashSet<Arc<T>, RandomState>,
    /// Size at which unused values are removed.
    sweep_at: usize,
}

impl<T> Default for Sayings<T> {
    fn default() -> Self {
        Self { said: HashSet::default(), sweep_at: 0 }
    }
}

impl<T: Eq + Hash> Sayings<T> {
    /// The shared value that equals this one.
    pub(super) fn one(&mut self, said: T) -> Arc<T> {
        if let Some(known) = self.said.get(&said) {
            return Arc::clone(known);
        }
        if self.said.len() >= self.sweep_at.max(64) {
            self.said.retain(|said| Arc::strong_count(said) > 1);
            self.sweep_at = self.said.len() * 2;
        }
        let said = Arc::new(said);
        self.said.insert(Arc::clone(&said));
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saying(tries: u32) -> LocationPolicy {
        LocationPolicy { proxy_next_upstream_tries: Some(tries), ..LocationPolicy::default() }
    }

    #[test]
    fn what_two_say_is_there_once() {
        let mut sayings = Sayings::default();
        let [one, same, other] = [saying(1), saying(1), saying(2)].map(|it| sayings.one(it));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert_eq!(*other, saying(2));
    }

    #[test]
    fn what_nobody_says_any_more_goes() {
        let mut sayings = Sayings::default();
        let kept = sayings.one(saying(0));
        (1..1_000).for_each(|tries| drop(sayings.one(saying(tries))));
        assert!(sayings.said.len() <= 128, "{}", sayings.said.len());
        assert!(Arc::ptr_eq(&kept, &sayings.one(saying(0))));
    }
}
