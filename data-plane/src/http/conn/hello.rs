//! What a client of TLS says first, with its bytes as they came: they may be another's to answer.

use std::io;

use bytes::BytesMut;
use rustls::server::{Accepted, Acceptor};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::local::buffers::Buffers;
use crate::local::opening;

/// What a client of TLS says first: the type of a record that holds a part of a handshake (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Bytes until a hello is whole: what the largest record holds. Those of browsers have less than 2 KiB, with keys that
/// quantum computers do not break.
const HELLO: usize = 16 * 1024;

/// What a connection to a port of TLS begins with.
pub(super) enum Hello {
    /// Something else than TLS.
    Plain,
    /// A hello, of so many bytes.
    Tls(Box<Accepted>, usize),
}

/// Reads a client's hello. All that came stays in `input`.
///
/// # Errors
/// The connection's, and TLS': the client is told what is wrong.
pub(super) async fn read(
    buffers: &Buffers,
    stream: &mut TcpStream,
    input: &mut BytesMut,
) -> io::Result<Hello> {
    let mut acceptor = Acceptor::default();
    let mut fed = 0;
    loop {
        if input.first().is_some_and(|first| *first != TLS_HANDSHAKE) {
            return Ok(Hello::Plain);
        }
        while fed < input.len() {
            match acceptor.read_tls(&mut &input[fed..])? {
                0 => break,
                count => fed += count,
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => return Ok(Hello::Tls(Box::new(accepted), fed)),
                Ok(None) => {}
                Err((error, mut alert)) => {
                    let mut said = Vec::new();
                    alert.write_all(&mut said)?;
                    stream.write_all(&said).await?;
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
        }
        if input.len() >= HELLO {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the hello is too long"));
        }
        opening::more(buffers, stream, input).await?;
    }
}
