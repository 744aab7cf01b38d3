//! Trusted authorities from Secrets: the certificates of `ca.crt` and the revocation lists of `ca.crl`.
//!
//! **Invariant:** no content of a Secret gets into a fault.

use shared::pem;
use shared::resource::{Authorities, BackendIdentity};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate;
use crate::objects::Secret;
use crate::problem::{Fault, Severity};

/// The Secret's key with the authorities.
const AUTHORITIES: &str = "ca.crt";

/// The Secret's key with the revocation lists.
const REVOCATIONS: &str = "ca.crl";

/// The authorities of client certificates, and the revoked certificates.
///
/// # Errors
/// If there is no authority, or something is invalid: then nobody is let in.
pub(super) fn of_clients(secret: &Secret) -> Result<Authorities, Fault> {
    let mut authorities = authorities(secret)?;
    if secret.data.get(REVOCATIONS).is_some_and(|text| !text.trim().is_empty()) {
        let text = certificate::decoded(secret, REVOCATIONS)?;
        authorities.revocations = pem::revocations(&text).map_err(|error| rejected(REVOCATIONS, error))?;
    }
    Ok(authorities)
}

/// The authorities of backends' certificates, and the proxy's own certificate.
///
/// # Errors
/// If there is neither, or one is invalid.
pub(super) fn identity(secret: &Secret) -> Result<BackendIdentity, Fault> {
    let says = |key: &str| secret.data.get(key).is_some_and(|text| !text.trim().is_empty());
    let authorities = says(AUTHORITIES).then(|| authorities(secret)).transpose()?;
    let is_pair = secret.data.contains_key("tls.crt") && secret.data.contains_key("tls.key");
    match (is_pair, authorities) {
        (false, None) => {
            Err(rejected(AUTHORITIES, "expected this key, or tls.crt with tls.key, got neither"))
        }
        (false, authorities) => Ok(BackendIdentity { authorities, ..BackendIdentity::default() }),
        (true, authorities) => {
            let pair = certificate::compile(secret)?;
            let chain = pair.chain.into_iter().flat_map(|chain| chain.certificates);
            let certificates = std::iter::once(pair.certificate.leaf).chain(chain).collect();
            Ok(BackendIdentity { authorities, certificates, key: pair.certificate.key })
        }
    }
}

/// Parses the authorities.
///
/// # Errors
/// If one is no certificate, or none can end a chain: OpenSSL wants a self-signed one.
fn authorities(secret: &Secret) -> Result<Authorities, Fault> {
    let text = certificate::decoded(secret, AUTHORITIES)?;
    let certificates = pem::certificates(&text).map_err(|error| rejected(AUTHORITIES, error))?;
    if !certificates.iter().any(|der| signed_itself(der)) {
        return Err(rejected(AUTHORITIES, "expected a self-signed root certificate, got none"));
    }
    Ok(Authorities { certificates, revocations: Vec::new() })
}

fn signed_itself(der: &[u8]) -> bool {
    let certificate = X509Certificate::from_der(der);
    certificate.is_ok_and(|(_, it)| it.subject().as_raw() == it.issuer().as_raw())
}

fn rejected(key: &str, reason: impl ToString) -> Fault {
    Fault::new(Severity::Rejected, format!("data[{key}]"), reason.to_string())
}
