//! A demo backend as a FastCGI application (`backend-protocol: FCGI`): one request per connection, as the proxy does it.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use super::protocol::Wire;

/// The version of the protocol: the first byte of each record.
pub(super) const VERSION: u8 = 1;

const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

/// Answers a request as over HTTP: who was reached, and what was received.
///
/// # Errors
/// If the connection ends before the request does.
pub(super) async fn answer(mut wire: impl Wire, addr: SocketAddr, name: &str) -> io::Result<()> {
    let Request { id, params, size } = Request::read(&mut wire).await?;
    let all: Vec<_> = Pairs(&params).collect();
    let value = |name: &[u8]| {
        let found = all.iter().find(|(key, _)| *key == name);
        found.map_or_else(Default::default, |(_, value)| String::from_utf8_lossy(value))
    };
    let mut text = String::from("Content-Type: text/plain; charset=utf-8\r\n\r\n");
    let (method, target) = (value(b"REQUEST_METHOD"), value(b"REQUEST_URI"));
    let _ = writeln!(text, "{name} at {addr} answers {method} {target} over FastCGI");
    for (key, value) in &all {
        let _ = writeln!(text, "  {}: {}", String::from_utf8_lossy(key), String::from_utf8_lossy(value));
    }
    if size > 0 {
        let _ = writeln!(text, "  and a body of {size} bytes");
    }
    let mut out = Vec::new();
    for part in text.as_bytes().chunks(u16::MAX.into()) {
        record(&mut out, STDOUT, id, part);
    }
    record(&mut out, STDOUT, id, &[]);
    // The exit code and the protocol status: 0 and 0, complete.
    record(&mut out, END_REQUEST, id, &[0; 8]);
    wire.write_all(&out).await?;
    wire.shutdown().await
}

struct Request {
    id: [u8; 2],
    /// Those of the first record, which has 64 KiB at most: more are not shown.
    params: Vec<u8>,
    /// Size of the body.
    size: usize,
}

impl Request {
    async fn read(wire: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut request = Self { id: [0; 2], params: Vec::new(), size: 0 };
        loop {
            let mut header = [0; 8];
            wire.read_exact(&mut header).await?;
            let [_, kind, id_high, id_low, high, low, padding, _] = header;
            request.id = [id_high, id_low];
            let length = usize::from(u16::from_be_bytes([high, low]));
            let mut content = vec![0; length + usize::from(padding)];
            wire.read_exact(&mut content).await?;
            content.truncate(length);
            match kind {
                // Its end.
                STDIN if length == 0 => return Ok(request),
                STDIN => request.size += length,
                PARAMS if request.params.is_empty() => request.params = content,
                _ => {}
            }
        }
    }
}

fn record(out: &mut Vec<u8>, kind: u8, [id_high, id_low]: [u8; 2], content: &[u8]) {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, id_high, id_low, high, low, 0, 0]);
    out.extend_from_slice(content);
}

/// Names and values, each pair after its lengths. What is cut off is left out.
struct Pairs<'a>(&'a [u8]);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = (self.length()?, self.length()?);
        let (name, rest) = self.0.split_at_checked(name)?;
        let (value, rest) = rest.split_at_checked(value)?;
        self.0 = rest;
        Some((name, value))
    }
}

impl Pairs<'_> {
    /// A length: one byte, or four if the first bit is set.
    fn length(&mut self) -> Option<usize> {
        let (length, rest) = match self.0 {
            [short @ 0..0x80, rest @ ..] => (u32::from(*short), rest),
            [a, b, c, d, rest @ ..] => (u32::from_be_bytes([a & 0x7f, *b, *c, *d]), rest),
            _ => return None,
        };
        self.0 = rest;
        usize::try_from(length).ok()
    }
}
