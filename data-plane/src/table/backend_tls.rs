//! TLS to endpoints, ready for use: the policy, bound to one version of the Material.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shared::resource::BackendIdentity;
use thiserror::Error;

use super::certified::{CertifiedError, paired};
use super::material::next_id;
use super::policy::backend_tls::Said;
use super::trust::{Trust, TrustError};

/// Why a Material is of no use. Says nothing of the key itself.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Its authorities.
    #[error("authorities.{0}")]
    Authorities(#[from] TrustError),
    /// Its own certificate.
    #[error("certificates: {0}")]
    Own(#[from] CertifiedError),
}

/// A Material, read once.
#[derive(Clone, Debug)]
pub struct Identity {
    source: BackendIdentity,
    trust: Option<Arc<Trust>>,
    own: Option<Arc<CertifiedKey>>,
}

impl Identity {
    /// Reads it.
    ///
    /// # Errors
    /// Where an authority, the certificate or its key cannot be used.
    pub fn new(source: BackendIdentity) -> Result<Self, IdentityError> {
        let trust = source.authorities.as_ref().map(Trust::new).transpose()?.map(Arc::new);
        if source.certificates.is_empty() {
            return Ok(Self { source, trust, own: None });
        }
        let key = PrivateKeyDer::try_from(&*source.key).map_err(|_| CertifiedError::KeyForm)?;
        let key = any_supported_type(&key).map_err(|_| CertifiedError::KeyKind)?;
        let chain = source.certificates.iter().map(|der| CertificateDer::from(der.to_vec()));
        let own = CertifiedKey::new(chain.collect(), key);
        paired(&own)?;
        Ok(Self { source, trust, own: Some(Arc::new(own)) })
    }

    /// Whether another one says the same.
    pub fn is(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

/// One way to speak TLS with endpoints. Immutable; what changes is another one.
#[derive(Debug)]
pub struct BackendTls {
    /// Of this one alone, ever: connections that were made in one way are never used in another.
    pub id: u64,
    /// What is asked of connections.
    pub said: Said,
    /// By whom certificates must be signed, and with how many others between; `None`: any certificate does.
    pub verified: Option<(Arc<Trust>, usize)>,
    /// The certificate that is shown where one is asked for.
    pub own: Option<Arc<CertifiedKey>>,
}

impl BackendTls {
    /// With this version of the Material. `None` where something is to be verified and there is nothing to do it by.
    pub fn new(said: &Said, identity: &Identity) -> Option<Self> {
        let mut said = said.clone();
        let verified = match (said.verified, &identity.trust) {
            (None, _) => None,
            (Some(_), None) => return None,
            (Some(depth), Some(trust)) => Some((Arc::clone(trust), depth)),
        };
        // Without authorities the original does not look at the rest of the Secret, nor at what is said of versions.
        let own = identity.own.clone().filter(|_| identity.trust.is_some());
        if identity.trust.is_none() {
            (said.tls12, said.tls13, said.ciphers) = (true, true, Box::default());
        }
        Some(Self { id: next_id(), said, verified, own })
    }
}
