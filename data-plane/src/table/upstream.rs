//! A backend as a path uses it: its endpoints, and how one of them is chosen for a request.

use std::sync::Arc;

use super::canary::CompiledCanary;
use super::cell::BackendCell;
use super::keys::UpstreamName;
use super::policy::balancing::Balancing;
use super::sticky::Sticky;

/// A backend as a path uses it.
#[derive(Debug)]
pub struct Upstream {
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
    /// As logs and metrics call it.
    pub fn name(&self) -> UpstreamName<'_> {
        UpstreamName::of(&self.cell.key)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    /// There is one for each Backend: its name, which is its key with other separators, is not stored beside that.
    #[test]
    fn an_upstream_stores_no_name() {
        assert!(size_of::<Upstream>() <= 5 * size_of::<usize>(), "{}", size_of::<Upstream>());
    }
}
