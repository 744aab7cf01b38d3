//! A certificate with its key, parsed once and ready for handshakes.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shared::pem;
use shared::resource::{Certificate, Chain};
use thiserror::Error;

use super::version1::readable;

/// Why a certificate cannot be used. Never contains the key itself.
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
    /// The resource that it belongs to, `namespace/..`.
    owner: Arc<str>,
    /// With an OCSP response, while a valid one is known: replaced, so that its chain is held once.
    shown: ArcSwap<CertifiedKey>,
    names: Vec<String>,
    /// Whether it was used in a handshake, and the OCSP fetcher was told.
    is_told: AtomicBool,
}

impl Certified {
    /// Parses leaf and key. Without a chain only the leaf is sent.
    ///
    /// # Errors
    /// The key or the leaf cannot be used, or they do not belong together.
    pub fn build(certificate: &Certificate, chain: Option<&Chain>) -> Result<Self, CertifiedError> {
        let key = PrivateKeyDer::try_from(&*certificate.key).map_err(|_| CertifiedError::KeyForm)?;
        let key = any_supported_type(&key).map_err(|_| CertifiedError::KeyKind)?;
        let rest = chain.iter().flat_map(|chain| &chain.certificates);
        let ders = std::iter::once(&certificate.leaf).chain(rest);
        let certified = CertifiedKey::new(ders.map(|der| CertificateDer::from(der.to_vec())).collect(), key);
        paired(&certified)?;
        Ok(Self {
            owner: Arc::default(),
            shown: ArcSwap::from_pointee(certified),
            names: pem::names(&certificate.leaf),
            is_told: AtomicBool::new(false),
        })
    }

    /// Sets its owner: a key, `namespace/..`.
    #[must_use]
    pub fn of(self, owner: &Arc<str>) -> Self {
        Self { owner: Arc::clone(owner), ..self }
    }

    /// Its owner; empty if not set.
    pub fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// The certificate for the handshake, with an OCSP response if there is one.
    pub fn shown(&self) -> Arc<CertifiedKey> {
        self.shown.load_full()
    }

    /// The same without the OCSP response: a copy, unless there is none.
    pub fn unstapled(&self) -> Arc<CertifiedKey> {
        let shown = self.shown();
        if shown.ocsp.is_some() { with(&shown, None) } else { shown }
    }

    /// Sets the OCSP response (DER) to send with it; `None`: none.
    pub fn staple(&self, response: Option<&[u8]>) {
        let shown = self.shown();
        if shown.ocsp.as_deref() != response {
            self.shown.store(with(&shown, response));
        }
    }

    /// Whether this is its first use since [`Self::unstaple`].
    pub fn is_first_shown(&self) -> bool {
        !self.is_told.load(Ordering::Relaxed) && !self.is_told.swap(true, Ordering::Relaxed)
    }

    /// Removes its OCSP response, and reports its next use as the first.
    pub fn unstaple(&self) {
        self.staple(None);
        self.is_told.store(false, Ordering::Relaxed);
    }

    /// Whether it covers a host.
    pub fn covers(&self, host: &str) -> bool {
        pem::covers(&self.names, host)
    }

    /// The names that it covers.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

/// A copy with this OCSP response.
fn with(key: &CertifiedKey, response: Option<&[u8]>) -> Arc<CertifiedKey> {
    let ocsp = response.map(<[u8]>::to_vec);
    Arc::new(CertifiedKey { cert: key.cert.clone(), key: Arc::clone(&key.key), ocsp })
}

/// Whether a key belongs to its leaf.
pub(super) fn paired(certified: &CertifiedKey) -> Result<(), CertifiedError> {
    let is_paired = match certified.cert.first().map(readable) {
        Some(Cow::Owned(raised)) => {
            CertifiedKey::new(vec![raised.into_owned()], Arc::clone(&certified.key)).keys_match()
        }
        _ => certified.keys_match(),
    };
    is_paired.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => CertifiedError::Mismatch,
        _ => CertifiedError::Leaf,
    })
}

#[cfg(test)]
mod tests {
    use shared::resource::BackendIdentity;
    use test_kit::certificates::version1;

    use super::*;
    use crate::table::backend_tls::{Identity, IdentityError};
    use crate::table::world;

    /// What `openssl x509 -req` makes if no extensions are given.
    #[test]
    fn a_certificate_of_version_1_is_shown_with_its_own_key_alone() {
        let mut own = world::certificate(&["a.test"]);
        own.leaf = version1(&own.leaf, &rcgen::KeyPair::try_from(&*own.key).unwrap());
        let shown_to_backends = |own: &Certificate| {
            let (certificates, key) = (vec![own.leaf.clone()], own.key.clone());
            Identity::new(BackendIdentity { authorities: None, certificates, key })
        };
        assert_eq!(*Certified::build(&own, None).unwrap().shown().cert[0], own.leaf);
        shown_to_backends(&own).unwrap();
        own.key = world::certificate(&["b.test"]).key;
        assert_eq!(Certified::build(&own, None).unwrap_err(), CertifiedError::Mismatch);
        assert_eq!(shown_to_backends(&own).unwrap_err(), IdentityError::Own(CertifiedError::Mismatch));
    }
}
