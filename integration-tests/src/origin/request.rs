//! Reads requests as an origin gets them, byte for byte.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::client::{Connection, first};

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Seen {
    /// GET, POST and so on.
    pub method: String,
    /// As it stands in the request line.
    pub target: String,
    /// Fields in order, names as they were written.
    pub headers: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

impl Seen {
    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, name)
    }
}

/// The next request; `None` when the client has closed.
pub(super) async fn read<S>(connection: &mut Connection<S>) -> io::Result<Option<Seen>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let line = match connection.line().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        line => line?,
    };
    let mut parts = line.split(' ').map(str::to_owned);
    let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let headers = connection.fields().await?;
    let mut seen = Seen { method, target, headers, body: Vec::new() };
    if seen.header("expect").is_some() {
        connection.send("HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    if let Some(length) = seen.header("content-length") {
        let length = length.parse().map_err(io::Error::other)?;
        seen.body = connection.exactly(length).await?;
    } else if seen.header("transfer-encoding").is_some() {
        seen.body = connection.chunks().await?;
    }
    Ok(Some(seen))
}
