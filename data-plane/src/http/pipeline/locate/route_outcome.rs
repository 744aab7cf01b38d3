//! The result of looking up a path.

use std::sync::Arc;

use bytes::Bytes;
use shared::template::Template;

use super::kept_out::Shown;
use crate::http::pipeline::certificates::ClientRefusal;
use crate::table::policy::bodies::Bodies;
use crate::table::{HostEntry, PathEntry, Policy};

/// What a request leads to.
pub(super) enum RouteOutcome {
    /// A location.
    Location {
        entry: Arc<PathEntry>,
        /// The path for the backend instead of the request's own, already encoded.
        target: Option<Vec<u8>>,
        has_tls: bool,
        issues_cookie: bool,
    },
    /// The name is another host's with or without `www.`: that host, and how its location redirects.
    Www(Arc<HostEntry>, Arc<Policy>),
    /// Requests for "/" of the host are redirected to this path. With the location that they would reach otherwise.
    AppRoot(Arc<Template>, Option<Arc<PathEntry>>),
    /// A location whose path has an additional trailing slash, and its URL.
    AddSlash(Arc<PathEntry>, Vec<u8>),
    /// None: the default backend. The catch-all's is not logged (as in ingress-nginx).
    DefaultBackend {
        silent: bool,
        entry: Option<Arc<PathEntry>>,
        target: Option<Vec<u8>>,
        /// There is none, and the client's address is blocked.
        blocked: bool,
        /// The fleet's size limits, which count if there is none.
        bodies: Bodies,
    },
    /// None: the proxy responds by itself.
    Own(Own),
}

/// What the proxy responds by itself.
pub(super) enum Own {
    /// A refusal: its User-Agent or Referer is blocked.
    Blocked(Shown),
    /// A refusal: it leads to two different locations, depending on how the path is read.
    Ambiguous,
    /// A refusal: it exceeded the matching budget, and nobody gets past a rule that way.
    Unknown,
    /// A refusal of this client.
    Refused(ClientRefusal, Shown),
    /// That the proxy is healthy; the media type of the response, if configured.
    HealthCheck(Option<Bytes>),
    /// The connection status page; whether the client may see it.
    Status(bool),
    /// That there is nothing: no table was received yet.
    NoTable,
}

impl RouteOutcome {
    /// The location, if there is one that the request enters.
    pub(super) fn location(&self) -> Option<&PathEntry> {
        match self {
            Self::Location { entry, .. } | Self::DefaultBackend { entry: Some(entry), .. } => Some(entry),
            _ => None,
        }
    }

    /// Whether the snippets of its host apply. A redirect to another host is not affected by them.
    pub(super) fn has_snippets(&self) -> bool {
        matches!(
            self,
            Self::Location { .. } | Self::AddSlash(..) | Self::DefaultBackend { .. } | Self::AppRoot(..)
        )
    }

    /// Whether it is counted and logged as a request of its host that no location takes.
    pub(super) fn is_unclaimed(&self) -> bool {
        !matches!(self, Self::Location { .. } | Self::Own(Own::HealthCheck(_) | Own::Status(_)))
    }
}
