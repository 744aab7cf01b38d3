//! Asks an OCSP responder once: one connection, one request, one short response.
//!
//! **Invariant:** redirects are not followed.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::places::Places;
use super::question::Question;
use crate::codec::guard::Limits;
use crate::codec::h1::{Body, BodyReader, ResponseReader};
use crate::local::names::Names;

/// Time limit for resolving the host.
const LOOKUP: Duration = Duration::from_secs(2);
/// Time limits for connecting and for sending, as in nginx.
const CONNECT: Duration = Duration::from_secs(1);
const SEND: Duration = Duration::from_secs(1);
/// Time limit for reading the whole response.
const READ: Duration = Duration::from_secs(2);
/// Maximum number of addresses that are tried.
const ADDRESSES: usize = 2;
/// Maximum size of a response head, in bytes.
const HEAD: usize = 8 * 1024;
/// Maximum size of the OCSP response.
pub(super) const LONGEST: usize = 10 * 1024;

/// Why there is no response.
#[derive(Debug, Error)]
pub(super) enum Unanswered {
    #[error("its name has no address")]
    Name,
    #[error("{0} is in no network where responders may be (--ocsp-networks)")]
    Place(SocketAddr),
    #[error("it cannot be reached")]
    Unreached,
    #[error("it takes too long")]
    Late,
    #[error("its answer is not HTTP, or too long")]
    Malformed,
    #[error("it answers {0}")]
    Status(u16),
}

/// The bytes of a response.
///
/// # Errors
/// Why there are none.
pub(super) async fn fetch(
    names: &Names,
    places: &Places,
    question: &Question,
) -> Result<Vec<u8>, Unanswered> {
    let resolving = timeout(LOOKUP, names.resolve(&question.owner, &question.host, question.port));
    let addresses = resolving.await.map_err(|_| Unanswered::Late)?.map_err(|_| Unanswered::Name)?;
    let mut failed = Unanswered::Name;
    for address in addresses.into_iter().take(ADDRESSES) {
        // Checked when connecting, on the very address that is used: the name is not resolved again.
        if !places.may(address.ip()) {
            failed = Unanswered::Place(address);
            continue;
        }
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return exchange(stream, &question.text).await,
            Ok(Err(_)) | Err(_) => failed = Unanswered::Unreached,
        }
    }
    Err(failed)
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    text: &[u8],
) -> Result<Vec<u8>, Unanswered> {
    let sent = timeout(SEND, stream.write_all(text)).await;
    sent.map_err(|_| Unanswered::Late)?.map_err(|_| Unanswered::Unreached)?;
    timeout(READ, answer(&mut stream)).await.map_err(|_| Unanswered::Late)?
}

async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, Unanswered> {
    let mut reader = ResponseReader::new(Limits::response(HEAD));
    let mut input = BytesMut::with_capacity(4096);
    let head = loop {
        if let Some(head) = reader.feed(&mut input, false).map_err(|_| Unanswered::Malformed)? {
            break head;
        }
        if stream.read_buf(&mut input).await.map_err(|_| Unanswered::Malformed)? == 0 {
            return Err(Unanswered::Malformed);
        }
    };
    if head.status != 200 {
        return Err(Unanswered::Status(head.status));
    }
    let (mut body, mut bytes) = (BodyReader::new(head.framing), Vec::new());
    loop {
        match body.next(&mut input).map_err(|_| Unanswered::Malformed)? {
            Body::End => return Ok(bytes),
            Body::Data(piece) if bytes.len() + piece.len() <= LONGEST => bytes.extend_from_slice(&piece),
            Body::Data(_) => return Err(Unanswered::Malformed),
            Body::Need => {
                if stream.read_buf(&mut input).await.map_err(|_| Unanswered::Malformed)? == 0 {
                    body.close().map_err(|_| Unanswered::Malformed)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// The result for this response, after which the connection ends or stays open.
    async fn fetched(answer: &[u8], ends: bool) -> Result<Vec<u8>, String> {
        let (near, mut far) = duplex(64 * 1024);
        far.write_all(answer).await.unwrap();
        let far = if ends { far.shutdown().await.map(|()| far).unwrap() } else { far };
        let told = exchange(near, b"ask").await.map_err(|error| error.to_string());
        drop(far);
        told
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_short_and_comes_in_time() {
        let with = |length: usize| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            [head.into_bytes(), vec![7; length]].concat()
        };
        assert_eq!(fetched(&with(LONGEST), false).await.unwrap().len(), LONGEST);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        assert_eq!(fetched(chunked, false).await.unwrap(), b"abc");
        assert_eq!(fetched(b"HTTP/1.0 200 OK\r\n\r\nabc", true).await.unwrap(), b"abc");
        for (answer, ends, why) in [
            (with(LONGEST + 1), false, Unanswered::Malformed),
            (b"HTTP/1.1 200 OK\r\n\r\nabc".to_vec(), false, Unanswered::Late),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc".to_vec(), true, Unanswered::Malformed),
            (
                b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n".to_vec(),
                true,
                Unanswered::Status(302),
            ),
            (b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), false, Unanswered::Status(100)),
            (b"SSH-2.0\r\n".to_vec(), true, Unanswered::Malformed),
            (vec![b'x'; 2 * HEAD], false, Unanswered::Malformed),
            (Vec::new(), false, Unanswered::Late),
            (Vec::new(), true, Unanswered::Malformed),
        ] {
            assert_eq!(fetched(&answer, ends).await.unwrap_err(), why.to_string());
        }
    }
}
