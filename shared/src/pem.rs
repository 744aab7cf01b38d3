//! Parses certificates and keys from PEM, and the names that a certificate is valid for.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};
use zeroize::{Zeroize, Zeroizing};

use crate::secret;

/// Why PEM is invalid. Does not quote the contents, which may be secret.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PemError {
    /// No certificate.
    #[error("no certificate found")]
    NoCertificate,
    /// No certificate revocation list.
    #[error("no list of revoked certificates found")]
    NoRevocations,
    /// An invalid certificate revocation list.
    #[error("list {index} of revoked certificates is not X.509")]
    NotRevocations {
        /// Its index, from 0.
        index: usize,
    },
    /// No private key.
    #[error("no private key found")]
    NoKey,
    /// A private key that only a passphrase opens.
    #[error("the private key is encrypted: expected one without a passphrase")]
    EncryptedKey,
    /// Not PEM.
    #[error("not PEM")]
    Malformed,
    /// A certificate that is not X.509.
    #[error("certificate {index} is not X.509")]
    NotX509 {
        /// Its index, from 0.
        index: usize,
    },
}

/// The certificates of a PEM text, in order, DER.
///
/// # Errors
/// If it is not PEM, has no certificate, or an invalid one.
pub fn certificates(pem: &[u8]) -> Result<Vec<Bytes>, PemError> {
    let mut found = Vec::new();
    for (index, der) in CertificateDer::pem_slice_iter(pem).enumerate() {
        let der = der.map_err(|_| PemError::Malformed)?;
        X509Certificate::from_der(&der).map_err(|_| PemError::NotX509 { index })?;
        found.push(Bytes::copy_from_slice(&der));
    }
    if found.is_empty() { Err(PemError::NoCertificate) } else { Ok(found) }
}

/// The certificate revocation lists of a PEM text, in order, DER.
///
/// # Errors
/// If it is not PEM, has no list, or an invalid one.
pub fn revocations(pem: &[u8]) -> Result<Vec<Bytes>, PemError> {
    let mut found = Vec::new();
    for (index, der) in CertificateRevocationListDer::pem_slice_iter(pem).enumerate() {
        let der = der.map_err(|_| PemError::Malformed)?;
        CertificateRevocationList::from_der(&der).map_err(|_| PemError::NotRevocations { index })?;
        found.push(Bytes::copy_from_slice(&der));
    }
    if found.is_empty() { Err(PemError::NoRevocations) } else { Ok(found) }
}

/// The first private key of a PEM text, DER; wiped when the last reference is dropped.
///
/// # Errors
/// If it is not PEM or has no key.
pub fn private_key(pem: &[u8]) -> Result<Bytes, PemError> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(mut key) => {
            let der = secret::kept(key.secret_der());
            key.zeroize();
            Ok(der)
        }
        Err(_) if is_encrypted(pem) => Err(PemError::EncryptedKey),
        Err(rustls_pki_types::pem::Error::NoItemsFound) => Err(PemError::NoKey),
        Err(_) => Err(PemError::Malformed),
    }
}

/// Whether a PEM text has an encrypted key: PKCS#8 (RFC 7468, section 11), or with the headers of RFC 1421 as OpenSSL
/// writes them.
fn is_encrypted(pem: &[u8]) -> bool {
    let lines = || pem.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines().any(|line| matches!(line, b"-----BEGIN ENCRYPTED PRIVATE KEY-----" | b"Proc-Type: 4,ENCRYPTED"))
}

/// Encodes DER as PEM (RFC 7468); wiped when dropped.
pub fn write(label: &str, der: &[u8]) -> Zeroizing<String> {
    let text = Zeroizing::new(STANDARD.encode(der));
    // With full capacity: buffers left behind by a growing string are not wiped.
    let mut pem = Zeroizing::new(String::with_capacity(text.len() + text.len() / 64 + 2 * label.len() + 40));
    // Writing to a string does not fail.
    let _ = writeln!(pem, "-----BEGIN {label}-----");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        let _ = writeln!(pem, "{line}");
        rest = after;
    }
    let _ = writeln!(pem, "-----END {label}-----");
    pem
}

/// The DNS names that a certificate is valid for, lower-case; its common name if it lists none (ingress-nginx still
/// uses it, RFC 9110 no longer does). Empty if the certificate is not X.509.
pub fn names(der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return Vec::new();
    };
    let listed: Vec<String> = match certificate.subject_alternative_name() {
        Ok(Some(extension)) => {
            let name = |name: &GeneralName<'_>| match name {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            };
            extension.value.general_names.iter().filter_map(name).collect()
        }
        _ => Vec::new(),
    };
    if !listed.is_empty() {
        return listed;
    }
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    common.map(str::to_ascii_lowercase).collect()
}

/// Whether one of `names` covers `host`: the same, or a wildcard for its first label (one label only). A wildcard
/// host is covered by the same wildcard only.
pub fn covers(names: &[String], host: &str) -> bool {
    let parent = host.split_once('.').map(|(_, parent)| parent);
    let wildcard = |name: &str| name.strip_prefix("*.").is_some_and(|suffix| Some(suffix) == parent);
    names.iter().any(|name| name == host || wildcard(name))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::{PemError, certificates, covers, names, private_key, write};

    /// A certificate with alternative names and a common name, and its key; both PEM.
    fn made(listed: &[&str], common: &str) -> (String, String) {
        let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(listed).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn a_name_covers_itself_and_a_wildcard_one_label() {
        let cases = [
            ("a.test", "a.test", true),
            ("a.test", "b.a.test", false),
            ("*.a.test", "b.a.test", true),
            ("*.a.test", "a.test", false),
            ("*.a.test", "c.b.a.test", false),
            ("*.a.test", "*.a.test", true),
            ("a.test", "*.a.test", false),
            ("*.test", "*.a.test", false),
            ("*", "test", false),
            ("*.", "test.", true),
            ("", "", true),
        ];
        for (name, host, expected) in cases {
            assert_eq!(covers(&[name.to_owned()], host), expected, "{name} for {host}");
        }
        let several = ["x.test".to_owned(), "*.a.test".to_owned()];
        assert!(covers(&several, "b.a.test"));
        assert!(!covers(&[], "a.test"));
    }

    #[test]
    fn names_are_the_listed_ones_or_else_the_common_one() {
        let der = |pem: &str| certificates(pem.as_bytes()).unwrap().remove(0);
        let (both, _) = made(&["B.test", "*.b.test", "10.0.0.1"], "common.test");
        assert_eq!(names(&der(&both)), ["b.test", "*.b.test"]);
        let (common, _) = made(&[], "Common.test");
        assert_eq!(names(&der(&common)), ["common.test"]);
        assert_eq!(names(b"not a certificate"), Vec::<String>::new());
    }

    #[test]
    fn what_is_written_is_what_others_write() {
        let (pem, key) = made(&["a.test"], "");
        let der = certificates(pem.as_bytes()).unwrap().remove(0);
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(&write("CERTIFICATE", &der)), lines(&pem));
        assert_eq!(lines(&write("PRIVATE KEY", &private_key(key.as_bytes()).unwrap())), lines(&key));
    }

    #[test]
    fn an_encrypted_key_is_said_to_be_one() {
        let (_, key) = made(&["a.test"], "");
        let pkcs8 = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
        let head =
            "-----BEGIN RSA PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED\r\nDEK-Info: AES-256-CBC,0123\r\n\r\n";
        let openssl = format!("{head}AAAA\r\n-----END RSA PRIVATE KEY-----\r\n");
        for text in [&pkcs8, &openssl] {
            assert_eq!(private_key(text.as_bytes()), Err(PemError::EncryptedKey), "{text}");
        }
        assert!(private_key(format!("{key}{pkcs8}").as_bytes()).is_ok(), "the first that can be read");
    }

    #[test]
    fn pem_is_read_in_order_and_refused_with_a_reason() {
        let (leaf, key) = made(&["a.test"], "");
        let (issuer, _) = made(&["issuer.test"], "");
        let both = format!("comment\n{leaf}{issuer}");
        let found = certificates(both.as_bytes()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(names(&found[0]), ["a.test"]);
        assert!(!private_key(key.as_bytes()).unwrap().is_empty());

        assert_eq!(certificates(b""), Err(PemError::NoCertificate));
        assert_eq!(certificates(key.as_bytes()), Err(PemError::NoCertificate));
        assert_eq!(private_key(leaf.as_bytes()), Err(PemError::NoKey));
        let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(certificates(junk.as_bytes()), Err(PemError::NotX509 { index: 0 }));
        let cut = &leaf[..leaf.len() / 2];
        assert!(certificates(cut.as_bytes()).is_err());
    }
}
