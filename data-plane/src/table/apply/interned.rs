//! Deduplicates parts of what is stored: equal ones are in memory once.
//!
//! Most Hosts, Routes and Backends have an empty policy, and an empty policy takes as much memory as a full one; most
//! Services have one of a few ports.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::quality::RandomState;
use shared::policy::LocationPolicy;
use shared::resource::{Denial, Path, PathType, Route};

use super::sweep::Sweep;

/// A stored Route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StoredRoute {
    pub(super) paths: Box<[StoredPath]>,
    pub(super) denied: Option<Box<Denial>>,
    pub(super) policy: Arc<LocationPolicy>,
}

/// One of its paths; its texts are also those of the tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StoredPath {
    pub(super) path: Arc<str>,
    pub(super) kind: PathType,
    pub(super) backend: Option<Arc<str>>,
    pub(super) after_exact: bool,
}

impl StoredRoute {
    /// Stores a Route. `text_of` gives the stored text of a path, `key_of` the stored key of a Backend.
    pub(super) fn new(
        route: Route,
        interner: &mut Interner<LocationPolicy>,
        mut text_of: impl FnMut(&str) -> Arc<str>,
        key_of: impl Fn(&str) -> Arc<str>,
    ) -> Arc<Self> {
        let Route { paths, denied, policy } = route;
        let stored = |Path { path, kind, backend, after_exact }: Path| {
            let backend = backend.map(|key| key_of(&key));
            StoredPath { path: text_of(&path), kind, backend, after_exact }
        };
        let paths = paths.into_iter().map(stored).collect();
        Arc::new(Self { paths, denied: denied.map(Box::new), policy: interner.intern(policy) })
    }

    /// Whether it is this Route.
    pub(super) fn is(&self, route: &Route) -> bool {
        let Route { paths, denied, policy } = route;
        let same = self.paths.len() == paths.len() && self.paths.iter().zip(paths).all(|(a, b)| a.is(b));
        same && self.denied.as_deref() == denied.as_ref() && *self.policy == *policy
    }
}

impl StoredPath {
    fn is(&self, it: &Path) -> bool {
        let Path { path, kind, backend, after_exact } = it;
        *self.path == **path
            && self.kind == *kind
            && self.backend.as_deref() == backend.as_deref()
            && self.after_exact == *after_exact
    }
}

/// Deduplicated values.
#[derive(Debug)]
pub(super) struct Interner<T> {
    values: HashSet<Arc<T>, RandomState>,
    /// The last one: most are like the one before, and comparing costs less than hashing.
    last: Option<Arc<T>>,
    sweep: Sweep,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: HashSet::default(), last: None, sweep: Sweep::default() }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// Whether there is a shared value that equals this one.
    pub(super) fn has(&self, value: &T) -> bool {
        self.last.as_ref().is_some_and(|last| **last == *value) || self.values.contains(value)
    }

    /// The shared value that equals this one.
    pub(super) fn intern(&mut self, value: T) -> Arc<T> {
        if let Some(last) = self.last.as_ref().filter(|last| ***last == value) {
            return Arc::clone(last);
        }
        if let Some(known) = self.values.get(&value) {
            return Arc::clone(self.last.insert(Arc::clone(known)));
        }
        self.sweep.when_due(self.values.len(), || {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.values.len()
        });
        let value = Arc::new(value);
        self.values.insert(Arc::clone(&value));
        Arc::clone(self.last.insert(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(tries: u32) -> LocationPolicy {
        LocationPolicy { proxy_next_upstream_tries: Some(tries), ..LocationPolicy::default() }
    }

    #[test]
    fn equal_policies_are_stored_once() {
        let mut interner = Interner::default();
        let [one, same, other] = [policy(1), policy(1), policy(2)].map(|it| interner.intern(it));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert_eq!(*other, policy(2));
        assert!([1, 2].into_iter().all(|tries| interner.has(&policy(tries))) && !interner.has(&policy(3)));
    }

    #[test]
    fn unused_policies_are_dropped() {
        let mut interner = Interner::default();
        let shared = interner.intern(policy(0));
        (1..1_000).for_each(|tries| drop(interner.intern(policy(tries))));
        assert!(interner.values.len() <= 128, "{}", interner.values.len());
        assert!(Arc::ptr_eq(&shared, &interner.intern(policy(0))));
    }
}
