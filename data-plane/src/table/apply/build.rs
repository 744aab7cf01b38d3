//! From typed resources to one compiled host.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use shared::resource::{Backend, Guard, Host, Path, Route, Settings};

use super::cells::Cells;
use super::config::Config;
use super::materials::Materials;
use super::policies::{Policies, effective};
use super::refusal::{name_of, parts, route_parts};
use super::secrets::Secrets;
use crate::table::CompiledCanary;
use crate::table::aliases::Names;
use crate::table::cell::BackendCell;
use crate::table::host::{Action, Alternative, DEFAULT_UPSTREAM, HostEntry, PathEntry, Upstream};
use crate::table::paths::Declared;
use crate::table::policy::Policy;
use crate::table::policy::affinity::Rules;
use crate::table::sticky::Sticky;

/// A compiled host and the Backends that it names, canaries and missing ones included.
pub(super) struct Built {
    pub(super) entry: HostEntry,
    pub(super) uses: BTreeSet<Arc<str>>,
}

impl Config {
    /// Compiles a host from its Routes; `None` where there is no such host.
    pub(super) fn build(
        &self,
        name: &Arc<str>,
        cells: &mut Cells,
        secrets: &mut Secrets,
        materials: &mut Materials,
        policies: &mut Policies,
    ) -> Option<Built> {
        let host = self.hosts.get(name)?.as_ref();
        let tls = host.and_then(|host| host.tls.as_ref());
        let certificates = tls.map(|tls| tls.certificates.iter().map(|key| secrets.cell(key)).collect());
        let mut builder = Builder {
            config: self,
            cells,
            materials,
            policies,
            host,
            upstreams: HashMap::new(),
            uses: BTreeSet::new(),
        };
        let mut paths = Vec::new();
        for (key, route) in self.routes.get(name).into_iter().flatten() {
            builder.route(key, route, &mut paths);
        }
        let uses = builder.uses;
        let entry = HostEntry::new(Arc::clone(name), certificates, paths);
        let policy = host.map(|host| &host.policy);
        // One that does not compile was refused when it came.
        let said = policy.and_then(|policy| policy.aliases.as_ref());
        let names = said.and_then(|said| Names::compile(&said.values).ok());
        let entry = entry.with_names(names, policy.is_some_and(|policy| policy.www == Some(true)));
        let is_regex = host.is_some_and(|host| host.policy.regex == Some(true));
        Some(Built { entry: if is_regex { entry.with_patterns() } else { entry }, uses })
    }
}

struct Builder<'a> {
    config: &'a Config,
    cells: &'a mut Cells,
    materials: &'a mut Materials,
    policies: &'a mut Policies,
    host: Option<&'a Host>,
    /// One a Backend and host: paths share it.
    upstreams: HashMap<&'a str, Option<Arc<Upstream>>>,
    uses: BTreeSet<Arc<str>>,
}

impl<'a> Builder<'a> {
    fn route(&mut self, key: &'a str, route: &'a Route, paths: &mut Vec<Declared>) {
        let owner: Arc<str> = route_parts(key).map_or(key, |parts| parts.owner).into();
        // One of which the parts compile and the whole does not is no case today; it would never be served without it.
        let (policy, failed) = match self.policies.of(&self.config.settings().defaults, &route.policy) {
            Ok(policy) => (policy, None),
            Err(reason) => (Arc::default(), Some(reason)),
        };
        let denied = self.denial(route).or(failed);
        let object = key.rsplit_once('/').map_or(key, |(object, _)| object);
        let counts = policy.limits.is_some().then(|| self.policies.counted.of(object));
        for path in &route.paths {
            let errors = route.policy.default_backend.as_deref().and_then(|key| self.upstream(key));
            let path_entry = self.path(path, &owner, &policy, denied.as_ref());
            let entry = PathEntry { counts: counts.clone(), errors, ..path_entry };
            paths.push(Declared { kind: path.kind, entry: Arc::new(entry) });
        }
    }

    fn path(
        &mut self,
        path: &'a Path,
        owner: &Arc<str>,
        policy: &Arc<Policy>,
        denied: Option<&Arc<str>>,
    ) -> PathEntry {
        let backend = path.backend.as_deref();
        let (_, service, port) = backend.and_then(parts).unwrap_or_default();
        // Asked for in any case: a path that is denied now must be compiled again when its backend comes.
        let proxied = backend.map(|backend| self.upstream(backend));
        let action = match (denied, self.host, proxied) {
            (_, None, _) => Action::Unavailable,
            (Some(reason), ..) => Action::Denied(Arc::clone(reason)),
            (None, _, None) => Action::DefaultBackend,
            (None, _, Some(None)) => Action::Unavailable,
            (None, _, Some(Some(upstream))) => Action::Backend(upstream),
        };
        // The control plane has looked at it: this is for one that has not.
        let (action, rewritten) = match policy.rewrite.of(&path.path) {
            Ok(rewritten) => (action, rewritten),
            Err(error) => (Action::Denied(format!("{}: {error}", path.path).into()), None),
        };
        let upstream_name = match &action {
            Action::Backend(upstream) => Arc::clone(&upstream.name),
            Action::Denied(_) | Action::Unavailable | Action::DefaultBackend => {
                backend.map_or_else(|| DEFAULT_UPSTREAM.into(), name_of)
            }
        };
        let asks_nobody = policy.auth.exempts(&path.path);
        let basic = policy.auth.basic.as_ref().filter(|_| !asks_nobody);
        let users = basic.map(|basic| self.materials.users(&basic.users));
        PathEntry {
            declared: path.path.as_str().into(),
            action,
            upstream_name,
            policy: Arc::clone(policy),
            counts: None,
            errors: None,
            rewritten,
            asks_nobody,
            users,
            stays_plain: policy.redirect.stays_plain(&path.path),
            owner: Arc::clone(owner),
            service: service.into(),
            port: port.into(),
        }
    }

    /// Why the paths of a Route answer 503, if they do: what restricts them is not enforced yet.
    fn denial(&self, route: &Route) -> Option<Arc<str>> {
        let Settings { guards, defaults, .. } = self.config.settings();
        if self.config.settings_unreadable() {
            return Some("the settings of the fleet cannot be read, and may restrict access".into());
        }
        if guards.contains(&Guard::Addresses) {
            return Some("the ConfigMap restricts client addresses, which is not enforced yet".into());
        }
        if guards.contains(&Guard::GlobalAuth)
            && effective(defaults, &route.policy).enable_global_auth != Some(false)
        {
            return Some("the ConfigMap asks for global-auth-url, which is not enforced yet".into());
        }
        let denial = self.host.and_then(|host| host.denied.as_ref()).or(route.denied.as_ref());
        denial.map(|denial| denial.reason.as_str().into())
    }

    fn upstream(&mut self, key: &'a str) -> Option<Arc<Upstream>> {
        if let Some(known) = self.upstreams.get(key) {
            return known.clone();
        }
        let made = self.backend(key).map(|(key, backend)| {
            // Judged when it was read.
            let rules = backend.policy.affinity.as_ref().and_then(|said| Rules::compile(said).ok());
            let rules = rules.map(Arc::new);
            let alternative =
                backend.alternatives.first().and_then(|key| self.alternative(key, rules.as_ref()));
            let (name, cell) = (name_of(&key), self.cells.cell(&key, backend.port.as_ref()));
            let sticky = rules.map(|rules| sticky(&rules, &name, &cell));
            Arc::new(Upstream { name, cell, sticky, alternative })
        });
        self.upstreams.insert(key, made.clone());
        made
    }

    /// Only the first alternative acts (ingress-nginx behaviour, annotations.md 6.16). It has the affinity of the main one,
    /// unless it says otherwise (balancing.md 9).
    fn alternative(&mut self, key: &str, main: Option<&Arc<Rules>>) -> Option<Arc<Alternative>> {
        let (key, backend) = self.backend(key)?;
        let (name, cell) = (name_of(&key), self.cells.cell(&key, backend.port.as_ref()));
        let main = main.filter(|_| backend.policy.no_affinity_as_canary != Some(true));
        let sticky = main.map(|rules| sticky(rules, &name, &cell));
        let canary = backend.policy.canary.as_ref().map(CompiledCanary::new);
        Some(Arc::new(Alternative { name, cell, sticky, canary }))
    }

    /// A Backend that may not exist; the host is compiled again when it comes or changes.
    fn backend(&mut self, key: &str) -> Option<(Arc<str>, &'a Backend)> {
        let found = self.config.backend(key);
        let key = found.map_or_else(|| key.into(), |(key, _)| Arc::clone(key));
        self.uses.insert(Arc::clone(&key));
        found.map(|(_, backend)| (key, backend))
    }
}

/// The affinity of a backend under these rules, ready for its present endpoints.
fn sticky(rules: &Arc<Rules>, name: &Arc<str>, cell: &BackendCell) -> Arc<Sticky> {
    let sticky = Sticky::new(Arc::clone(rules), Arc::clone(name));
    sticky.prepare(&cell.endpoints());
    Arc::new(sticky)
}
