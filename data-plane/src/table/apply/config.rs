//! The part of the CONFIG lane that can be served, typed, and which hosts a change to it touches.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use foldhash::quality::RandomState;
use shared::few::{Few, FewOf};
use shared::kind::{Kind, ResourceKey};
use shared::policy::{HostPolicy, LocationPolicy};
use shared::resource::{Backend, Host, Resource, Route, Settings, StreamService};

use super::by_name::ByName;
use super::interned::{Interner, StoredRoute};
use super::policies::effective;
use crate::listen::ports::Port;
use crate::table::keys::route_parts;

/// The last version of each resource that can be served.
#[derive(Debug, Default)]
pub(super) struct Config {
    settings: Settings,
    settings_known: bool,
    /// Settings exist but no version of them can be read: they may contain restrictions.
    settings_unreadable: bool,
    /// `None`: it exists, but no version of it can be served.
    pub(super) hosts: ByName<Option<Arc<Host>>>,
    /// By host, then by key.
    pub(super) routes: ByName<Few<Arc<str>, Arc<StoredRoute>>>,
    /// Deduplicated Hosts, policies of Routes, and Backends.
    of_hosts: Interner<Host>,
    of_routes: Interner<LocationPolicy>,
    of_backends: Interner<Backend>,
    /// The text of the last path that was stored: most are like the one before.
    last_path: Arc<str>,
    /// Any change replaces the pointer.
    pub(super) backends: ByName<Arc<Backend>>,
    /// Removed Backends that the last good version of a refused resource still names: see [`Self::backend`].
    kept: ByName<Arc<Backend>>,
    /// Routes by the Backends that they name, whether those exist or not, including canaries.
    users: ByName<FewOf<Arc<str>>>,
    /// TCP and UDP services by the key of their Listener, with their ports.
    pub(super) services: BTreeMap<Arc<str>, (Arc<StreamService>, Arc<Port>)>,
    touched: Touched,
}

/// What has to be rebuilt.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Hosts to compile, and which parts of them.
    pub(super) hosts: ByName<TouchedHost>,
    /// Backends whose endpoint source may have changed.
    pub(super) backends: HashSet<Arc<str>, RandomState>,
    /// The defaults under the policies of all Routes changed.
    pub(super) defaults: bool,
    /// Another Secret holds the default certificate.
    pub(super) default_certificate: bool,
    /// The default backend changed, appeared or disappeared.
    pub(super) default_backend: bool,
    /// A TCP or UDP service was added, changed or removed.
    pub(super) streams: bool,
}

/// The parts of a host that have to be rebuilt.
#[derive(Debug, Default)]
pub(super) struct TouchedHost {
    /// Its aliases and certificates.
    pub(super) frame: bool,
    /// All its Routes.
    pub(super) whole: bool,
    /// These Routes, whether they exist or not.
    pub(super) routes: FewOf<Arc<str>>,
}

impl Touched {
    fn host(&mut self, name: &Arc<str>) -> &mut TouchedHost {
        self.hosts.or_default(name)
    }

    fn route(&mut self, key: &Arc<str>) {
        let Some(name) = host_of(key) else { return };
        let host = match self.hosts.get_mut(name) {
            Some(host) => host,
            None => self.hosts.or_default(&name.into()),
        };
        host.routes.insert(Arc::clone(key));
    }
}

impl Config {
    /// The fleet's settings.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether there may be restrictions that could not be read.
    pub(super) fn settings_unreadable(&self) -> bool {
        self.settings_unreadable
    }

    /// The changes since the last call.
    pub(super) fn take_touched(&mut self) -> Touched {
        mem::take(&mut self.touched)
    }

    /// Whether a version of this resource is served.
    pub(super) fn serves(&self, key: &ResourceKey) -> bool {
        match key.kind {
            Kind::Settings => self.settings_known,
            Kind::Host => matches!(self.hosts.get(&key.key), Some(Some(_))),
            Kind::Route => host_of(&key.key)
                .and_then(|host| self.routes.get(host))
                .is_some_and(|routes| routes.contains_key(&key.key)),
            Kind::Backend => self.backend(&key.key).is_some(),
            Kind::Listener => self.services.contains_key(&key.key),
            _ => false,
        }
    }

    /// Whether a Route is served with this policy.
    pub(super) fn serves_with(&self, policy: &LocationPolicy) -> bool {
        self.of_routes.has(policy)
    }

    /// For so many resources, all of them new.
    pub(super) fn make_room(&mut self, hosts: usize, routes: usize, backends: usize) {
        self.hosts.reserve(hosts);
        self.touched.hosts.reserve(hosts);
        // Most hosts have one.
        self.routes.reserve(hosts.min(routes));
        self.backends.reserve(backends);
        self.touched.backends.reserve(backends);
        self.users.reserve(backends);
    }

    /// Serves this version.
    pub(super) fn put(&mut self, key: &Arc<str>, resource: Resource) {
        match resource {
            Resource::Settings(settings) => {
                self.settings_known = true;
                self.set_settings(settings, false);
            }
            Resource::Host(host) => {
                let host = self.of_hosts.intern(host);
                self.set_host(key, Some(Some(host)));
            }
            Resource::Route(route) => {
                let key_of = |key: &str| {
                    let known = self.backends.get_key_value(key);
                    known.map_or_else(|| key.into(), |(known, _)| Arc::clone(known))
                };
                let last = &mut self.last_path;
                let text_of = |text: &str| {
                    if **last != *text {
                        *last = text.into();
                    }
                    Arc::clone(last)
                };
                let route = StoredRoute::new(route, &mut self.of_routes, text_of, key_of);
                self.set_route(key, Some(route));
            }
            Resource::Backend(backend) => {
                let backend = self.of_backends.intern(backend);
                self.set_backend(key, Some(backend));
            }
            // Services come through [`Self::serve`], with their ports; other listeners are bound by flags.
            Resource::Listener(_)
            | Resource::Endpoints(_)
            | Resource::Certificate(_)
            | Resource::Chain(_)
            | Resource::Material(_) => {}
        }
    }

    /// Serves a TCP or UDP service.
    pub(super) fn serve(&mut self, key: &Arc<str>, service: StreamService, port: Arc<Port>) {
        self.touched.streams = true;
        self.services.insert(Arc::clone(key), (Arc::new(service), port));
    }

    /// The new version cannot be served: the previous one stays, if there is one.
    pub(super) fn refuse(&mut self, key: &ResourceKey) {
        match key.kind {
            Kind::Host if !self.hosts.contains_key(&key.key) => self.set_host(&key.key, Some(None)),
            Kind::Settings if !self.settings_known => self.set_settings(Settings::default(), true),
            // It exists again, and this is its last good version.
            Kind::Backend => {
                if let Some(kept) = self.kept.remove(&key.key) {
                    self.set_backend(&key.key, Some(kept));
                }
            }
            _ => {}
        }
    }

    /// A Backend that is stored, or that only a last good version names: a Route whose newest version cannot be served
    /// continues with its old Backends.
    pub(super) fn backend(&self, key: &str) -> Option<(&Arc<str>, &Arc<Backend>)> {
        let had = self.backends.get_key_value(key);
        had.or_else(|| self.kept.get_key_value(key))
    }

    /// Drops the removed Backends that no last good version names. `stale` are the resources that are served in such a
    /// version. Called after all changes of a batch.
    pub(super) fn release_kept<'a>(&mut self, stale: impl Iterator<Item = &'a ResourceKey>) {
        if self.kept.is_empty() {
            return;
        }
        let mut named = HashSet::new();
        let alternatives = |key: &str| self.backend(key).into_iter().flat_map(|(_, it)| &it.alternatives);
        for key in stale {
            let routes = host_of(&key.key).and_then(|host| self.routes.get(host));
            match key.kind {
                Kind::Route => {
                    let route = routes.and_then(|routes| routes.get(&key.key));
                    let paths = route.into_iter().flat_map(|route| &*route.paths);
                    let errors = route.and_then(|route| route.policy.default_backend.as_deref());
                    for backend in paths.filter_map(|path| path.backend.as_deref()).chain(errors) {
                        named.insert(backend);
                        named.extend(alternatives(backend).map(String::as_str));
                    }
                }
                Kind::Backend => named.extend(alternatives(&key.key).map(String::as_str)),
                Kind::Settings => _ = named.insert(self.settings.default_backend.as_str()),
                _ => {}
            }
        }
        let unnamed = self.kept.keys().filter(|key| !named.contains(&***key));
        let unnamed: Vec<_> = unnamed.cloned().collect();
        for key in &unnamed {
            self.kept.remove(key);
            self.touch_users(key);
            self.touched.default_backend |= *self.settings.default_backend == **key;
        }
        self.touched.backends.extend(unnamed);
    }

    /// Stops serving it. `gone`: everything that names it was removed, too.
    pub(super) fn remove(&mut self, key: &ResourceKey, gone: bool) {
        match key.kind {
            Kind::Settings => {
                self.settings_known = false;
                self.set_settings(Settings::default(), false);
            }
            Kind::Host => self.set_host(&key.key, None),
            Kind::Route => self.set_route(&key.key, None),
            Kind::Listener => self.touched.streams |= self.services.remove(&key.key).is_some(),
            Kind::Backend => {
                let kept = self.backends.get(&key.key).filter(|_| !gone).cloned();
                self.set_backend(&key.key, None);
                match kept {
                    Some(backend) => self.kept.insert(Arc::clone(&key.key), backend),
                    None => self.kept.remove(&key.key),
                };
            }
            _ => {}
        }
    }

    /// Whether this is the served version of a Route.
    pub(super) fn says(&self, key: &Arc<str>, route: &Route) -> bool {
        let kept = host_of(key).and_then(|host| self.routes.get(host)).and_then(|routes| routes.get(key));
        kept.is_some_and(|kept| kept.is(route))
    }

    /// Marks a whole host for recompilation.
    pub(super) fn touch(&mut self, host: &Arc<str>) {
        let touched = self.touched.host(host);
        (touched.frame, touched.whole) = (true, true);
    }

    /// Records which Backends a compiled Route names, and did before; returns those that are no longer named by any.
    pub(super) fn set_uses(
        &mut self,
        route: &Arc<str>,
        before: &FewOf<Arc<str>>,
        now: &FewOf<Arc<str>>,
    ) -> Vec<Arc<str>> {
        for backend in now.difference(before) {
            let users = self.users.or_default(backend);
            users.insert(Arc::clone(route));
        }
        let mut unused = Vec::new();
        for backend in before.difference(now) {
            let Some(users) = self.users.get_mut(backend) else {
                continue;
            };
            users.remove(route);
            if users.is_empty() {
                self.users.remove(backend);
                unused.push(Arc::clone(backend));
            }
        }
        unused
    }

    fn set_settings(&mut self, settings: Settings, unreadable: bool) {
        let Settings { default_certificate, defaults, backend_defaults, default_backend, guards } = &settings;
        let old = &self.settings;
        self.touched.default_certificate |= *default_certificate != old.default_certificate;
        self.touched.default_backend |= *default_backend != old.default_backend;
        if *guards != old.guards || unreadable != self.settings_unreadable {
            self.touched.default_backend = true;
            for name in self.hosts.keys() {
                self.touched.host(name).whole = true;
            }
        }
        if *defaults != old.defaults {
            self.touched.defaults = true;
            if defaults.host_shortcuts != old.defaults.host_shortcuts {
                for name in self.hosts.keys() {
                    self.touched.host(name).frame = true;
                }
            }
            for key in changed_by(&old.defaults, defaults, &self.routes) {
                self.touched.route(key);
            }
        }
        if *backend_defaults != old.backend_defaults {
            let is_compiled_in = backend_defaults.load_balance != old.backend_defaults.load_balance;
            let all: Vec<_> = self.backends.keys().chain(self.kept.keys()).cloned().collect();
            all.iter().filter(|_| is_compiled_in).for_each(|key| self.touch_users(key));
            self.touched.backends.extend(all);
        }
        self.settings = settings;
        self.settings_unreadable = unreadable;
    }

    fn set_host(&mut self, name: &Arc<str>, host: Option<Option<Arc<Host>>>) {
        let before = self.hosts.get(name);
        if before == host.as_ref() {
            return;
        }
        let touched = self.touched.host(name);
        touched.frame = true;
        touched.whole |= match (before, &host) {
            (Some(Some(before)), Some(Some(now))) => of_paths(before) != of_paths(now),
            _ => true,
        };
        match host {
            Some(host) => self.hosts.insert(Arc::clone(name), host),
            None => self.hosts.remove(name),
        };
    }

    fn set_route(&mut self, key: &Arc<str>, route: Option<Arc<StoredRoute>>) {
        let Some(host) = host_of(key) else {
            return;
        };
        let known = self.routes.get_mut(host);
        if known.as_ref().and_then(|routes| routes.get(key)) == route.as_ref() {
            return;
        }
        match (known, route) {
            (Some(routes), Some(route)) => drop(routes.insert(Arc::clone(key), route)),
            (Some(routes), None) => {
                routes.remove(key);
                if routes.is_empty() {
                    self.routes.remove(host);
                }
            }
            (None, Some(route)) => {
                let name =
                    self.hosts.get_key_value(host).map_or_else(|| host.into(), |(it, _)| Arc::clone(it));
                self.routes.insert(name, Few::from_iter([(Arc::clone(key), route)]));
            }
            (None, None) => {}
        }
        self.touched.route(key);
    }

    fn set_backend(&mut self, key: &Arc<str>, backend: Option<Arc<Backend>>) {
        let old = self.backends.get(key);
        if old == backend.as_ref() {
            return;
        }
        // The source of endpoints is in the cell. Everything else, and whether the Backend exists, is compiled into
        // hosts.
        let compiled_in = match (old, &backend) {
            (Some(old), Some(new)) => {
                let Backend { port: _, external: _, service: _, without_service: _, alternatives, policy } =
                    &**new;
                *alternatives != old.alternatives || *policy != old.policy
            }
            _ => true,
        };
        if compiled_in {
            self.touch_users(key);
        }
        self.touched.default_backend |= compiled_in && *self.settings.default_backend == **key;
        self.touched.backends.insert(Arc::clone(key));
        self.kept.remove(key);
        match backend {
            Some(backend) => self.backends.insert(Arc::clone(key), backend),
            None => self.backends.remove(key),
        };
    }

    /// Marks the Routes that name a Backend for recompilation.
    fn touch_users(&mut self, backend: &str) {
        for route in self.users.get(backend).into_iter().flat_map(FewOf::iter) {
            self.touched.route(route);
        }
    }
}

/// The part of a Host that its paths depend on: everything that is not known to be irrelevant for them.
fn of_paths(host: &Host) -> Host {
    let of_paths = host.policy.clone();
    let policy = HostPolicy {
        aliases: None,
        www: None,
        shortcuts: None,
        client_certificates: None,
        ssl_ciphers: None,
        ssl_prefer_server_ciphers: None,
        passthrough: None,
        ..of_paths
    };
    Host { tls: None, denied: host.denied.clone(), policy }
}

/// The Routes that changed defaults affect: one that sets all changed fields itself is skipped.
fn changed_by<'a>(
    old: &LocationPolicy,
    new: &LocationPolicy,
    routes: &'a ByName<Few<Arc<str>, Arc<StoredRoute>>>,
) -> impl Iterator<Item = &'a Arc<str>> {
    // There are few distinct policies, each used by many.
    let mut known: HashMap<&LocationPolicy, bool> = HashMap::new();
    let mut differs = move |policy| {
        *known.entry(policy).or_insert_with(|| effective(old, policy) != effective(new, policy))
    };
    let routes = routes.values().flat_map(Few::iter).filter(move |(_, route)| differs(&*route.policy));
    routes.map(|(key, _)| key)
}

fn host_of(route: &str) -> Option<&str> {
    route_parts(route).map(|parts| parts.host)
}

#[cfg(test)]
mod tests;
