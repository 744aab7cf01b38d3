//! A client's connection to a control plane: tries its addresses, then performs the TLS handshake.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::SERVER_NAME;

/// Timeout per address: one of several may be dead, and the others need their turn.
const ADDRESS: Duration = Duration::from_secs(2);

/// Connects with TLS. The host name in the URL is not verified: the certificate identifies the control plane.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
    doubt: Doubt,
    heard: Heard,
    at: Option<SocketAddr>,
}

/// Connects to one address, without encryption.
#[derive(Clone, Debug)]
pub struct Plain {
    at: SocketAddr,
    heard: Heard,
}

/// Records whether TLS failed on a connection, in the handshake or after it: in TLS 1.3 a client completes the
/// handshake before the server has verified its certificate (RFC 8446 4.4.2.4, 6.2). The error of a call does not
/// reliably show that. Clones share state.
#[derive(Clone, Default, Debug)]
pub struct Doubt(Arc<AtomicBool>);

impl Doubt {
    /// A recorded failure.
    pub fn raised() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// Whether TLS failed.
    pub fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// TLS errors have the kind InvalidData, and no other socket errors do (tokio-rustls, `client.rs` and `common`).
    fn look<T>(&self, done: io::Result<T>) -> io::Result<T> {
        if done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            self.0.store(true, Ordering::Relaxed);
        }
        done
    }
}

/// Counts the bytes that were read from a connection, so that a long message on a slow link can be told from silence.
/// Clones share state.
#[derive(Clone, Default, Debug)]
pub struct Heard(Arc<AtomicU64>);

impl Heard {
    /// The number of bytes since this was last asked, of any clone.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// A connection that is watched for both.
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    doubt: Doubt,
    heard: Heard,
}

impl Connector {
    /// Whether TLS failed on its connections.
    pub fn doubt(&self) -> Doubt {
        self.doubt.clone()
    }

    /// What is read from its connections.
    pub fn heard(&self) -> Heard {
        self.heard.clone()
    }

    /// Connects to this address, regardless of the name in the URL.
    #[must_use]
    pub fn at(self, address: SocketAddr) -> Self {
        Self { at: Some(address), ..self }
    }
}

impl From<ClientConfig> for Connector {
    fn from(config: ClientConfig) -> Self {
        Self { config: Arc::new(config), doubt: Doubt::default(), heard: Heard::default(), at: None }
    }
}

impl Plain {
    /// Connects to this address.
    pub fn to(at: SocketAddr) -> Self {
        Self { at, heard: Heard::default() }
    }

    /// What is read from its connections.
    pub fn heard(&self) -> Heard {
        self.heard.clone()
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Watched<TlsStream<TcpStream>>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = TlsConnector::from(Arc::clone(&self.config));
        let (doubt, heard) = (self.doubt.clone(), self.heard.clone());
        let at = self.at;
        Box::pin(async move {
            let addresses = match at {
                Some(address) => vec![address],
                None => {
                    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
                    let found = lookup_host((host, uri.port_u16().unwrap_or(443))).await?;
                    let mut addresses: Vec<_> = found.collect();
                    // A headless Service lists all replicas, and clients spread over them.
                    fastrand::shuffle(&mut addresses);
                    addresses
                }
            };
            let stream = first(&addresses).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
            let stream = doubt.look(tls.connect(name, stream).await)?;
            Ok(TokioIo::new(Watched { stream, doubt, heard }))
        })
    }
}

impl Service<Uri> for Plain {
    type Response = TokioIo<Watched<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (address, heard) = (self.at, self.heard.clone());
        Box::pin(async move {
            let stream = first(&[address]).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(Watched { stream, doubt: Doubt::default(), heard }))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.heard.0.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        read.map(|done| self.doubt.look(done))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        written.map(|done| self.doubt.look(done))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        flushed.map(|done| self.doubt.look(done))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        all: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, all);
        written.map(|done| self.doubt.look(done))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

async fn first(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(ADDRESS, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use rustls::ServerConfig;

    use super::super::{Credentials, Trust, client, server};
    use super::*;

    /// Credentials of an authority of their own, and that authority.
    fn somebody() -> (Credentials, Bytes) {
        let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut root = CertificateParams::default();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = root.self_signed(&root_key).unwrap();
        let leaf = CertificateParams::new(vec![SERVER_NAME.to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::new(root, root_key)).unwrap();
        let [leaf, root] = [leaf.der(), authority.der()].map(|der| Bytes::copy_from_slice(der));
        let key = crate::secret::kept(key.serialize_der());
        (Credentials { chain: vec![leaf, root.clone()], key }, root)
    }

    #[tokio::test]
    async fn what_was_read_is_counted_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut plain = Plain::to(listener.local_addr().unwrap());
        let (there, here) = tokio::join!(listener.accept(), plain.call(Uri::from_static("http://a.test")));
        there.unwrap().0.write_all(b"twelve bytes").await.unwrap();
        let mut came = Vec::new();
        here.unwrap().into_inner().read_to_end(&mut came).await.unwrap();
        assert_eq!((plain.heard().take(), plain.heard().take()), (12, 0));
    }

    /// Whether a client that connects and reads records a failure. `None`: the server hangs up at once.
    async fn doubts(believed: &Bytes, me: &Credentials, there: Option<ServerConfig>) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: Uri = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let serves = async {
            let (stream, _) = listener.accept().await.unwrap();
            if let Some(config) = there {
                let _ = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
            }
        };
        let config = client(&Trust::Roots(vec![believed.clone()]), Some(me)).unwrap();
        let mut connector = Connector::from(config);
        let asks = async {
            if let Ok(stream) = connector.call(uri).await {
                let _ = stream.into_inner().read_u8().await;
            }
        };
        tokio::join!(serves, asks);
        connector.doubt().is_there()
    }

    #[tokio::test]
    async fn only_what_tls_says_is_a_doubt() {
        let ((me, mine), (they, theirs)) = (somebody(), somebody());
        let serves = |clients: &Bytes| Some(server(&they, Some(std::slice::from_ref(clients))).unwrap());
        assert!(!doubts(&theirs, &me, serves(&mine)).await, "all is well, and they hang up");
        assert!(!doubts(&theirs, &me, None).await, "nobody says anything");
        assert!(doubts(&mine, &me, serves(&mine)).await, "theirs is an authority that is not believed");
        assert!(doubts(&theirs, &me, serves(&theirs)).await, "they do not believe ours");
    }
}
