//! The ClientHello of a TLS connection, with its original bytes: with TLS passthrough they are forwarded to a backend.

use std::io;

use bytes::BytesMut;
use rustls::server::{Accepted, Acceptor};
use tokio::io::AsyncWriteExt as _;

use crate::codec::stream::Socket;
use crate::local::quota::Share;
use crate::local::{Local, opening};

/// Record type of a TLS handshake message (RFC 8446 section 5.1), which a ClientHello begins with.
const TLS_HANDSHAKE: u8 = 22;

/// Maximum size of a ClientHello: what the largest record holds. Those of browsers are below 2 KiB, including
/// post-quantum key shares.
const HELLO: usize = 16 * 1024;

/// Memory of a handshake in progress: the ClientHello, then signatures and the certificates being sent.
pub(super) const HANDSHAKE: usize = 32 * 1024;

/// How a connection to a TLS port begins.
pub(super) enum Hello {
    /// Not TLS.
    Plain,
    /// A ClientHello, and its length in bytes.
    Tls(Box<Accepted>, usize),
}

/// Reads a ClientHello. All received bytes stay in `input`; `share` is what a handshake takes, from its first byte on:
/// the largest hello and its copy here take as much.
///
/// # Errors
/// An I/O or TLS error, in case of the latter the client is sent an alert; or too much is held for clients.
pub(super) async fn read(
    local: &Local,
    stream: &mut Socket,
    input: &mut BytesMut,
    share: &mut Option<Share>,
) -> io::Result<Hello> {
    let mut acceptor = Acceptor::default();
    let mut fed = 0;
    loop {
        if input.first().is_some_and(|first| *first != TLS_HANDSHAKE) {
            return Ok(Hello::Plain);
        }
        if share.is_none() && !input.is_empty() {
            *share = local.quota.open(HANDSHAKE);
            if share.is_none() {
                return Err(io::Error::other("too much is held for clients"));
            }
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
                    let mut alert_bytes = Vec::new();
                    alert.write_all(&mut alert_bytes)?;
                    stream.write_all(&alert_bytes).await?;
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
        }
        if input.len() >= HELLO {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the hello is too long"));
        }
        opening::more(&local.buffers, stream, input).await?;
    }
}
