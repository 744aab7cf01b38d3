//! One virtual host, compiled: what a request for it needs, without a lookup by name.

use std::sync::Arc;

use shared::pattern::Exhausted;
use shared::resource::PathType;

use super::aliases::Names;
use super::canary::CompiledCanary;
use super::cell::{BackendCell, CertificateCell};
use super::certified::Certified;
use super::paths::{Declared, Router};
use super::patterns::{DeclaredPattern, Patterns};
use super::policy::Policy;
use super::policy::external::External;
use super::policy::rewrite::Rewritten;
use super::sticky::Sticky;
use super::users::UsersCell;
use crate::rate::Counts;

/// One virtual host. Immutable.
#[derive(Debug)]
pub struct HostEntry {
    name: Arc<str>,
    certificates: Option<Box<[Arc<CertificateCell>]>>,
    router: Router,
    /// In place of the router's own look-up, on a host in regex mode.
    patterns: Option<Patterns>,
    /// Where requests for "/" are sent, before a location is looked for.
    app_root: Option<Box<str>>,
    /// Its aliases.
    names: Option<Box<Names>>,
    /// The same name with or without `www.` is redirected here.
    www: bool,
}

impl HostEntry {
    /// From its paths, in order of precedence among equals. `certificates` is `None` for a host without TLS.
    pub fn new(
        name: Arc<str>,
        certificates: Option<Box<[Arc<CertificateCell>]>>,
        paths: impl IntoIterator<Item = Declared>,
    ) -> Self {
        let router = Router::new(paths);
        let app_root = app_root(router.declared());
        Self { name, certificates, router, patterns: None, app_root, names: None, www: false }
    }

    /// In regex mode: its paths are regular expressions (annotations.md 3.4).
    pub fn with_patterns(mut self) -> Self {
        let declared = self.router.declared();
        let exact = |path: &str| {
            let mut equal = declared.iter().filter(|it| it.kind == PathType::Exact);
            equal.any(|it| *it.entry.declared == *path)
        };
        let pattern = |it: &'_ Declared| {
            let is_split =
                it.kind == PathType::Prefix && !it.entry.policy.rewrite.is_pattern(&it.entry.declared);
            is_split && exact(&it.entry.declared)
        };
        let patterns: Vec<_> = declared
            .iter()
            .map(|it| DeclaredPattern { path: &it.entry.declared, only_below: pattern(it) })
            .collect();
        self.patterns = Some(Patterns::new(&patterns));
        self
    }

    /// With these aliases, and the redirect from the same name with or without `www.`.
    pub fn with_names(mut self, names: Option<Names>, www: bool) -> Self {
        (self.names, self.www) = (names.map(Box::new), www);
        self
    }

    /// Its aliases, if it has any.
    pub fn names(&self) -> Option<&Names> {
        self.names.as_deref()
    }

    /// Whether the same name with or without `www.` is redirected here.
    pub fn has_www(&self) -> bool {
        self.www
    }

    /// Without paths and TLS.
    pub fn empty(name: &str) -> Self {
        Self::new(name.into(), None, [])
    }

    /// Its name: `a.test`, `*.a.test` or `_`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The match of a path that is decoded and normalised (ingress-nginx behaviour, annotations.md 3.1 and 3.2).
    pub fn route(&self, path: &[u8]) -> Match<'_> {
        let Some(patterns) = &self.patterns else { return self.router.route(path) };
        match patterns.find(path) {
            Ok(Some(place)) => Match::Path(&self.router.declared()[place].entry),
            Ok(None) => Match::None,
            Err(Exhausted) => Match::Unknown,
        }
    }

    /// The path that requests for "/" are sent to. Of several locations that have one, the first of nginx' list decides,
    /// whoever has "/" (ingress-nginx behaviour, annotations.md 2.4).
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

    /// The Secrets of its certificates, in order; empty without TLS.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.certificates.iter().flatten().map(|cell| &*cell.key)
    }

    /// Its paths as they were declared.
    pub fn paths(&self) -> &[Declared] {
        self.router.declared()
    }
}

/// nginx' list of locations: the longest text first, of one length the greatest (annotations.md 3.1).
fn app_root(declared: &[Declared]) -> Option<Box<str>> {
    let texts = declared
        .iter()
        .filter_map(|it| Some((&*it.entry.declared, it.entry.policy.redirect.app_root.as_ref()?)));
    texts.max_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b))).map(|(_, path)| path.clone())
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
    /// Its clients are asked for nothing but their addresses: `no-auth-locations` (annotations.md 6.6).
    pub asks_nobody: bool,
    /// Whose passwords it asks for.
    pub users: Option<Arc<UsersCell>>,
    /// Who answers for errors, and for a backend without endpoints.
    pub errors: Option<Arc<Upstream>>,
    /// `namespace-service-port`, as the log has it even where nothing is proxied (controller.md 8).
    pub upstream_name: Arc<str>,
    /// `namespace/name` of the Ingress that declared it.
    pub owner: Arc<str>,
    /// Name of its Service; empty for the default backend.
    pub service: Arc<str>,
    /// Port of its Service as the Ingress writes it; empty for the default backend.
    pub port: Arc<str>,
}

impl PathEntry {
    /// Whether what restricts it is not enforced, so that its requests are answered 503.
    pub fn is_denied(&self) -> bool {
        matches!(self.action, Action::Denied(_))
    }
}

impl PathEntry {
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

/// A backend as a path uses it.
#[derive(Debug)]
pub struct Upstream {
    /// `namespace-service-port`, as logs and metrics call it.
    pub name: Arc<str>,
    /// Its endpoints.
    pub cell: Arc<BackendCell>,
    /// How clients stay with one of them.
    pub sticky: Option<Arc<Sticky>>,
    /// The canary that may take its requests.
    pub alternative: Option<Arc<Alternative>>,
}

/// The canary of an [`Upstream`].
#[derive(Debug)]
pub struct Alternative {
    /// `namespace-service-port`.
    pub name: Arc<str>,
    /// Its endpoints.
    pub cell: Arc<BackendCell>,
    /// How clients stay with one of them.
    pub sticky: Option<Arc<Sticky>>,
    /// Which requests it takes; none without it.
    pub canary: Option<CompiledCanary>,
}
