//! As much of WebSocket (RFC 6455) as a test of a proxy needs: the handshake, and short text messages.

use std::io::{self, Read};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Answer, Connection};

/// The example of RFC 6455 1.3: the key, and the accept value that a server must compute from it.
pub const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// See [`KEY`].
pub const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

const TEXT: u8 = 0x81;
const MASKED: u8 = 0x80;
const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];

/// Requests a WebSocket; a 101 with [`ACCEPT`] accepts it.
///
/// # Errors
/// Why there is no response.
pub async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<S>,
    host: &str,
    path: &str,
) -> io::Result<Answer> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    );
    connection.send(request).await?;
    connection.answer("GET").await
}

/// A client's frame with a text of less than 126 bytes.
pub fn client_frame(text: &str) -> Vec<u8> {
    let mut frame = vec![TEXT, MASKED | length(text)];
    frame.extend(MASK);
    frame.extend(text.bytes().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A server's frame with a text of less than 126 bytes.
pub fn server_frame(text: &str) -> Vec<u8> {
    let mut frame = vec![TEXT, length(text)];
    frame.extend(text.bytes());
    frame
}

/// Reads a frame with a text of less than 126 bytes, of either side.
///
/// # Errors
/// The connection ends, or something else is received.
pub async fn read<S: AsyncRead + AsyncWrite + Unpin>(connection: &mut Connection<S>) -> io::Result<String> {
    let rest = rest_of(&connection.exactly(2).await?)?;
    text(rest, &connection.exactly(rest.mask + rest.text).await?)
}

/// The same, blocking.
///
/// # Errors
/// The connection ends, or something else is received.
pub fn read_blocking(stream: &mut impl Read) -> io::Result<String> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    let rest = rest_of(&head)?;
    let mut bytes = vec![0; rest.mask + rest.text];
    stream.read_exact(&mut bytes)?;
    text(rest, &bytes)
}

/// The bytes of a frame after the first two.
#[derive(Clone, Copy)]
struct Rest {
    mask: usize,
    text: usize,
}

fn rest_of(head: &[u8]) -> io::Result<Rest> {
    match head {
        [TEXT, length] if length & !MASKED < 126 => Ok(Rest {
            mask: if length & MASKED == 0 { 0 } else { MASK.len() },
            text: usize::from(length & !MASKED),
        }),
        _ => Err(io::Error::other(format!("expected a short text, got {head:x?}"))),
    }
}

fn text(Rest { mask, .. }: Rest, bytes: &[u8]) -> io::Result<String> {
    let (mask, text) = bytes.split_at(mask);
    let mask = if mask.is_empty() { &[0] } else { mask };
    let text = text.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    String::from_utf8(text.collect()).map_err(io::Error::other)
}

fn length(text: &str) -> u8 {
    assert!(text.len() < 126, "only short texts");
    u8::try_from(text.len()).expect("it is short")
}
