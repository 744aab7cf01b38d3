//! The client: one connection, one request after the other, so that every run is like the last.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{Builder as Http2, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::Resumption;
use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use test_kit::client::tls::trusting;
use tokio::runtime::{Builder, Runtime};

use super::harness::Origin;

/// The response body of an endpoint.
const BODY: [u8; 64] = [b'x'; 64];

/// The headers of a browser's request.
const FIELDS: [(&str, &str); 5] = [
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("origin", "https://a.com"),
];

/// An endpoint that sends each response with one write.
pub(crate) fn endpoint() -> Origin {
    Origin::raw(|mut stream, _, _| {
        stream.set_nodelay(true).unwrap();
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nServer: some\r\nDate: Sat, 21 Nov 2026 00:00:00 GMT\r\nContent-Type: text/plain\r\n\
             Content-Length: {}\r\nConnection: keep-alive\r\n\r\n",
            BODY.len()
        )
        .into_bytes();
        answer.extend_from_slice(&BODY);
        let (mut buffer, mut filled) = ([0; 4096], 0);
        while let Ok(count @ 1..) = stream.read(&mut buffer[filled..]) {
            filled += count;
            if buffer[..filled].ends_with(b"\r\n\r\n") {
                filled = 0;
                if stream.write_all(&answer).is_err() {
                    break;
                }
            }
        }
    })
}

/// Bytes of a long response.
pub(crate) const LONG: usize = 1 << 20;

/// An endpoint with responses of this length.
pub(crate) fn endpoint_of_long_answers() -> Origin {
    Origin::new(|_| {
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n").into_bytes();
        answer.resize(answer.len() + LONG, b'x');
        (answer, true)
    })
}

/// A TCP echo server.
pub(crate) fn endpoint_that_echoes() -> Origin {
    Origin::raw(|mut stream, _, _| {
        let mut buffer = vec![0; LONG / 8];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
    })
}

/// A client that sends as much to a TCP service, and reads the echo.
pub(crate) fn session(address: SocketAddr) -> Ask {
    let mut stream = connected(address);
    let mut writes = stream.try_clone().unwrap();
    let sent = vec![b'x'; LONG];
    Box::new(move |_| {
        std::thread::scope(|scope| {
            scope.spawn(|| writes.write_all(&sent).unwrap());
            let mut heard = vec![0; LONG];
            stream.read_exact(&mut heard).unwrap();
            assert!(heard == sent);
        });
    })
}

/// A client that sends bodies of this length.
pub(crate) fn http1_sending(address: SocketAddr) -> Ask {
    let mut client = super::harness::Client { stream: connected(address) };
    let mut request = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {LONG}\r\n\r\n");
    request.extend(std::iter::repeat_n('x', LONG));
    Box::new(move |_| assert_eq!(client.ask(&request).status, 200))
}

/// A client with a new connection for each request.
pub(crate) fn http1_once(address: SocketAddr) -> Ask {
    Box::new(move |_| {
        let mut client = super::harness::Client { stream: connected(address) };
        let answer = client.ask("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        assert!(answer.status == 200 && client.ended());
    })
}

/// The same, with a request that is answered here and ends the connection, which the client did not ask for.
pub(crate) fn http1_refused(address: SocketAddr) -> Ask {
    Box::new(move |_| {
        let mut client = super::harness::Client { stream: connected(address) };
        let answer = client.get("/%00");
        assert!(answer.status == 400 && client.ended());
    })
}

/// A client with a new connection for each request over TLS, each with a full handshake.
pub(crate) fn http1_once_over_tls(address: SocketAddr, host: &str) -> Ask {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut forgetful = trusting(&[b"http/1.1"]);
    forgetful.resumption = Resumption::disabled();
    let config = Arc::new(forgetful);
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    Box::new(move |_| {
        let session = ClientConnection::new(Arc::clone(&config), name.clone()).unwrap();
        let mut stream = StreamOwned::new(session, connected(address));
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // Including close_notify.
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(&BODY));
    })
}

/// A client that reads long responses.
pub(crate) fn http1_long(address: SocketAddr) -> Ask {
    let mut client = super::harness::Client { stream: connected(address) };
    Box::new(move |_| assert_eq!(client.get("/").body.len(), LONG))
}

/// Sends a request to one of many hosts, by its number.
pub(crate) type Ask = Box<dyn FnMut(usize) + Send>;

/// An HTTP/1.1 client.
pub(crate) fn http1(address: SocketAddr, hosts: &[impl AsRef<str>], target: &str) -> Ask {
    lines(connected(address), hosts, target)
}

/// The same over TLS.
pub(crate) fn http1_over_tls(address: SocketAddr, host: &str, target: &str) -> Ask {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let session = ClientConnection::new(Arc::new(trusting(&[b"http/1.1"])), name).unwrap();
    lines(StreamOwned::new(session, connected(address)), &[host], target)
}

/// A connection without any data yet.
pub(crate) fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(super::harness::PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn lines(mut stream: impl Read + Write + Send + 'static, hosts: &[impl AsRef<str>], target: &str) -> Ask {
    let fields: String = FIELDS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = |host: &_| {
        format!("GET {target} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", AsRef::<str>::as_ref(host)).into_bytes()
    };
    let requests: Vec<_> = hosts.iter().map(request).collect();
    Box::new(move |number| {
        stream.write_all(&requests[number % requests.len()]).unwrap();
        stream.flush().unwrap();
        let (mut buffer, mut filled) = ([0; 4096], 0);
        while !buffer[..filled].ends_with(&BODY) {
            let count = stream.read(&mut buffer[filled..]).unwrap();
            assert!(count > 0, "the proxy hung up");
            filled += count;
            assert!(buffer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&buffer[..filled]));
        }
    })
}

/// An HTTP/2 client over TLS.
pub(crate) fn http2_over_tls(address: SocketAddr, host: &str, target: &str) -> Ask {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut sender = runtime.block_on(http2(address, host));
    let uri = format!("https://{host}{target}");
    Box::new(move |_| {
        let mut request = Request::get(&uri);
        for (name, value) in FIELDS {
            request = request.header(name, value);
        }
        let answer = sender.send_request(request.body(Empty::new()).unwrap());
        ask(&runtime, async {
            let answer = answer.await.unwrap();
            assert_eq!(answer.status(), 200);
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), BODY[..]);
        });
    })
}

/// One that reads long responses, over plain HTTP/2, with windows for a whole one.
pub(crate) fn http2_long(address: SocketAddr) -> Ask {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut sender = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        speaking(stream).await
    });
    Box::new(move |_| {
        let answer = sender.send_request(Request::get("http://a.test/").body(Empty::new()).unwrap());
        ask(&runtime, async {
            let body = answer.await.unwrap().into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes().len(), LONG);
        });
    })
}

fn ask(runtime: &Runtime, request: impl Future<Output = ()>) {
    runtime.block_on(async { tokio::time::timeout(super::harness::PATIENCE, request).await.unwrap() });
}

async fn http2(address: SocketAddr, host: &str) -> SendRequest<Empty<Bytes>> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(trusting(&[b"h2"])));
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    speaking(stream).await
}

/// An HTTP/2 client on a connection.
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn speaking(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
) -> SendRequest<Empty<Bytes>> {
    let mut builder = Http2::new(TokioExecutor::new());
    builder.initial_stream_window_size(4 << 20).initial_connection_window_size(16 << 20);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}
