//! Detects the protocol of a demo backend's client from its first bytes: an endpoint is one address, and Ingresses may
//! use it with several protocols (`backend-protocol`).

use std::io::{self, Cursor};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, join};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::fastcgi;

/// The start of HTTP/2 with prior knowledge (RFC 9113 section 3.4), up to where it differs from HTTP/1.1.
const PREFACE: &[u8] = b"PRI";
/// Type of the first record of TLS (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;
/// Timeout for a client's first bytes.
const PATIENCE: Duration = Duration::from_secs(30);

const H2: &[u8] = b"h2";

/// Accepts TLS on connections.
pub(in crate::up) type Tls = TlsAcceptor;

/// The protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Http1,
    Http2,
    FastCgi,
    Tls,
}

impl Protocol {
    /// The protocol by its first bytes; `None`: more bytes are needed.
    fn of(start: &[u8]) -> Option<Self> {
        match start {
            [HANDSHAKE, ..] => Some(Self::Tls),
            [fastcgi::VERSION, ..] => Some(Self::FastCgi),
            _ if start.starts_with(PREFACE) => Some(Self::Http2),
            _ if PREFACE.starts_with(start) => None,
            _ => Some(Self::Http1),
        }
    }
}

/// A connection without TLS on it.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Removes TLS from the connection, and detects its HTTP version.
///
/// # Errors
/// If the client sends too little, or its handshake fails.
pub(super) async fn agree(stream: TcpStream, tls: &Tls) -> io::Result<(Box<dyn Wire>, Protocol)> {
    timeout(PATIENCE, agreed(stream, tls)).await?
}

async fn agreed(mut stream: TcpStream, tls: &Tls) -> io::Result<(Box<dyn Wire>, Protocol)> {
    let mut start = Vec::with_capacity(PREFACE.len());
    let protocol = loop {
        match Protocol::of(&start) {
            Some(protocol) => break protocol,
            // No more than this is read, so the capacity is never exceeded.
            None if stream.read_buf(&mut start).await? == 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            None => {}
        }
    };
    let (read, write) = stream.into_split();
    let stream = join(Cursor::new(start).chain(read), write);
    if protocol != Protocol::Tls {
        return Ok((Box::new(stream), protocol));
    }
    let stream = tls.accept(stream).await?;
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(H2);
    Ok((Box::new(stream), if is_h2 { Protocol::Http2 } else { Protocol::Http1 }))
}

/// TLS with a self-signed certificate.
///
/// # Errors
/// If the system provides no randomness.
pub(in crate::up) fn acceptor() -> anyhow::Result<Tls> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())?;
    config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell() {
        for (start, protocol) in [
            (&b""[..], None),
            (b"P", None),
            (b"PR", None),
            (b"PRI", Some(Protocol::Http2)),
            (b"PRO", Some(Protocol::Http1)),
            (b"PO", Some(Protocol::Http1)),
            (b"G", Some(Protocol::Http1)),
            (&[1], Some(Protocol::FastCgi)),
            (&[22], Some(Protocol::Tls)),
            (&[22, 3, 1], Some(Protocol::Tls)),
        ] {
            assert_eq!(Protocol::of(start), protocol, "{start:?}");
        }
    }
}
