//! Verifies backend certificates: not at all, or against configured authorities.
//!
//! **Invariant:** `Unverified` is used only where no verification is configured.

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

/// Accepts any certificate, however old, weak or wrong, as nginx does without `proxy_ssl_verify`. The handshake
/// signature is not verified either: an attacker who could forge it could just as well present a certificate of its
/// own, and it cannot be verified for the version 1 certificates of some backends.
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

/// Accepts certificates issued by the authorities for the requested name.
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
        // As OpenSSL's `X509_check_host`: the listed names, else the common name.
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

/// The alert for the endpoint, and our log message.
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
