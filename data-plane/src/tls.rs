//! TLS towards clients (handshake settings and choice of the certificate) and towards backends.
//!
//! **Invariant:** a private key is read once, on the control thread, and never reaches a disk or a log.

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
use own::Own;
use resolver::{Resolver, Shown};
use sessions::Sessions;
use tickets::Tickets;

/// Why TLS is not available.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The provider lacks a protocol version.
    #[error("cannot offer TLS 1.2 and 1.3: {0}")]
    Versions(#[source] rustls::Error),
    /// The proxy's own ticket keys cannot be generated.
    #[error("cannot make keys for sessions that clients keep: {0}")]
    Tickets(#[source] rustls::Error),
    /// The proxy's own certificate cannot be generated.
    #[error("cannot make the certificate for names without one: {0}")]
    Own(#[from] own::OwnError),
}

/// The supported versions.
const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];

/// HTTP/2 in ALPN.
const HTTP2: &[u8] = b"h2";

/// Protocols over TLS, in order of preference. A client that offers none of them gets no connection; one that offers
/// HTTP/1.0 alone does, as in nginx.
const PROTOCOLS: [&[u8]; 3] = [HTTP2, b"http/1.1", b"http/1.0"];

/// The enabled versions.
fn versions(tls12: bool, tls13: bool) -> Vec<&'static SupportedProtocolVersion> {
    let is_asked_for = |it: &&SupportedProtocolVersion| match it.version {
        rustls::ProtocolVersion::TLSv1_3 => tls13,
        _ => tls12,
    };
    VERSIONS.into_iter().filter(is_asked_for).collect()
}

/// Default handshake settings: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, the certificate chosen by server name.
///
/// Sessions and ticket keys are per process and shared by all workers; whether tickets are issued is a fleet setting,
/// see [`clients`]. Early data is off, because it can be replayed. Certificates are reported to `shown` on first use, for
/// OCSP stapling.
///
/// # Errors
/// No certificate can be generated for names that have none.
pub fn server_config(tables: Arc<Tables>, shown: Option<Shown>) -> Result<ServerConfig, TlsError> {
    let own = Arc::new(Own::generate()?);
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
