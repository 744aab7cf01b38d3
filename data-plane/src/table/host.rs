//! One virtual host, compiled: what a request for it needs, without a lookup by name.

use std::sync::Arc;

use shared::pattern::{Exhausted, Groups, Pattern, Steps};

use super::aliases::Names;
use super::backend_tls::BackendTls;
use super::cell::{BackendCell, CertificateCell};
use super::certified::Certified;
use super::client_auth::ClientAuth;
use super::material::MaterialCell;
use super::paths::{Declared, Router};
use super::patterns::Patterns;
use super::policy::Policy;
use super::policy::certificates::Certificates;
use super::policy::external::External;
use super::policy::rewrite::Rewritten;
use super::policy::shortcuts::Shortcuts;
use super::users::UsersCell;
use crate::metrics::Place;
use crate::rate::Counts;

pub use super::chosen::{Alternative, Upstream};

/// One virtual host. Immutable.
#[derive(Debug)]
pub struct HostEntry {
    name: Arc<str>,
    certificates: Option<Box<[Arc<CertificateCell>]>>,
    routing: Routing,
    /// Where requests for "/" are sent, before a location is looked for.
    app_root: Option<Box<str>>,
    /// Its aliases.
    names: Option<Arc<Names>>,
    /// The same name with or without `www.` is redirected here.
    www: bool,
    certificates_of_clients: Option<HostCertificates>,
    /// What requests are counted under that none of its paths takes.
    place: Arc<Place>,
    /// What is answered at once.
    shortcuts: Option<Arc<Shortcuts>>,
    /// Suites of TLS 1.2 in place of the fleet's.
    ciphers: Option<Arc<[u16]>>,
    client_order: bool,
    /// TLS for this very name ends at the backend of "/".
    passthrough: bool,
}

/// Where TLS connections for the very name of a host end.
#[derive(Clone, Debug)]
pub enum End {
    /// Here.
    Here,
    /// At this backend.
    At(Arc<BackendCell>),
    /// At none: there is no backend that they could go to.
    Nowhere,
}

/// Who of a host's clients must show a certificate, and by whom it is judged.
#[derive(Clone, Debug)]
pub struct HostCertificates {
    /// What is said.
    pub policy: Arc<Certificates>,
    /// `None`: what was asked for cannot be told.
    pub cell: Option<Arc<MaterialCell<ClientAuth>>>,
}

impl HostCertificates {
    /// By whom clients are judged now, where that is known.
    pub fn auth(&self) -> Option<Arc<ClientAuth>> {
        self.cell.as_ref()?.get()
    }
}

/// How a host finds its paths.
#[derive(Clone, Debug)]
pub enum Routing {
    /// By their text.
    Texts(Router),
    /// They are regular expressions (annotations.md 3.4).
    Patterns(Arc<Patterns>),
}

impl HostEntry {
    /// Without aliases. `certificates` is `None` for a host without TLS.
    pub fn new(name: Arc<str>, certificates: Option<Box<[Arc<CertificateCell>]>>, routing: Routing) -> Self {
        Self {
            place: Place::of_host(&name, None),
            name,
            certificates,
            routing,
            app_root: None,
            names: None,
            www: false,
            certificates_of_clients: None,
            shortcuts: None,
            ciphers: None,
            client_order: false,
            passthrough: false,
        }
    }

    /// Requests for "/" are sent to this path. Of several locations that say so, the first of nginx' list decides,
    /// whoever has "/" (ingress-nginx behaviour, annotations.md 2.4).
    pub fn with_app_root(mut self, path: Option<&str>) -> Self {
        self.app_root = path.map(Into::into);
        self
    }

    /// With these aliases, and the redirect from the same name with or without `www.`.
    pub fn with_names(mut self, names: Option<Arc<Names>>, www: bool) -> Self {
        (self.names, self.www) = (names, www);
        self
    }

    /// With clients that are asked for certificates.
    pub fn with_certificates(mut self, certificates: Option<HostCertificates>) -> Self {
        self.certificates_of_clients = certificates;
        self
    }

    /// Counted under the same as the entry before it, where that is still its first Route's.
    pub fn with_place(mut self, before: Option<&Self>, route: Option<&Arc<str>>) -> Self {
        let key = route.unwrap_or(&self.name);
        let same = before.map(|before| &before.place).filter(|place| place.is_of(key));
        self.place = same.map_or_else(|| Place::of_host(&self.name, route), Arc::clone);
        self
    }

    /// What requests are counted under that none of its paths takes.
    pub fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// With what is answered at once.
    pub fn with_shortcuts(mut self, shortcuts: Option<Arc<Shortcuts>>) -> Self {
        self.shortcuts = shortcuts;
        self
    }

    /// What is answered at once.
    pub fn shortcuts(&self) -> Option<&Arc<Shortcuts>> {
        self.shortcuts.as_ref()
    }

    /// With suites of its own, and of whichever there are the one that the client likes most, if that is asked for.
    pub fn with_ciphers(mut self, ciphers: Option<Arc<[u16]>>, client_order: bool) -> Self {
        (self.ciphers, self.client_order) = (ciphers, client_order);
        self
    }

    /// With TLS that ends at the backend of "/".
    pub fn with_passthrough(mut self, passthrough: bool) -> Self {
        self.passthrough = passthrough;
        self
    }

    /// Whether TLS ends at the backend of "/".
    pub fn has_passthrough(&self) -> bool {
        self.passthrough
    }

    /// Where TLS for this very name ends. Only the declared path "/" counts (ingress-nginx behaviour, annotations.md 6.12).
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

    /// Suites of TLS 1.2 in place of the fleet's, the one that is liked most first.
    pub fn ciphers(&self) -> Option<&Arc<[u16]>> {
        self.ciphers.as_ref()
    }

    /// Whether the client's order of suites counts.
    pub fn has_client_order(&self) -> bool {
        self.client_order
    }

    /// Who of its clients must show a certificate, if anybody asks.
    pub fn certificates(&self) -> Option<&HostCertificates> {
        self.certificates_of_clients.as_ref()
    }

    /// Its aliases, if it has any.
    pub fn names(&self) -> Option<&Arc<Names>> {
        self.names.as_ref()
    }

    /// Whether those who ask for it by this name are given cookies of an affinity: the original looks for that name among its
    /// own, then for `*` in place of its first label, and knows no pattern (balancing.md 5.4).
    pub fn knows_as(&self, name: &str) -> bool {
        let has =
            |text: &str| *self.name == *text || self.names.as_ref().is_some_and(|names| names.has(text));
        let wildcard = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        &*self.name == shared::resource::CATCH_ALL || has(name) || wildcard().is_some_and(|it| has(&it))
    }

    /// Whether the same name with or without `www.` is redirected here.
    pub fn has_www(&self) -> bool {
        self.www
    }

    /// Without paths and TLS.
    pub fn empty(name: &str) -> Self {
        Self::new(name.into(), None, Routing::Texts(Router::default()))
    }

    /// Its name: `a.test`, `*.a.test` or `_`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The match of a path that is decoded and normalised (ingress-nginx behaviour, annotations.md 3.1 and 3.2).
    ///
    /// `steps`: what the request may spend on patterns.
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

    /// How it finds its paths, for the one that comes after it.
    pub fn routing(&self) -> &Routing {
        &self.routing
    }

    /// The path that requests for "/" are sent to.
    pub fn app_root(&self) -> Option<&str> {
        self.app_root.as_deref()
    }

    /// Whether an Ingress has a TLS section for it.
    pub fn has_tls(&self) -> bool {
        self.certificates.is_some()
    }

    /// The first of its certificates that is there and covers its name.
    pub fn certificate(&self) -> Option<Arc<Certified>> {
        let there = self.certificates.iter().flatten().filter_map(|cell| cell.certificate());
        there.into_iter().find(|certificate| certificate.covers(&self.name))
    }

    /// The same with the Secret that it is in; where none covers the name, the first that is there.
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

/// What a path of a request matches.
#[derive(Debug)]
pub enum Match<'a> {
    /// A declared path.
    Path(&'a Arc<PathEntry>),
    /// Nothing equals it, and this one was declared with a slash at the end: 301 (annotations.md 3.2).
    AddSlash(&'a Arc<PathEntry>),
    /// No declared path: the default backend.
    None,
    /// Which one it is takes too long to find out.
    Unknown,
}

/// What ingress-nginx calls the default backend (balancing.md 1).
pub const DEFAULT_UPSTREAM: &str = "upstream-default-backend";

/// What a declared path does.
#[derive(Debug)]
pub struct PathEntry {
    /// The path as the Ingress spells it.
    pub declared: Arc<str>,
    /// What is done with its requests.
    pub action: Action,
    /// How its requests are treated: what its Route says over what the fleet says.
    pub policy: Arc<Policy>,
    /// What is counted of the clients of its Ingress; `None` where nothing is limited.
    pub counts: Option<Arc<Counts>>,
    /// Its requests are not sent to https, whatever the policy says: `no-tls-redirect-locations` (annotations.md 6.3).
    pub stays_plain: bool,
    /// What takes the place of its requests' paths.
    pub rewritten: Option<Rewritten>,
    /// The declared path, where its groups are asked for and nothing is rewritten.
    pub grouped: Option<Pattern>,
    /// Of a prefix: in regex mode the Exact path of the same text is asked before it.
    pub after_exact: bool,
    /// Its clients are asked for nothing but their addresses: `no-auth-locations` (annotations.md 6.6).
    pub asks_nobody: bool,
    /// Whose passwords it asks for.
    pub users: Option<Arc<UsersCell>>,
    /// How endpoints are spoken to over TLS. While it is not known how: 503.
    pub backend_tls: Option<Arc<MaterialCell<BackendTls>>>,
    /// Who answers for errors, and for a backend without endpoints.
    pub errors: Option<Arc<Upstream>>,
    /// `namespace-service-port`, as the log has it even where nothing is proxied (controller.md 8).
    pub upstream_name: Arc<str>,
    /// Key of the Route that declared it.
    pub route: Arc<str>,
    /// `namespace/name` of its Ingress.
    pub owner: Arc<str>,
    /// Name of its Service; empty for the default backend.
    pub service: Arc<str>,
    /// Port of its Service as the Ingress writes it; empty for the default backend.
    pub port: Arc<str>,
    /// What its requests are counted under.
    pub place: Arc<Place>,
}

impl PathEntry {
    /// Whether what restricts it is not enforced, so that its requests are answered 503.
    pub fn is_denied(&self) -> bool {
        matches!(self.action, Action::Denied(_))
    }
}

impl PathEntry {
    /// Key of the Backend that its requests are proxied to.
    pub fn backend(&self) -> Option<&Arc<str>> {
        match &self.action {
            Action::Backend(upstream) => Some(&upstream.cell.key),
            Action::DefaultBackend | Action::Denied(_) | Action::Unavailable => None,
        }
    }

    /// Where the groups of the declared path lie in one that it leads to.
    pub fn groups(&self, path: &[u8], steps: &Steps) -> Result<Option<Groups>, Exhausted> {
        match (&self.rewritten, &self.grouped) {
            (Some(rewritten), _) => rewritten.groups(path, steps),
            (None, Some(pattern)) => pattern.groups(path, steps),
            (None, None) => Ok(None),
        }
    }

    /// The declared path, where it has been compiled.
    pub fn pattern(&self) -> Option<&Pattern> {
        self.rewritten.as_ref().and_then(Rewritten::pattern).or(self.grouped.as_ref())
    }

    /// Whether its clients are given the cookie of its backend's affinity.
    pub fn issues_cookie(&self) -> bool {
        let is_nobodys = self.policy.root_issues_none && &*self.declared == "/";
        self.policy.issues_cookie && !is_nobodys
    }

    /// Whether anybody may be kept out.
    pub fn is_guarded(&self) -> bool {
        self.users.is_some() || self.policy.addresses.are_listed() || self.external().is_some()
    }

    /// Who is asked for each request.
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
    /// 503: a restriction that is asked for is not enforced yet. Says which, for the log.
    Denied(Arc<str>),
    /// 503: its host or its backend cannot be served.
    Unavailable,
}
