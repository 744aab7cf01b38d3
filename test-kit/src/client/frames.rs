//! HTTP/2 frame by frame (RFC 9113, RFC 7541), for clients that no library would allow: what is given is sent
//! unchanged, and nothing is read unless asked for.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The client's connection preface.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types.
pub const DATA: u8 = 0;
/// See [`DATA`].
pub const HEADERS: u8 = 1;
/// See [`DATA`].
pub const RESET: u8 = 3;
/// See [`DATA`].
pub const SETTINGS: u8 = 4;
/// See [`DATA`].
pub const GOAWAY: u8 = 7;
/// See [`DATA`].
pub const WINDOW_UPDATE: u8 = 8;

/// Flags of frames.
pub const END_STREAM: u8 = 1;
/// See [`END_STREAM`].
pub const END_HEADERS: u8 = 4;

/// The setting for the initial send window of a stream.
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// Encodes a frame.
///
/// # Panics
/// The payload is too long for a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a payload has 24 bits of length");
    let [0, a, b, c] = length.to_be_bytes() else { panic!("{length} bytes do not fit into a frame") };
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// An HPACK field block, without Huffman coding.
#[derive(Clone, Debug, Default)]
pub struct Block(Vec<u8>);

impl Block {
    /// `:method`, `:scheme`, `:authority` and `:path` of a request over plain HTTP.
    pub fn request(method: &str, host: &str, path: &str) -> Self {
        let mut block = match method {
            "GET" => Self(vec![0x82, 0x86]),
            "POST" => Self(vec![0x83, 0x86]),
            other => Self(vec![0x02]).text(other).push(0x86),
        };
        block = if path == "/" { block.push(0x84) } else { block.push(0x04).text(path) };
        block.push(0x01).text(host)
    }

    /// A field that is not indexed.
    #[must_use]
    pub fn field(self, name: &str, value: &str) -> Self {
        self.push(0x00).text(name).text(value)
    }

    /// A field that is indexed, as the newest entry.
    #[must_use]
    pub fn kept(self, name: &str, value: &str) -> Self {
        self.push(0x40).text(name).text(value)
    }

    /// The newest entry of the table, this many times: one byte each.
    #[must_use]
    pub fn newest(mut self, times: usize) -> Self {
        self.0.extend(vec![0xbe; times]);
        self
    }

    /// The encoded block.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn push(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    fn text(mut self, text: &str) -> Self {
        let mut rest = text.len();
        if rest < 127 {
            self.0.push(rest as u8);
        } else {
            self.0.push(127);
            rest -= 127;
            while rest >= 128 {
                self.0.push(rest as u8 & 127 | 128);
                rest /= 128;
            }
            self.0.push(rest as u8);
        }
        self.0.extend(text.bytes());
        self
    }
}

/// A connection.
#[derive(Debug)]
pub struct Frames {
    stream: TcpStream,
    sent: u64,
    requests: u64,
}

impl Frames {
    /// Connects, and sends the preface with these settings.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub async fn open(address: SocketAddr, settings: &[(u16, u32)]) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut it = Self { stream, sent: 0, requests: 0 };
        let settings = settings.iter().flat_map(|(key, value)| {
            let (key, value) = (key.to_be_bytes(), value.to_be_bytes());
            key.into_iter().chain(value)
        });
        let settings: Vec<u8> = settings.collect();
        it.write(&[PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat()).await?;
        Ok(it)
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The peer accepts no more.
    pub async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.write(&frame(kind, flags, stream, payload)).await
    }

    /// Starts a request; `ended`: it has no body.
    ///
    /// # Errors
    /// The peer accepts no more.
    pub async fn begin(&mut self, stream: u32, block: &Block, ended: bool) -> io::Result<()> {
        let flags = if ended { END_HEADERS | END_STREAM } else { END_HEADERS };
        self.requests += 1;
        self.send(HEADERS, flags, stream, block.bytes()).await
    }

    /// The next frame: type, flags, stream, payload.
    ///
    /// # Errors
    /// The connection ends.
    pub async fn next(&mut self) -> io::Result<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, s, t, u, v] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload).await?;
        Ok((kind, flags, u32::from_be_bytes([s, t, u, v]), payload))
    }

    /// Number of requests started.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Bytes sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The socket; nothing was read ahead.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sent += bytes.len() as u64;
        self.stream.write_all(bytes).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_rfc() {
        // RFC 7541 C.3.1, and 5.1 with a prefix of seven bits.
        let block = Block::request("GET", "www.example.com", "/");
        assert_eq!(block.bytes()[..3], [0x82, 0x86, 0x84]);
        assert_eq!(block.bytes()[3..], *b"\x01\x0fwww.example.com");
        let long = Block::default().kept("x", &"v".repeat(4_000));
        assert_eq!(long.bytes()[..5], [0x40, 1, b'x', 127, 0xa1]);
        assert_eq!(long.bytes()[5], 0x1e);
        assert_eq!(long.newest(3).bytes()[4_006..], [0xbe; 3]);
        assert_eq!(frame(SETTINGS, 1, 0, b""), [0, 0, 0, 4, 1, 0, 0, 0, 0]);
    }
}
