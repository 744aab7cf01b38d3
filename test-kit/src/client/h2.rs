//! HTTP/2 by hyper's client, over TLS or with prior knowledge.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{Answer, tls};

/// One HTTP/2 connection. Requests may run at the same time.
#[derive(Debug)]
pub struct Connection {
    requests: SendRequest<Full<Bytes>>,
    scheme: &'static str,
    /// Drives the connection while this lives.
    _driver: JoinSet<()>,
}

impl Connection {
    /// Without TLS, by prior knowledge (RFC 9113 3.3).
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub async fn plain(address: SocketAddr) -> io::Result<Self> {
        Self::over(TcpStream::connect(address).await?, "http").await
    }

    /// Over TLS, agreed on by ALPN.
    ///
    /// # Errors
    /// Why it cannot be opened, or that the server does not agree.
    pub async fn tls(address: SocketAddr, name: &str) -> io::Result<Self> {
        let secured = tls::open(address, name, &[b"h2", b"http/1.1"]).await?;
        if secured.alpn.as_deref() != Some(b"h2") {
            return Err(io::Error::other(format!("expected h2, got {:?}", secured.alpn)));
        }
        Self::over(secured.connection.into_parts().0, "https").await
    }

    async fn over<S>(stream: S, scheme: &'static str) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let opened = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (requests, connection) = opened.map_err(io::Error::other)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // How it ends is seen by the requests on it.
            let _ = connection.await;
        });
        Ok(Self { requests, scheme, _driver: driver })
    }

    /// Whether it takes another request: the server has not said that it goes away.
    pub async fn is_open(&self) -> bool {
        self.requests.clone().ready().await.is_ok()
    }

    /// One request.
    ///
    /// # Errors
    /// Why there is no answer; [`io::ErrorKind::NotConnected`] where the request was never written, because the server
    /// was found to have gone away (RFC 9113 6.8): it may be asked again elsewhere.
    pub async fn request(
        &self,
        method: &str,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut request = Request::builder()
            .version(Version::HTTP_2)
            .method(method)
            .uri(format!("{}://{host}{path}", self.scheme));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::copy_from_slice(body));
        let request = request.body(body).map_err(io::Error::other)?;
        let response = self.requests.clone().try_send_request(request).await.map_err(|mut error| {
            let kind = match error.take_message() {
                Some(_) => io::ErrorKind::NotConnected,
                None => io::ErrorKind::Other,
            };
            io::Error::new(kind, error.into_error())
        });
        answer(response?).await
    }

    /// One GET.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn get(&self, host: &str, path: &str) -> io::Result<Answer> {
        self.request("GET", host, path, &[], b"").await
    }
}

async fn answer(response: Response<Incoming>) -> io::Result<Answer> {
    let (head, body) = response.into_parts();
    let headers = head.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    Ok(Answer {
        status: head.status.as_u16(),
        version: "HTTP/2".to_owned(),
        head: String::new(),
        headers: headers.collect(),
        body: body.collect().await.map_err(io::Error::other)?.to_bytes().to_vec(),
    })
}
