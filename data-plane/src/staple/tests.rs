//! Certificate authorities, certificates and OCSP responses for tests.

use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rcgen::{BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair};
use shared::resource::{Certificate, Chain};

use super::question::{Named, Question, SHA1};
use crate::der::{BITS, ENUMERATED, INTEGER, NULL, OCTETS, OID, SEQUENCE, TIME, write};
use crate::table::certified::Certified;

/// 2026-06-01 00:00:00.
pub(super) const NOW: u64 = 1_780_272_000;

/// 1.2.840.10045.4.3.2: ECDSA with SHA-256.
const ECDSA: [u8; 8] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

/// A certificate authority.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    key: Vec<u8>,
    pub(super) der: Vec<u8>,
}

pub(super) fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let (mut params, pair) = (params(name), KeyPair::generate().unwrap());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&pair).unwrap().der().to_vec();
        let key = pair.serialize_der();
        Self { issuer: Issuer::new(params, pair), key, der }
    }

    /// A responder with a certificate of this authority.
    pub(super) fn appointing(&self, params: CertificateParams) -> Self {
        let pair = KeyPair::generate().unwrap();
        let der = params.signed_by(&pair, &self.issuer).unwrap().der().to_vec();
        let key = pair.serialize_der();
        Self { issuer: Issuer::new(params, pair), key, der }
    }

    /// A certificate with an OCSP responder URL.
    pub(super) fn certified(&self, place: &str) -> Arc<Certified> {
        self.certified_of("", place)
    }

    /// The same with an owner.
    pub(super) fn certified_of(&self, owner: &str, place: &str) -> Arc<Certified> {
        self.holders(owner, place)()
    }

    /// Each time the same certificate, as from another Secret.
    pub(super) fn holders(&self, owner: &str, place: &str) -> impl Fn() -> Arc<Certified> {
        let (mut params, pair) = (params("leaf"), KeyPair::generate().unwrap());
        let ocsp = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01];
        let said = write(SEQUENCE, &[write(OID, &ocsp), write(0x86, place.as_bytes())].concat());
        let said = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], write(SEQUENCE, &said));
        params.custom_extensions.push(said);
        let leaf = params.signed_by(&pair, &self.issuer).unwrap().der().to_vec().into();
        let certificate = Certificate { leaf, key: pair.serialize_der().into(), chain: None };
        let chain = Chain { certificates: vec![self.der.clone().into()] };
        let owner = owner.into();
        move || Arc::new(Certified::build(&certificate, Some(&chain)).unwrap().of(&owner))
    }

    /// The OCSP request for one.
    pub(super) fn question(&self) -> Question {
        Question::of(&self.certified("http://ocsp.test/").shown().cert).unwrap()
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &self.key).unwrap();
        pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
    }
}

/// The contents of an OCSP response.
pub(super) struct OcspResponse<'a> {
    pub(super) about: Named,
    /// The whole encoded value.
    pub(super) status: Vec<u8>,
    pub(super) since: &'a str,
    pub(super) until: Option<&'a str>,
    pub(super) by: &'a Authority,
    pub(super) shown: Vec<&'a [u8]>,
}

impl<'a> OcspResponse<'a> {
    /// A response that the certificate is good, on the day around [`NOW`].
    pub(super) fn good(question: &Question, by: &'a Authority) -> Self {
        Self {
            about: question.certificate.clone(),
            status: write(0x80, &[]),
            since: "20260531120000Z",
            until: Some("20260601120000Z"),
            by,
            shown: Vec::new(),
        }
    }

    /// The encoded response.
    pub(super) fn response(&self) -> Vec<u8> {
        let sequence = |parts: &[Vec<u8>]| write(SEQUENCE, &parts.concat());
        let hash = sequence(&[write(OID, &SHA1), write(NULL, &[])]);
        let Named { issuer_name, issuer_key, serial } = &self.about;
        let about = [hash, write(OCTETS, issuer_name), write(OCTETS, issuer_key), write(INTEGER, serial)];
        let until = self.until.map(|until| write(0xa0, &write(TIME, until.as_bytes())));
        let since = write(TIME, self.since.as_bytes());
        let single =
            sequence(&[sequence(&about), self.status.clone(), since.clone(), until.unwrap_or_default()]);
        let responder = write(0xa2, &write(OCTETS, &[7; 20]));
        let signed = sequence(&[responder, since, sequence(&[single])]);
        let algorithm = sequence(&[write(OID, &ECDSA)]);
        let signature = write(BITS, &[&[0], &self.by.sign(&signed)[..]].concat());
        let shown = match self.shown.is_empty() {
            true => Vec::new(),
            false => write(0xa0, &write(SEQUENCE, &self.shown.concat())),
        };
        let basic = write(OCTETS, &sequence(&[signed, algorithm, signature, shown]));
        let kind = write(OID, &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01]);
        sequence(&[write(ENUMERATED, &[0]), write(0xa0, &sequence(&[kind, basic]))])
    }
}
