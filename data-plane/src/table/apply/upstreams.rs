//! Backends as paths use them, deduplicated: paths of all hosts share one as long as none of its inputs changes.

use std::sync::{Arc, Weak};

use shared::few::FewOf;
use shared::policy::BackendPolicy;
use shared::resource::Backend;

use super::by_name::ByName;
use super::cells::Cells;
use super::config::Config;
use super::source::Source;
use super::sweep::Sweep;
use crate::table::CompiledCanary;
use crate::table::cell::BackendCell;
use crate::table::host::{Alternative, Upstream};
use crate::table::keys::name_of;
use crate::table::policy::affinity::Rules;
use crate::table::policy::balancing::Balancing;
use crate::table::sticky::Sticky;

/// The upstreams that tables refer to, by Backend.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    known: ByName<Known>,
    sweep: Sweep,
}

#[derive(Debug)]
struct Known {
    upstream: Weak<Upstream>,
    /// The inputs that it was built from; equal ones are the same object.
    backend: Arc<Backend>,
    alternative: Option<Arc<Backend>>,
    /// The fleet's algorithm.
    load_balance: Option<i32>,
}

impl Upstreams {
    /// For so many Backends, all of them new.
    pub(super) fn make_room(&mut self, backends: usize) {
        self.known.reserve(backends);
    }

    /// The upstream of a Backend, if that exists. Records the Backends that it depends on, whether they exist or not:
    /// its users are recompiled when one of them appears or changes.
    pub(super) fn of(
        &mut self,
        key: &str,
        config: &Config,
        cells: &mut Cells,
        uses: &mut FewOf<Arc<str>>,
    ) -> Option<Arc<Upstream>> {
        let (key, backend) = used(config, key, uses)?;
        // Only the first alternative is used (as in ingress-nginx).
        let other = backend.alternatives.first().and_then(|other| used(config, other, uses));
        let defaults = &config.settings().backend_defaults;
        let is_same = |known: &&Known| {
            known.load_balance == defaults.load_balance && known.is_of(backend, other.as_ref())
        };
        if let Some(known) = self.known.get(&key).filter(is_same)
            && let Some(upstream) = known.upstream.upgrade()
        {
            cells.stays(&key);
            other.iter().for_each(|(other, _)| cells.stays(other));
            return Some(upstream);
        }
        let upstream = Arc::new(compile(&key, backend, other.as_ref(), cells, defaults));
        self.sweep.when_due(self.known.len(), || {
            self.known.retain(|_, known| known.upstream.strong_count() > 0);
            self.known.len()
        });
        let known = Known {
            upstream: Arc::downgrade(&upstream),
            backend: Arc::clone(backend),
            alternative: other.map(|(_, other)| Arc::clone(other)),
            load_balance: defaults.load_balance,
        };
        self.known.insert(key, known);
        Some(upstream)
    }
}

impl Known {
    fn is_of(&self, backend: &Arc<Backend>, other: Option<&(Arc<str>, &Arc<Backend>)>) -> bool {
        let same = match (&self.alternative, other) {
            (Some(before), Some((_, now))) => Arc::ptr_eq(before, now),
            (None, None) => true,
            _ => false,
        };
        same && Arc::ptr_eq(&self.backend, backend)
    }
}

/// A Backend that may not exist.
fn used<'a>(
    config: &'a Config,
    key: &str,
    uses: &mut FewOf<Arc<str>>,
) -> Option<(Arc<str>, &'a Arc<Backend>)> {
    let found = config.backend(key);
    let key = found.map_or_else(|| key.into(), |(key, _)| Arc::clone(key));
    uses.insert(Arc::clone(&key));
    found.map(|(_, backend)| (key, backend))
}

fn compile(
    key: &Arc<str>,
    backend: &Arc<Backend>,
    other: Option<&(Arc<str>, &Arc<Backend>)>,
    cells: &mut Cells,
    defaults: &BackendPolicy,
) -> Upstream {
    // Validated when it was decoded.
    let rules =
        backend.policy.affinity.as_ref().and_then(|configured| Rules::compile(configured).ok()).map(Arc::new);
    let alternative = other.map(|(key, backend)| alternative(key, backend, rules.as_ref(), cells, defaults));
    let cell = cells.cell(key, Source::of(backend, defaults));
    cell.describe(Arc::clone(backend));
    let sticky = rules.map(|rules| sticky(&rules, &cell));
    let balancing = balancing(backend, defaults, &cell);
    Upstream { cell, sticky, balancing, alternative }
}

/// It has the affinity of the main backend unless configured otherwise (as in ingress-nginx), and its own balancing.
fn alternative(
    key: &Arc<str>,
    backend: &Arc<Backend>,
    main: Option<&Arc<Rules>>,
    cells: &mut Cells,
    defaults: &BackendPolicy,
) -> Arc<Alternative> {
    let (cell, name) = (cells.cell(key, Source::of(backend, defaults)), cells.name_of_canary(key));
    cell.describe(Arc::clone(backend));
    let main = main.filter(|_| backend.policy.no_affinity_as_canary != Some(true));
    let sticky = main.map(|rules| sticky(rules, &cell));
    let balancing = balancing(backend, defaults, &cell);
    let canary = backend.policy.canary.as_ref().map(CompiledCanary::new);
    Arc::new(Alternative { name, cell, sticky, balancing, canary })
}

/// The balancing of a backend, prepared for its current endpoints.
fn balancing(backend: &Backend, defaults: &BackendPolicy, cell: &BackendCell) -> Balancing {
    let balancing = Balancing::compile(&backend.policy, defaults);
    balancing.prepare(cell);
    balancing
}

/// The affinity of a backend under these rules, prepared for its current endpoints.
fn sticky(rules: &Arc<Rules>, cell: &BackendCell) -> Arc<Sticky> {
    let sticky = Sticky::new(Arc::clone(rules), name_of(&cell.key));
    sticky.prepare(&cell.endpoints());
    Arc::new(sticky)
}
