//! Leaf certificates of X.509 version 1, which is what `openssl x509 -req` makes if no extensions are given. OpenSSL,
//! and therefore nginx, accepts them; webpki reads only version 3.
//!
//! webpki gets the same certificate as version 3 without extensions, and judges it as any other: dates, revocation
//! lists, depth and algorithms are checked there, once. When it verifies the signature over the converted certificate,
//! the signature over the original is verified instead.
//!
//! **Invariant:** only leaves are accepted this way. A certificate that signs others must be version 3, or a
//! configured root.

use std::borrow::Cow;

use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm,
};

use crate::der::{Reader, SEQUENCE, write};

/// The version, which is absent in version 1: `[0] EXPLICIT`.
const VERSION: u8 = 0xa0;
/// Version 1, if encoded explicitly.
const ONE: [u8; 3] = [0x02, 1, 0];
/// Version 3.
const THREE: [u8; 3] = [0x02, 1, 2];

/// A version 1 leaf certificate.
#[derive(Debug)]
pub(crate) struct Version1<'a> {
    /// The same certificate, encoded as version 3.
    raised: CertificateDer<'static>,
    /// The part of that which a signature would cover.
    shown: Vec<u8>,
    /// The part of the original that the signature covers.
    signed: &'a [u8],
}

impl<'a> Version1<'a> {
    /// Parses one; `None`: another version, or not a certificate.
    pub(crate) fn read(leaf: &'a [u8]) -> Option<Self> {
        let mut outer = Reader::new(leaf);
        let mut parts = Reader::new(outer.expect(SEQUENCE)?);
        let body = parts.item().filter(|it| it.tag == SEQUENCE)?;
        let mut fields = Reader::new(body.content);
        if fields.is_next(VERSION) && fields.expect(VERSION)? != ONE {
            return None;
        }
        let shown = write(SEQUENCE, &[&write(VERSION, &THREE), fields.rest()].concat());
        // Trailing bytes are left for webpki to refuse.
        let raised = [write(SEQUENCE, &[&shown, parts.rest()].concat()), outer.rest().to_vec()].concat();
        Some(Self { raised: raised.into(), shown, signed: body.whole })
    }

    /// The same as version 3: with its key and names, and a signature that only [`Self::checks`] accepts.
    pub(crate) fn raised(&self) -> &CertificateDer<'_> {
        &self.raised
    }

    /// Signature algorithms that verify the original in place of the converted certificate.
    pub(crate) fn checks<'b>(&'b self, known: &[&'b dyn SignatureVerificationAlgorithm]) -> Vec<Check<'b>> {
        known.iter().map(|known| Check { known: *known, shown: &self.shown, signed: self.signed }).collect()
    }
}

/// A leaf in the form that rustls and webpki can parse: version 1 is converted to version 3.
pub(crate) fn readable<'a>(leaf: &'a CertificateDer<'a>) -> Cow<'a, CertificateDer<'a>> {
    Version1::read(leaf).map_or(Cow::Borrowed(leaf), |old| Cow::Owned(old.raised))
}

/// A signature algorithm that verifies the original.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    known: &'a dyn SignatureVerificationAlgorithm,
    shown: &'a [u8],
    signed: &'a [u8],
}

impl SignatureVerificationAlgorithm for Check<'_> {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let message = if message == self.shown { self.signed } else { message };
        self.known.verify_signature(public_key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.known.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.known.signature_alg_id()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use test_kit::certificates::version1;
    use webpki::EndEntityCert;

    use super::*;

    fn made() -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let new = CertificateParams::new(vec!["a.test".into()]).unwrap().self_signed(&key).unwrap();
        (new.der().to_vec(), version1(new.der(), &key).to_vec())
    }

    #[test]
    fn version_1_is_read_as_version_3_that_says_the_same() {
        let (_, old) = made();
        assert!(EndEntityCert::try_from(&CertificateDer::from(&*old)).is_err());
        let read = Version1::read(&old).unwrap();
        let certificate = EndEntityCert::try_from(read.raised()).unwrap();
        let (_, configured) = x509_parser::parse_x509_certificate(&old).unwrap();
        assert_eq!(certificate.serial(), configured.raw_serial());
        assert!(configured.subject().as_raw().ends_with(certificate.subject()));
        assert_eq!(&*certificate.subject_public_key_info(), configured.public_key().raw);
    }

    /// A version that is explicitly 1 is version 1; trailing bytes stay in place.
    #[test]
    fn every_other_version_is_left_alone() {
        let (new, old) = made();
        assert!(Version1::read(&new).is_none());
        let place = new.windows(5).position(|it| it == [0xa0, 3, 2, 1, 2]).unwrap() + 4;
        for (version, is_read) in [(0, true), (1, false), (2, false), (3, false)] {
            let mut configured = new.clone();
            configured[place] = version;
            let read = Version1::read(&configured);
            assert_eq!(read.is_some(), is_read, "{version}");
            assert!(read.is_none_or(|it| it.raised()[..] == new[..]));
        }
        let is_bad = |it: Version1<'_>| EndEntityCert::try_from(it.raised()).is_err();
        let followed = [&old[..], b"x"].concat();
        assert!(Version1::read(&followed).is_some_and(is_bad));
        for end in 0..old.len() {
            assert!(Version1::read(&old[..end]).is_none_or(is_bad), "{end}");
        }
    }
}
