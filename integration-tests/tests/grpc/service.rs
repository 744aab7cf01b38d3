//! The server of gRPC's interop cases: tonic's codec over hyper's HTTP/2, in plain or over TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, HeaderValue, Request as HttpRequest, Response as HttpResponse};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::messages::*;

/// A server of the cases. Gone when dropped.
pub(crate) struct TestService {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    _server: JoinSet<()>,
}

/// What it saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Calls that were given up by their clients before they had an answer.
    pub(crate) cancelled: AtomicUsize,
    /// Calls that no answer comes of.
    pub(crate) waiting: AtomicUsize,
    /// Calls that had a deadline.
    pub(crate) deadlines: AtomicUsize,
    pub(crate) connections: AtomicUsize,
}

/// A size of which no answer comes: the client waits until it gives up.
pub(crate) const NEVER: i32 = -1;

/// A call that its client waits for in vain; dropped, the client has given it up.
struct Underway(Arc<Seen>);

impl Underway {
    fn begin(seen: &Arc<Seen>) -> Self {
        seen.waiting.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(seen))
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.cancelled.fetch_add(1, Ordering::SeqCst);
    }
}

impl TestService {
    /// In plain, or over TLS with this configuration.
    pub(crate) async fn start(tls: Option<rustls::ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Seen> = Arc::default();
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let mut server = JoinSet::new();
        let counts = Arc::clone(&seen);
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counts.connections.fetch_add(1, Ordering::SeqCst);
                stream.set_nodelay(true).unwrap();
                let (tls, seen) = (tls.clone(), Arc::clone(&counts));
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, seen).await,
                        Some(tls) => {
                            let stream = tls.accept(stream).await.unwrap();
                            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
                            serve(stream, seen).await;
                        }
                    }
                });
            }
        });
        Self { address, seen, _server: server }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, seen: Arc<Seen>) {
    let service = hyper::service::service_fn(move |request: HttpRequest<Incoming>| {
        let seen = Arc::clone(&seen);
        async move { Ok::<_, Infallible>(answer(request.map(Body::new), seen).await) }
    });
    // How a connection ends is seen by its client.
    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: HttpRequest<Body>, seen: Arc<Seen>) -> HttpResponse<Body> {
    if request.headers().contains_key("grpc-timeout") {
        seen.deadlines.fetch_add(1, Ordering::SeqCst);
    }
    let initial = request.headers().get(INITIAL).cloned();
    let trailing = request.headers().get(TRAILING).cloned();
    let mut response = call(request, seen).await;
    if let Some(value) = initial {
        response.headers_mut().insert(INITIAL, value);
    }
    match trailing {
        Some(value) => response.map(|body| Body::new(body.map_frame(move |frame| with(frame, &value)))),
        None => response,
    }
}

/// What a client has echoed in the head and behind the body of an answer.
pub(crate) const INITIAL: &str = "x-grpc-test-echo-initial";
/// See [`INITIAL`].
pub(crate) const TRAILING: &str = "x-grpc-test-echo-trailing-bin";

fn with(frame: Frame<bytes::Bytes>, value: &HeaderValue) -> Frame<bytes::Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            HeaderMap::insert(&mut trailers, TRAILING, value.clone());
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    }
}

async fn call(request: HttpRequest<Body>, seen: Arc<Seen>) -> HttpResponse<Body> {
    let method =
        request.uri().path().strip_prefix("/grpc.testing.TestService/").unwrap_or_default().to_owned();
    match method.as_str() {
        "EmptyCall" => {
            let service = service_fn(|_: Request<Empty>| async { Ok(Response::new(Empty {})) });
            Grpc::new(ProstCodec::default()).unary(service, request).await
        }
        "UnaryCall" => {
            let service = service_fn(move |request| unary(request, Arc::clone(&seen)));
            Grpc::new(ProstCodec::default()).unary(service, request).await
        }
        "StreamingInputCall" => {
            let service = service_fn(input);
            Grpc::new(ProstCodec::default()).client_streaming(service, request).await
        }
        "StreamingOutputCall" => {
            let service = service_fn(move |request: Request<OutputRequest>| {
                let seen = Arc::clone(&seen);
                async move {
                    let (out, answers) = mpsc::channel(1);
                    tokio::spawn(output(request.into_inner(), out, seen));
                    Ok(Response::new(ReceiverStream::new(answers)))
                }
            });
            Grpc::new(ProstCodec::default()).server_streaming(service, request).await
        }
        "FullDuplexCall" => {
            let service = service_fn(move |request: Request<Streaming<OutputRequest>>| {
                let seen = Arc::clone(&seen);
                async move {
                    let (out, answers) = mpsc::channel(1);
                    tokio::spawn(duplex(request.into_inner(), out, seen));
                    Ok(Response::new(ReceiverStream::new(answers)))
                }
            });
            Grpc::new(ProstCodec::default()).streaming(service, request).await
        }
        _ => Status::unimplemented("no such method").into_http(),
    }
}

/// The status that a client wants to have, if it wants one.
fn wanted(status: Option<EchoStatus>) -> Result<(), Status> {
    match status {
        Some(EchoStatus { code, message }) if code != 0 => Err(Status::new(Code::from_i32(code), message)),
        _ => Ok(()),
    }
}

async fn unary(request: Request<SimpleRequest>, seen: Arc<Seen>) -> Result<Response<SimpleResponse>, Status> {
    let request = request.into_inner();
    if request.response_size == NEVER {
        let _underway = Underway::begin(&seen);
        return std::future::pending().await;
    }
    wanted(request.response_status)?;
    Ok(Response::new(SimpleResponse { payload: payload(request.response_size) }))
}

async fn input(request: Request<Streaming<InputRequest>>) -> Result<Response<InputResponse>, Status> {
    let (mut messages, mut total) = (request.into_inner(), 0);
    while let Some(message) = messages.message().await? {
        total += size(message.payload.as_ref());
    }
    Ok(Response::new(InputResponse { aggregated_payload_size: total }))
}

async fn output(request: OutputRequest, out: mpsc::Sender<Result<OutputResponse, Status>>, seen: Arc<Seen>) {
    for wanted in request.response_parameters {
        if wanted.size == NEVER {
            let _underway = Underway::begin(&seen);
            return out.closed().await;
        }
        if out.send(Ok(OutputResponse { payload: payload(wanted.size) })).await.is_err() {
            return;
        }
    }
    if let Err(status) = wanted(request.response_status) {
        let _ = out.send(Err(status)).await;
    }
}

async fn duplex(
    mut messages: Streaming<OutputRequest>,
    out: mpsc::Sender<Result<OutputResponse, Status>>,
    seen: Arc<Seen>,
) {
    while let Ok(Some(message)) = messages.message().await {
        output(message, out.clone(), Arc::clone(&seen)).await;
    }
}
