//! One compiled virtual host: everything that a request for it needs, without a lookup by name.

use std::sync::Arc;

use shared::pattern::{Exhausted, Groups, Pattern, Steps};
use shared::template::Template;

use super::aliases::Names;
use super::backend_tls::BackendTls;
use super::cell::{BackendCell, CertificateCell};
use super::certified::Certified;
use super::client_auth::ClientAuth;
use super::keys::{parts, route_parts};
use super::material::MaterialCell;
use super::paths::{Declared, Router};
use super::patterns::Patterns;
use super::policy::Policy;
use super::policy::certificates::Certificates;
use super::policy::external::External;
use super::policy::rewrite::Rewritten;
use super::policy::shortcuts::Shortcuts;
use super::users::UsersCell;
use crate::metrics::RequestLabels;
use crate::rate::Counts;

pub use super::upstream::{Alternative, Upstream};

/// One virtual host. Immutable.
#[derive(Debug)]
pub struct HostEntry {
    name: Arc<str>,
    certificates: Option<Box<[Arc<CertificateCell>]>>,
    routing: Routing,
    /// Redirect target for requests for "/", used before a location is looked up.
    app_root: Option<Arc<Template>>,
    /// Its aliases.
    names: Option<Arc<Names>>,
    /// Whether the same name with or without `www.` redirects here.
    www: bool,
    certificates_of_clients: Option<Box<HostCertificates>>,
    /// The metric labels of requests that none of its paths takes.
    place: Arc<RequestLabels>,
    /// Snippet directives that respond directly.
    shortcuts: Option<Arc<Shortcuts>>,
    /// Few hosts have any.
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
        Self {
            place: RequestLabels::of_host(&name, None),
            name,
            certificates,
            routing,
            app_root: None,
            names: None,
            www: false,
            certificates_of_clients: None,
            shortcuts: None,
            ciphers: None,
            passthrough: false,
        }
    }

    /// Sets the redirect target for "/". If several locations define one, the first in nginx' list of locations wins,
    /// whichever has "/" (as in ingress-nginx).
    pub fn with_app_root(mut self, path: Option<&str>) -> Self {
        self.app_root = path.map(|path| Arc::new(Template::parse(path)));
        self
    }

    /// Sets the aliases, and the redirect from the same name with or without `www.`.
    pub fn with_names(mut self, names: Option<Arc<Names>>, www: bool) -> Self {
        (self.names, self.www) = (names, www);
        self
    }

    /// Sets the client certificate policy.
    pub fn with_certificates(mut self, certificates: Option<HostCertificates>) -> Self {
        self.certificates_of_clients = certificates.map(Box::new);
        self
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
    pub fn with_shortcuts(mut self, shortcuts: Option<Arc<Shortcuts>>) -> Self {
        self.shortcuts = shortcuts;
        self
    }

    /// The direct responses of snippets.
    pub fn shortcuts(&self) -> Option<&Arc<Shortcuts>> {
        self.shortcuts.as_ref()
    }

    /// Sets its own cipher suites, and whether the client's order of preference is used.
    pub fn with_ciphers(mut self, ciphers: Option<Arc<[u16]>>, client_order: bool) -> Self {
        let is_set = ciphers.is_some() || client_order;
        self.ciphers = is_set.then(|| Box::new(Ciphers { suites: ciphers, client_order }));
        self
    }

    /// Sets TLS passthrough to the backend of "/".
    pub fn with_passthrough(mut self, passthrough: bool) -> Self {
        self.passthrough = passthrough;
        self
    }

    /// Whether TLS is passed through to the backend of "/".
    pub fn has_passthrough(&self) -> bool {
        self.passthrough
    }

    /// Where TLS for exactly this name is terminated. Only the declared path "/" is considered (as in ingress-nginx).
    pub fn end(&self) -> End {
        if !self.passthrough {
            return End::Here;
        }
        let entry = match self.route(b"/", &Steps::new()) {
            Match::Path(entry) if &*entry.declared == "/" => entry,
            _ => return End::Nowhere,
        };
        match &entry.action {
            Action::Backend(upstream) => End::At(Arc::clone(&upstream.cell)),
            Action::DefaultBackend | Action::Denied(_) | Action::Unavailable => End::Nowhere,
        }
    }

    /// TLS 1.2 cipher suites instead of the fleet's, in order of preference.
    pub fn ciphers(&self) -> Option<&Arc<[u16]>> {
        self.ciphers.as_ref()?.suites.as_ref()
    }

    /// Whether the client's order of cipher suites is used.
    pub fn has_client_order(&self) -> bool {
        self.ciphers.as_ref().is_some_and(|it| it.client_order)
    }

    /// The client certificate policy, if there is one.
    pub fn certificates(&self) -> Option<&HostCertificates> {
        self.certificates_of_clients.as_deref()
    }

    /// Its aliases, if it has any.
    pub fn names(&self) -> Option<&Arc<Names>> {
        self.names.as_ref()
    }

    /// Whether clients that use this name get affinity cookies: ingress-nginx looks up the name, then the name with
    /// `*` in place of its first label, and does not consider patterns.
    pub fn knows_as(&self, name: &str) -> bool {
        let has =
            |text: &str| *self.name == *text || self.names.as_ref().is_some_and(|names| names.has(text));
        let wildcard = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        &*self.name == shared::resource::CATCH_ALL || has(name) || wildcard().is_some_and(|it| has(&it))
    }

    /// Whether the same name with or without `www.` redirects here.
    pub fn has_www(&self) -> bool {
        self.www
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
        match &self.routing {
            Routing::Texts(router) => router.route(path),
            Routing::Patterns(patterns) => match patterns.find(path, steps) {
                Ok(Some(entry)) => Match::Path(entry),
                Ok(None) => Match::None,
                Err(Exhausted) => Match::Unknown,
            },
        }
    }

    /// The lookup structure of its paths, to build the next one from.
    pub fn routing(&self) -> &Routing {
        &self.routing
    }

    /// The path that requests for "/" are sent to.
    pub fn app_root(&self) -> Option<&Arc<Template>> {
        self.app_root.as_ref()
    }

    /// Whether an Ingress has a TLS section for it.
    pub fn has_tls(&self) -> bool {
        self.certificates.is_some()
    }

    /// The first available certificate that covers its name.
    pub fn certificate(&self) -> Option<Arc<Certified>> {
        let there = self.certificates.iter().flatten().filter_map(|cell| cell.certificate());
        there.into_iter().find(|certificate| certificate.covers(&self.name))
    }

    /// The same with the name of its Secret; if none covers the name, the first available one.
    pub fn shown(&self) -> Option<(&str, Arc<Certified>)> {
        let there = self.certificates.iter().flatten();
        let mut there = there.filter_map(|cell| Some((&*cell.key, cell.certificate()?))).peekable();
        let first = there.peek().cloned();
        there.find(|(_, certificate)| certificate.covers(&self.name)).or(first)
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
            let key =
                |it: &'_ Declared| (Arc::clone(&it.entry.route), Arc::clone(&it.entry.declared), it.kind);
            key(a).cmp(&key(b))
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

/// The name of the default backend in ingress-nginx.
pub const DEFAULT_UPSTREAM: &str = "upstream-default-backend";

/// What a declared path does.
#[derive(Debug)]
pub struct PathEntry {
    /// The path as the Ingress spells it.
    pub declared: Arc<str>,
    /// What is done with requests.
    pub action: Action,
    /// Its policy: the Route's settings over the fleet's.
    pub policy: Arc<Policy>,
    /// The client counters of its Ingress; `None` if nothing is limited.
    pub counts: Option<Arc<Counts>>,
    /// Requests are not redirected to https, whatever the policy says: `no-tls-redirect-locations` (as in
    /// ingress-nginx).
    pub stays_plain: bool,
    /// What the path of a request is replaced by.
    pub rewritten: Option<Box<Rewritten>>,
    /// The declared path as a pattern, if its capture groups are used and nothing is rewritten.
    pub grouped: Option<Box<Pattern>>,
    /// For a prefix in regex mode: the Exact path of the same text is tried before it.
    pub after_exact: bool,
    /// No authentication, only address lists: `no-auth-locations` (as in ingress-nginx).
    pub asks_nobody: bool,
    /// The users of password authentication.
    pub users: Option<Arc<UsersCell>>,
    /// TLS settings towards endpoints. While they are not available: 503.
    pub backend_tls: Option<Arc<MaterialCell<BackendTls>>>,
    /// The backend for error pages, and for when the backend has no endpoints.
    pub errors: Option<Arc<Upstream>>,
    /// `namespace-service-port`, logged even if nothing is proxied (as in ingress-nginx).
    pub upstream_name: Arc<str>,
    /// Key of the Route that declared it.
    pub route: Arc<str>,
    /// Key of the Backend that it names, whether that exists or not; `None`: the default backend.
    pub named: Option<Arc<str>>,
    /// The metric labels of its requests.
    pub place: Arc<RequestLabels>,
}

impl PathEntry {
    /// Whether a required restriction cannot be enforced, so that requests get a 503.
    pub fn is_denied(&self) -> bool {
        matches!(self.action, Action::Denied(_))
    }
}

impl PathEntry {
    /// `namespace/name` of its Ingress.
    pub fn owner(&self) -> &str {
        route_parts(&self.route).map_or("", |parts| parts.owner)
    }

    /// Name of its Service; empty for the default backend.
    pub fn service(&self) -> &str {
        self.named.as_deref().and_then(parts).map_or("", |(_, service, _)| service)
    }

    /// Port of its Service as the Ingress writes it; empty for the default backend.
    pub fn port(&self) -> &str {
        self.named.as_deref().and_then(parts).map_or("", |(_, _, port)| port)
    }

    /// Key of the Backend that requests are proxied to.
    pub fn backend(&self) -> Option<&Arc<str>> {
        match &self.action {
            Action::Backend(upstream) => Some(&upstream.cell.key),
            Action::DefaultBackend | Action::Denied(_) | Action::Unavailable => None,
        }
    }

    /// The capture groups of the declared path in a request's path.
    pub fn groups(&self, path: &[u8], steps: &Steps) -> Result<Option<Groups>, Exhausted> {
        match (&self.rewritten, &self.grouped) {
            (Some(rewritten), _) => rewritten.groups(path, steps),
            (None, Some(pattern)) => pattern.groups(path, steps),
            (None, None) => Ok(None),
        }
    }

    /// The declared path as a pattern, if it was compiled.
    pub fn pattern(&self) -> Option<&Pattern> {
        self.rewritten.as_deref().and_then(Rewritten::pattern).or(self.grouped.as_deref())
    }

    /// Whether clients get the cookie of its backend's affinity.
    pub fn issues_cookie(&self) -> bool {
        let is_nobodys = self.policy.root_issues_none && &*self.declared == "/";
        self.policy.issues_cookie && !is_nobodys
    }

    /// Whether any client may be refused.
    pub fn is_guarded(&self) -> bool {
        self.users.is_some() || self.policy.addresses.are_listed() || self.external().is_some()
    }

    /// The external authentication of each request.
    pub fn external(&self) -> Option<&External> {
        self.policy.external.as_deref().filter(|_| !self.asks_nobody)
    }
}

/// What is done with the requests of a path.
#[derive(Debug)]
pub enum Action {
    /// They are proxied.
    Backend(Arc<Upstream>),
    /// The fleet's default backend: 404.
    DefaultBackend,
    /// 503: a configured restriction cannot be enforced yet. The text says which, for the log.
    Denied(Arc<str>),
    /// 503: its host or its backend cannot be served.
    Unavailable,
}
