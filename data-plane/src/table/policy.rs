//! Compiled policies: the settings of a location, in the form in which requests need them. One file per feature; each
//! reads its own fields of the message and returns its own type.
//!
//! **Invariant:** if a Route and the fleet's defaults each compile alone, the one merged over the other compiles too,
//! because fields are replaced as a whole and a field is judged without looking at another feature's.

pub mod access;
pub mod affinity;
pub mod auth;
pub mod backend_tls;
pub mod balancing;
pub mod blocks;
pub mod bodies;
pub mod certificates;
pub mod clients;
pub mod compression;
pub mod cors;
pub mod counting;
pub mod errors;
pub mod expires;
pub mod external;
pub mod fastcgi;
pub mod forwarding;
pub mod headers;
pub mod levels;
pub mod limit;
pub mod log;
pub mod mirror;
pub mod pace;
pub mod protocol;
pub mod read_ahead;
pub mod redirect;
pub mod response_headers;
pub mod response_rewrite;
pub mod retries;
pub mod rewrite;
pub mod shortcuts;
pub mod snippet_variables;
pub mod spared;
pub mod status;
pub mod substitutions;
mod texts;
pub mod timeouts;
pub mod tracing;
pub mod upstream_keepalive;
pub mod zones;

use std::sync::Arc;

use shared::address::AddressSet;
use shared::policy::LocationPolicy;
use thiserror::Error;

use crate::metrics::Rules;

use access::Addresses;
use auth::Auth;
use blocks::Blocks;
use bodies::Bodies;
use clients::Clients;
use compression::Compression;
use cors::Cors;
use errors::Errors;
use external::External;
use fastcgi::FastCgi;
use forwarding::Forwarding;
use limit::Limits;
use log::Logging;
use mirror::Mirror;
use pace::Pace;
use protocol::Spoken;
use read_ahead::ReadAhead;
use redirect::Redirect;
use response_headers::ResponseHeaders;
use response_rewrite::ResponseRewrite;
use retries::Retries;
use rewrite::Rewrite;
use shortcuts::Shortcuts;
use snippet_variables::SnippetVariables;
use substitutions::Substitutions;
use timeouts::TimeoutOverrides;
use tracing::Tracing;
use upstream_keepalive::UpstreamKeepalive;
use zones::ZoneLimits;

/// The compiled settings of a location. Immutable, and shared by all paths with equal settings.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Requests that are blocked whatever they ask for; only in the fleet's policy.
    pub blocks: Option<Box<Blocks>>,
    /// Settings of client connections; only in the fleet's policy.
    pub clients: Clients,
    /// Keep-alive of connections to endpoints; the same everywhere.
    pub upstream_keepalive: UpstreamKeepalive,
    /// Access lists by client address.
    pub addresses: Addresses,
    /// The protocol spoken with endpoints.
    pub spoken: Spoken,
    /// TLS settings towards endpoints, unless the host sets them.
    pub backend_tls: Option<Box<backend_tls::BackendTlsConfig>>,
    /// Additional FastCGI parameters.
    pub fastcgi: Option<Box<FastCgi>>,
    /// Whether HTTP/1.0 is used.
    pub is_http10: bool,
    /// Password authentication.
    pub auth: Auth,
    /// External authentication, if configured.
    pub external: Option<Box<External>>,
    /// Redirects of plain HTTP requests.
    pub redirect: Redirect,
    /// Whether clients get the cookie of their backend's affinity.
    pub issues_cookie: bool,
    /// The same, not at "/".
    pub root_issues_none: bool,
    /// Rate limits per client.
    pub limits: Option<Limits>,
    /// Limits of clients by zones.
    pub zones: Option<Box<ZoneLimits>>,
    /// The rate at which responses are sent.
    pub pace: Option<Pace>,
    /// Bytes before a rate that a backend says counts.
    pub pace_after: u64,
    /// Whether no client may ask for it.
    pub is_internal: bool,
    /// Direct responses of snippets.
    pub shortcuts: Option<Box<Shortcuts>>,
    /// Variables that snippets set.
    pub variables: Option<Box<SnippetVariables>>,
    /// Path rewriting.
    pub rewrite: Rewrite,
    /// Which failures are retried.
    pub retries: Retries,
    /// Timeouts of endpoints.
    pub timeouts: TimeoutOverrides,
    /// Limits on request bodies.
    pub bodies: Bodies,
    /// CORS settings; `None`: no CORS headers.
    pub cors: Option<Box<Cors>>,
    /// The mirror target, if configured.
    pub mirror: Option<Box<Mirror>>,
    /// Which peers are trusted with what, and what backends are told.
    pub forwarding: Forwarding,
    /// Trace headers for backends, if configured.
    pub tracing: Option<Tracing>,
    /// Response compression; complete only in the fleet's policy, the others only say whether it is used.
    pub compression: Option<Box<Compression>>,
    /// How far responses are read ahead of their clients.
    pub read_ahead: ReadAhead,
    /// Whether responses of unknown length end with the client's connection.
    pub is_unchunked: bool,
    /// Response headers.
    pub response_headers: ResponseHeaders,
    /// Rewriting of redirects and cookies in responses.
    pub response_rewrite: Option<Box<ResponseRewrite>>,
    /// Which text of responses is replaced.
    pub substitutions: Option<Box<Substitutions>>,
    /// Which responses are replaced by another backend's error page.
    pub errors: Errors,
    /// Which requests are logged.
    pub log: Logging,
    /// Which metrics are exported, if not the default; only in the fleet's policy.
    pub counting: Option<Arc<Rules>>,
    /// Which clients may see the connection status page, if not only this machine; only in the fleet's policy.
    pub status: Option<Box<AddressSet>>,
}

/// Why a policy cannot be served.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("policy.{field}: {problem}")]
pub struct PolicyError {
    /// The field of the message.
    pub field: &'static str,
    /// What was expected and what came.
    pub problem: String,
}

impl Policy {
    /// Compiles a policy message; [`Policy::default`] if it is empty.
    ///
    /// # Errors
    /// A field has a value that is not supported.
    pub fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        Ok(Self {
            blocks: Blocks::compile(configured)?,
            clients: Clients::compile(configured),
            upstream_keepalive: UpstreamKeepalive::compile(configured),
            addresses: Addresses::compile(configured)?,
            spoken: Spoken::compile(configured)?,
            backend_tls: backend_tls::BackendTlsConfig::compile(configured.backend_tls.as_ref())?,
            fastcgi: FastCgi::compile(configured)?,
            is_http10: protocol::is_http10(configured)?,
            auth: Auth::compile(configured)?,
            external: External::compile(configured)?,
            redirect: Redirect::compile(configured)?,
            issues_cookie: configured.issues_cookie == Some(true),
            root_issues_none: configured.root_issues_none == Some(true),
            limits: Limits::compile(configured)?,
            zones: ZoneLimits::compile(configured)?.map(Box::new),
            pace: Pace::compile(configured),
            pace_after: Pace::after(configured),
            is_internal: configured.internal == Some(true),
            shortcuts: Shortcuts::compile(configured.shortcuts.as_ref())?.map(Box::new),
            variables: SnippetVariables::compile(configured)?,
            rewrite: Rewrite::compile(configured),
            retries: Retries::compile(configured)?,
            timeouts: TimeoutOverrides::compile(configured),
            bodies: Bodies::compile(configured),
            cors: Cors::compile(configured),
            mirror: Mirror::compile(configured),
            forwarding: Forwarding::compile(configured)?,
            tracing: Tracing::compile(configured),
            compression: Compression::compile(configured)?,
            read_ahead: ReadAhead::compile(configured),
            is_unchunked: configured.chunked_transfer_encoding == Some(false),
            response_headers: ResponseHeaders::compile(configured)?,
            response_rewrite: ResponseRewrite::compile(configured)?,
            substitutions: Substitutions::compile(configured)?,
            errors: Errors::compile(configured)?,
            log: Logging::compile(configured)?,
            counting: counting::compile(configured)?,
            status: status::compile(configured)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_said_is_the_default() {
        let compiled = Policy::compile(&LocationPolicy::default()).unwrap();
        assert_eq!(format!("{compiled:?}"), format!("{:?}", Policy::default()));
    }
}
