//! Certificates that tests generate for themselves.
//!
//! Names and texts are the test's own: one that cannot be put in a certificate causes a panic.

use std::sync::Arc;

use bytes::Bytes;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, SigningKey as _, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate and those above it.
    pub chain: Vec<Bytes>,
}

/// A certificate with its chain and key.
#[derive(Clone, Debug)]
pub struct Own {
    /// DER, its own first; without the root.
    pub chain: Vec<Bytes>,
    /// DER.
    pub key: Bytes,
}

fn params(cn: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, cn);
    params
}

fn of_authority(cn: &str) -> CertificateParams {
    let mut params = params(cn, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Authority {
    /// A self-signed authority.
    pub fn new(cn: &str) -> Self {
        let (params, key) = (of_authority(cn), KeyPair::generate().unwrap());
        let chain = vec![Bytes::copy_from_slice(params.self_signed(&key).unwrap().der())];
        Self { issuer: Issuer::new(params, key), chain }
    }

    /// An intermediate authority signed by this one.
    pub fn below(&self, cn: &str) -> Self {
        let (params, key) = (of_authority(cn), KeyPair::generate().unwrap());
        let own = Bytes::copy_from_slice(params.signed_by(&key, &self.issuer).unwrap().der());
        let chain = std::iter::once(own).chain(self.chain.clone()).collect();
        Self { issuer: Issuer::new(params, key), chain }
    }

    /// A certificate for these names.
    pub fn leaf(&self, cn: &str, names: &[&str]) -> Own {
        self.sign(params(cn, names))
    }

    /// A certificate with this serial number.
    pub fn numbered(&self, cn: &str, number: u64) -> Own {
        let mut params = params(cn, &[]);
        params.serial_number = Some(SerialNumber::from(number));
        self.sign(params)
    }

    /// An expired certificate.
    pub fn expired(&self, cn: &str, names: &[&str]) -> Own {
        let mut params = params(cn, names);
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        self.sign(params)
    }

    /// A version 1 certificate, as `openssl x509 -req` makes it: without extensions.
    pub fn version1(&self, cn: &str) -> Own {
        self.as_version1(self.leaf(cn, &[]))
    }

    /// The same certificate as version 1.
    pub fn as_version1(&self, mut own: Own) -> Own {
        own.chain[0] = version1(&own.chain[0], self.issuer.key());
        own
    }

    /// A certificate with these parameters.
    pub fn sign(&self, params: CertificateParams) -> Own {
        let key = KeyPair::generate().unwrap();
        let leaf = Bytes::copy_from_slice(params.signed_by(&key, &self.issuer).unwrap().der());
        // The root is not sent, because whoever trusts it has it.
        let above = self.chain[..self.chain.len() - 1].iter().cloned();
        Own { chain: std::iter::once(leaf).chain(above).collect(), key: key.serialize_der().into() }
    }

    /// A revocation list.
    pub fn revoking(&self, numbers: &[u64]) -> Bytes {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2099, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Bytes::copy_from_slice(list.signed_by(&self.issuer).unwrap().der())
    }
}

impl Own {
    /// Including those above it.
    pub fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.chain.iter().map(|der| CertificateDer::from(der.to_vec())).collect()
    }

    /// As DER.
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.to_vec()).unwrap()
    }

    /// Both, as presented by a server or client.
    pub fn certified(&self) -> Arc<CertifiedKey> {
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&self.private_key()).unwrap();
        Arc::new(CertifiedKey::new(self.certificates(), key))
    }
}

/// The contents of a certificate as version 1: without extensions. Signed anew, with ECDSA and SHA-256 as before.
///
/// # Panics
/// Not a certificate, or a very long one.
pub fn version1(der: &[u8], issuer: &KeyPair) -> Bytes {
    let parts = values(content(der));
    // The context-tagged fields are the version and the extensions: the rest is the same in all versions.
    let fields = values(content(parts[0])).into_iter().filter(|it| it[0] < 0xa0);
    let body = sequence(&fields.collect::<Vec<_>>());
    let signature = [&[0][..], &issuer.sign(&body).unwrap()].concat();
    let length = u8::try_from(signature.len()).unwrap();
    sequence(&[&body, parts[1], &[3, length], &signature]).into()
}

/// Lengths of a DER value: of its header, and in total.
fn lengths(der: &[u8]) -> (usize, usize) {
    match der[1] {
        short @ 0..=0x7f => (2, 2 + usize::from(short)),
        0x81 => (3, 3 + usize::from(der[2])),
        _ => (4, 4 + usize::from(u16::from_be_bytes([der[2], der[3]]))),
    }
}

fn content(der: &[u8]) -> &[u8] {
    &der[lengths(der).0..]
}

fn values(mut der: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while !der.is_empty() {
        let (value, rest) = der.split_at(lengths(der).1);
        all.push(value);
        der = rest;
    }
    all
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let head: &[u8] = match (high, low) {
        (0, 0..0x80) => &[0x30, low],
        (0, _) => &[0x30, 0x81, low],
        _ => &[0x30, 0x82, high, low],
    };
    [head, &content].concat()
}

/// A self-signed certificate for names: (certificate, key), PEM.
pub fn self_signed(names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}
