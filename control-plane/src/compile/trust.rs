//! Who is trusted, out of Secrets: the authorities of `ca.crt` and the revoked certificates of `ca.crl` (annotations.md 5.6,
//! 6.8, controller.md 6).
//!
//! **Invariant:** nothing that a Secret holds gets into a fault.

use shared::pem;
use shared::resource::{Authorities, BackendIdentity};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate;
use crate::objects::Secret;
use crate::problem::{Fault, Severity};

/// The key of the authorities.
const AUTHORITIES: &str = "ca.crt";

/// The key of the lists of revoked certificates.
const REVOCATIONS: &str = "ca.crl";

/// Who signs clients' certificates, and which of them count no longer.
///
/// # Errors
/// Where there is no authority, or something is not what it should be: nobody gets in then.
pub(super) fn of_clients(secret: &Secret) -> Result<Authorities, Fault> {
    let mut authorities = authorities(secret)?;
    if secret.data.get(REVOCATIONS).is_some_and(|text| !text.trim().is_empty()) {
        let text = certificate::decoded(secret, REVOCATIONS)?;
        authorities.revocations = pem::revocations(&text).map_err(|error| rejected(REVOCATIONS, error))?;
    }
    Ok(authorities)
}

/// Who backends must be, and who the proxy says that it is.
///
/// # Errors
/// Where there is neither, or one of them is not what it should be.
pub(super) fn identity(secret: &Secret) -> Result<BackendIdentity, Fault> {
    let says = |key: &str| secret.data.get(key).is_some_and(|text| !text.trim().is_empty());
    let authorities = says(AUTHORITIES).then(|| authorities(secret)).transpose()?;
    let is_pair = secret.data.contains_key("tls.crt") && secret.data.contains_key("tls.key");
    match (is_pair, authorities) {
        (false, None) => Err(rejected(AUTHORITIES, "expected it, or tls.crt with tls.key, got neither")),
        (false, authorities) => Ok(BackendIdentity { authorities, ..BackendIdentity::default() }),
        (true, authorities) => {
            let pair = certificate::compile(secret)?;
            let chain = pair.chain.into_iter().flat_map(|chain| chain.certificates);
            let certificates = std::iter::once(pair.certificate.leaf).chain(chain).collect();
            Ok(BackendIdentity { authorities, certificates, key: pair.certificate.key })
        }
    }
}

/// The authorities.
///
/// # Errors
/// Where one of them is no certificate, or none could end a chain: OpenSSL wants one that signed itself.
fn authorities(secret: &Secret) -> Result<Authorities, Fault> {
    let text = certificate::decoded(secret, AUTHORITIES)?;
    let certificates = pem::certificates(&text).map_err(|error| rejected(AUTHORITIES, error))?;
    if !certificates.iter().any(|der| signed_itself(der)) {
        return Err(rejected(
            AUTHORITIES,
            "expected the certificate of a root, which signed itself, got none",
        ));
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
