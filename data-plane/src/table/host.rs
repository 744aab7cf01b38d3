//! One compiled virtual host: everything that a request for it needs, without a lookup by name.

use std::sync::Arc;

use shared::pattern::{Exhausted, Steps};
use shared::template::Template;

use super::aliases::Names;
use super::cell::{BackendCell, CertificateCell};
use super::certified::Certified;
use super::client_auth::ClientAuth;
use super::material::MaterialCell;
use super::paths::{Declared, Router};
use super::patterns::Patterns;
use super::policy::certificates::Certificates;
use super::policy::shortcuts::Shortcuts;
use crate::metrics::RequestLabels;

pub use super::location::{Action, DEFAULT_UPSTREAM, PathEntry};
pub use super::upstream::{Alternative, Upstream};

/// One virtual host. Immutable.
#[derive(Debug)]
pub struct HostEntry {
    name: Arc<str>,
    certificates: Option<Box<[Arc<CertificateCell>]>>,
    routing: Routing,
    /// The metric labels of requests that none of its paths takes.
    place: Arc<RequestLabels>,
    rare: Option<Box<Rare>>,
}

/// What few hosts have.
#[derive(Debug, Default)]
struct Rare {
    /// Redirect target for requests for "/", used before a location is looked up.
    app_root: Option<Arc<Template>>,
    /// Its aliases.
    names: Option<Arc<Names>>,
    /// Whether the same name with or without `www.` redirects here.
    www: bool,
    certificates_of_clients: Option<Box<HostCertificates>>,
    /// Snippet directives that respond directly.
    shortcuts: Option<Arc<Shortcuts>>,
    ciphers: Option<Box<Ciphers>>,
    /// TLS for exactly this name is passed through to the backend of "/".
    passthrough: bool,
}

#[derive(Debug)]
struct Ciphers {
    /// Of TLS 1.2, instead of the fleet's.
    suites: Option<Arc<[u16]>>,
    /// Whether the client's order of preference is used.
    client_order: bool,
}

/// Where TLS connections for exactly the name of a host are terminated.
#[derive(Clone, Debug)]
pub enum End {
    /// In the proxy.
    Here,
    /// At this backend (passthrough).
    At(Arc<BackendCell>),
    /// Nowhere: there is no backend to pass them to.
    Nowhere,
}

/// Client certificates of a host: whether one is required, and how it is verified.
#[derive(Clone, Debug)]
pub struct HostCertificates {
    /// The configured policy.
    pub policy: Arc<Certificates>,
    /// `None`: it cannot be determined what is required, and every client is refused.
    pub cell: Option<Arc<MaterialCell<ClientAuth>>>,
}

impl HostCertificates {
    /// The current verification policy, if available.
    pub fn auth(&self) -> Option<Arc<ClientAuth>> {
        self.cell.as_ref()?.get()
    }
}

/// The lookup structure for the paths of a host.
#[derive(Clone, Debug)]
pub enum Routing {
    /// By literal text.
    Texts(Router),
    /// As regular expressions (as in ingress-nginx).
    Patterns(Arc<Patterns>),
}

impl HostEntry {
    /// A host without aliases. `certificates` is `None` for a host without TLS.
    pub fn new(name: Arc<str>, certificates: Option<Box<[Arc<CertificateCell>]>>, routing: Routing) -> Self {
        Self { place: RequestLabels::of_host(&name, None), name, certificates, routing, rare: None }
    }

    /// Sets what few hosts have, unless it is not set and was not.
    fn with(mut self, is_set: bool, set: impl FnOnce(&mut Rare)) -> Self {
        if is_set || self.rare.is_some() {
            set(self.rare.get_or_insert_default());
        }
        self
    }

    /// Sets the redirect target for "/". If several locations define one, the first in nginx' list of locations wins,
    /// whichever has "/" (as in ingress-nginx).
    pub fn with_app_root(self, path: Option<&str>) -> Self {
        let path = path.map(|path| Arc::new(Template::parse(path)));
        self.with(path.is_some(), |rare| rare.app_root = path)
    }

    /// Sets the aliases, and the redirect from the same name with or without `www.`.
    pub fn with_names(self, names: Option<Arc<Names>>, www: bool) -> Self {
        self.with(names.is_some() || www, |rare| (rare.names, rare.www) = (names, www))
    }

    /// Sets the client certificate policy.
    pub fn with_certificates(self, certificates: Option<HostCertificates>) -> Self {
        self.with(certificates.is_some(), |rare| rare.certificates_of_clients = certificates.map(Box::new))
    }

    /// Reuses the metric labels of the previous entry, if that has the same first Route.
    pub fn with_place(mut self, before: Option<&Self>, route: Option<&Arc<str>>) -> Self {
        let key = route.unwrap_or(&self.name);
        let same = before.map(|before| &before.place).filter(|place| place.is_of(key));
        self.place = same.map_or_else(|| RequestLabels::of_host(&self.name, route), Arc::clone);
        self
    }

    /// The metric labels of requests that none of its paths takes.
    pub fn place(&self) -> &Arc<RequestLabels> {
        &self.place
    }

    /// Sets the direct responses of snippets.
    pub fn with_shortcuts(self, shortcuts: Option<Arc<Shortcuts>>) -> Self {
        self.with(shortcuts.is_some(), |rare| rare.shortcuts = shortcuts)
    }

    /// The direct responses of snippets.
    pub fn shortcuts(&self) -> Option<&Arc<Shortcuts>> {
        self.rare.as_ref()?.shortcuts.as_ref()
    }

    /// Sets its own cipher suites, and whether the client's order of preference is used.
    pub fn with_ciphers(self, ciphers: Option<Arc<[u16]>>, client_order: bool) -> Self {
        let is_set = ciphers.is_some() || client_order;
        let ciphers = is_set.then(|| Box::new(Ciphers { suites: ciphers, client_order }));
        self.with(is_set, |rare| rare.ciphers = ciphers)
    }

    /// Sets TLS passthrough to the backend of "/".
    pub fn with_passthrough(self, passthrough: bool) -> Self {
        self.with(passthrough, |rare| rare.passthrough = passthrough)
    }

    /// Whether TLS is passed through to the backend of "/".
    pub fn has_passthrough(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.passthrough)
    }

    /// Where TLS for exactly this name is terminated. Only the declared path "/" is considered (as in ingress-nginx).
    pub fn end(&self) -> End {
        if !self.has_passthrough() {
            return End::Here;
        }
        let entry = match self.route(b"/", &Steps::new()) {
            Match::Path(entry) if entry.declared() == "/" => entry,
            _ => return End::Nowhere,
        };
        match &entry.action {
            Action::Backend(upstream) => End::At(Arc::clone(&upstream.cell)),
            Action::DefaultBackend | Action::Denied(_) | Action::Unavailable => End::Nowhere,
        }
    }

    /// TLS 1.2 cipher suites instead of the fleet's, in order of preference.
    pub fn ciphers(&self) -> Option<&Arc<[u16]>> {
        self.rare.as_ref()?.ciphers.as_ref()?.suites.as_ref()
    }

    /// Whether the client's order of cipher suites is used.
    pub fn has_client_order(&self) -> bool {
        let ciphers = self.rare.as_ref().and_then(|rare| rare.ciphers.as_ref());
        ciphers.is_some_and(|it| it.client_order)
    }

    /// The client certificate policy, if there is one.
    pub fn certificates(&self) -> Option<&HostCertificates> {
        self.rare.as_ref()?.certificates_of_clients.as_deref()
    }

    /// Its aliases, if it has any.
    pub fn names(&self) -> Option<&Arc<Names>> {
        self.rare.as_ref()?.names.as_ref()
    }

    /// Whether clients that use this name get affinity cookies: ingress-nginx looks up the name, then the name with
    /// `*` in place of its first label, and does not consider patterns.
    pub fn knows_as(&self, name: &str) -> bool {
        let has = |text: &str| *self.name == *text || self.names().is_some_and(|names| names.has(text));
        let wildcard = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        &*self.name == shared::resource::CATCH_ALL || has(name) || wildcard().is_some_and(|it| has(&it))
    }

    /// Whether the same name with or without `www.` redirects here.
    pub fn has_www(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.www)
    }

    /// A host without paths and TLS.
    pub fn empty(name: &str) -> Self {
        Self::new(name.into(), None, Routing::Texts(Router::default()))
    }

    /// Its name: `a.test`, `*.a.test` or `_`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The match of a decoded and normalised path (as in ingress-nginx).
    ///
    /// `steps`: the pattern matching budget of the request.
    pub fn route(&self, path: &[u8], steps: &Steps) -> Match<'_> {
        let found = match &self.routing {
            Routing::Texts(router) => router.route(path),
            Routing::Patterns(patterns) => match patterns.find(path, steps) {
                Ok(Some(entry)) => Match::Path(entry),
                Ok(None) => Match::None,
                Err(Exhausted) => Match::Unknown,
            },
        };
        match found {
            Match::Path(entry) => Match::Path(entry.part(path)),
            Match::AddSlash(_) | Match::None | Match::Unknown => found,
        }
    }

    /// Whether its paths are regular expressions (as in ingress-nginx, all of them or none).
    pub fn is_in_patterns(&self) -> bool {
        matches!(self.routing, Routing::Patterns(_))
    }

    /// The lookup structure of its paths, to build the next one from.
    pub fn routing(&self) -> &Routing {
        &self.routing
    }

    /// The path that requests for "/" are sent to.
    pub fn app_root(&self) -> Option<&Arc<Template>> {
        self.rare.as_ref()?.app_root.as_ref()
    }

    /// Whether an Ingress has a TLS section for it.
    pub fn has_tls(&self) -> bool {
        self.certificates.is_some()
    }

    /// The first available certificate that covers its name.
    pub fn certificate(&self) -> Option<Arc<Certified>> {
        self.covered().map(|(_, certificate)| certificate)
    }

    /// The same with the name of its Secret.
    pub fn covered(&self) -> Option<(&str, Arc<Certified>)> {
        let there = self.certificates.iter().flatten();
        let mut there = there.filter_map(|cell| Some((&*cell.key, cell.certificate()?)));
        there.find(|(_, certificate)| certificate.covers(&self.name))
    }

    /// The Secrets of its certificates, in order; empty without TLS.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.certificates.iter().flatten().map(|cell| &*cell.key)
    }

    /// The paths whose patterns are too large together with those of the others: requests that reach them get a 500.
    pub fn uncompiled(&self) -> impl Iterator<Item = &Declared> {
        let patterns = match &self.routing {
            Routing::Texts(_) => None,
            Routing::Patterns(patterns) => Some(patterns),
        };
        patterns.into_iter().flat_map(|patterns| patterns.uncompiled())
    }

    /// Its paths, by Route, text and kind.
    pub fn paths(&self) -> Vec<Declared> {
        let mut paths: Vec<Declared> = match &self.routing {
            Routing::Texts(router) => router.declared().collect(),
            Routing::Patterns(patterns) => patterns.declared().to_vec(),
        };
        paths.sort_by(|a, b| {
            let [a, b] = [a, b].map(|it| (&**it.entry.route(), it.entry.declared(), it.kind));
            a.cmp(&b)
        });
        paths
    }
}

/// The result of matching a request's path.
#[derive(Debug)]
pub enum Match<'a> {
    /// A declared path.
    Path(&'a Arc<PathEntry>),
    /// No exact match, but this path was declared with a trailing slash: 301 (as in ingress-nginx).
    AddSlash(&'a Arc<PathEntry>),
    /// No declared path: the default backend.
    None,
    /// Matching exceeded the request's steps.
    Unknown,
}
