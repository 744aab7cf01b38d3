//! The location of requests that no Ingress takes: the fleet's default backend (ingress-nginx behaviour).

use std::sync::Arc;

use shared::policy::LocationPolicy;

use super::cells::Cells;
use super::config::Config;
use super::policies::intercepts;
use super::source::Source;
use crate::metrics::RequestLabels;
use crate::table::host::{Action, PathEntry, Upstream};
use crate::table::location::{More, Named};
use crate::table::policy::Policy;
use crate::table::policy::balancing::Balancing;

impl Config {
    /// `None` if the fleet has no default backend; then each proxy responds with 404 itself.
    pub(super) fn unclaimed(&self, cells: &mut Cells) -> Option<Arc<PathEntry>> {
        let settings = self.settings();
        // A global restriction that cannot be enforced yet applies here, too.
        let is_guarded = !settings.guards.is_empty() || settings.defaults.enable_modsecurity == Some(true);
        if is_guarded || self.settings_unreadable() {
            return None;
        }
        let (key, backend) = self.backend(&settings.default_backend)?;
        let cell = cells.cell(key, Source::of(backend, &settings.backend_defaults));
        let upstream = Upstream { cell, sticky: None, balancing: Balancing::default(), alternative: None };
        let named = Named { backend: None, upstream: None };
        Some(Arc::new(PathEntry {
            action: Action::Backend(Arc::new(upstream)),
            policy: Arc::new(policy(&settings.defaults)),
            place: RequestLabels::of_host(&shared::resource::CATCH_ALL.into(), None),
            more: Some(Box::new(More { named: Some(named), ..More::default() })),
            stays_plain: true,
            after_exact: false,
            asks_nobody: false,
        }))
    }
}

/// The fleet's policy for all locations, without the defaults of annotations: in ingress-nginx no annotations are
/// parsed for this location. Defaults that cannot be served are treated as empty.
fn policy(defaults: &LocationPolicy) -> Policy {
    let configured = LocationPolicy {
        allowlist_source_range: None,
        denylist_source_range: None,
        enable_global_auth: Some(false),
        force_ssl_redirect: None,
        ssl_redirect: None,
        ..defaults.clone()
    };
    let mut policy = Policy::compile(&configured).unwrap_or_default();
    (policy.errors.are_fleets, policy.errors.intercepts) =
        (true, intercepts(defaults, &LocationPolicy::default()));
    policy
}
