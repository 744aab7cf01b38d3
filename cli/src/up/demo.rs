//! A demo backend: answers every request with the name of its Service and what it saw of the request.
//!
//! **Invariant:** listens on loopback addresses only, and only within `firth up`.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The name of the Service that a backend plays, which may change while it runs.
pub(super) type Name = watch::Receiver<Arc<str>>;

/// Binds an address.
///
/// # Errors
/// Where it is not a loopback address, or is in use.
pub(super) fn bind(addr: SocketAddr) -> std::io::Result<TcpListener> {
    if !addr.ip().is_loopback() {
        return Err(std::io::Error::other("expected a loopback address"));
    }
    let listener = std::net::TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves until dropped; its connections end with it.
pub(super) async fn serve(listener: TcpListener, addr: SocketAddr, name: Name) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let name = name.clone();
                    connections.spawn(async move {
                        let service = service_fn(move |request| answer(request, addr, name.borrow().clone()));
                        let connection = http1::Builder::new()
                            .timer(TokioTimer::new())
                            .serve_connection(TokioIo::new(stream), service);
                        // A client that went away is no news here.
                        let _ = connection.await;
                    });
                }
                // Out of descriptors: later is better.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    addr: SocketAddr,
    name: Arc<str>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, mut body) = request.into_parts();
    let mut size = 0;
    while let Some(Ok(frame)) = body.frame().await {
        size += frame.data_ref().map_or(0, Bytes::len);
    }
    let mut text = format!("{name} at {addr} answers {} {}\n", head.method, head.uri);
    for (name, value) in &head.headers {
        let _ = writeln!(text, "  {name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    if size > 0 {
        let _ = writeln!(text, "  and a body of {size} bytes");
    }
    let mut response = Response::new(Full::new(Bytes::from(text)));
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn only_loopback_is_bound() {
        assert!(bind("0.0.0.0:0".parse().unwrap()).is_err());
    }

    #[tokio::test]
    async fn says_who_it_is_and_what_it_saw() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        let (_sender, name) = watch::channel(Arc::from("default/web"));
        let client = async {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            let request = b"POST /cart?x=1 HTTP/1.1\r\nHost: a.test\r\nX-Canary: always\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
            stream.write_all(request).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = tokio::select! {
            answer = client => answer,
            () = serve(listener, addr, name) => unreachable!(),
        };
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let expected =
            format!("default/web at {addr} answers POST /cart?x=1\n  host: a.test\n  x-canary: always\n");
        assert!(answer.contains(&expected), "{answer}");
        assert!(answer.ends_with("and a body of 3 bytes\n"), "{answer}");
    }
}
