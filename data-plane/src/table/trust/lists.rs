//! Revocation lists that webpki cannot read: those without extensions, which is what `openssl ca -gencrl` makes by
//! default, and those without a date of the next update. OpenSSL, and therefore nginx, accepts both.
//!
//! **Invariant:** a list is accepted only if it covers all certificates of its issuer and is complete in itself.

use std::collections::BTreeSet;
use std::time::Duration;

use rustls_pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime};
use webpki::RawPublicKeyEntity;
use x509_parser::oid_registry::{OID_X509_EXT_DELTA_CRL_INDICATOR, OID_X509_EXT_ISSUER_DISTRIBUTION_POINT};
use x509_parser::prelude::{ASN1Time, CertificateRevocationList, FromDer, X509Certificate, X509Extension};

use crate::der::{INTEGER, Reader, SEQUENCE};

/// A revocation list that webpki cannot read.
#[derive(Debug)]
pub(super) struct PlainList {
    issuer: Box<[u8]>,
    revoked: BTreeSet<Box<[u8]>>,
    /// Date of issue.
    since: UnixTime,
    /// Date of the next update, if given.
    until: Option<UnixTime>,
    signed: Box<[u8]>,
    /// The object identifier of the signature algorithm.
    algorithm: Box<[u8]>,
    signature: Box<[u8]>,
}

impl PlainList {
    /// Parses one; `None` if it is not understood.
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        let (rest, list) = CertificateRevocationList::from_der(der).ok()?;
        let body = &list.tbs_cert_list;
        let is_partial = |it: &X509Extension<'_>| {
            it.critical
                || it.oid == OID_X509_EXT_DELTA_CRL_INDICATOR
                || it.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT
        };
        // A critical extension of an entry means that it belongs to another issuer.
        let is_foreign =
            body.revoked_certificates.iter().any(|it| it.extensions().iter().any(|it| it.critical));
        let is_whole = rest.is_empty() && !body.extensions().iter().any(is_partial) && !is_foreign;
        (is_whole && body.signature == list.signature_algorithm).then(|| Self {
            issuer: body.issuer.as_raw().into(),
            revoked: body.revoked_certificates.iter().map(|it| number(it.raw_serial())).collect(),
            since: time(body.this_update),
            until: body.next_update.map(time),
            signed: body.as_ref().into(),
            algorithm: list.signature_algorithm.algorithm.as_bytes().into(),
            signature: list.signature_value.data.as_ref().into(),
        })
    }

    /// Whether it was issued by this authority and signed with a known algorithm.
    fn is_of(&self, signer: &X509Certificate<'_>, known: &[&dyn SignatureVerificationAlgorithm]) -> bool {
        let may_sign = signer.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.crl_sign()));
        let key = SubjectPublicKeyInfoDer::from(signer.public_key().raw);
        let Ok(key) = RawPublicKeyEntity::try_from(&key) else { return false };
        // An algorithm identifier begins with its object identifier: tag, length, octets.
        let begins = |id: &[u8]| id.get(2..).is_some_and(|it| it.starts_with(&self.algorithm));
        let mut known = known.iter().filter(|it| begins(it.signature_alg_id().as_ref()));
        may_sign
            && *self.issuer == *signer.subject().as_raw()
            && known.any(|it| key.verify_signature(*it, &self.signed, &self.signature).is_ok())
    }
}

/// The date of issue of a list.
pub(super) fn since(der: &[u8]) -> Option<UnixTime> {
    let mut body = Reader::new(Reader::new(Reader::new(der).expect(SEQUENCE)?).expect(SEQUENCE)?);
    // The optional version, the signature algorithm, and the issuer.
    body.optional(INTEGER);
    body.expect(SEQUENCE)?;
    body.expect(SEQUENCE)?;
    let (_, since) = ASN1Time::from_der(body.rest()).ok()?;
    Some(time(since))
}

fn time(configured: ASN1Time) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(configured.timestamp()).unwrap_or_default()))
}

impl PlainList {
    /// Whether its date of issue is in the future.
    pub(super) fn is_early(&self, now: UnixTime) -> bool {
        now < self.since
    }
}

/// Whether one of the lists shows that a certificate issued by `signer` is not revoked; false if none of them is of
/// that issuer.
///
/// # Errors
/// It is revoked, or the list that says otherwise has expired.
pub(super) fn clear(
    lists: &[PlainList],
    certificate: &X509Certificate<'_>,
    signer: &X509Certificate<'_>,
    now: UnixTime,
    known: &[&dyn SignatureVerificationAlgorithm],
) -> Result<bool, webpki::Error> {
    let (mut is_clear, mut old) = (false, None);
    let own = number(certificate.raw_serial());
    for list in lists.iter().filter(|it| !it.is_early(now) && it.is_of(signer, known)) {
        if list.revoked.contains(&own) {
            return Err(webpki::Error::CertRevoked);
        }
        match list.until {
            Some(next_update) if now >= next_update => {
                old = Some(webpki::Error::CrlExpired { time: now, next_update });
            }
            _ => is_clear = true,
        }
    }
    match old {
        Some(old) if !is_clear => Err(old),
        _ => Ok(is_clear),
    }
}

/// A serial number without leading zeros.
fn number(octets: &[u8]) -> Box<[u8]> {
    let zeros = octets.iter().take_while(|it| **it == 0).count();
    octets[zeros..].into()
}
