//! A backend as a path uses it: its endpoints, and how one of them is chosen for a request.

use std::sync::Arc;

use super::canary::CompiledCanary;
use super::cell::BackendCell;
use super::policy::balancing::Balancing;
use super::sticky::Sticky;

/// A backend as a path uses it.
#[derive(Debug)]
pub struct Upstream {
    /// `namespace-service-port`, as logs and metrics call it.
    pub name: Arc<str>,
    /// Its endpoints.
    pub cell: Arc<BackendCell>,
    /// Its session affinity, if configured.
    pub sticky: Option<Arc<Sticky>>,
    /// How endpoints are chosen for clients without affinity.
    pub balancing: Balancing,
    /// The canary that may take its requests.
    pub alternative: Option<Arc<Alternative>>,
}

impl Upstream {
    /// Whether capture groups of a path decide on the endpoint.
    pub fn asks_groups(&self) -> bool {
        let other = self.alternative.as_ref();
        self.balancing.asks_groups() || other.is_some_and(|it| it.balancing.asks_groups())
    }
}

/// The canary of an [`Upstream`].
#[derive(Debug)]
pub struct Alternative {
    /// `namespace-service-port`.
    pub name: Arc<str>,
    /// Its endpoints.
    pub cell: Arc<BackendCell>,
    /// Its session affinity, if configured.
    pub sticky: Option<Arc<Sticky>>,
    /// How endpoints are chosen for clients without affinity.
    pub balancing: Balancing,
    /// Which requests it takes; without it, none.
    pub canary: Option<CompiledCanary>,
}
