//! The way of a client to a control plane: one of its addresses, then TLS.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::SERVER_NAME;

/// One of several addresses may be dead, and the others are to have their turn.
const ADDRESS: Duration = Duration::from_secs(2);

/// Connects. What the control plane is called in the URL does not matter: who it is stands in its certificate.
#[derive(Clone, Debug)]
pub struct Connector(Arc<ClientConfig>);

impl From<ClientConfig> for Connector {
    fn from(config: ClientConfig) -> Self {
        Self(Arc::new(config))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = TlsConnector::from(Arc::clone(&self.0));
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let mut addresses: Vec<_> = lookup_host((host, uri.port_u16().unwrap_or(443))).await?.collect();
            // A headless Service lists all replicas, and clients spread over them.
            fastrand::shuffle(&mut addresses);
            let stream = first(&addresses).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
            tls.connect(name, stream).await.map(TokioIo::new)
        })
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
