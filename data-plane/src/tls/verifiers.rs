//! Who is believed to be the backend that is meant: anybody, or whoever one of the authorities says it is.
//!
//! **Invariant:** `Unverified` is used where nothing is to be verified, and nowhere else.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use shared::pem;

use crate::table::trust::{Purpose, Trust, Untrusted};
use crate::table::version1::readable;

/// Takes any certificate, however old, weak or wrong, as nginx does without `proxy_ssl_verify`. The signature of the
/// handshake is not looked at either: whoever could forge it could show a certificate of its own instead, and it cannot
/// be checked for the certificates of version 1 that some backends have.
#[derive(Debug)]
pub(super) struct Unverified(WebPkiSupportedAlgorithms);

impl Unverified {
    pub(super) fn new(provider: &CryptoProvider) -> Self {
        Self(provider.signature_verification_algorithms)
    }
}

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Takes certificates of the authorities that have the name that is asked for.
#[derive(Debug)]
pub(super) struct Verified {
    trust: Arc<Trust>,
    depth: usize,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verified {
    pub(super) fn new(trust: &Arc<Trust>, depth: usize, provider: &CryptoProvider) -> Self {
        let algorithms = provider.signature_verification_algorithms;
        Self { trust: Arc::clone(trust), depth, algorithms }
    }
}

impl ServerCertVerifier for Verified {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.trust.verify(leaf, rest, self.depth, Purpose::Server, now);
        verified.map_err(|why| Error::InvalidCertificate(error_of(why)))?;
        // As OpenSSL's X509_check_host: the listed names, else the common one.
        let name = name.to_str().to_ascii_lowercase();
        if !pem::covers(&pem::names(leaf), &name) {
            return Err(Error::InvalidCertificate(CertificateError::NotValidForName));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, &readable(certificate), signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, &readable(certificate), signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// What the endpoint is told, and our log.
fn error_of(why: Untrusted) -> CertificateError {
    match why {
        Untrusted::Expired => CertificateError::Expired,
        Untrusted::NotYetValid => CertificateError::NotValidYet,
        Untrusted::Revoked => CertificateError::Revoked,
        Untrusted::NoRevocations => CertificateError::UnknownRevocationStatus,
        Untrusted::Signature => CertificateError::BadSignature,
        Untrusted::Purpose => CertificateError::InvalidPurpose,
        why if why.is_of_others() => CertificateError::UnknownIssuer,
        _ => CertificateError::BadEncoding,
    }
}
