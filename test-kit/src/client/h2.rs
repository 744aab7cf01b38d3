//! An HTTP/2 client with the h2 crate, over TLS or with prior knowledge.
//!
//! Not with hyper's client around it: if a server sends GOAWAY between the writing of a request and the next poll of
//! the connection, that client resets the request on a multi-threaded runtime, and the test would see no response of
//! the server.

use std::future::{pending, poll_fn};
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::{self, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Request, Response, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{Answer, tls};

/// Receive windows in bytes, of a stream and of the connection.
const WINDOW: u32 = 2 << 20;

/// One HTTP/2 connection. Requests may run concurrently.
#[derive(Debug)]
pub struct Connection {
    requests: SendRequest<Bytes>,
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

    /// Over TLS, negotiated by ALPN.
    ///
    /// # Errors
    /// Why it cannot be opened, or that the server does not negotiate HTTP/2.
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
        let mut builder = client::Builder::new();
        builder.enable_push(false).initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (requests, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Requests see how it ends.
            let _ = connection.await;
        });
        Ok(Self { requests, scheme, _driver: driver })
    }

    /// Whether it accepts another request: the server has not sent GOAWAY.
    pub async fn is_open(&self) -> bool {
        self.requests.clone().ready().await.is_ok()
    }

    /// One request.
    ///
    /// # Errors
    /// Why there is no response; [`io::ErrorKind::NotConnected`] if the server had already sent GOAWAY and the request
    /// was not written, or is none of those that it still serves (RFC 9113 6.8): it may be retried elsewhere.
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
        if !body.is_empty() {
            request = request.header("content-length", body.len());
        }
        let request = request.body(()).map_err(io::Error::other)?;
        let unwritten = |error| io::Error::new(io::ErrorKind::NotConnected, error);
        let mut requests = self.requests.clone().ready().await.map_err(unwritten)?;
        let (response, stream) = requests.send_request(request, body.is_empty()).map_err(unwritten)?;
        // Both directions at once: a server may respond before it has the whole body, and not read the rest.
        let send = async {
            if !body.is_empty() {
                send(stream, Bytes::copy_from_slice(body)).await;
            }
            pending().await
        };
        tokio::select! {
            answered = async { answer(response.await?).await } => answered.map_err(failure),
            never = send => never,
        }
    }

    /// One GET.
    ///
    /// # Errors
    /// Why there is no response.
    pub async fn get(&self, host: &str, path: &str) -> io::Result<Answer> {
        self.request("GET", host, path, &[], b"").await
    }
}

/// A server that leaves sends GOAWAY twice: the second one names its last stream once its PING came back. That answer
/// may overtake a request which was written in the same moment, so this is no fault of the server's.
fn failure(error: h2::Error) -> io::Error {
    let has_left = error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR);
    let kind = if has_left { io::ErrorKind::NotConnected } else { io::ErrorKind::Other };
    io::Error::new(kind, error)
}

/// Sends a body as the server accepts it. If something stops that, the response shows it.
async fn send(mut stream: SendStream<Bytes>, mut body: Bytes) {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let Some(Ok(some)) = poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return;
        };
        let part = body.split_to(some.min(body.len()));
        if stream.send_data(part, body.is_empty()).is_err() {
            return;
        }
    }
}

async fn answer(response: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut stream) = response.into_parts();
    let headers = head.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok(Answer {
        status: head.status.as_u16(),
        version: "HTTP/2".to_owned(),
        head: String::new(),
        headers: headers.collect(),
        body,
    })
}
