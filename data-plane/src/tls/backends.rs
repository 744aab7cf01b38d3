//! TLS towards backends that nobody is asked to verify: what `backend-protocol: HTTPS` alone means (ingress-nginx
//! behaviour, annotations.md 6.11). It keeps out who listens on the way, and nobody who stands in it.
//!
//! **Invariant:** `Unverified` is named here alone. Whatever verifies has a configuration of its own, and with it
//! connections and sessions of its own.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::TlsError;

/// Makes TLS connections to backends. Each worker has its own: sessions that can be resumed stand behind a lock.
#[derive(Clone)]
pub struct Backends {
    unverified: TlsConnector,
    unverified_h2: TlsConnector,
    /// As the first, telling the server's name.
    named: TlsConnector,
}

/// What is spoken over TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// HTTP/1.1, of which nothing is said.
    Http1,
    /// HTTP/2, which is asked for.
    Http2,
}

impl Backends {
    /// Without sessions.
    ///
    /// # Errors
    /// When the provider lacks a protocol version.
    pub fn new() -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Unverified(Arc::clone(&provider));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(TlsError::Versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        // As in ingress-nginx: proxy-ssl-server-name is off.
        let named = Arc::new(config.clone()).into();
        config.enable_sni = false;
        let mut h2 = config.clone();
        h2.alpn_protocols = vec![b"h2".to_vec()];
        // Sessions of the one are none of the other.
        h2.resumption = Resumption::in_memory_sessions(256);
        Ok(Self { unverified: Arc::new(config).into(), unverified_h2: Arc::new(h2).into(), named })
    }

    /// Shakes hands with whoever answers for a host, which is told its name.
    ///
    /// # Errors
    /// The connection's, and TLS'.
    pub async fn connect_to(&self, host: &str, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.named.connect(server_name(host)?, stream).await
    }

    /// Shakes hands with whoever answers at an address.
    ///
    /// # Errors
    /// The connection's, and TLS'.
    pub async fn connect(
        &self,
        address: IpAddr,
        stream: TcpStream,
        over: Over,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let connector = match over {
            Over::Http1 => &self.unverified,
            Over::Http2 => &self.unverified_h2,
        };
        connector.connect(ServerName::IpAddress(address.into()), stream).await
    }
}

/// What a name asks for that is told to the server. An address tells none.
fn server_name(host: &str) -> std::io::Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)
}

/// Takes any certificate, however old, weak or wrong, as nginx does without `proxy_ssl_verify`. The signature of the
/// handshake is not looked at either: whoever could forge it could show a certificate of its own instead, and it cannot
/// be checked for the certificates of version 1 that some backends have.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

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
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
