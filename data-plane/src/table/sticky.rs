//! Session affinity of a backend: the endpoint that a cookie refers to, and the endpoint for a client without one (as
//! in ingress-nginx).

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use shared::policy::AffinityMode;

use super::endpoints::{Endpoint, EndpointSet};
use super::keys::parts;
use super::policy::affinity::Rules;
use crate::affinity::{backend_key, endpoint_key, fresh_key};

/// Keys that are tried for a new client with balanced affinity, until one leads to an endpoint that has not failed.
const ATTEMPTS: u32 = 20;

/// Affinity of one backend, under its own rules or those of the main backend whose canary it is.
#[derive(Debug)]
pub struct Sticky {
    /// The configured rules.
    pub rules: Arc<Rules>,
    /// `namespace-service-port`, from which keys are derived.
    backend: Arc<str>,
    /// The key of the backend in cookies.
    pub key: Box<str>,
}

impl Sticky {
    /// For the backend with this name in logs and metrics.
    pub fn new(rules: Arc<Rules>, backend: Arc<str>) -> Self {
        let key = backend_key(&backend).into();
        Self { rules, backend, key }
    }

    /// The same rules for the backend with this key in place of one without endpoints: in ingress-nginx an upstream of its
    /// own.
    pub fn of_stand_in(&self, key: &str) -> Self {
        let name = match parts(key) {
            Some((namespace, service, _)) => format!("custom-default-backend-{namespace}-{service}"),
            None => key.to_owned(),
        };
        Self::new(Arc::clone(&self.rules), name.into())
    }

    /// Builds what lookups in a set need, if it was not built yet.
    pub fn prepare(&self, set: &EndpointSet) {
        match self.rules.mode {
            AffinityMode::Persistent => {
                set.lookup.seats(&set.list, &self.backend);
            }
            AffinityMode::Balanced | AffinityMode::Unspecified => {
                set.ring();
            }
        }
    }

    /// The endpoint that a cookie's key refers to.
    pub fn find<'a>(&self, set: &'a EndpointSet, key: &[u8]) -> Option<&'a Arc<Endpoint>> {
        match self.rules.mode {
            AffinityMode::Persistent => set.lookup.seats(&set.list, &self.backend).get(key),
            AffinityMode::Balanced | AffinityMode::Unspecified => set.ring().find(crc32fast::hash(key)),
        }
    }

    /// An endpoint for a client without one, among those that did not fail for it, and the key that leads there.
    pub fn draw<'a>(
        &self,
        set: &'a EndpointSet,
        failed: impl Fn(&Endpoint) -> bool,
        now: SystemTime,
    ) -> Option<(&'a Arc<Endpoint>, String)> {
        match self.rules.mode {
            AffinityMode::Persistent => {
                let place = set.list.draw(|endpoint| !failed(endpoint))?;
                let endpoint = set.list.get(place)?;
                Some((endpoint, endpoint_key(&self.backend, &endpoint.address.to_string())))
            }
            AffinityMode::Balanced | AffinityMode::Unspecified => {
                let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                (1..=ATTEMPTS).find_map(|attempt| {
                    let key = fresh_key(seconds, attempt, std::process::id(), fastrand::u32(..1_000_000));
                    let endpoint = self.find(set, key.as_bytes())?;
                    (!failed(endpoint)).then_some((endpoint, key))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::Affinity;

    use super::*;

    const NAME: &str = "access-router-production-web-80";

    fn sticky(mode: AffinityMode) -> Sticky {
        let configured = Affinity { mode: Some(mode.into()), name: "c".into(), ..Affinity::default() };
        Sticky::new(Arc::new(Rules::compile(&configured).unwrap()), NAME.into())
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
                let (endpoint, key) = sticky.draw(&set, |_| false, UNIX_EPOCH).unwrap();
                let found = sticky.find(&set, key.as_bytes()).unwrap();
                assert_eq!(found.id, endpoint.id, "{mode:?} {key}");
            }
        }
    }

    #[test]
    fn failed_endpoint_is_not_drawn() {
        for mode in [AffinityMode::Balanced, AffinityMode::Persistent] {
            let (sticky, set) = (sticky(mode), set(&[40, 41, 42]));
            for _ in 0..20 {
                let drawn = sticky.draw(&set, |endpoint| endpoint.id != 41, UNIX_EPOCH);
                assert!(drawn.is_none_or(|(endpoint, _)| endpoint.id == 41), "{mode:?}");
            }
            assert!(sticky.draw(&set, |_| true, UNIX_EPOCH).is_none(), "{mode:?}");
            assert!(sticky.draw(&EndpointSet::default(), |_| false, UNIX_EPOCH).is_none(), "{mode:?}");
        }
    }

    #[test]
    fn a_persistent_key_is_its_endpoint_s_for_ever() {
        let sticky = sticky(AffinityMode::Persistent);
        let key = b"ce8f959dcbe10d546cb8a4cc705e10f0";
        let find = |last: &[u8], key: &[u8]| sticky.find(&set(last), key).map(|endpoint| endpoint.id);
        assert_eq!(find(&[39, 40], key), Some(40));
        assert_eq!(find(&[40, 41, 42, 43], key), Some(40));
        assert_eq!(find(&[41], key), None);
        assert_eq!(find(&[41], b"made up"), None);
    }
}
