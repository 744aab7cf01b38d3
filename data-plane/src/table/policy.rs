//! Policies, compiled: what is said of a location, in the form in which requests ask for it. A file a feature; each reads
//! its own fields of the message and gives its own type.
//!
//! **Invariant:** what compiles from a Route and from the fleet's defaults alone compiles from one over the other, since
//! fields are replaced as a whole; a field is judged without looking at another feature's.

pub mod access;
pub mod affinity;
pub mod answers;
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
pub mod external;
pub mod fastcgi;
pub mod forwarding;
pub mod headers;
pub mod kept;
pub mod limit;
pub mod log;
pub mod mirror;
pub mod pace;
pub mod protocol;
pub mod redirect;
pub mod retries;
pub mod returned;
pub mod rewrite;
pub mod shortcuts;
pub mod status;
mod texts;
pub mod timeouts;
pub mod tracing;

use std::sync::Arc;

use shared::address::AddressSet;
use shared::policy::LocationPolicy;
use thiserror::Error;

use crate::metrics::Rules;

use access::Addresses;
use answers::Answers;
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
use kept::Kept;
use limit::Limits;
use log::Logging;
use mirror::Mirror;
use pace::Pace;
use protocol::Spoken;
use redirect::Redirect;
use retries::Retries;
use returned::Returned;
use rewrite::Rewrite;
use shortcuts::Shortcuts;
use timeouts::Said;
use tracing::Tracing;

/// What is said of a location, ready to be asked. Immutable, and shared by all paths of which the same is said.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Who gets nothing, whatever it asks for: of the fleet's own policy alone.
    pub blocks: Option<Box<Blocks>>,
    /// What holds for clients' connections: of the fleet's own policy alone.
    pub clients: Clients,
    /// How connections to endpoints are kept: the same everywhere.
    pub kept: Kept,
    /// Whose addresses get in.
    pub addresses: Addresses,
    /// What is spoken with endpoints.
    pub spoken: Spoken,
    /// How endpoints are spoken to over TLS, where their host does not say it.
    pub backend_tls: Option<Box<backend_tls::Said>>,
    /// What is told in FastCGI beside what all are told.
    pub fastcgi: Option<Box<FastCgi>>,
    /// Whether HTTP is HTTP/1.0 there.
    pub is_http10: bool,
    /// What else is asked of clients.
    pub auth: Auth,
    /// Who is asked for each request, if somebody is.
    pub external: Option<Box<External>>,
    /// Where plain requests are sent.
    pub redirect: Redirect,
    /// Whether clients are given the cookie of their backend's affinity.
    pub issues_cookie: bool,
    /// Not at "/".
    pub root_issues_none: bool,
    /// How many requests a client may make.
    pub limits: Option<Limits>,
    /// How fast clients get answers.
    pub pace: Option<Pace>,
    /// What is answered at once.
    pub shortcuts: Option<Box<Shortcuts>>,
    /// What becomes of their paths.
    pub rewrite: Rewrite,
    /// What is tried again.
    pub retries: Retries,
    /// How long endpoints have.
    pub timeouts: Said,
    /// How much requests may send.
    pub bodies: Bodies,
    /// What scripts of other origins may do; `None`: nothing is said to them.
    pub cors: Option<Box<Cors>>,
    /// Who gets copies of requests, if somebody does.
    pub mirror: Option<Box<Mirror>>,
    /// Which peers are trusted with what, and what backends are told.
    pub forwarding: Forwarding,
    /// What they are told of traces, if anything.
    pub tracing: Option<Tracing>,
    /// Which answers are compressed: of the fleet's own policy alone, the others say only that some are.
    pub compression: Option<Box<Compression>>,
    /// Headers of answers.
    pub answers: Answers,
    /// What places endpoints name in them.
    pub returned: Option<Box<Returned>>,
    /// Which answers another backend makes.
    pub errors: Errors,
    /// Which requests are logged.
    pub log: Logging,
    /// What is exported of them, where that is not the usual: of the fleet's own policy alone.
    pub counting: Option<Arc<Rules>>,
    /// Who is shown how many connections there are, where that is not this machine alone: of the fleet's own policy alone.
    pub status: Option<Box<AddressSet>>,
}

/// Why a policy cannot be served.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("policy.{field}: {problem}")]
pub struct Refused {
    /// The field of the message.
    pub field: &'static str,
    /// What was expected and what came.
    pub problem: String,
}

impl Policy {
    /// Compiles what is said; [`Policy::default`] where nothing is.
    ///
    /// # Errors
    /// Where a field cannot be served as it is said.
    pub fn compile(said: &LocationPolicy) -> Result<Self, Refused> {
        Ok(Self {
            blocks: Blocks::compile(said)?,
            clients: Clients::compile(said),
            kept: Kept::compile(said),
            addresses: Addresses::compile(said)?,
            spoken: Spoken::compile(said)?,
            backend_tls: backend_tls::Said::compile(said.backend_tls.as_ref())?,
            fastcgi: FastCgi::compile(said)?,
            is_http10: protocol::is_http10(said)?,
            auth: Auth::compile(said)?,
            external: External::compile(said)?,
            redirect: Redirect::compile(said)?,
            issues_cookie: said.issues_cookie == Some(true),
            root_issues_none: said.root_issues_none == Some(true),
            limits: Limits::compile(said)?,
            pace: Pace::compile(said),
            shortcuts: Shortcuts::compile(said.shortcuts.as_ref())?.map(Box::new),
            rewrite: Rewrite::compile(said),
            retries: Retries::compile(said)?,
            timeouts: Said::compile(said),
            bodies: Bodies::compile(said),
            cors: Cors::compile(said),
            mirror: Mirror::compile(said),
            forwarding: Forwarding::compile(said)?,
            tracing: Tracing::compile(said),
            compression: Compression::compile(said)?,
            answers: Answers::compile(said)?,
            returned: Returned::compile(said)?,
            errors: Errors::compile(said)?,
            log: Logging::compile(said)?,
            counting: counting::compile(said)?,
            status: status::compile(said)?,
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
