//! Connections whose bytes are counted below TLS: everything on the network except TCP and IP headers.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use shared::tls::{self, Credentials, SERVER_NAME, TlsError, Trust};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tonic::Status;
use tower_service::Service;

use crate::identity::Peer;

/// Bytes of all connections so far.
#[derive(Debug, Default)]
pub struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
}

impl Traffic {
    /// From the control plane, and to it.
    pub fn bytes(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed))
    }
}

/// How control planes are spoken to.
#[derive(Clone, Debug)]
pub enum Way {
    /// In plaintext.
    Plain,
    /// With a certificate: one for all, as processes of one node have it.
    Certified {
        /// The certificate and its key.
        credentials: Credentials,
        /// Whom it believes.
        roots: Vec<Bytes>,
    },
}

impl Way {
    /// With a certificate that a control plane gives for a token.
    ///
    /// # Errors
    /// What it answers instead.
    pub async fn by_token(address: SocketAddr, token: &str, name: &str) -> Result<Self, Status> {
        let Peer { credentials, roots } = Peer::join(address, token, name).await?;
        Ok(Self::Certified { credentials, roots })
    }
}

/// Opens connections to one control plane, and counts what goes over them.
#[derive(Clone, Debug)]
pub struct Dial {
    address: SocketAddr,
    config: Option<Arc<ClientConfig>>,
    traffic: Arc<Traffic>,
}

impl Dial {
    /// To an address.
    ///
    /// # Errors
    /// If a certificate cannot be used.
    pub fn new(address: SocketAddr, way: &Way, traffic: Arc<Traffic>) -> Result<Self, TlsError> {
        let config = match way {
            Way::Plain => None,
            Way::Certified { credentials, roots } => {
                Some(Arc::new(tls::client(&Trust::Roots(roots.clone()), Some(credentials))?))
            }
        };
        Ok(Self { address, config, traffic })
    }

    /// Where it leads.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL that a channel is opened with; where it leads is this dial's affair.
    pub fn url(&self) -> String {
        let scheme = if self.config.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Line>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { address, config, traffic } = self.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let counted = Counted { stream, traffic };
            Ok(TokioIo::new(match config {
                None => Line::Left(counted),
                Some(config) => {
                    let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
                    let secured = TlsConnector::from(config).connect(name, counted).await?;
                    Line::Right(Box::new(secured))
                }
            }))
        })
    }
}

/// A socket whose bytes are counted.
#[derive(Debug)]
pub struct Counted {
    stream: TcpStream,
    traffic: Arc<Traffic>,
}

/// A connection, as it is or in TLS.
pub type Line = Either<Counted, Box<TlsStream<Counted>>>;

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.traffic.received.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl Counted {
    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(size)) = &written {
            self.traffic.sent.fetch_add(*size as u64, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
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
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
