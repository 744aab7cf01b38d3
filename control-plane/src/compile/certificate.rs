//! Certificates and keys from Secrets.
//!
//! **Invariant:** no content of a Secret gets into a fault.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls_pki_types::PrivateKeyDer;
use shared::pem;
use shared::resource::{Certificate, Chain};
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;
use zeroize::Zeroizing;

use crate::objects::Secret;
use crate::problem::{Fault, Severity};

/// Shorter RSA keys cannot sign here, in bits.
const RSA_MIN: usize = 2048;

/// The contents of a TLS Secret: the leaf with its key, and its issuers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    /// The leaf certificate and its key.
    pub certificate: Certificate,
    /// The rest of `tls.crt`, if there is more than the leaf.
    pub chain: Option<Chain>,
    /// The names that the leaf is valid for.
    pub names: Vec<String>,
    /// When it is valid.
    pub life: Life,
}

/// From when until when a certificate is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// `notBefore`.
    pub begins: Timestamp,
    /// `notAfter`.
    pub ends: Timestamp,
}

/// Parses `tls.crt` and `tls.key`; the Secret's type is ignored, as in ingress-nginx.
///
/// # Errors
/// If one is missing or invalid, or they do not belong together.
pub fn compile(secret: &Secret) -> Result<Pair, Fault> {
    let certificates = pem::certificates(&decoded(secret, "tls.crt")?);
    let mut certificates = certificates.map_err(|error| rejected("tls.crt", error))?;
    let key = pem::private_key(&decoded(secret, "tls.key")?).map_err(|error| rejected("tls.key", error))?;
    let chain = certificates.split_off(1);
    let Some(leaf) = certificates.pop() else {
        return Err(rejected("tls.crt", pem::PemError::NoCertificate));
    };
    let life = check(&leaf, &key)?;
    let chain = (!chain.is_empty()).then_some(Chain { certificates: chain });
    Ok(Pair {
        names: pem::names(&leaf),
        life,
        certificate: Certificate { leaf, key, chain: chain.as_ref().map(Chain::key) },
        chain,
    })
}

/// The decoded value of a Secret's key.
///
/// # Errors
/// If there is none, or it is not base64.
pub(super) fn decoded(secret: &Secret, key: &str) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let text = secret.data.get(key).ok_or_else(|| rejected(key, "missing"))?;
    // Manifests break long lines.
    let mut whole = Zeroizing::new(String::with_capacity(text.len()));
    whole.extend(text.split_ascii_whitespace());
    STANDARD.decode(&*whole).map(Zeroizing::new).map_err(|_| rejected(key, "not base64"))
}

/// Whether proxies can sign with the key, and it belongs to the certificate. Returns when that is valid.
fn check(leaf: &[u8], key: &[u8]) -> Result<Life, Fault> {
    let (_, certificate) = X509Certificate::from_der(leaf)
        .map_err(|_| rejected("tls.crt", "the first certificate is not X.509"))?;
    let unusable = || {
        let usual = || "expected an RSA, ECDSA or Ed25519 key that TLS can use".to_owned();
        rejected("tls.key", short_rsa(&certificate).unwrap_or_else(usual))
    };
    let key = PrivateKeyDer::try_from(key).map_err(|_| unusable())?;
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).map_err(|_| unusable())?;
    match key.public_key() {
        Some(public) if public.as_ref() != certificate.public_key().raw => {
            Err(rejected("tls.key", "it does not belong to the first certificate of tls.crt"))
        }
        _ => Ok(life(&certificate)),
    }
}

fn life(certificate: &X509Certificate<'_>) -> Life {
    let time = |time: ASN1Time| Timestamp::from_second(time.timestamp()).unwrap_or(Timestamp::MAX);
    Life { begins: time(certificate.validity().not_before), ends: time(certificate.validity().not_after) }
}

/// Why an RSA key is not usable, if it is for its length: nginx signs with shorter ones if OpenSSL's security level allows it.
fn short_rsa(certificate: &X509Certificate<'_>) -> Option<String> {
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) if key.key_size() < RSA_MIN => {
            Some(format!("expected an RSA key of at least {RSA_MIN} bits, got {}", key.key_size()))
        }
        _ => None,
    }
}

fn rejected(key: &str, reason: impl ToString) -> Fault {
    Fault::new(Severity::Rejected, format!("data[{key}]"), reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Metadata;

    fn pair(names: &[&str]) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        (certificate, key)
    }

    fn secret(certificate: &str, key: &str) -> Secret {
        Secret {
            metadata: Metadata::default(),
            data: [("tls.crt", certificate), ("tls.key", key)]
                .map(|(name, text)| (name.to_owned(), STANDARD.encode(text)))
                .into(),
        }
    }

    #[test]
    fn a_pair_and_its_chain_are_read() {
        let (leaf, key) = pair(&["a.test", "*.b.test"]);
        let (issuer, _) = pair(&["issuer.test"]);
        let pem = format!("{}{}", leaf.pem(), issuer.pem());
        let read = compile(&secret(&pem, &key.serialize_pem())).unwrap();
        assert_eq!(read.certificate.leaf, leaf.der().as_ref());
        assert_eq!(read.certificate.key, key.serialized_der());
        assert_eq!(read.names, ["a.test", "*.b.test"]);
        let params = rcgen::CertificateParams::default();
        let life = [params.not_before.unix_timestamp(), params.not_after.unix_timestamp()];
        assert_eq!([read.life.begins, read.life.ends].map(Timestamp::as_second), life);
        let chain = read.chain.unwrap();
        assert_eq!(chain.certificates, [issuer.der().as_ref()]);
        assert_eq!(read.certificate.chain, Some(chain.key()));
    }

    #[test]
    fn faulty_ones_are_rejected_without_a_word_of_them() {
        let (leaf, key) = pair(&["a.test"]);
        let (_, other) = pair(&["a.test"]);
        let (leaf, key, other) = (leaf.pem(), key.serialize_pem(), other.serialize_pem());
        let mut without = secret(&leaf, &key);
        without.data.remove("tls.key");
        let mut garbled = secret(&leaf, &key);
        garbled.data.insert("tls.crt".into(), "%%%".into());
        let cases = [
            (secret(&leaf, &other), "data[tls.key]"),
            (secret("hello", &key), "data[tls.crt]"),
            (secret(&leaf, &leaf), "data[tls.key]"),
            (without, "data[tls.key]"),
            (garbled, "data[tls.crt]"),
            (Secret::default(), "data[tls.crt]"),
        ];
        for (secret, field) in cases {
            let fault = compile(&secret).unwrap_err();
            assert_eq!((fault.severity, fault.field.as_str()), (Severity::Rejected, field));
            assert!(!fault.reason.contains("MII"), "{}", fault.reason);
        }
    }

    /// RSA with 1,024 bits, which no library here generates any more.
    const SHORT: [&str; 2] =
        [include_str!("certificate/short.crt.pem"), include_str!("certificate/short.key.pem")];

    #[test]
    fn a_key_that_is_too_short_or_encrypted_is_said_to_be() {
        let fault = compile(&secret(SHORT[0], SHORT[1])).unwrap_err();
        let expected = ("data[tls.key]", "expected an RSA key of at least 2048 bits, got 1024");
        assert_eq!((fault.field.as_str(), fault.reason.as_str()), expected);
        let (leaf, key) = pair(&["a.test"]);
        let locked = key.serialize_pem().replace("PRIVATE", "ENCRYPTED PRIVATE");
        let fault = compile(&secret(&leaf.pem(), &locked)).unwrap_err();
        let expected = ("data[tls.key]", "the private key is encrypted: expected one without a passphrase");
        assert_eq!((fault.field.as_str(), fault.reason.as_str()), expected);
        let fault =
            compile(&secret(&leaf.pem(), "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"))
                .unwrap_err();
        assert_eq!(fault.reason, "expected an RSA, ECDSA or Ed25519 key that TLS can use");
    }

    #[test]
    fn broken_lines_are_no_fault() {
        let (leaf, key) = pair(&["a.test"]);
        let mut secret = secret(&leaf.pem(), &key.serialize_pem());
        for text in secret.data.values_mut() {
            text.insert(10, '\n');
        }
        compile(&secret).unwrap();
    }
}
