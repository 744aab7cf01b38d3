//! TLS connections that accept any certificate; the certificate presented is part of the result.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, HandshakeKind, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Answer, Connection};

/// An open TLS connection, and the certificate that the server presented.
#[derive(Debug)]
pub struct Secured {
    /// The connection.
    pub connection: Connection<TlsStream<TcpStream>>,
    /// The leaf certificate, DER.
    pub certificate: Vec<u8>,
    /// The negotiated protocol.
    pub alpn: Option<Vec<u8>>,
}

/// Opens a connection with a server name (SNI).
///
/// # Errors
/// Why the connection or the handshake fails.
pub async fn open(address: SocketAddr, name: &str, alpn: &[&[u8]]) -> io::Result<Secured> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let server_name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::new(trusting(alpn))).connect(server_name, stream).await?;
    let (_, session) = stream.get_ref();
    let shown = session.peer_certificates().and_then(|all| all.first());
    Ok(Secured {
        certificate: shown.map(|leaf| leaf.to_vec()).unwrap_or_default(),
        alpn: session.alpn_protocol().map(<[u8]>::to_vec),
        connection: Connection::new(stream),
    })
}

/// One GET over HTTP/1.1 and TLS, and the names in the certificate presented.
///
/// # Errors
/// Why there is no response.
pub async fn get(address: SocketAddr, host: &str, path: &str) -> io::Result<(Answer, Vec<String>)> {
    let mut secured = open(address, host, &[b"http/1.1"]).await?;
    let answer = secured.connection.get(host, path).await?;
    Ok((answer, shared::pem::names(&secured.certificate)))
}

/// A client that keeps its sessions.
#[derive(Clone, Debug)]
pub struct Keeping(Arc<ClientConfig>);

impl Default for Keeping {
    /// Without sessions.
    fn default() -> Self {
        Self(Arc::new(trusting(&[b"http/1.1"])))
    }
}

impl Keeping {
    /// One GET on a new connection; returns whether a session was resumed.
    ///
    /// # Errors
    /// Why there is no response.
    pub async fn get(&self, address: SocketAddr, host: &str, path: &str) -> io::Result<(Answer, bool)> {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await?;
        let is_resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
        Ok((Connection::new(stream).get(host, path).await?, is_resumed))
    }
}

/// A client that accepts any certificate, because tests generate their own; the one presented is checked afterwards.
/// Offers these protocols.
///
/// # Panics
/// The provider supports no safe TLS version.
pub fn trusting(alpn: &[&[u8]]) -> ClientConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has versions that are safe")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any(provider)))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config
}

/// Makes aws-lc-rs the process' provider of cryptography; later calls do nothing.
pub fn install_crypto() {
    let _ = aws_lc_rs::default_provider().install_default();
}

/// Verifies only that the peer has the key of its certificate.
#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
