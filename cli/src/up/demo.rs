//! A demo backend: answers every request with the name of its Service and the request as it was received, over HTTP/1.1
//! or HTTP/2, each with TLS or without, or over FastCGI. A gRPC call gets a status with the same text.
//!
//! **Invariant:** listens on loopback addresses only, and only within `firth up`.

mod fastcgi;
mod protocol;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::protocol::Protocol;
pub(super) use self::protocol::{Tls, acceptor};

/// The name of the Service that it stands for, which may change while it runs.
pub(super) type Name = watch::Receiver<Arc<str>>;

/// Binds an address.
///
/// # Errors
/// If it is not a loopback address, or is in use.
pub(super) fn bind(addr: SocketAddr) -> std::io::Result<TcpListener> {
    if !addr.ip().is_loopback() {
        return Err(std::io::Error::other("expected a loopback address"));
    }
    let listener = std::net::TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves until dropped, together with its connections.
pub(super) async fn serve(listener: TcpListener, addr: SocketAddr, name: Name, tls: Tls) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(converse(stream, addr, name.clone(), tls.clone()))),
                // Out of descriptors: retry later.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection. Clients that disconnect, or use another protocol, are not reported.
async fn converse(stream: TcpStream, addr: SocketAddr, name: Name, tls: Tls) {
    let Ok((stream, protocol)) = protocol::agree(stream, &tls).await else {
        return;
    };
    if protocol == Protocol::FastCgi {
        let name = name.borrow().clone();
        let _ = fastcgi::answer(stream, addr, &name).await;
        return;
    }
    let stream = TokioIo::new(stream);
    let service = service_fn(move |request| answer(request, addr, name.borrow().clone()));
    let _ = match protocol {
        Protocol::Http2 => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
        _ => http1::Builder::new().timer(TokioTimer::new()).serve_connection(stream, service).await,
    };
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
    let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let line = format!("{name} at {addr} answers {} {target}", head.method);
    if kind.starts_with(GRPC) {
        return Ok(unimplemented(&line));
    }
    let mut text = line + "\n";
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

const GRPC: &[u8] = b"application/grpc";

/// The response of a gRPC server to an unknown method: its message says who was reached.
fn unimplemented(message: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static("12"));
    // Percent-encoded, as gRPC has it.
    let message = message.replace('%', "%25");
    if let Ok(message) = HeaderValue::from_str(&message) {
        headers.insert("grpc-message", message);
    }
    response
}

#[cfg(test)]
mod tests;
