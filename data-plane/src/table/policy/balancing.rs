//! How the endpoint of a request is chosen where its client has none of its own (ingress-nginx behaviour, balancing.md 4
//! to 6).

use std::sync::Arc;

use shared::policy::BackendPolicy;
use shared::template::{Template, Variable};

use crate::table::BackendCell;

/// Endpoints of a group where nobody says how many (annotations.md 5.7).
const SUBSET: u32 = 3;

/// How endpoints get requests.
#[derive(Clone, Debug, Default)]
pub enum Balancing {
    /// In turn.
    #[default]
    RoundRobin,
    /// By a key that each request has.
    Hash(Arc<Hashing>),
}

/// A consistent hash.
#[derive(Debug)]
pub struct Hashing {
    /// What the key of a request is made of.
    pub key: Template,
    /// Endpoints of the group that a key leads to; `None`: it leads to one.
    pub subset: Option<usize>,
    /// Whether a request needs an id for its key.
    pub asks_id: bool,
}

impl Balancing {
    /// Compiles what is said.
    pub fn compile(said: &BackendPolicy) -> Self {
        let Some(text) = said.hash_by.as_deref().filter(|text| !text.is_empty()) else {
            return Self::RoundRobin;
        };
        let key = Template::parse(text);
        let asks_id = key.variables().any(|variable| *variable == Variable::RequestId);
        let size = said.hash_subset_size.filter(|size| *size > 0).unwrap_or(SUBSET);
        let subset = (said.hash_subset == Some(true)).then(|| usize::try_from(size).unwrap_or(usize::MAX));
        Self::Hash(Arc::new(Hashing { key, subset, asks_id }))
    }

    /// Makes what it asks a cell's endpoints for, where it is not made yet. For the control thread.
    pub fn prepare(&self, cell: &BackendCell) {
        let Self::Hash(hashing) = self else { return };
        let set = cell.endpoints();
        match hashing.subset {
            None => {
                set.ring();
            }
            Some(size) => {
                let regrouped = set.regrouped(size);
                regrouped.map(|set| cell.store(set));
            }
        }
    }
}
