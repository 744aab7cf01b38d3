//! Large bodies over HTTP/2, in both directions, with clients of every speed.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use data_plane::local::Limits;
use data_plane::table::Sizes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use shared::resource::PathType;
use socket2::SockRef;
use test_kit::client::tls::trusting;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, Sleep, sleep};

use super::harness::*;

/// A client, and how it reads responses.
#[derive(Clone, Copy, Debug)]
struct Client {
    tls: bool,
    /// Windows of a stream and of the connection.
    windows: (u32, u32),
    /// It pauses after this many bytes.
    rests_after: usize,
    streams: usize,
    /// Bytes of each body, up and down.
    bytes: usize,
    /// Whether responses are chunked.
    chunked: bool,
}

/// A connection that is read a part at a time, with a pause after each.
struct Resting<S> {
    stream: S,
    most: usize,
    left: usize,
    rest: Pin<Box<Sleep>>,
}

impl<S> Resting<S> {
    fn new(stream: S, most: usize) -> Self {
        Self { stream, most, left: most, rest: Box::pin(sleep(Duration::ZERO)) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Resting<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, most, left, rest } = self.get_mut();
        if *left == 0 {
            ready!(rest.as_mut().poll(cx));
            *left = *most;
        }
        let mut part = [0; 4096];
        let room = part.len().min(*left).min(into.remaining());
        let mut part = ReadBuf::new(&mut part[..room]);
        ready!(Pin::new(stream).poll_read(cx, &mut part))?;
        into.put_slice(part.filled());
        *left -= part.filled().len();
        if *left == 0 {
            rest.as_mut().reset(Instant::now() + Duration::from_millis(2));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Resting<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// A backend that responds with a body as long as the request's.
fn echo(chunked: bool) -> Origin {
    Origin::new(move |seen| {
        let length = seen.body.len();
        assert!(seen.body.iter().all(|byte| *byte == b'u'));
        let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
        if chunked {
            answer.extend(b"Transfer-Encoding: chunked\r\n\r\n");
            for part in vec![b'd'; length].chunks(50_000) {
                answer.extend(format!("{:x}\r\n", part.len()).bytes());
                answer.extend(part);
                answer.extend(b"\r\n");
            }
            answer.extend(b"0\r\n\r\n");
        } else {
            answer.extend(format!("Content-Length: {length}\r\n\r\n").bytes());
            answer.resize(answer.len() + length, b'd');
        }
        (answer, true)
    })
}

#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn connect(proxy: &Proxy, client: Client) -> SendRequest<Full<Bytes>> {
    async fn speak<S>(stream: S, (stream_window, connection_window): (u32, u32)) -> SendRequest<Full<Bytes>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(stream_window).initial_connection_window_size(connection_window);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }
    let socket = TcpSocket::new_v4().unwrap();
    // The kernel buffers little for a client that pauses.
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    // As over a network: a segment that does not fit its window is sent by a timer only, a part at a time.
    SockRef::from(&socket).set_tcp_mss(1_400).unwrap();
    let stream: TcpStream = socket.connect(if client.tls { proxy.https } else { proxy.http }).await.unwrap();
    let stream = Resting::new(stream, client.rests_after);
    if !client.tls {
        return speak(stream, client.windows).await;
    }
    let connector = tokio_rustls::TlsConnector::from(Arc::new(trusting(&[b"h2"])));
    let name = ServerName::try_from("a.test").unwrap();
    speak(connector.connect(name, stream).await.unwrap(), client.windows).await
}

/// All of its bodies pass completely in both directions, and each is ended.
fn passes(client: Client) {
    let origin = echo(client.chunked);
    let sizes = Sizes { body: 0, ..Sizes::default() };
    let mut proxy = Proxy::with(Limits { sizes, ..Limits::default() });
    proxy.host("a.test", client.tls, &[("/", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sender = connect(&proxy, client).await;
        let asked: Vec<_> = (0..client.streams)
            .map(|_| {
                let mut sender = sender.clone();
                async move {
                    let body = Full::new(Bytes::from(vec![b'u'; client.bytes]));
                    let asked = Request::post(if client.tls { "https://a.test/" } else { "http://a.test/" })
                        .body(body)
                        .unwrap();
                    let answer = sender.send_request(asked).await.unwrap();
                    assert_eq!(answer.status(), 200);
                    let body = answer.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(body.len(), client.bytes);
                }
            })
            .collect();
        let all = futures::future::join_all(asked);
        assert!(tokio::time::timeout(PATIENCE, all).await.is_ok(), "{client:?} waits for ever");
    });
}

#[test]
fn a_client_that_rests_gets_all_of_it() {
    for (tls, chunked) in [(true, false), (false, false), (true, true)] {
        let windows = (1 << 24, 1 << 24);
        passes(Client { tls, windows, rests_after: 60_000, streams: 1, bytes: 5_000_000, chunked });
    }
}

#[test]
fn many_streams_share_what_windows_there_are() {
    const LEAST: u32 = 65_535;
    for (window, connection, streams, bytes) in [
        (1, LEAST, 3, 200),
        (100, LEAST, 20, 10_000),
        (16_384, LEAST, 40, 100_000),
        (LEAST, LEAST, 100, 40_000),
        (1 << 20, LEAST, 5, 1_000_000),
        (1 << 20, 1 << 20, 5, 1_000_000),
    ] {
        for (place, rests_after) in [2_000, 50_000].into_iter().enumerate() {
            // A slow reader would take too long for the full size.
            let bytes = bytes.min(rests_after * 100 / streams);
            let (tls, chunked) = (place == 1, place == 1);
            passes(Client { tls, windows: (window, connection), rests_after, streams, bytes, chunked });
        }
    }
}
