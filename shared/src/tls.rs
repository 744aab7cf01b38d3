//! TLS between the planes: version 1.3 only, with certificates of our own authority on both sides.
//!
//! One address serves two purposes, distinguished by the client's ALPN (RFC 7301): calls, for which it shows a
//! certificate, and enrolment, for which it has none yet and only verifies the control plane.
//!
//! **Invariant:** sessions are never resumed. Resumption would skip the check of the peer's certificate, and the
//! trusted roots may have changed since.

pub mod connect;
pub mod join;
mod pinned;
pub mod request;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use zeroize::Zeroizing;

use pinned::Pinned;

/// The name in every control plane's certificate, wherever it runs; no other certificate has one.
pub const SERVER_NAME: &str = "control-plane.firth";
/// ALPN of clients that make calls: gRPC.
pub const CALLS: &[u8] = b"h2";
/// ALPN of clients that enrol: also gRPC.
pub const ENROLMENT: &[u8] = b"firth-enrolment";

/// Why TLS cannot be configured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A certificate or key is unusable.
    #[error("a certificate or its key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// There are no usable authorities.
    #[error("the certificates of the authority cannot be used: {0}")]
    Roots(#[from] VerifierBuilderError),
    /// The private key is invalid.
    #[error("the private key cannot be parsed")]
    Key,
}

/// Which servers a client trusts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trust {
    /// Authorities, by their certificates, DER.
    Roots(Vec<Bytes>),
    /// The authority whose certificate has this digest ([`pin`]) and is sent by the server.
    Pinned([u8; 32]),
}

/// A certificate with its chain and key; DER.
#[derive(Clone)]
pub struct Credentials {
    /// The certificate first.
    pub chain: Vec<Bytes>,
    /// PKCS#8; wiped when the last reference is dropped.
    pub key: Bytes,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

/// The digest that pins an authority.
pub fn pin(root: &[u8]) -> [u8; 32] {
    *blake3::hash(root).as_bytes()
}

/// For a client that makes calls with a certificate, or enrols without one.
///
/// # Errors
/// If a certificate or its key is unusable.
pub fn client(trust: &Trust, credentials: Option<&Credentials>) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    let builder = match trust {
        Trust::Roots(roots) => {
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store(roots)?), provider());
            builder.with_webpki_verifier(verifier.build()?)
        }
        Trust::Pinned(pin) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Pinned::new(*pin, provider())))
        }
    };
    let mut config = match credentials {
        Some(it) => builder.with_client_auth_cert(it.certificates(), it.key()?)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![if credentials.is_some() { CALLS } else { ENROLMENT }.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// For a server of clients with certificates of these authorities, or, without authorities, of clients that enrol.
///
/// # Errors
/// If a certificate or its key is unusable.
pub fn server(credentials: &Credentials, clients: Option<&[Bytes]>) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    let builder = match clients {
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store(roots)?), provider());
            builder.with_client_cert_verifier(verifier.build()?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(credentials.certificates(), credentials.key()?)?;
    config.alpn_protocols = vec![if clients.is_some() { CALLS } else { ENROLMENT }.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// For an HTTP/1.1 server without client authentication.
///
/// # Errors
/// If the certificate or its key is unusable, or they do not belong together.
pub fn https(credentials: &Credentials) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = builder.with_no_client_auth();
    let mut config = builder.with_single_cert(credentials.certificates(), credentials.key()?)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Cryptographically secure random bytes.
///
/// # Panics
/// Never: the provider waits for the system's randomness.
pub fn random<const N: usize>() -> Zeroizing<[u8; N]> {
    let mut bytes = Zeroizing::new([0; N]);
    let filled = provider().secure_random.fill(bytes.as_mut());
    assert!(filled.is_ok(), "the system gives no randomness");
    bytes
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn store(roots: &[Bytes]) -> Result<RootCertStore, rustls::Error> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(CertificateDer::from_slice(root))?;
    }
    Ok(store)
}

impl Credentials {
    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.chain.iter().map(|der| CertificateDer::from(der.to_vec())).collect()
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::try_from(&self.key[..]).map(|key| key.clone_key()).map_err(|_| TlsError::Key)
    }
}
