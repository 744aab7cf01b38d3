//! TLS to endpoints, ready for use: the policy, bound to one version of its Material.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shared::resource::BackendIdentity;
use thiserror::Error;

use super::certified::{CertifiedError, paired};
use super::material::next_id;
use super::policy::backend_tls::BackendTlsConfig;
use super::trust::{Trust, TrustError};

/// Why a Material cannot be used. Never contains the key itself.
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

/// A parsed Material.
#[derive(Clone, Debug)]
pub struct Identity {
    source: BackendIdentity,
    trust: Option<Arc<Trust>>,
    own: Option<Arc<CertifiedKey>>,
}

impl Identity {
    /// Parses it.
    ///
    /// # Errors
    /// An authority, the certificate or its key cannot be used.
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

    /// That of settings without a Material.
    pub fn none() -> Self {
        Self { source: BackendIdentity::default(), trust: None, own: None }
    }

    /// Whether both come from the same source.
    pub fn is(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

/// One set of TLS settings towards endpoints. Immutable; a change creates a new one.
#[derive(Debug)]
pub struct BackendTls {
    /// Unique and never reused: a connection made with one set is never used with another.
    pub id: u64,
    /// The configured settings.
    pub config: BackendTlsConfig,
    /// Trusted authorities and the number of intermediates allowed; `None`: any certificate is accepted.
    pub verified: Option<(Arc<Trust>, usize)>,
    /// The client certificate, if the endpoint asks for one.
    pub own: Option<Arc<CertifiedKey>>,
}

impl BackendTls {
    /// Binds the settings to a version of the Material. `None` if verification is required and there are no
    /// authorities.
    pub fn new(config: &BackendTlsConfig, identity: &Identity) -> Option<Self> {
        let mut config = config.clone();
        let verified = match (config.verified, &identity.trust) {
            (None, _) => None,
            (Some(_), None) => return None,
            (Some(depth), Some(trust)) => Some((Arc::clone(trust), depth)),
        };
        // Without authorities ingress-nginx ignores the rest of the Secret, and the configured TLS versions.
        let own = identity.own.clone().filter(|_| identity.trust.is_some());
        if identity.trust.is_none() && !config.material.is_empty() {
            (config.tls12, config.tls13, config.ciphers) = (true, true, Box::default());
        }
        Some(Self { id: next_id(), config, verified, own })
    }
}
