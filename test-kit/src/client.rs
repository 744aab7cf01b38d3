//! A byte-exact client: what it sends is exactly what was given, and what it returns is exactly what came.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::message::{Answer, Next, Reading};

pub mod frames;
pub mod h2;
pub mod tls;
pub mod websocket;

/// Time limit for one response. Longer than any timeout of a proxy that a test triggers.
const ANSWER: Duration = Duration::from_secs(30);

/// A connection on which requests are written unchanged and responses are read one after another.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    /// Received bytes that were not read yet.
    ahead: BytesMut,
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
    /// Over any stream.
    pub fn new(stream: S) -> Self {
        Self { stream, ahead: BytesMut::new() }
    }

    /// The stream, and the bytes that were read ahead.
    pub fn into_parts(self) -> (S, BytesMut) {
        (self.stream, self.ahead)
    }

    /// Writes bytes unchanged.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await
    }

    /// Sends a GET and reads its response; the connection stays open.
    ///
    /// # Errors
    /// The connection breaks, or what is received is not a response.
    pub async fn get(&mut self, host: &str, path: &str) -> io::Result<Answer> {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await?;
        self.answer("GET").await
    }

    /// Reads the response to a request with this method (a response to HEAD has no body). Interim responses (1xx)
    /// other than 101 are skipped.
    ///
    /// # Errors
    /// The connection breaks before the end, or what is received is not a response.
    pub async fn answer(&mut self, method: &str) -> io::Result<Answer> {
        timeout(ANSWER, self.read_answer(method))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer"))?
    }

    /// Reads until the peer closes.
    ///
    /// # Errors
    /// The connection is reset, or stays open for long.
    pub async fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = std::mem::take(&mut self.ahead).to_vec();
        timeout(ANSWER, self.stream.read_to_end(&mut rest))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the peer does not close"))??;
        Ok(rest)
    }

    /// Reads exactly this many bytes.
    ///
    /// # Errors
    /// The connection ends before.
    pub async fn exactly(&mut self, count: usize) -> io::Result<Bytes> {
        while self.ahead.len() < count {
            if !self.more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.ahead.split_to(count).freeze())
    }

    async fn more(&mut self) -> io::Result<bool> {
        self.ahead.reserve(16 * 1024);
        Ok(self.stream.read_buf(&mut self.ahead).await? > 0)
    }

    async fn read_answer(&mut self, method: &str) -> io::Result<Answer> {
        loop {
            let answer = self.read(Reading::answer(method == "HEAD")).await?;
            let answer = answer.into_answer().map_err(invalid)?;
            if answer.status / 100 != 1 || answer.status == 101 {
                return Ok(answer);
            }
        }
    }

    async fn read(&mut self, mut reading: Reading) -> io::Result<Reading> {
        loop {
            let bytes = match reading.next() {
                Next::Bytes(count) => self.exactly(count).await?,
                Next::Rest => self.rest().await?.into(),
                Next::Done => return Ok(reading),
            };
            reading.take(&bytes).map_err(invalid)?;
        }
    }
}

/// One GET over a new connection.
///
/// # Errors
/// Why there is no response.
pub async fn get(address: SocketAddr, host: &str, path: &str) -> io::Result<Answer> {
    request(address, "GET", host, path, &[], b"").await
}

/// One request over a new connection. A body gets a Content-Length.
///
/// # Errors
/// Why there is no response.
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
/// The connection breaks.
pub async fn raw(address: SocketAddr, bytes: impl AsRef<[u8]>) -> io::Result<Vec<u8>> {
    let mut connection = Connection::open(address).await?;
    connection.send(bytes).await?;
    connection.rest().await
}

/// A page of a plain HTTP server, `http://ADDRESS`.
///
/// # Errors
/// Why there is no response.
pub async fn page(url: &str, path: &str) -> io::Result<Answer> {
    let address = address_of(url)?;
    get(address, &address.to_string(), path).await
}

/// Posts JSON to a plain HTTP server, `http://ADDRESS`.
///
/// # Panics
/// There is no response.
pub async fn post_json(url: &str, path: &str, body: &Value) -> Answer {
    let address = address_of(url).expect("an address");
    let kind = [("Content-Type", "application/json")];
    let answer =
        request(address, "POST", &address.to_string(), path, &kind, body.to_string().as_bytes()).await;
    answer.unwrap_or_else(|error| panic!("no answer from {url}: {error}"))
}

fn address_of(url: &str) -> io::Result<SocketAddr> {
    let address = url.strip_prefix("http://").and_then(|address| address.parse().ok());
    address.ok_or_else(|| invalid(format!("expected http://ADDRESS, got {url}")))
}

fn invalid(problem: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}
