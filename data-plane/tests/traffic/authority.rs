//! Certificates that a test makes for itself.

use std::sync::Arc;

use bytes::Bytes;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shared::resource::{Authorities, BackendIdentity, Material, Resource};

/// Who signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate and those above it.
    pub(crate) chain: Vec<Bytes>,
}

/// A certificate with its chain and key.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) chain: Vec<Bytes>,
    pub(crate) key: Bytes,
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
    /// One that signed itself.
    pub(crate) fn new(cn: &str) -> Self {
        let (params, key) = (of_authority(cn), KeyPair::generate().unwrap());
        let chain = vec![Bytes::copy_from_slice(params.self_signed(&key).unwrap().der())];
        Self { issuer: Issuer::new(params, key), chain }
    }

    /// One that this one signed.
    pub(crate) fn below(&self, cn: &str) -> Self {
        let (params, key) = (of_authority(cn), KeyPair::generate().unwrap());
        let own = Bytes::copy_from_slice(params.signed_by(&key, &self.issuer).unwrap().der());
        let chain = std::iter::once(own).chain(self.chain.clone()).collect();
        Self { issuer: Issuer::new(params, key), chain }
    }

    /// A certificate for these names.
    pub(crate) fn leaf(&self, cn: &str, names: &[&str]) -> Own {
        self.sign(params(cn, names))
    }

    /// One with a number of its own.
    pub(crate) fn numbered(&self, cn: &str, number: u64) -> Own {
        let mut params = params(cn, &[]);
        params.serial_number = Some(SerialNumber::from(number));
        self.sign(params)
    }

    /// One that was good once.
    pub(crate) fn expired(&self, cn: &str, names: &[&str]) -> Own {
        let mut params = params(cn, names);
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Own {
        let key = KeyPair::generate().unwrap();
        let leaf = Bytes::copy_from_slice(params.signed_by(&key, &self.issuer).unwrap().der());
        // The root is not sent: whoever trusts it has it.
        let above = self.chain[..self.chain.len() - 1].iter().cloned();
        Own { chain: std::iter::once(leaf).chain(above).collect(), key: key.serialize_der().into() }
    }

    /// A list of revoked certificates.
    pub(crate) fn revoking(&self, numbers: &[u64]) -> Bytes {
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

    /// What a Secret with its root gives.
    pub(crate) fn authorities(&self) -> Authorities {
        Authorities { certificates: vec![self.chain.last().unwrap().clone()], revocations: vec![] }
    }
}

impl Own {
    pub(crate) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.chain.iter().map(|der| CertificateDer::from(der.to_vec())).collect()
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.to_vec()).unwrap()
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&self.private_key()).unwrap();
        Arc::new(CertifiedKey::new(self.certificates(), key))
    }
}

/// The Material of a `proxy-ssl-secret`.
pub(crate) fn identity(authority: Option<&Authority>, own: Option<&Own>) -> Resource {
    let (certificates, key) = own.map(|own| (own.chain.clone(), own.key.clone())).unwrap_or_default();
    let authorities = authority.map(Authority::authorities);
    Resource::Material(Material::BackendIdentity(BackendIdentity { authorities, certificates, key }))
}
