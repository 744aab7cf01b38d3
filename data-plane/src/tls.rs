//! TLS towards clients: the handshake's settings and the choice of the certificate. And towards backends.
//!
//! **Invariant:** a private key is read on the control thread, once, and never reaches a disk or a log.

pub mod backends;
pub mod clients;
mod names;
pub(crate) mod negotiated;
pub mod own;
pub mod resolver;
pub mod sessions;
mod shown;
pub(crate) mod tickets;
mod verifiers;

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ServerConfig, SupportedProtocolVersion};
use thiserror::Error;

use crate::table::Tables;
use resolver::{Resolver, Shown};
use sessions::Sessions;
use tickets::Tickets;

/// Why TLS cannot be offered at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The provider lacks a protocol version.
    #[error("cannot offer TLS 1.2 and 1.3: {0}")]
    Versions(#[source] rustls::Error),
    /// The proxy's own ticket keys cannot be made.
    #[error("cannot make keys for sessions that clients keep: {0}")]
    Tickets(#[source] rustls::Error),
    /// The proxy's own certificate cannot be made.
    #[error("cannot make the certificate for names without one: {0}")]
    Own(#[from] own::OwnError),
}

/// The versions that are spoken.
const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];

/// HTTP/2, as ALPN calls it.
const HTTP2: &[u8] = b"h2";

/// What is spoken over TLS, the one that is liked most first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

/// Those of the versions that are asked for.
fn versions(tls12: bool, tls13: bool) -> Vec<&'static SupportedProtocolVersion> {
    let is_asked_for = |it: &&SupportedProtocolVersion| match it.version {
        rustls::ProtocolVersion::TLSv1_3 => tls13,
        _ => tls12,
    };
    VERSIONS.into_iter().filter(is_asked_for).collect()
}

/// Default settings of handshakes: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, the certificate chosen by
/// server name.
///
/// Sessions and ticket keys are the process', which all workers share; whether tickets are given is the fleet's to say, see
/// [`clients`]. Early data is off: it can be replayed.
///
/// # Errors
/// Where no certificate can be made for names that have none.
pub fn server_config(tables: Arc<Tables>) -> Result<ServerConfig, TlsError> {
    server_config_telling(tables, None)
}

/// The same, where somebody asks what authorities say of the certificates that are shown.
///
/// # Errors
/// As [`server_config`].
pub fn server_config_telling(tables: Arc<Tables>, shown: Option<Shown>) -> Result<ServerConfig, TlsError> {
    let own = own::generate()?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&VERSIONS)
        .map_err(TlsError::Versions)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Resolver::new(Arc::clone(&tables), own, shown)));
    config.alpn_protocols = PROTOCOLS.iter().map(|it| it.to_vec()).collect();
    config.session_storage = Arc::new(Sessions::default());
    config.ticketer = Arc::new(Tickets::new(tables).map_err(TlsError::Tickets)?);
    Ok(config)
}

#[cfg(test)]
mod tests;
