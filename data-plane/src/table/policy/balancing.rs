//! How the endpoint of a request is chosen if its client has no affinity (as in ingress-nginx).

use std::sync::Arc;

use shared::policy::{BackendPolicy, LoadBalance};
use shared::template::{Template, Variable};

use crate::table::BackendCell;

/// Default number of endpoints in a group (as in ingress-nginx).
const SUBSET: u32 = 3;

/// How an endpoint is chosen.
#[derive(Clone, Debug, Default)]
pub enum Balancing {
    /// Round robin.
    #[default]
    RoundRobin,
    /// The faster of two random endpoints.
    Ewma,
    /// By a key of the request.
    Hash(Arc<Hashing>),
}

/// Consistent hashing.
#[derive(Debug)]
pub struct Hashing {
    /// The template for a request's key.
    pub key: Template,
    /// Number of endpoints in the group of a key; `None`: a key maps to one endpoint.
    pub subset: Option<usize>,
    /// Whether the key contains the request id.
    pub asks_id: bool,
}

impl Balancing {
    /// Compiles a backend's policy, on top of the fleet's defaults.
    pub fn compile(configured: &BackendPolicy, defaults: &BackendPolicy) -> Self {
        let Some(text) = configured.hash_by.as_deref().filter(|text| !text.is_empty()) else {
            return match configured.load_balance.or(defaults.load_balance) {
                Some(it) if it == i32::from(LoadBalance::Ewma) => Self::Ewma,
                _ => Self::RoundRobin,
            };
        };
        let key = Template::parse(text);
        let asks_id = key.variables().any(|variable| *variable == Variable::RequestId);
        let size = configured.hash_subset_size.filter(|size| *size > 0).unwrap_or(SUBSET);
        let subset =
            (configured.hash_subset == Some(true)).then(|| usize::try_from(size).unwrap_or(usize::MAX));
        Self::Hash(Arc::new(Hashing { key, subset, asks_id }))
    }

    /// Whether the key contains capture groups of the location's regular expression.
    pub fn asks_groups(&self) -> bool {
        let is_capture = |variable: &Variable| matches!(variable, Variable::Capture(_));
        matches!(self, Self::Hash(hashing) if hashing.key.variables().any(is_capture))
    }

    /// Builds what it needs of a cell's endpoints, if that was not built yet. For the control thread.
    pub fn prepare(&self, cell: &BackendCell) {
        let set = cell.endpoints();
        match self {
            Self::RoundRobin => {}
            Self::Ewma => set.measure(),
            Self::Hash(hashing) => match hashing.subset {
                None => {
                    set.ring();
                }
                Some(size) => {
                    let regrouped = set.regrouped(size);
                    regrouped.map(|set| cell.store(set));
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(load_balance: Option<LoadBalance>, hash_by: Option<&str>) -> BackendPolicy {
        BackendPolicy {
            load_balance: load_balance.map(Into::into),
            hash_by: hash_by.map(str::to_owned),
            ..BackendPolicy::default()
        }
    }

    fn compiled(configured: &BackendPolicy, fleet: Option<LoadBalance>) -> &'static str {
        let defaults = BackendPolicy { load_balance: fleet.map(Into::into), ..BackendPolicy::default() };
        match Balancing::compile(configured, &defaults) {
            Balancing::RoundRobin => "round_robin",
            Balancing::Ewma => "ewma",
            Balancing::Hash(it) if it.subset.is_some() => "chashsubset",
            Balancing::Hash(_) => "chash",
        }
    }

    #[test]
    fn a_key_comes_before_an_algorithm_and_both_before_the_fleet_s() {
        use LoadBalance::{Ewma, RoundRobin};
        assert_eq!(compiled(&configured(None, None), None), "round_robin");
        assert_eq!(compiled(&configured(Some(Ewma), None), None), "ewma");
        assert_eq!(compiled(&configured(None, None), Some(Ewma)), "ewma");
        assert_eq!(compiled(&configured(Some(RoundRobin), None), Some(Ewma)), "round_robin");
        assert_eq!(compiled(&configured(Some(Ewma), Some("$request_uri")), Some(Ewma)), "chash");
        let subset = BackendPolicy { hash_subset: Some(true), ..configured(None, Some("$request_uri")) };
        assert_eq!(compiled(&subset, None), "chashsubset");
        assert_eq!(compiled(&BackendPolicy { hash_by: None, ..subset }, None), "round_robin");
    }

    #[test]
    fn a_group_has_three_unless_somebody_says_more_or_less() {
        for (size, expected) in [(None, 3), (Some(0), 3), (Some(1), 1), (Some(7), 7)] {
            let configured = BackendPolicy {
                hash_subset: Some(true),
                hash_subset_size: size,
                ..configured(None, Some("$req_id"))
            };
            let Balancing::Hash(it) = Balancing::compile(&configured, &BackendPolicy::default()) else {
                panic!()
            };
            assert_eq!((it.subset, it.asks_id), (Some(expected), true));
        }
    }
}
