//! A certificate with its key, read once and ready for handshakes.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shared::pem;
use shared::resource::{Certificate, Chain};
use thiserror::Error;

/// Why a certificate cannot be shown. Says nothing of the key itself.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CertifiedError {
    /// The key's bytes are of no known form.
    #[error("key: expected PKCS #8, PKCS #1 or SEC 1 in DER, got something else")]
    KeyForm,
    /// The key is of a kind that is not supported.
    #[error("key: expected RSA, ECDSA or Ed25519, got something else")]
    KeyKind,
    /// The leaf cannot be read.
    #[error("leaf: expected an X.509 certificate, got something else")]
    Leaf,
    /// Key and leaf do not belong together.
    #[error("key: does not belong to the certificate")]
    Mismatch,
}

/// A certificate, its chain, its key, and the names that it covers.
#[derive(Debug)]
pub struct Certified {
    key: Arc<CertifiedKey>,
    names: Vec<String>,
}

impl Certified {
    /// Reads leaf and key. Without its chain the leaf is shown alone.
    ///
    /// # Errors
    /// Where the key or the leaf cannot be used, or one does not belong to the other.
    pub fn build(certificate: &Certificate, chain: Option<&Chain>) -> Result<Self, CertifiedError> {
        let key = PrivateKeyDer::try_from(&*certificate.key).map_err(|_| CertifiedError::KeyForm)?;
        let key = any_supported_type(&key).map_err(|_| CertifiedError::KeyKind)?;
        let rest = chain.iter().flat_map(|chain| &chain.certificates);
        let ders = std::iter::once(&certificate.leaf).chain(rest);
        let certified = CertifiedKey::new(ders.map(|der| CertificateDer::from(der.to_vec())).collect(), key);
        certified.keys_match().map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => CertifiedError::Mismatch,
            _ => CertifiedError::Leaf,
        })?;
        Ok(Self { key: Arc::new(certified), names: pem::names(&certificate.leaf) })
    }

    /// For the handshake.
    pub fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    /// Whether it is good for a host.
    pub fn covers(&self, host: &str) -> bool {
        pem::covers(&self.names, host)
    }

    /// The names that it is good for.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}
