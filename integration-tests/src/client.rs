//! A client that sees every byte: what it sends is exactly what is sent, what it shows is exactly what came.
//!
//! Its parser of answers is slow and obvious on purpose; it shares nothing with what it tests.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub mod frames;
pub mod h2;
pub mod tls;
pub mod websocket;

/// How long one answer may take. Longer than any time limit of a proxy that a test runs into.
const ANSWER: Duration = Duration::from_secs(30);

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// `HTTP/1.1`, `HTTP/1.0`, `HTTP/2`.
    pub version: String,
    /// Fields in the order in which they came, names as they were written.
    pub headers: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

/// The first value of a field among those of a message.
pub(crate) fn first<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

impl Answer {
    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Name of the origin that answered; `None` when the proxy answered itself.
    pub fn origin(&self) -> Option<&str> {
        self.header("x-origin")
    }
}

/// A connection on which requests are written as they are and answers are read one after another.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    /// Came and was not read yet.
    ahead: Vec<u8>,
}

impl Connection<TcpStream> {
    /// Opens a plain connection.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self::new(stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Over a stream of any kind.
    pub fn new(stream: S) -> Self {
        Self { stream, ahead: Vec::new() }
    }

    /// The stream, and what was read ahead of it.
    pub fn into_parts(self) -> (S, Vec<u8>) {
        (self.stream, self.ahead)
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// Where the peer is gone.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await
    }

    /// Sends a GET and reads its answer; the connection stays open.
    ///
    /// # Errors
    /// Where the connection breaks, or what comes is no answer.
    pub async fn get(&mut self, host: &str, path: &str) -> io::Result<Answer> {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await?;
        self.answer("GET").await
    }

    /// Reads the answer to a request with a method (an answer to HEAD has no body). Answers 1xx but 101 are skipped.
    ///
    /// # Errors
    /// Where the connection breaks before its end, or what comes is no answer.
    pub async fn answer(&mut self, method: &str) -> io::Result<Answer> {
        timeout(ANSWER, self.read_answer(method))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer"))?
    }

    /// Reads until the peer closes.
    ///
    /// # Errors
    /// Where the connection is reset, or stays open for long.
    pub async fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = std::mem::take(&mut self.ahead);
        timeout(ANSWER, self.stream.read_to_end(&mut rest))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the peer does not close"))??;
        Ok(rest)
    }

    /// Reads exactly so many bytes.
    ///
    /// # Errors
    /// Where the connection ends before.
    pub async fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.ahead.len() < count {
            if !self.more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.ahead.drain(..count).collect())
    }

    /// Reads one line without its end.
    pub(crate) async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.ahead.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).map_err(|_| invalid("a line that is not UTF-8"));
            }
            if !self.more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn more(&mut self) -> io::Result<bool> {
        let mut buffer = vec![0; 16 * 1024];
        let count = self.stream.read(&mut buffer).await?;
        self.ahead.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }

    async fn read_answer(&mut self, method: &str) -> io::Result<Answer> {
        loop {
            let mut answer = self.head().await?;
            if answer.status / 100 == 1 && answer.status != 101 {
                continue;
            }
            let bodiless = method == "HEAD" || matches!(answer.status, 101 | 204 | 304);
            let length = answer.header("content-length").map(str::to_owned);
            let coding = answer.header("transfer-encoding").map(str::to_ascii_lowercase);
            answer.body = match (coding, length) {
                _ if bodiless => Vec::new(),
                (Some(coding), None) if coding == "chunked" => self.chunks().await?,
                (None, Some(length)) => {
                    let length = length.parse().map_err(|_| invalid("a Content-Length that is no number"))?;
                    self.exactly(length).await?
                }
                (None, None) => self.rest().await?,
                framing => return Err(invalid(&format!("framing {framing:?}"))),
            };
            return Ok(answer);
        }
    }

    async fn head(&mut self) -> io::Result<Answer> {
        let line = self.line().await?;
        let mut parts = line.splitn(3, ' ');
        let version = parts.next().unwrap_or_default().to_owned();
        let status = parts.next().and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| invalid(&format!("status line {line:?}")))?;
        Ok(Answer { status, version, headers: self.fields().await?, body: Vec::new() })
    }

    /// Reads fields up to the empty line.
    pub(crate) async fn fields(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(fields);
            }
            let field = line.split_once(':').ok_or_else(|| invalid(&format!("field line {line:?}")))?;
            fields.push((field.0.to_owned(), field.1.trim().to_owned()));
        }
    }

    /// Reads a chunked body and drops its trailers.
    pub(crate) async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
            let size = size.map_err(|_| invalid(&format!("chunk size {line:?}")))?;
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.exactly(size).await?);
            if !self.line().await?.is_empty() {
                return Err(invalid("a chunk that is longer than it says"));
            }
        }
    }
}

/// One GET over a connection of its own.
///
/// # Errors
/// Why there is no answer.
pub async fn get(address: SocketAddr, host: &str, path: &str) -> io::Result<Answer> {
    request(address, "GET", host, path, &[], b"").await
}

/// One request over a connection of its own. A body has a Content-Length.
///
/// # Errors
/// Why there is no answer.
pub async fn request(
    address: SocketAddr,
    method: &str,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Answer> {
    let mut connection = Connection::open(address).await?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    head += "\r\n";
    connection.send([head.as_bytes(), body].concat()).await?;
    connection.answer(method).await
}

/// Sends bytes and reads until the peer closes.
///
/// # Errors
/// Where the connection breaks.
pub async fn raw(address: SocketAddr, bytes: impl AsRef<[u8]>) -> io::Result<Vec<u8>> {
    let mut connection = Connection::open(address).await?;
    connection.send(bytes).await?;
    connection.rest().await
}

/// A page of a plain HTTP server, `http://ADDRESS`.
///
/// # Errors
/// Why there is no answer.
pub async fn page(url: &str, path: &str) -> io::Result<Answer> {
    let address = address_of(url)?;
    get(address, &address.to_string(), path).await
}

/// Posts JSON to a plain HTTP server, `http://ADDRESS`.
///
/// # Panics
/// Where there is no answer.
pub async fn post_json(url: &str, path: &str, body: &Value) -> Answer {
    let address = address_of(url).expect("an address");
    let kind = [("Content-Type", "application/json")];
    let answer =
        request(address, "POST", &address.to_string(), path, &kind, body.to_string().as_bytes()).await;
    answer.unwrap_or_else(|error| panic!("no answer from {url}: {error}"))
}

/// Makes aws-lc-rs the process' provider of cryptography; later calls do nothing.
pub fn install_crypto() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// The certificates of a test are made by itself, so it takes any; what was shown is looked at afterwards.
pub(crate) fn client_config(alpn: &[&[u8]]) -> Arc<rustls::ClientConfig> {
    install_crypto();
    let mut config = rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(tls::TakesAny))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

fn address_of(url: &str) -> io::Result<SocketAddr> {
    let address = url.strip_prefix("http://").and_then(|address| address.parse().ok());
    address.ok_or_else(|| invalid(&format!("expected http://ADDRESS, got {url}")))
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.to_owned())
}
