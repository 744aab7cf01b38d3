//! The beginning of a connection, read before any protocol is negotiated: a load balancer's PROXY header, and the
//! first bytes of the client.
//!
//! **Invariant:** a connection on which nothing has arrived holds no buffer, and one on which little has, a small one;
//! beyond that a waiting PROXY header is charged (a ClientHello is charged by its caller).

use std::future::poll_fn;
use std::io;
use std::rc::Rc;

use bytes::{Buf, BytesMut};

use super::buffers::{Buffers, LITTLE};
use super::quota::Quota;
use crate::codec::proxy_protocol::{self, Ends};
use crate::codec::stream::Stream;

/// Reads more from a connection.
///
/// # Errors
/// An I/O error, or the end of the connection.
pub(crate) async fn more<S: Stream>(
    buffers: &Buffers,
    stream: &mut S,
    input: &mut BytesMut,
) -> io::Result<()> {
    let count = poll_fn(|cx| buffers.poll_more(stream, input, cx));
    match count.await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Reads a PROXY header: returns the addresses in it, if any.
///
/// # Errors
/// An I/O error, or the connection does not begin with a header; or too much is held for clients.
pub(crate) async fn header<S: Stream>(
    (buffers, quota): (&Buffers, &Rc<Quota>),
    stream: &mut S,
    input: &mut BytesMut,
) -> io::Result<Option<Ends>> {
    let mut share = None;
    loop {
        match proxy_protocol::parse(input) {
            Ok(Some(header)) => {
                input.advance(header.length);
                return Ok(header.ends);
            }
            Ok(None) if input.len() > LITTLE && !quota.cover(&mut share, input.capacity()) => {
                return Err(io::Error::other("too much is held for clients"));
            }
            Ok(None) => more(buffers, stream, input).await?,
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use shared::budget::Budget;

    use super::*;

    fn quota() -> Rc<Quota> {
        Quota::new(Budget::new(1 << 20))
    }

    #[tokio::test]
    async fn a_header_is_taken_off_and_the_rest_stays() {
        let buffers = Buffers::new();
        let (mut client, mut near) = tokio::io::duplex(64);
        let mut input = BytesMut::new();
        let writing = async {
            for piece in [&b"PROXY TCP4 192.0.2.7"[..], b" 192.0.2.8 1 2\r", b"\nGET /"] {
                client.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let quota = quota();
        let (ends, ()) = tokio::join!(header((&buffers, &quota), &mut near, &mut input), writing);
        assert_eq!(ends.unwrap().unwrap().source, "192.0.2.7:1".parse().unwrap());
        assert_eq!(input, "GET /");
    }

    #[tokio::test]
    async fn little_of_it_waits_in_a_small_buffer() {
        let buffers = Buffers::new();
        let (mut client, mut near) = tokio::io::duplex(64);
        let mut input = BytesMut::new();
        client.write_all(b"PROXY").await.unwrap();
        let quota = quota();
        let mut waiting = Box::pin(header((&buffers, &quota), &mut near, &mut input));
        assert!(futures::poll!(&mut waiting).is_pending());
        assert_eq!(quota.held(), 0);
        drop(waiting);
        assert_eq!(input, "PROXY");
        assert!(input.capacity() <= 4 * 1024, "{}", input.capacity());
    }

    #[tokio::test]
    async fn much_of_it_is_charged_while_it_waits() {
        let buffers = Buffers::new();
        // Version 2 with 4,000 bytes of extensions, of which most arrive.
        let most = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x0f\xa0", &[0; 3_000][..]].concat();
        for (limit, is_taken) in [(1 << 20, true), (1 << 10, false)] {
            let (mut client, mut near) = tokio::io::duplex(8 * 1024);
            let (quota, mut input) = (Quota::new(Budget::new(limit)), BytesMut::new());
            client.write_all(&most).await.unwrap();
            let mut waiting = Box::pin(header((&buffers, &quota), &mut near, &mut input));
            assert_eq!(futures::poll!(&mut waiting).is_pending(), is_taken);
            assert_eq!(quota.held() >= most.len(), is_taken);
            drop(waiting);
            assert_eq!(quota.held(), 0);
        }
    }

    #[tokio::test]
    async fn missing_or_truncated_proxy_header_is_an_error() {
        let buffers = Buffers::new();
        for (bytes, kind) in [
            (&b"GET / HTTP/1.1\r\n"[..], io::ErrorKind::InvalidData),
            (b"PROXY T", io::ErrorKind::UnexpectedEof),
        ] {
            let (mut client, mut near) = tokio::io::duplex(64);
            client.write_all(bytes).await.unwrap();
            drop(client);
            let error = header((&buffers, &quota()), &mut near, &mut BytesMut::new()).await.unwrap_err();
            assert_eq!(error.kind(), kind);
        }
    }
}
