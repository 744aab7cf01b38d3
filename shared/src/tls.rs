//! TLS between the planes: version 1.3 and nothing else, both ends known by certificates of an authority of our own.
//!
//! One address has two doors, told apart by what the client wants to speak (ALPN, RFC 7301): calls, for which it shows a
//! certificate, and enrolment, for which it cannot have one yet and verifies the control plane alone.
//!
//! **Invariant:** nothing is resumed. A session that was would skip the question who the peer is, and the authority may
//! have changed its mind since.

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

/// The name that every control plane's certificate has, wherever it runs; only theirs have one.
pub const SERVER_NAME: &str = "control-plane.firth";
/// Whoever wants to call: gRPC.
pub const CALLS: &[u8] = b"h2";
/// Whoever wants a certificate: gRPC, too.
pub const ENROLMENT: &[u8] = b"firth-enrolment";

/// Why TLS cannot be spoken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A certificate or a key that cannot be used.
    #[error("a certificate or its key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// No authority to believe.
    #[error("the certificates of the authority cannot be used: {0}")]
    Roots(#[from] VerifierBuilderError),
    /// No private key.
    #[error("the private key cannot be parsed")]
    Key,
}

/// Whom a client believes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trust {
    /// Authorities, each by its certificate, DER.
    Roots(Vec<Bytes>),
    /// The authority whose certificate has this digest ([`pin`]), and is shown by the server.
    Pinned([u8; 32]),
}

/// A certificate with what leads to its authority, and its key; DER.
#[derive(Clone)]
pub struct Credentials {
    /// The certificate first.
    pub chain: Vec<Bytes>,
    /// PKCS#8; wiped when nobody holds it any more.
    pub key: Bytes,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

/// The digest by which an authority is pinned.
pub fn pin(root: &[u8]) -> [u8; 32] {
    *blake3::hash(root).as_bytes()
}

/// For a client that shows a certificate and calls, or that shows none and enrols.
///
/// # Errors
/// Where a certificate or its key cannot be used.
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

/// For a server that is called by holders of certificates of these authorities, or, without any, that enrols.
///
/// # Errors
/// Where a certificate or its key cannot be used.
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

/// For a server that anybody calls over HTTP/1.1, and who has this certificate.
///
/// # Errors
/// Where the certificate or its key cannot be used, or are not of one pair.
pub fn https(credentials: &Credentials) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = builder.with_no_client_auth();
    let mut config = builder.with_single_cert(credentials.certificates(), credentials.key()?)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Bytes that nobody can guess.
///
/// # Panics
/// Never: it is the provider's randomness, which waits for the system's.
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
