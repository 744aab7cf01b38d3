//! One declared path: what is done with its requests.

use std::sync::Arc;

use shared::pattern::{Exhausted, Groups, Pattern, Steps};

use super::backend_tls::BackendTls;
use super::keys::{UpstreamName, parts, route_parts};
use super::material::MaterialCell;
use super::policy::Policy;
use super::policy::errors::Errors;
use super::policy::external::External;
use super::policy::protocol::Spoken;
use super::policy::rewrite::Rewritten;
use super::upstream::Upstream;
use super::users::UsersCell;
use crate::metrics::RequestLabels;
use crate::rate::Counts;

/// The name of the default backend in ingress-nginx.
pub const DEFAULT_UPSTREAM: &str = "upstream-default-backend";

/// What a declared path does. There is one for every path of every table.
#[derive(Debug)]
pub struct PathEntry {
    /// What is done with requests.
    pub action: Action,
    /// Its policy: the Route's settings over the fleet's.
    pub policy: Arc<Policy>,
    /// The metric labels of its requests. They have its text and the key of its Route.
    pub place: Arc<RequestLabels>,
    /// Few paths have any of it.
    pub(in crate::table) more: Option<Box<More>>,
    /// Requests are not redirected to https, whatever the policy says: `no-tls-redirect-locations` (as in
    /// ingress-nginx).
    pub stays_plain: bool,
    /// For a prefix in regex mode: the Exact path of the same text is tried before it.
    pub after_exact: bool,
    /// No authentication, only address lists: `no-auth-locations` (as in ingress-nginx).
    pub asks_nobody: bool,
}

/// What few paths have.
#[derive(Default, Debug)]
pub(in crate::table) struct More {
    pub(in crate::table) counts: Option<Arc<Counts>>,
    pub(in crate::table) rewritten: Option<Box<Rewritten>>,
    pub(in crate::table) grouped: Option<Box<Pattern>>,
    pub(in crate::table) users: Option<Arc<UsersCell>>,
    pub(in crate::table) backend_tls: Option<Arc<MaterialCell<BackendTls>>>,
    pub(in crate::table) errors: Option<Arc<Upstream>>,
    pub(in crate::table) named: Option<Named>,
    /// What is below the path, if the fleet's lists of locations spare that alone: there it is another location
    /// (ingress-nginx).
    pub(in crate::table) below: Option<Arc<PathEntry>>,
}

impl More {
    pub(in crate::table) fn is_empty(&self) -> bool {
        let Self { counts, rewritten, grouped, users, backend_tls, errors, named, below } = self;
        let are_none = [counts.is_none(), rewritten.is_none(), grouped.is_none(), users.is_none()];
        let others = [backend_tls.is_none(), errors.is_none(), named.is_none(), below.is_none()];
        (are_none, others) == ([true; 4], [true; 4])
    }
}

/// The backend of a path that does not proxy to it, or is called otherwise.
#[derive(Debug)]
pub(in crate::table) struct Named {
    /// `None`: the default backend.
    pub(in crate::table) backend: Option<Arc<str>>,
    /// The same, if it exists.
    pub(in crate::table) upstream: Option<Arc<Upstream>>,
}

impl PathEntry {
    /// The path as the Ingress spells it.
    pub fn declared(&self) -> &str {
        self.text().map_or("/", |text| text)
    }

    /// The same; `None` for the location of requests that no Ingress takes.
    pub(in crate::table) fn text(&self) -> Option<&Arc<str>> {
        self.place.declared()
    }

    /// Key of the Route that declared it.
    pub fn route(&self) -> &Arc<str> {
        self.place.route()
    }

    /// The protocol spoken with what answers for it: the fleet's default backend always speaks HTTP (as in ingress-nginx).
    pub fn spoken(&self) -> Spoken {
        if matches!(self.action, Action::DefaultBackend) { Spoken::default() } else { self.policy.spoken }
    }

    /// The client counters of its Ingress; `None` if nothing is limited.
    pub fn counts(&self) -> Option<&Arc<Counts>> {
        self.more.as_ref()?.counts.as_ref()
    }

    /// What the path of a request is replaced by.
    pub fn rewritten(&self) -> Option<&Rewritten> {
        self.more.as_ref()?.rewritten.as_deref()
    }

    /// The users of password authentication.
    pub fn users(&self) -> Option<&Arc<UsersCell>> {
        self.more.as_ref()?.users.as_ref()
    }

    /// TLS settings towards endpoints. While they are not available: 503.
    pub fn backend_tls(&self) -> Option<&Arc<MaterialCell<BackendTls>>> {
        self.more.as_ref()?.backend_tls.as_ref()
    }

    /// The backend for error pages, and for when the backend has no endpoints.
    pub fn errors(&self) -> Option<&Arc<Upstream>> {
        self.more.as_ref()?.errors.as_ref()
    }

    /// `namespace-service-port`, logged even if nothing is proxied (as in ingress-nginx).
    pub fn upstream_name(&self) -> UpstreamName<'_> {
        UpstreamName::of(self.named().map_or(DEFAULT_UPSTREAM, |key| key))
    }

    /// Key of the Backend that it names, whether that exists or not; `None`: the default backend.
    fn named(&self) -> Option<&Arc<str>> {
        match self.otherwise() {
            Some(named) => named.backend.as_ref(),
            None => self.backend(),
        }
    }

    fn otherwise(&self) -> Option<&Named> {
        self.more.as_ref()?.named.as_ref()
    }

    /// Whether a required restriction cannot be enforced, so that requests get a 503.
    pub fn is_denied(&self) -> bool {
        matches!(self.action, Action::Denied(_))
    }

    /// `namespace/name` of its Ingress.
    pub fn owner(&self) -> &str {
        route_parts(self.route()).map_or("", |parts| parts.owner)
    }

    /// Name of its Service; empty for the default backend.
    pub fn service(&self) -> &str {
        self.named().and_then(|key| parts(key)).map_or("", |(_, service, _)| service)
    }

    /// Port of its Service as the Ingress writes it; empty for the default backend.
    pub fn port(&self) -> &str {
        self.named().and_then(|key| parts(key)).map_or("", |(_, _, port)| port)
    }

    /// Key of the Backend that requests are proxied to.
    pub fn backend(&self) -> Option<&Arc<str>> {
        match &self.action {
            Action::Backend(upstream) => Some(&upstream.cell.key),
            Action::DefaultBackend | Action::Denied(_) | Action::Unavailable => None,
        }
    }

    /// The backend that it names, if that exists, whether requests are proxied to it or not.
    pub fn upstream(&self) -> Option<&Arc<Upstream>> {
        match &self.action {
            Action::Backend(upstream) => Some(upstream),
            _ => self.otherwise()?.upstream.as_ref(),
        }
    }

    /// Whether it names a backend, existing or not, which ingress-nginx would have an upstream for.
    pub fn names_backend(&self) -> bool {
        let is_default = matches!(self.action, Action::DefaultBackend);
        !is_default && (self.upstream().is_some() || !self.service().is_empty())
    }

    /// The capture groups of the declared path in a request's path.
    pub fn groups(&self, path: &[u8], steps: &Steps) -> Result<Option<Groups>, Exhausted> {
        match (self.rewritten(), self.grouped()) {
            (Some(rewritten), _) => rewritten.groups(path, steps),
            (None, Some(pattern)) => pattern.groups(path, steps),
            (None, None) => Ok(None),
        }
    }

    /// The declared path as a pattern, if it was compiled.
    pub fn pattern(&self) -> Option<&Pattern> {
        self.rewritten().and_then(Rewritten::pattern).or_else(|| self.grouped())
    }

    /// The declared path as a pattern, if its capture groups are used and nothing is rewritten.
    fn grouped(&self) -> Option<&Pattern> {
        self.more.as_ref()?.grouped.as_deref()
    }

    /// Whether clients get the cookie of its backend's affinity.
    pub fn issues_cookie(&self) -> bool {
        let is_nobodys = self.policy.root_issues_none && self.declared() == "/";
        self.policy.issues_cookie && !is_nobodys
    }

    /// Whether any client may be refused.
    pub fn is_guarded(&self) -> bool {
        self.users().is_some() || self.policy.addresses.are_listed() || self.external().is_some()
    }

    /// What is done with its requests, if a backend gets them and only its policy says how: paths with the same differ for
    /// the metrics alone.
    pub fn plainly(&self) -> Option<Plainly> {
        match (&self.action, &self.more) {
            (Action::Backend(upstream), None) => Some(Plainly {
                policy: Arc::as_ptr(&self.policy),
                upstream: Arc::as_ptr(upstream),
                stays_plain: self.stays_plain,
                asks_nobody: self.asks_nobody,
                issues_cookie: self.issues_cookie(),
            }),
            _ => None,
        }
    }

    /// The external authentication of each request.
    pub fn external(&self) -> Option<&External> {
        self.policy.external.as_deref().filter(|_| !self.asks_nobody)
    }

    /// Whether clients that are refused by it are sent to a sign-in page.
    pub fn signs_in(&self) -> bool {
        self.external().is_some_and(|external| external.signin.is_some())
    }

    /// Its error pages of another backend. nginx takes `error_page` from one level only: the sign-in page is the location's and
    /// hides the fleet's (as in ingress-nginx).
    pub fn pages(&self) -> Option<&Errors> {
        let errors = &self.policy.errors;
        let are_hidden = errors.are_fleets && self.signs_in();
        (!errors.is_empty() && !are_hidden).then_some(errors)
    }

    /// The part of the path that a request for `path` belongs to: itself, or what is below it.
    pub(in crate::table) fn part<'a>(self: &'a Arc<Self>, path: &[u8]) -> &'a Arc<Self> {
        let below = self.more.as_ref().and_then(|more| more.below.as_ref());
        below.filter(|_| self.is_above(path)).unwrap_or(self)
    }

    /// Whether a path begins with the declared one and a slash, in any case of its letters, as the patterns of a host do.
    fn is_above(&self, path: &[u8]) -> bool {
        let declared = self.declared().as_bytes();
        path.split_at_checked(declared.len()).is_some_and(|(beginning, rest)| {
            beginning.eq_ignore_ascii_case(declared) && rest.starts_with(b"/")
        })
    }
}

/// See [`PathEntry::plainly`]. Only to be compared, while the paths exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plainly {
    policy: *const Policy,
    upstream: *const Upstream,
    stays_plain: bool,
    asks_nobody: bool,
    issues_cookie: bool,
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
