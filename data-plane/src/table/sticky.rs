//! Affinity of a backend: where a cookie leads, and where a client goes that has none (balancing.md 5.4 to 5.6).
//!
//! **Invariant:** what a lookup needs is made when a set of endpoints is, on the control thread; a request makes it only
//! where it is the first of all to ask.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use foldhash::quality::RandomState;
use shared::policy::AffinityMode;

use super::endpoints::{Endpoint, EndpointSet, List};
use super::policy::affinity::Rules;
use crate::affinity::{Ring, backend_key, endpoint_key, fresh_key};

/// Keys that are tried for a new client of balanced affinity, until one leads to an endpoint that has not failed.
const ATTEMPTS: u32 = 20;

/// Affinity of one backend under the rules of a main one: its own, or those of which it is the canary.
#[derive(Debug)]
pub struct Sticky {
    /// What is said of it.
    pub rules: Arc<Rules>,
    /// `namespace-service-port`, of which keys are made.
    backend: Arc<str>,
    /// What cookies call the backend.
    pub key: Box<str>,
}

impl Sticky {
    /// Of the backend that logs and metrics call so.
    pub fn new(rules: Arc<Rules>, backend: Arc<str>) -> Self {
        let key = backend_key(&backend).into();
        Self { rules, backend, key }
    }

    /// Makes what lookups in a set need, where it is not made yet.
    pub fn prepare(&self, set: &EndpointSet) {
        match self.rules.mode {
            AffinityMode::Persistent => {
                set.lookup.seats(&set.list, &self.backend);
            }
            AffinityMode::Balanced | AffinityMode::Unspecified => {
                set.lookup.ring(&set.list);
            }
        }
    }

    /// The place in the set that a cookie's key leads to.
    pub fn find(&self, set: &EndpointSet, key: &[u8]) -> Option<usize> {
        match self.rules.mode {
            AffinityMode::Persistent => set.lookup.seats(&set.list, &self.backend).get(key).copied(),
            AffinityMode::Balanced | AffinityMode::Unspecified => set.lookup.ring(&set.list).find(key),
        }
    }

    /// A place for a client that has none, among the endpoints that did not fail it, and the key that leads there.
    pub fn draw(
        &self,
        set: &EndpointSet,
        failed: impl Fn(&Endpoint) -> bool,
        now: SystemTime,
    ) -> Option<(usize, String)> {
        match self.rules.mode {
            AffinityMode::Persistent => {
                let open: Vec<usize> =
                    (0..set.list.len()).filter(|place| !failed(&set.list[*place])).collect();
                let place = *open.get(fastrand::usize(..open.len().max(1)))?;
                Some((place, endpoint_key(&self.backend, &set.list[place].address.to_string())))
            }
            AffinityMode::Balanced | AffinityMode::Unspecified => {
                let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                (1..=ATTEMPTS).find_map(|attempt| {
                    let key = fresh_key(seconds, attempt, std::process::id(), fastrand::u32(..1_000_000));
                    let place = self.find(set, key.as_bytes())?;
                    (!failed(&set.list[place])).then_some((place, key))
                })
            }
        }
    }
}

/// What lookups in one set of endpoints need, each made when it is first asked for.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    ring: OnceLock<Ring>,
    /// By the endpoints' keys. The name of the backend is the same for all who ask: a set is one backend's.
    seats: OnceLock<HashMap<Box<[u8]>, usize, RandomState>>,
}

impl Lookup {
    fn ring(&self, list: &List) -> &Ring {
        self.ring.get_or_init(|| {
            let names: Vec<String> = list.iter().map(|endpoint| endpoint.address.to_string()).collect();
            Ring::new(names.iter().map(String::as_str))
        })
    }

    fn seats(&self, list: &List, backend: &str) -> &HashMap<Box<[u8]>, usize, RandomState> {
        self.seats.get_or_init(|| {
            let key = |endpoint: &Endpoint| endpoint_key(backend, &endpoint.address.to_string());
            let keys = list.iter().map(|endpoint| key(endpoint).into_bytes().into());
            keys.enumerate().map(|(place, key)| (key, place)).collect()
        })
    }

    /// Makes for a set what was made for the one before it.
    pub(super) fn prepare_as(&self, before: &Self, list: &List, backend: &str) {
        if before.ring.get().is_some() {
            self.ring(list);
        }
        if before.seats.get().is_some() {
            self.seats(list, backend);
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::Affinity;

    use super::*;

    const NAME: &str = "access-router-production-web-80";

    fn sticky(mode: AffinityMode) -> Sticky {
        let said = Affinity { mode: Some(mode.into()), name: "c".into(), ..Affinity::default() };
        Sticky::new(Arc::new(Rules::compile(&said).unwrap()), NAME.into())
    }

    fn set(last: &[u8]) -> EndpointSet {
        let endpoint = |last: &u8| {
            let address = format!("10.184.7.{last}:8080").parse().unwrap();
            Arc::new(Endpoint::new(u64::from(*last), address))
        };
        EndpointSet::new(last.iter().map(endpoint).collect())
    }

    #[test]
    fn a_drawn_key_leads_where_it_was_drawn_for() {
        for mode in [AffinityMode::Balanced, AffinityMode::Persistent] {
            let (sticky, set) = (sticky(mode), set(&[40, 41, 42]));
            for _ in 0..20 {
                let (place, key) = sticky.draw(&set, |_| false, UNIX_EPOCH).unwrap();
                assert_eq!(sticky.find(&set, key.as_bytes()), Some(place), "{mode:?} {key}");
            }
        }
    }

    #[test]
    fn who_failed_is_not_drawn() {
        for mode in [AffinityMode::Balanced, AffinityMode::Persistent] {
            let (sticky, set) = (sticky(mode), set(&[40, 41, 42]));
            for _ in 0..20 {
                let drawn = sticky.draw(&set, |endpoint| endpoint.id != 41, UNIX_EPOCH);
                assert!(drawn.is_none_or(|(place, _)| place == 1), "{mode:?}");
            }
            assert_eq!(sticky.draw(&set, |_| true, UNIX_EPOCH), None, "{mode:?}");
            assert_eq!(sticky.draw(&EndpointSet::default(), |_| false, UNIX_EPOCH), None, "{mode:?}");
        }
    }

    #[test]
    fn a_persistent_key_is_its_endpoint_s_for_ever() {
        let sticky = sticky(AffinityMode::Persistent);
        let key = b"ce8f959dcbe10d546cb8a4cc705e10f0";
        assert_eq!(sticky.find(&set(&[39, 40]), key), Some(1));
        assert_eq!(sticky.find(&set(&[40, 41, 42, 43]), key), Some(0));
        assert_eq!(sticky.find(&set(&[41]), key), None);
        assert_eq!(sticky.find(&set(&[41]), b"made up"), None);
    }

    #[test]
    fn a_new_set_is_ready_for_what_the_old_one_was_asked() {
        let (before, after) = (set(&[40]), set(&[40, 41]));
        after.lookup.prepare_as(&before.lookup, &after.list, NAME);
        assert!(after.lookup.ring.get().is_none() && after.lookup.seats.get().is_none());
        sticky(AffinityMode::Balanced).prepare(&before);
        after.lookup.prepare_as(&before.lookup, &after.list, NAME);
        assert!(after.lookup.ring.get().is_some() && after.lookup.seats.get().is_none());
        sticky(AffinityMode::Persistent).prepare(&before);
        after.lookup.prepare_as(&before.lookup, &after.list, NAME);
        assert!(after.lookup.seats.get().is_some());
    }
}
