//! The certificate for names that have none where nobody configured a default one: made by each process, never a
//! resource. Named as ingress-nginx names its own, which tests and people look for.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::PrivateKeyDer;
use shared::clock;
use thiserror::Error;
use zeroize::Zeroizing;

const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Why no certificate could be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OwnError {
    /// Key or signature failed.
    #[error("generating failed: {0}")]
    Generate(#[from] rcgen::Error),
    /// The key that was made cannot be used.
    #[error("the generated key cannot be used: {0}")]
    Key(#[from] rustls::Error),
}

/// A new self-signed certificate for `ingress.local`, good for 365 days (ingress-nginx behaviour, controller.md 6).
///
/// # Errors
/// Where the system gives no randomness.
pub fn generate() -> Result<Arc<CertifiedKey>, OwnError> {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Acme Co");
    name.push(DnType::CommonName, "Kubernetes Ingress Controller Fake Certificate");
    let mut params = CertificateParams::new(vec!["ingress.local".to_owned()])?;
    params.distinguished_name = name;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = clock::wall();
    params.not_before = now.into();
    params.not_after = (now + LIFETIME).into();
    let pair = KeyPair::generate()?;
    let certificate = params.self_signed(&pair)?;
    let der = Zeroizing::new(pair.serialize_der());
    let key = any_supported_type(&PrivateKeyDer::Pkcs8(der.as_slice().into()))?;
    Ok(Arc::new(CertifiedKey::new(vec![certificate.der().clone()], key)))
}
