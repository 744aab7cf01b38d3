//! Certificate verification against the authorities of a Secret.
//!
//! As OpenSSL does it for nginx: a chain must end in a self-signed certificate, and the other certificates in the
//! Secret serve as intermediates; if there are revocation lists, each certificate of the chain needs one. webpki does
//! the verification; `lists` handles revocation lists, and `version1` leaf certificates, that OpenSSL accepts and
//! webpki does not.

use std::time::Duration;

use rustls::DistinguishedName;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use shared::resource::Authorities;
use thiserror::Error;
use webpki::{
    BorrowedCertRevocationList, Cert, CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage,
    RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath, anchor_from_trusted_cert,
};
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate};

use self::lists::PlainList;
use super::version1::Version1;

mod limits;
mod lists;

/// Why authorities cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TrustError {
    /// A certificate cannot be parsed.
    #[error("certificates[{0}]: expected an X.509 certificate, got something else")]
    Certificate(usize),
    /// A revocation list cannot be parsed.
    #[error("revocations[{0}]: expected a whole X.509 list of revoked certificates, got something else")]
    Revocations(usize),
    /// None of them can be the root of a chain.
    #[error("certificates: expected one that signed itself, got none")]
    NoRoot,
}

/// The purpose that a certificate is verified for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// As a server.
    Server,
    /// As a client.
    Client,
}

/// Why a certificate is not valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the words say it")]
pub enum Untrusted {
    Expired,
    NotYetValid,
    Revoked,
    NoRevocations,
    OldRevocations,
    EarlyRevocations,
    Signature,
    SelfSigned,
    SelfSignedInChain,
    UnknownIssuer,
    UnknownIssuerOfLeaf,
    TooLong,
    Purpose,
    Malformed,
}

impl Untrusted {
    /// OpenSSL's message for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "certificate has expired",
            Self::NotYetValid => "certificate is not yet valid",
            Self::Revoked => "certificate revoked",
            Self::NoRevocations => "unable to get certificate CRL",
            Self::OldRevocations => "CRL has expired",
            Self::EarlyRevocations => "CRL is not yet valid",
            Self::Signature => "certificate signature failure",
            Self::SelfSigned => "self-signed certificate",
            Self::SelfSignedInChain => "self-signed certificate in certificate chain",
            Self::UnknownIssuer => "unable to get local issuer certificate",
            Self::UnknownIssuerOfLeaf => "unable to verify the first certificate",
            Self::TooLong => "certificate chain too long",
            Self::Purpose => "unsuitable certificate purpose",
            Self::Malformed => "certificate rejected",
        }
    }

    /// Whether its only problem is that no trusted authority has issued it.
    pub fn is_of_others(self) -> bool {
        matches!(
            self,
            Self::SelfSigned | Self::SelfSignedInChain | Self::UnknownIssuer | Self::UnknownIssuerOfLeaf
        )
    }
}

/// The parsed authorities of a Secret.
#[derive(Debug)]
pub struct Trust {
    anchors: Vec<TrustAnchor<'static>>,
    /// The certificates of `anchors`: those that are self-signed.
    roots: Vec<CertificateDer<'static>>,
    /// Validity period of each.
    lives: Vec<(UnixTime, UnixTime)>,
    /// The other certificates.
    helpers: Vec<CertificateDer<'static>>,
    /// Their key identifiers.
    keys: Vec<Box<[u8]>>,
    /// Revocation lists, each with its date of issue.
    revocations: Vec<(CertRevocationList<'static>, UnixTime)>,
    /// Revocation lists that webpki cannot read.
    plain: Vec<PlainList>,
    subjects: Vec<DistinguishedName>,
}

impl Trust {
    /// Parses them.
    ///
    /// # Errors
    /// A certificate or list cannot be parsed, or no certificate is self-signed.
    pub fn new(authorities: &Authorities) -> Result<Self, TrustError> {
        let mut trust = Self {
            anchors: Vec::new(),
            roots: Vec::new(),
            lives: Vec::new(),
            helpers: Vec::new(),
            keys: Vec::new(),
            revocations: Vec::new(),
            plain: Vec::new(),
            subjects: Vec::new(),
        };
        for (index, der) in authorities.certificates.iter().enumerate() {
            let bad = || TrustError::Certificate(index);
            let (_, certificate) = X509Certificate::from_der(der).map_err(|_| bad())?;
            trust.subjects.push(DistinguishedName::from(certificate.subject().as_raw().to_vec()));
            trust.keys.extend(key_of(&certificate).map(Into::into));
            let der = CertificateDer::from(der.to_vec());
            if certificate.subject().as_raw() == certificate.issuer().as_raw() {
                trust.anchors.push(anchor_from_trusted_cert(&der).map_err(|_| bad())?.to_owned());
                trust.roots.push(der);
                trust.lives.push(life_of(&certificate));
            } else {
                trust.helpers.push(der);
            }
        }
        for (index, der) in authorities.revocations.iter().enumerate() {
            let list = BorrowedCertRevocationList::from_der(der).and_then(|list| list.to_owned());
            match list {
                Ok(list) => {
                    let since = lists::since(der).ok_or(TrustError::Revocations(index))?;
                    trust.revocations.push((CertRevocationList::Owned(list), since));
                }
                Err(_) => trust.plain.push(PlainList::read(der).ok_or(TrustError::Revocations(index))?),
            }
        }
        if trust.anchors.is_empty() { Err(TrustError::NoRoot) } else { Ok(trust) }
    }

    /// Their names, to be sent to clients.
    pub fn subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    /// Whether a certificate that came with these others was issued by one of the authorities: is valid now, for this
    /// purpose, and with no more than `depth` intermediates (OpenSSL's `SSL_set_verify_depth`).
    ///
    /// # Errors
    /// Why it was not.
    pub fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        depth: usize,
        purpose: Purpose,
        now: UnixTime,
    ) -> Result<(), Untrusted> {
        let has_lists = !self.revocations.is_empty() || !self.plain.is_empty();
        if !has_lists && self.roots.iter().any(|root| **root == **leaf) {
            return itself(leaf, purpose, now);
        }
        let others: Vec<_> = rest.iter().chain(&self.helpers).cloned().collect();
        let old = Version1::read(leaf);
        let certificate = EndEntityCert::try_from(old.as_ref().map_or(leaf, Version1::raised))
            .map_err(|error| self.untrusted(&error, leaf, rest))?;
        // As in OpenSSL, a list with a future date is not valid yet. webpki does not check that.
        let begun = self.revocations.iter().filter(|(_, since)| *since <= now);
        let lists: Vec<_> = begun.map(|(list, _)| list).collect();
        // No revocation check if there are no lists at all.
        let unknown =
            if self.plain.is_empty() { UnknownStatusPolicy::Deny } else { UnknownStatusPolicy::Allow };
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|it| {
            it.with_expiration_policy(ExpirationPolicy::Enforce).with_status_policy(unknown).build()
        });
        let usage = match purpose {
            Purpose::Server => KeyUsage::server_auth(),
            Purpose::Client => KeyUsage::client_auth(),
        };
        let is_good = |path: &VerifiedPath<'_>| {
            if path.intermediate_certificates().count() > depth {
                return Err(webpki::Error::MaximumPathDepthExceeded);
            }
            let root = self.living_root(path.anchor(), now)?;
            is_within_limits(path, root)?;
            self.is_listed(path, root, &lists, now)
        };
        let known = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        let checks = old.as_ref().map(|old| old.checks(known)).unwrap_or_default();
        let checks: Vec<&dyn SignatureVerificationAlgorithm> = checks.iter().map(|it| it as _).collect();
        let verified = certificate.verify_for_usage(
            if old.is_some() { &checks } else { known },
            &self.anchors,
            &others,
            now,
            usage,
            revocation,
            Some(&is_good),
        );
        verified.map(|_| ()).map_err(|error| match self.untrusted(&error, leaf, rest) {
            Untrusted::NoRevocations if self.has_early_lists(now) => Untrusted::EarlyRevocations,
            why => why,
        })
    }

    fn has_early_lists(&self, now: UnixTime) -> bool {
        self.revocations.iter().any(|(_, since)| now < *since) || self.plain.iter().any(|it| it.is_early(now))
    }

    /// The certificate of an authority, if it is currently valid, which webpki does not check. A renewed one has the
    /// name and key of the one that it replaces: as in OpenSSL, one that is valid is taken, or else the one that ends
    /// last.
    fn living_root(
        &self,
        anchor: &TrustAnchor<'_>,
        now: UnixTime,
    ) -> Result<&CertificateDer<'static>, webpki::Error> {
        let certificates = self.anchors.iter().zip(&self.roots).zip(&self.lives);
        let of_anchor =
            certificates.filter(|((it, _), _)| *it == anchor).map(|((_, root), life)| (root, *life));
        let is_valid = |(not_before, not_after)| not_before <= now && now <= not_after;
        let best = of_anchor.max_by_key(|(_, life)| (is_valid(*life), life.1));
        match best.ok_or(webpki::Error::UnknownIssuer)? {
            (_, (not_before, _)) if now < not_before => {
                Err(webpki::Error::CertNotValidYet { time: now, not_before })
            }
            (_, (_, not_after)) if now > not_after => {
                Err(webpki::Error::CertExpired { time: now, not_after })
            }
            (root, _) => Ok(root),
        }
    }

    /// Whether each certificate of a chain has a list that does not revoke it, considering the lists that webpki
    /// cannot read or was not given: it has checked the `others`.
    fn is_listed(
        &self,
        path: &VerifiedPath<'_>,
        root: &CertificateDer<'_>,
        others: &[&CertRevocationList<'_>],
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let was_asked = !others.is_empty() || self.revocations.is_empty();
        if self.plain.is_empty() && was_asked {
            return Ok(());
        }
        let known = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        let between: Vec<&Cert<'_>> = path.intermediate_certificates().collect();
        let chain = std::iter::once::<&Cert<'_>>(path.end_entity()).chain(between.iter().copied());
        let signers = between.iter().map(|it| it.der()).chain([root.clone()]);
        for (certificate, signer) in chain.zip(signers) {
            let of_certificate = certificate.der();
            let (_, own) = X509Certificate::from_der(&of_certificate).map_err(|_| webpki::Error::BadDer)?;
            let (_, of_signer) = X509Certificate::from_der(&signer).map_err(|_| webpki::Error::BadDer)?;
            let is_asked = |list: &CertRevocationList<'_>| {
                list.issuing_distribution_point().is_none() && list.issuer() == certificate.issuer()
            };
            let is_clear = lists::clear(&self.plain, &own, &of_signer, now, known)?;
            if !is_clear && !others.iter().any(|list| is_asked(list)) {
                return Err(webpki::Error::UnknownRevocationStatus);
            }
        }
        Ok(())
    }

    /// The corresponding OpenSSL error.
    fn untrusted(
        &self,
        error: &webpki::Error,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
    ) -> Untrusted {
        use webpki::Error as E;
        match error {
            E::CertExpired { .. } => Untrusted::Expired,
            E::CertNotValidYet { .. } => Untrusted::NotYetValid,
            E::CertRevoked => Untrusted::Revoked,
            E::UnknownRevocationStatus => Untrusted::NoRevocations,
            E::CrlExpired { .. } => Untrusted::OldRevocations,
            E::MaximumPathDepthExceeded => Untrusted::TooLong,
            E::RequiredEkuNotFoundContext(_) => Untrusted::Purpose,
            E::InvalidSignatureForPublicKey if self.knows_signer(leaf) => Untrusted::Signature,
            E::InvalidSignatureForPublicKey | E::UnknownIssuer | E::CaUsedAsEndEntity => {
                match (is_self_signed(leaf), rest) {
                    (true, _) => Untrusted::SelfSigned,
                    (false, _) if *error == E::CaUsedAsEndEntity => Untrusted::Malformed,
                    (false, rest) if rest.iter().any(is_self_signed) => Untrusted::SelfSignedInChain,
                    (false, []) => Untrusted::UnknownIssuerOfLeaf,
                    (false, _) => Untrusted::UnknownIssuer,
                }
            }
            _ => Untrusted::Malformed,
        }
    }

    /// Whether the signer's key identifier in a certificate belongs to an authority. A certificate without one may be
    /// issued by any authority of that name.
    fn knows_signer(&self, leaf: &CertificateDer<'_>) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(leaf) else {
            return true;
        };
        let signer = certificate.extensions().iter().find_map(|it| match it.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(it) => it.key_identifier.as_ref().map(|key| key.0),
            _ => None,
        });
        signer.is_none_or(|signer| self.keys.iter().any(|key| **key == *signer))
    }
}

/// Whether the authorities above a certificate, up to this root, may issue its common name, if it has no other name:
/// webpki does not check that.
fn is_within_limits(path: &VerifiedPath<'_>, root: &CertificateDer<'_>) -> Result<(), webpki::Error> {
    let common = limits::common_names(&path.end_entity().der());
    if common.is_empty() {
        return Ok(());
    }
    let is_allowed = limits::allow(root, &common)
        && path.intermediate_certificates().all(|it| limits::allow(&it.der(), &common));
    if is_allowed { Ok(()) } else { Err(webpki::Error::NameConstraintViolation) }
}

/// A certificate that is an authority itself: backends often have a self-signed one, and the Secret contains the same.
fn itself(der: &CertificateDer<'_>, purpose: Purpose, now: UnixTime) -> Result<(), Untrusted> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| Untrusted::Malformed)?;
    let (not_before, not_after) = life_of(&certificate);
    if now < not_before {
        return Err(Untrusted::NotYetValid);
    }
    if now > not_after {
        return Err(Untrusted::Expired);
    }
    let usage = certificate.extended_key_usage().map_err(|_| Untrusted::Malformed)?;
    let is_for = usage.is_none_or(|usage| match purpose {
        Purpose::Server => usage.value.server_auth,
        Purpose::Client => usage.value.client_auth,
    });
    if is_for { Ok(()) } else { Err(Untrusted::Purpose) }
}

fn life_of(certificate: &X509Certificate<'_>) -> (UnixTime, UnixTime) {
    let time = |seconds: i64| {
        UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    };
    let validity = certificate.validity();
    (time(validity.not_before.timestamp()), time(validity.not_after.timestamp()))
}

fn is_self_signed(der: &CertificateDer<'_>) -> bool {
    let certificate = X509Certificate::from_der(der);
    certificate.is_ok_and(|(_, it)| it.subject().as_raw() == it.issuer().as_raw())
}

fn key_of<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    certificate.extensions().iter().find_map(|it| match it.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(it) => Some(it.0),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
