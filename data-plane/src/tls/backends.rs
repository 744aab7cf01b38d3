//! TLS towards backends. Unless configured otherwise, backends are not verified, as with `backend-protocol: HTTPS`
//! alone in ingress-nginx. That protects against eavesdroppers, but not against a man in the middle.
//!
//! **Invariant:** each set of TLS settings has a configuration of its own, and with it its own sessions. None relies
//! on the verification done by another.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, SupportedProtocolVersion};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::verifiers::{Unverified, Verified};
use super::{TlsError, VERSIONS};
use crate::table::BackendTls;

/// Maximum number of resumable sessions per set of settings.
const SESSIONS: usize = 256;

/// Makes TLS connections to backends. Each worker has its own, because resumable sessions are behind a lock.
#[derive(Debug)]
pub struct Backends {
    unverified: Connectors,
    /// Also without verification, but with SNI.
    named: Connectors,
    /// By the number of the TLS settings, while those are in use.
    ways: RefCell<HashMap<u64, (Weak<BackendTls>, Connectors)>>,
}

/// The protocol over TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// HTTP/1.1, without ALPN.
    Http1,
    /// HTTP/2, with ALPN.
    Http2,
}

/// For one set of TLS settings.
#[derive(Clone)]
struct Connectors {
    http1: TlsConnector,
    http2: TlsConnector,
}

impl std::fmt::Debug for Connectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connectors")
    }
}

impl Backends {
    /// Without sessions.
    ///
    /// # Errors
    /// The provider lacks a protocol version.
    pub fn new() -> Result<Self, TlsError> {
        let mut config = unverified(aws_lc_rs::default_provider(), &VERSIONS).map_err(TlsError::Versions)?;
        let named = Connectors::new(config.clone());
        // As in ingress-nginx: `proxy-ssl-server-name` is off.
        config.enable_sni = false;
        Ok(Self { unverified: Connectors::new(config), named, ways: RefCell::default() })
    }

    /// Does a handshake for a host, without verification and with SNI.
    ///
    /// # Errors
    /// A connection or TLS error.
    pub async fn connect_to(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.named.http1.connect(name, stream).await
    }

    /// Does a handshake with an address, with these settings; without any, there is no verification.
    ///
    /// # Errors
    /// A connection or TLS error, such as a certificate that fails the verification.
    pub async fn connect(
        &self,
        address: IpAddr,
        stream: TcpStream,
        over: Over,
        way: Option<&Arc<BackendTls>>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let (connectors, name) = match way {
            None => (self.unverified.clone(), ServerName::IpAddress(address.into())),
            Some(way) => (self.connectors(way).map_err(io::Error::other)?, way.config.name.clone()),
        };
        let connector = match over {
            Over::Http1 => connectors.http1,
            Over::Http2 => connectors.http2,
        };
        connector.connect(name, stream).await
    }

    /// Drops settings that are no longer in use. Called on ticks.
    pub fn sweep(&self) {
        self.ways.borrow_mut().retain(|_, (way, _)| way.strong_count() > 0);
    }

    fn connectors(&self, way: &Arc<BackendTls>) -> Result<Connectors, rustls::Error> {
        if let Some((_, connectors)) = self.ways.borrow().get(&way.id) {
            return Ok(connectors.clone());
        }
        let made = Connectors::new(config(way)?);
        self.ways.borrow_mut().insert(way.id, (Arc::downgrade(way), made.clone()));
        Ok(made)
    }
}

impl Connectors {
    fn new(mut http1: ClientConfig) -> Self {
        http1.resumption = Resumption::in_memory_sessions(SESSIONS);
        let mut http2 = http1.clone();
        http2.alpn_protocols = vec![b"h2".to_vec()];
        // Sessions are not shared between the two.
        http2.resumption = Resumption::in_memory_sessions(SESSIONS);
        Self { http1: Arc::new(http1).into(), http2: Arc::new(http2).into() }
    }
}

/// The settings in rustls' terms. An error if no version or cipher suite is left.
fn config(way: &BackendTls) -> Result<ClientConfig, rustls::Error> {
    let settings = &way.config;
    let versions = super::versions(settings.tls12, settings.tls13);
    let mut provider = aws_lc_rs::default_provider();
    if !settings.ciphers.is_empty() {
        let all = std::mem::take(&mut provider.cipher_suites);
        let (new, old): (Vec<_>, Vec<_>) = all.into_iter().partition(|suite| suite.tls13().is_some());
        let liked = |number: &u16| old.iter().find(|suite| u16::from(suite.suite()) == *number).copied();
        // The list applies only to TLS 1.2, as in OpenSSL.
        provider.cipher_suites = new.into_iter().chain(settings.ciphers.iter().filter_map(liked)).collect();
    }
    let builder = |verifier: Arc<dyn ServerCertVerifier>, provider: CryptoProvider| {
        let builder =
            ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(&versions)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        Ok::<_, rustls::Error>(match &way.own {
            None => builder.with_no_client_auth(),
            Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own)))),
        })
    };
    let verifier: Arc<dyn ServerCertVerifier> = match &way.verified {
        None => Arc::new(Unverified::new(&provider)),
        Some((trust, depth)) => Arc::new(Verified::new(trust, *depth, &provider)),
    };
    let mut config = builder(verifier, provider)?;
    config.enable_sni = settings.tells_name;
    Ok(config)
}

fn unverified(
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ClientConfig, rustls::Error> {
    let verifier = Unverified::new(&provider);
    let builder = ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions)?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}
