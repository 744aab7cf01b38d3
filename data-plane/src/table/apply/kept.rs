//! Routes as they are kept, for as long as they are served: what many of them say is there once.
//!
//! Most say nothing of how their requests are treated, and that takes as much room as saying everything.

use std::collections::HashSet;
use std::sync::Arc;

use shared::policy::LocationPolicy;
use shared::resource::{Denial, Path, Route};

/// A Route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeptRoute {
    pub(super) paths: Box<[Path]>,
    pub(super) denied: Option<Denial>,
    pub(super) policy: Arc<LocationPolicy>,
}

/// What Routes say.
#[derive(Debug, Default)]
pub(super) struct Sayings {
    said: HashSet<Arc<LocationPolicy>>,
    /// Those that no Route says any more are looked for when there are this many.
    sweep_at: usize,
}

impl Sayings {
    /// A Route, to be kept.
    pub(super) fn keep(&mut self, route: Route) -> Arc<KeptRoute> {
        let Route { paths, denied, policy } = route;
        Arc::new(KeptRoute { paths: paths.into(), denied, policy: self.one(policy) })
    }

    /// The one of which the same is said.
    fn one(&mut self, policy: LocationPolicy) -> Arc<LocationPolicy> {
        if let Some(said) = self.said.get(&policy) {
            return Arc::clone(said);
        }
        if self.said.len() >= self.sweep_at.max(64) {
            self.said.retain(|policy| Arc::strong_count(policy) > 1);
            self.sweep_at = self.said.len() * 2;
        }
        let policy = Arc::new(policy);
        self.said.insert(Arc::clone(&policy));
        policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saying(tries: u32) -> Route {
        let policy = LocationPolicy { proxy_next_upstream_tries: Some(tries), ..LocationPolicy::default() };
        Route { policy, ..Route::default() }
    }

    #[test]
    fn what_two_say_is_there_once() {
        let mut sayings = Sayings::default();
        let [one, same, other] = [saying(1), saying(1), saying(2)].map(|route| sayings.keep(route));
        assert!(Arc::ptr_eq(&one.policy, &same.policy) && !Arc::ptr_eq(&one.policy, &other.policy));
        assert_eq!(*other.policy, saying(2).policy);
    }

    #[test]
    fn what_nobody_says_any_more_goes() {
        let mut sayings = Sayings::default();
        let kept = sayings.keep(saying(0));
        (1..1_000).for_each(|tries| drop(sayings.keep(saying(tries))));
        assert!(sayings.said.len() <= 128, "{}", sayings.said.len());
        assert!(Arc::ptr_eq(&kept.policy, &sayings.keep(saying(0)).policy));
    }
}
