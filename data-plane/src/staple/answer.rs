//! Verifies an OCSP response (RFC 6960 section 3.2).
//!
//! **Invariant:** a response that is sent to clients is signed by the issuer of the certificate, or by a responder
//! that the issuer has delegated directly, is about this very certificate, says that it is good, and is current.

use std::time::Duration;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use thiserror::Error;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::question::{Named, Question, SHA1};
use crate::der::{BITS, ENUMERATED, INTEGER, OCTETS, OID, Reader, SEQUENCE, TIME};

/// Maximum clock skew in seconds.
const SKEW: u64 = 300;
/// Lifetime of a response without an expiry.
const ENDLESS: u64 = 3600;
/// Maximum number of responder certificates that are considered.
const APPOINTED: usize = 3;

/// 1.3.6.1.5.5.7.48.1.1: a basic response.
const BASIC: [u8; 9] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];
/// 1.3.6.1.5.5.7.3.9: OCSP signing.
const SIGNS: [u8; 8] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x09];

/// Constructed context tags `[0]` and `[1]`.
const FIRST: u8 = 0xa0;
const SECOND: u8 = 0xa1;
const GOOD: u8 = 0x80;

/// Why a response cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(super) enum Unusable {
    #[error("the response cannot be parsed")]
    Malformed,
    #[error("the responder refuses, with status {0}")]
    Refused(u8),
    #[error("it is not about the certificate")]
    Other,
    #[error("it is not signed by the right authority")]
    Signature,
    #[error("it is outdated or not valid yet")]
    Time,
    #[error("it says that the certificate is revoked")]
    Revoked,
    #[error("it says that the certificate is not known")]
    Unknown,
}

/// The validity period of a response, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Good {
    pub(super) since: u64,
    pub(super) until: u64,
}

/// The part of a response about one certificate.
struct Single {
    status: u8,
    since: u64,
    until: Option<u64>,
}

/// Verifies the response to a request.
///
/// # Errors
/// Why it cannot be used.
pub(super) fn judge(der: &[u8], question: &Question, now: u64) -> Result<Good, Unusable> {
    let basic = basic(der)?;
    let mut parts = Reader::new(basic);
    let signed = parts.item().filter(|it| it.tag == SEQUENCE).ok_or(Unusable::Malformed)?;
    let mut signature = || {
        let algorithm = parts.expect(SEQUENCE)?;
        // The first byte must say that there are no unused bits.
        let signature = parts.expect(BITS)?.strip_prefix(&[0])?;
        Some((algorithm, signature))
    };
    let (algorithm, signature) = signature().ok_or(Unusable::Malformed)?;
    let shown = parts.optional(FIRST).and_then(|it| Reader::new(it).expect(SEQUENCE)).unwrap_or_default();
    let single = of(signed.content, &question.certificate)?;
    let signed = Signed { message: signed.whole, algorithm, signature };
    if !signed.is_by(&question.issuer) && !signed.is_by_appointed(shown, &question.issuer, now) {
        return Err(Unusable::Signature);
    }
    let until = single.until.unwrap_or_else(|| single.since.saturating_add(ENDLESS));
    if single.since > now + SKEW || until <= now || until <= single.since {
        return Err(Unusable::Time);
    }
    match single.status {
        GOOD => Ok(Good { since: single.since, until }),
        SECOND => Err(Unusable::Revoked),
        _ => Err(Unusable::Unknown),
    }
}

/// The basic response inside a response.
fn basic(der: &[u8]) -> Result<&[u8], Unusable> {
    let mut response = Reader::new(Reader::new(der).expect(SEQUENCE).ok_or(Unusable::Malformed)?);
    match response.expect(ENUMERATED).ok_or(Unusable::Malformed)? {
        [0] => {}
        [status] => return Err(Unusable::Refused(*status)),
        _ => return Err(Unusable::Malformed),
    }
    let mut inner = || {
        let bytes = Reader::new(response.expect(FIRST)?).expect(SEQUENCE)?;
        let mut bytes = Reader::new(bytes);
        let kind = bytes.expect(OID)?;
        let basic = bytes.expect(OCTETS)?;
        Reader::new(basic).expect(SEQUENCE).filter(|_| kind == BASIC)
    };
    inner().ok_or(Unusable::Malformed)
}

/// The part about a certificate.
fn of(der: &[u8], certificate: &Named) -> Result<Single, Unusable> {
    let mut der = Reader::new(der);
    let mut all = || {
        let _version = der.optional(FIRST);
        let _responder = der.item()?;
        let _produced = der.expect(TIME)?;
        der.expect(SEQUENCE)
    };
    let mut all = Reader::new(all().ok_or(Unusable::Malformed)?);
    while let Some(item) = all.item() {
        let mut single = Reader::new(item.content);
        let name = single.expect(SEQUENCE).ok_or(Unusable::Malformed)?;
        if names(name, certificate) {
            return read(&mut single).ok_or(Unusable::Malformed);
        }
    }
    Err(Unusable::Other)
}

fn names(der: &[u8], certificate: &Named) -> bool {
    let mut der = Reader::new(der);
    let mut is_named = || {
        let hash = Reader::new(der.expect(SEQUENCE)?).expect(OID)?;
        let (name, key, serial) = (der.expect(OCTETS)?, der.expect(OCTETS)?, der.expect(INTEGER)?);
        let Named { issuer_name, issuer_key, serial: wanted } = certificate;
        Some(hash == SHA1 && name == issuer_name && key == issuer_key && serial == wanted)
    };
    is_named().unwrap_or(false)
}

fn read(single: &mut Reader<'_>) -> Option<Single> {
    let status = single.item()?.tag;
    let since = time(single.expect(TIME)?)?;
    let until = match single.optional(FIRST) {
        Some(until) => Some(time(Reader::new(until).expect(TIME)?)?),
        None => None,
    };
    Some(Single { status, since, until })
}

/// `YYYYMMDDHHMMSSZ` (RFC 5280 section 4.1.2.5.2) in seconds since 1970.
fn time(text: &[u8]) -> Option<u64> {
    let digits = text.strip_suffix(b"Z").filter(|it| it.len() == 14 && it.iter().all(u8::is_ascii_digit))?;
    let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", digits).ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    u64::try_from(time.timestamp().as_second()).ok()
}

/// A signed message.
struct Signed<'a> {
    message: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl Signed<'_> {
    /// Whether it was signed with the key of a certificate.
    fn is_by(&self, signer: &[u8]) -> bool {
        let verifies = |(_, signer): (&[u8], X509Certificate<'_>)| {
            let mut key = Reader::new(Reader::new(signer.public_key().raw).expect(SEQUENCE)?);
            let algorithm = key.expect(SEQUENCE)?;
            let key = key.expect(BITS)?.strip_prefix(&[0])?;
            let fits = |it: &&&dyn SignatureVerificationAlgorithm| {
                it.signature_alg_id().as_ref() == self.algorithm
                    && it.public_key_alg_id().as_ref() == algorithm
            };
            let known = default_provider().signature_verification_algorithms;
            let fitting = known.all.iter().find(fits)?;
            fitting.verify_signature(key, self.message, self.signature).ok()
        };
        X509Certificate::from_der(signer).ok().and_then(verifies).is_some()
    }

    /// Whether it was signed with the key of one of these certificates, which must be currently valid and issued by
    /// the authority itself for that purpose.
    fn is_by_appointed(&self, shown: &[u8], authority: &CertificateDer<'_>, now: u64) -> bool {
        let mut shown = Reader::new(shown);
        let mut looked_at = std::iter::from_fn(|| shown.item()).take(APPOINTED);
        looked_at.any(|it| is_appointed(it.whole, authority, now) && self.is_by(it.whole))
    }
}

fn is_appointed(der: &[u8], authority: &CertificateDer<'_>, now: u64) -> bool {
    let der = CertificateDer::from(der);
    let (Ok(certificate), Ok(anchor)) = (EndEntityCert::try_from(&der), anchor_from_trusted_cert(authority))
    else {
        return false;
    };
    let algorithms = default_provider().signature_verification_algorithms;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
    let usage = KeyUsage::required(&SIGNS);
    certificate.verify_for_usage(algorithms.all, &[anchor], &[], now, usage, None, None).is_ok()
}

#[cfg(test)]
mod tests;
