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

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// A root, and a certificate that it signed, with their keys.
    fn family() -> [(String, String); 2] {
        let keys = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "root");
        let root = params.self_signed(&keys[0]).unwrap();
        let mut leaf = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        leaf.distinguished_name.push(rcgen::DnType::CommonName, "leaf");
        let leaf = leaf.signed_by(&keys[1], &rcgen::Issuer::new(params, &keys[0])).unwrap();
        [(root.pem(), keys[0].serialize_pem()), (leaf.pem(), keys[1].serialize_pem())]
    }

    fn secret(data: &[(&str, &str)]) -> Secret {
        let mut secret = Secret::default();
        secret.data = data.iter().map(|(key, text)| ((*key).to_owned(), STANDARD.encode(text))).collect();
        secret
    }

    #[test]
    fn authorities_begin_with_a_root_and_an_empty_list_revokes_nothing() {
        let [(root, _), (leaf, _)] = family();
        let both = format!("{leaf}{root}");
        for (data, expected) in [
            (vec![("ca.crt", root.as_str())], Ok(1)),
            (vec![("ca.crt", both.as_str())], Ok(2)),
            (vec![("ca.crt", root.as_str()), ("ca.crl", "")], Ok(1)),
            (vec![("ca.crt", root.as_str()), ("ca.crl", "none")], Err("data[ca.crl]")),
            (vec![("ca.crt", leaf.as_str())], Err("data[ca.crt]")),
            (vec![("ca.crt", "")], Err("data[ca.crt]")),
            (vec![], Err("data[ca.crt]")),
        ] {
            let found = of_clients(&secret(&data)).map(|it| it.certificates.len());
            assert_eq!(found.map_err(|fault| fault.field), expected.map_err(str::to_owned), "{data:?}");
        }
    }

    /// As ingress-nginx: half of a pair is none.
    #[test]
    fn an_identity_is_a_pair_or_authorities_or_both() {
        let [(root, _), (leaf, key)] = family();
        let (ca, certificate, key) =
            (("ca.crt", root.as_str()), ("tls.crt", leaf.as_str()), ("tls.key", key.as_str()));
        for (data, expected) in [
            (vec![ca], Ok((true, 0))),
            (vec![certificate, key], Ok((false, 1))),
            (vec![ca, certificate, key], Ok((true, 1))),
            (vec![ca, certificate], Ok((true, 0))),
            (vec![ca, key], Ok((true, 0))),
            (vec![("ca.crt", ""), certificate, key], Ok((false, 1))),
            (vec![("ca.crt", " "), certificate, key], Err("data[ca.crt]")),
            (vec![certificate], Err("data[ca.crt]")),
            (vec![key], Err("data[ca.crt]")),
        ] {
            let found = identity(&secret(&data)).map(|it| (it.authorities.is_some(), it.certificates.len()));
            assert_eq!(found.map_err(|fault| fault.field), expected.map_err(str::to_owned), "{data:?}");
        }
    }
}
