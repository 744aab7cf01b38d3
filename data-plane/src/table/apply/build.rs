//! Compiles typed resources into one Route and the host that it belongs to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shared::few::{Few, FewOf};
use shared::pattern::{Pattern, is_literal};
use shared::resource::{Guard, Host, PathType, Settings};

use super::Writer;
use super::compiled::CompiledRoute;
use super::config::TouchedHost;
use super::interned::{StoredPath, StoredRoute};
use crate::metrics::RequestLabels;
use crate::rate::Counts;
use crate::table::aliases::Names;
use crate::table::client_tls::ciphers;
use crate::table::host::{Action, HostCertificates, HostEntry, PathEntry, Routing, Upstream};
use crate::table::keys::parts;
use crate::table::location::{More, Named};
use crate::table::policy::Policy;
use crate::table::policy::backend_tls::BackendTlsConfig;
use crate::table::policy::certificates::Certificates;
use crate::table::policy::protocol::Spoken;
use crate::table::policy::shortcuts::Shortcuts;
use crate::table::{BackendTls, MaterialCell, Protocol};

/// What the fleet's lists of locations spare a location.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Spares {
    asks_nobody: bool,
    stays_plain: bool,
}

/// What all paths of a Route share.
struct Common {
    key: Arc<str>,
    policy: Arc<Policy>,
    /// Why they respond with 503, if they do.
    denied: Option<Arc<str>>,
    /// Whether their host can be served.
    has_host: bool,
    counts: Option<Arc<Counts>>,
    errors: Option<Arc<Upstream>>,
    backend_tls: Option<Arc<MaterialCell<BackendTls>>>,
}

impl Writer {
    /// Rebuilds the parts of a host that were touched.
    pub(super) fn rebuild(&mut self, name: &Arc<str>, touched: TouchedHost) {
        let TouchedHost { frame, whole, routes } = touched;
        let before = self.hosts.named(name).cloned();
        let Some(host) = self.config.hosts.get(name).cloned() else {
            return self.demolish(name, before.as_deref());
        };
        let is_regex = host.as_deref().is_some_and(|host| host.policy.regex == Some(true));
        let mut compiled = self.compiled.remove(name).unwrap_or_default();
        let mut router = match before.as_ref().map(|before| before.routing()) {
            Some(Routing::Texts(router)) if !is_regex => Some(router.clone()),
            _ => None,
        };
        let routes = match whole || before.is_none() {
            true => {
                let known = self.config.routes.get(name).into_iter().flat_map(Few::keys);
                known.chain(compiled.keys()).cloned().collect()
            }
            false => routes,
        };
        let none = FewOf::default();
        for key in &routes {
            let now = self.config.routes.get(name).and_then(|routes| routes.get(key)).cloned();
            let before = compiled.route(key);
            let now = now.map(|now| self.build(key, now, host.as_deref(), before));
            let [used, uses] = [before, now.as_ref()].map(|it| it.map_or(&none, |it| &it.uses));
            self.cells.release(self.config.set_uses(key, used, uses));
            compiled.set(key, now, router.as_mut());
        }
        let routing = match (&before, router) {
            (_, Some(router)) => Routing::Texts(router),
            (_, None) if !is_regex => Routing::Texts(compiled.router()),
            (Some(before), None) if routes.is_empty() && matches!(before.routing(), Routing::Patterns(_)) => {
                before.routing().clone()
            }
            (_, None) => compiled.patterns(),
        };
        let entry = self.frame(name, host.as_deref(), routing, before.as_deref().filter(|_| !frame));
        self.counters.hosts_rebuilt.fetch_add(1, Ordering::Relaxed);
        let first = compiled.keys().min().cloned();
        let entry = entry.with_place(before.as_deref(), first.as_ref()).with_app_root(compiled.app_root());
        self.hosts.insert(Arc::new(entry));
        self.compiled.insert(Arc::clone(name), compiled);
        self.rename(name, before.as_deref());
    }

    /// Removes a host that no longer exists.
    pub(super) fn demolish(&mut self, name: &Arc<str>, before: Option<&HostEntry>) {
        self.hosts.remove(name);
        for (key, uses) in self.compiled.remove(name).unwrap_or_default().uses() {
            self.cells.release(self.config.set_uses(key, uses, &FewOf::default()));
        }
        self.rename(name, before);
    }

    /// A host without its Routes; aliases are taken from the previous entry if one is given.
    fn frame(
        &mut self,
        name: &Arc<str>,
        host: Option<&Host>,
        routing: Routing,
        same: Option<&HostEntry>,
    ) -> HostEntry {
        let tls = host.and_then(|host| host.tls.as_ref());
        let certificates = tls.map(|tls| tls.certificates.iter().map(|key| self.secrets.cell(key)).collect());
        let entry = HostEntry::new(Arc::clone(name), certificates, routing);
        if let Some(same) = same {
            let entry = entry.with_certificates(same.certificates().cloned());
            let entry = entry.with_ciphers(same.ciphers().cloned(), same.has_client_order());
            let entry = entry.with_passthrough(same.has_passthrough());
            let entry = entry.with_shortcuts(same.shortcuts().cloned());
            return entry.with_names(same.names().cloned(), same.has_www());
        }
        let policy = host.map(|host| &host.policy);
        // Aliases that do not compile were refused on arrival.
        let configured = policy.and_then(|policy| policy.aliases.as_ref());
        let names = configured.and_then(|configured| Names::compile(&configured.values).ok()).map(Arc::new);
        let asked = policy.and_then(|policy| policy.client_certificates.as_ref());
        let certificates = Certificates::compile(asked).ok().flatten().map(|policy| {
            let cell = policy.client_auth.as_ref().map(|config| self.materials.client_auth(config));
            HostCertificates { policy: Arc::new(policy), cell }
        });
        let configured = policy.and_then(|policy| policy.shortcuts.as_ref());
        let own = Shortcuts::compile(configured).ok().flatten();
        let entry = entry.with_shortcuts(self.policies.of_host(own));
        let ciphers = ciphers(policy.and_then(|policy| policy.ssl_ciphers.as_ref())).ok().flatten();
        let client_order = policy.is_some_and(|policy| policy.ssl_prefer_server_ciphers == Some(false));
        let entry = entry.with_certificates(certificates).with_ciphers(ciphers.map(Into::into), client_order);
        let entry = entry.with_passthrough(policy.is_some_and(|policy| policy.passthrough == Some(true)));
        entry.with_names(names, policy.is_some_and(|policy| policy.www == Some(true)))
    }

    /// Compiles a Route. An unchanged path keeps its entry from `before`.
    fn build(
        &mut self,
        key: &Arc<str>,
        route: Arc<StoredRoute>,
        host: Option<&Host>,
        before: Option<&CompiledRoute>,
    ) -> CompiledRoute {
        self.counters.routes_compiled.fetch_add(1, Ordering::Relaxed);
        let mut uses = FewOf::default();
        let mut upstreams = Few::default();
        let mut upstream = |writer: &mut Self, backend| -> Option<Arc<Upstream>> {
            if let Some(known) = upstreams.get(&backend) {
                return Option::clone(known);
            }
            let Self { config, cells, upstreams: all, .. } = writer;
            let made = all.of(backend, config, cells, &mut uses);
            upstreams.insert(backend, made.clone());
            made
        };
        let errors = route.policy.default_backend.as_deref().and_then(|key| upstream(self, key));
        let common = self.common(key, &route, host, errors);
        let old = before.into_iter().flat_map(|before| before.source.paths.iter().zip(&before.entries));
        // Of equal ones, the first.
        let mut kept: HashMap<(&str, PathType), (&StoredPath, &Arc<PathEntry>)> = HashMap::new();
        for (path, entry) in old {
            kept.entry((&path.path, path.kind)).or_insert((path, entry));
        }
        let mut entries = Vec::with_capacity(route.paths.len());
        for path in &*route.paths {
            // Looked up in any case, so that a path that is denied now is recompiled when its backend arrives.
            let proxied = path.backend.as_deref().map(|backend| upstream(self, backend));
            let old = kept.get(&(&*path.path, path.kind));
            let same = old.filter(|(old, entry)| *old == path && common.is_of(entry, proxied.as_ref()));
            entries.push(match same {
                Some((_, entry)) => Arc::clone(entry),
                None => Arc::new(self.path(path, &common, proxied, old.map(|(_, entry)| &entry.place))),
            });
        }
        CompiledRoute { source: route, entries: entries.into(), uses }
    }

    fn common(
        &mut self,
        key: &Arc<str>,
        route: &StoredRoute,
        host: Option<&Host>,
        errors: Option<Arc<Upstream>>,
    ) -> Common {
        // Currently impossible: a policy whose parts compile but whose merge does not. If it ever happens, the path is
        // not served without its policy.
        let (policy, failed) = match self.policies.of_route(&self.config.settings().defaults, &route.policy) {
            Ok(policy) => (policy, None),
            Err(reason) => (Arc::default(), Some(reason)),
        };
        let denied = self.denial(route, host).or(failed);
        let object = key.rsplit_once('/').map_or(&**key, |(object, _)| object);
        let counts = policy.limits.is_some().then(|| self.policies.counted.of(object));
        let backend_tls = self.backend_tls(&policy, host);
        let has_host = host.is_some();
        Common { key: Arc::clone(key), policy, denied, has_host, counts, errors, backend_tls }
    }

    /// TLS settings towards endpoints: the location's, else its host's. Those of gRPC are the location's alone: in nginx,
    /// what applies to the host has no effect on `grpc_pass`.
    fn backend_tls(&mut self, policy: &Policy, host: Option<&Host>) -> Option<Arc<MaterialCell<BackendTls>>> {
        if let Some(configured) = &policy.backend_tls {
            return Some(self.materials.backend_tls(configured));
        }
        if policy.spoken == Spoken::Always(Protocol::Grpcs) {
            return None;
        }
        // Settings that do not compile were refused on arrival.
        let configured = BackendTlsConfig::compile(host?.policy.backend_tls.as_ref()).ok()?;
        configured.map(|configured| self.materials.backend_tls(&configured))
    }

    /// Compiles a path, and what is below it if the fleet's lists spare that alone.
    fn path(
        &mut self,
        path: &StoredPath,
        common: &Common,
        proxied: Option<Option<Arc<Upstream>>>,
        place: Option<&Arc<RequestLabels>>,
    ) -> PathEntry {
        self.counters.paths_compiled.fetch_add(1, Ordering::Relaxed);
        let (whole, below) = common.spares(path);
        let mut entry = self.location(path, common, proxied.clone(), (place, whole));
        if below != whole {
            let below = Arc::new(self.location(path, common, proxied, (Some(&entry.place), below)));
            entry.more.get_or_insert_default().below = Some(below);
        }
        entry
    }

    fn location(
        &mut self,
        path: &StoredPath,
        common: &Common,
        proxied: Option<Option<Arc<Upstream>>>,
        (place, spares): (Option<&Arc<RequestLabels>>, Spares),
    ) -> PathEntry {
        let Spares { asks_nobody, stays_plain } = spares;
        let policy = &common.policy;
        let action = match (&common.denied, common.has_host, &proxied) {
            (_, false, _) => Action::Unavailable,
            (Some(reason), ..) => Action::Denied(Arc::clone(reason)),
            (None, _, None) => Action::DefaultBackend,
            (None, _, Some(None)) => Action::Unavailable,
            (None, _, Some(Some(upstream))) => Action::Backend(Arc::clone(upstream)),
        };
        // The control plane has checked this; it is for one that has not.
        let (action, rewritten) = match policy.rewrite.of(&path.path, path.kind) {
            Ok(rewritten) => (action, rewritten),
            Err(error) => (Action::Denied(format!("{}: {error}", path.path).into()), None),
        };
        let asks_groups = matches!(&action, Action::Backend(upstream) if upstream.asks_groups());
        // A path that is not a pattern has no capture groups.
        let is_grouped = asks_groups && rewritten.is_none() && !is_literal(&path.path);
        let grouped = is_grouped.then(|| Pattern::path(&path.path).ok()).flatten().map(Box::new);
        let backend = path.backend.as_ref();
        let named = match &action {
            Action::Backend(_) => None,
            Action::Denied(_) | Action::Unavailable | Action::DefaultBackend => backend
                .map(|backend| Named { backend: Some(Arc::clone(backend)), upstream: proxied.flatten() }),
        };
        let basic = policy.auth.basic.as_ref().filter(|_| !asks_nobody);
        let users = basic.map(|basic| self.materials.users(&basic.users));
        let service = backend.and_then(|key| parts(key)).map_or("", |(_, service, _)| service);
        // The same as before, so that its counters continue.
        let place = place.filter(|place| place.service() == service).cloned();
        let backend = match &action {
            Action::Backend(upstream) => Some(&upstream.cell.key),
            Action::Denied(_) | Action::Unavailable | Action::DefaultBackend => backend,
        };
        let place = place.unwrap_or_else(|| RequestLabels::new(&common.key, backend, &path.path));
        let more = More {
            counts: common.counts.clone(),
            errors: common.errors(path.backend.is_some()).cloned(),
            rewritten: rewritten.map(Box::new),
            grouped,
            users,
            backend_tls: common.backend_tls.clone(),
            named,
            below: None,
        };
        PathEntry {
            place,
            action,
            policy: Arc::clone(policy),
            more: (!more.is_empty()).then(|| Box::new(more)),
            after_exact: path.after_exact,
            asks_nobody,
            stays_plain,
        }
    }

    /// Why the paths of a Route respond with 503, if they do: one of their restrictions cannot be enforced yet.
    fn denial(&self, route: &StoredRoute, host: Option<&Host>) -> Option<Arc<str>> {
        let Settings { guards, defaults, .. } = self.config.settings();
        if self.config.settings_unreadable() {
            return Some("the settings of the fleet cannot be read, and may restrict access".into());
        }
        if guards.contains(&Guard::Addresses) {
            return Some("the ConfigMap restricts who may ask what, which is not enforced yet".into());
        }
        let denial = host.and_then(|host| host.denied.as_ref()).or(route.denied.as_deref());
        if denial.is_none() && route.policy.enable_modsecurity.or(defaults.enable_modsecurity) == Some(true) {
            return Some("the ConfigMap asks for ModSecurity, which is not enforced".into());
        }
        denial.map(|denial| denial.reason.as_str().into())
    }
}

impl Common {
    /// What is spared a path, and what is below it: in ingress-nginx another location, if the path is split.
    fn spares(&self, path: &StoredPath) -> (Spares, Spares) {
        let Policy { auth, redirect, rewrite, .. } = &*self.policy;
        let declared = &*path.path;
        let whole =
            Spares { asks_nobody: auth.exempt.has(declared), stays_plain: redirect.plain.has(declared) };
        if declared.ends_with('/') || rewrite.is_one_location(declared, path.kind) {
            return (whole, whole);
        }
        let below = Spares {
            asks_nobody: auth.exempt.has_below(declared),
            stays_plain: redirect.plain.has_below(declared),
        };
        (whole, below)
    }

    /// The backend for error pages of a path. One without a backend of its own asks the fleet's default backend, for error
    /// pages, too: ingress-nginx looks for the Service of the annotation only among those of other upstreams.
    fn errors(&self, has_backend: bool) -> Option<&Arc<Upstream>> {
        self.errors.as_ref().filter(|_| has_backend)
    }

    /// Whether an existing entry of the same path equals the one that would be built now.
    fn is_of(&self, entry: &PathEntry, proxied: Option<&Option<Arc<Upstream>>>) -> bool {
        let same_action = match (&entry.action, proxied) {
            (Action::Backend(before), Some(Some(now))) => Arc::ptr_eq(before, now),
            (Action::Unavailable, Some(None)) | (Action::DefaultBackend, None) => true,
            _ => false,
        };
        self.denied.is_none()
            && self.has_host
            && same_action
            && Arc::ptr_eq(&self.policy, &entry.policy)
            && same(self.counts.as_ref(), entry.counts())
            && same(self.errors(proxied.is_some()), entry.errors())
            && same(self.backend_tls.as_ref(), entry.backend_tls())
    }
}

fn same<T>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}
