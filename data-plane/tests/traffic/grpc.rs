//! gRPC over HTTP/2: trailers, streams in both directions, cancellation, TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use data_plane::local::{Budgets, Limits};
use h2::server::SendResponse;
use h2::{RecvStream, client, server};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use shared::policy::{BackendProtocol, BackendTls, HostPolicy, LocationPolicy, StatusList, TextList};
use shared::resource::{Host, PathType, Resource, Route};
use test_kit::certificates::Authority;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::authority::identity;
use super::backend_tls::server as tls_server;
use super::errors::answers;
use super::harness::*;

/// Number of cancelled streams that the origin has seen.
static CANCELLED: AtomicUsize = AtomicUsize::new(0);
static REACHED: AtomicUsize = AtomicUsize::new(0);

/// Bytes that an endpoint sends at once: less than the window of a call.
const FLOOD: usize = 100_000;

/// More than all sockets on the way hold.
static ENDLESS: [u8; 32 << 20] = [0; 32 << 20];

/// Returns the proxies, which must be dropped outside of the runtime.
pub(crate) fn run<T>(test: impl Future<Output = T>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let proxies = runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.unwrap() });
    drop(runtime);
    drop(proxies);
}

/// A proxy of `a.test` with this protocol.
pub(crate) fn proxy(addresses: &[SocketAddr], policy: LocationPolicy, protocol: BackendProtocol) -> Proxy {
    let mut proxy = Proxy::serving(Limits::default(), addresses);
    let policy = LocationPolicy { backend_protocol: Some(protocol.into()), ..policy };
    let paths = vec![to("/", PathType::Prefix, "echo")];
    let route = Route { paths, policy, ..Route::default() };
    proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
    proxy
}

/// An endpoint that speaks only HTTP/2 and echoes each message as it arrives.
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn echo(tls: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                if !tls {
                    return serve(stream).await;
                }
                let mut config = Arc::unwrap_or_clone(tls_server());
                config.alpn_protocols = vec![b"h2".to_vec()];
                let stream = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
                assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
                serve(stream).await;
            });
        }
    });
    address
}

#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let Ok(mut connection) = server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond));
    }
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let mut head = Response::new(());
    head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    for (name, value) in [
        ("x-path", request.uri().path()),
        ("x-scheme-seen", request.uri().scheme_str().unwrap_or_default()),
        ("x-authority", request.uri().authority().map_or("", |it| it.as_str())),
    ] {
        head.headers_mut().insert(name, value.parse().unwrap());
    }
    if let Some(te) = request.headers().get("te") {
        head.headers_mut().insert("x-te", te.clone());
    }
    let path = request.uri().path().to_owned();
    if path == "/missing" {
        *head.status_mut() = StatusCode::NOT_FOUND;
    }
    if path == "/own" {
        let own = [("server", "own"), ("x-accel-expires", "1"), ("x-own", "2"), ("x-hidden", "3")];
        for (name, value) in own {
            head.headers_mut().insert(name, HeaderValue::from_static(value));
        }
    }
    if path == "/trailers-only" {
        head.headers_mut().insert("grpc-status", HeaderValue::from_static("5"));
        let _ = respond.send_response(head, true);
        return;
    }
    let mut body = request.into_body();
    if path == "/flood" {
        let mut out = respond.send_response(head, false).unwrap();
        out.send_data(vec![b'x'; FLOOD].into(), false).unwrap();
        return std::future::pending().await;
    }
    if path == "/endless" {
        let mut out = respond.send_response(head, false).unwrap();
        out.send_data(Bytes::from_static(&ENDLESS), true).unwrap();
        let _ = std::future::poll_fn(|cx| out.poll_reset(cx)).await;
        return;
    }
    if path.starts_with("/pieces") {
        if path.ends_with("/length") {
            head.headers_mut().insert("content-length", HeaderValue::from_static("5"));
        }
        let mut out = respond.send_response(head, false).unwrap();
        for (piece, is_last) in [("he", false), ("", false), ("llo", false), ("", true)] {
            out.send_data(Bytes::from_static(piece.as_bytes()), is_last).unwrap();
        }
        return;
    }
    if path == "/stalled" {
        return std::future::pending().await;
    }
    if path == "/taken" {
        while let Some(Ok(piece)) = body.data().await {
            body.flow_control().release_capacity(piece.len()).unwrap();
        }
        return std::future::pending().await;
    }
    if path == "/silent" {
        while let Some(Ok(_)) = body.data().await {}
        REACHED.fetch_add(1, Ordering::Relaxed);
        // Reset, or its connection was closed.
        let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
        CANCELLED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut out = respond.send_response(head, false).unwrap();
    while let Some(Ok(piece)) = body.data().await {
        body.flow_control().release_capacity(piece.len()).unwrap();
        let _ = out.send_data(piece, false);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let _ = out.send_trailers(trailers);
}

pub(crate) async fn sender(proxy: &Proxy) -> client::SendRequest<Bytes> {
    sender_with(proxy, &client::Builder::new()).await
}

#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn sender_with(proxy: &Proxy, builder: &client::Builder) -> client::SendRequest<Bytes> {
    let stream = TcpStream::connect(proxy.http).await.unwrap();
    let (sender, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) fn call(path: &str) -> Request<()> {
    let request = Request::post(format!("http://a.test{path}"));
    request.header("content-type", "application/grpc").header("te", "trailers").body(()).unwrap()
}

pub(crate) async fn whole(body: &mut RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        all.extend_from_slice(&piece);
    }
    (all, body.trailers().await.unwrap())
}

#[test]
fn a_call_passes_with_its_trailers_in_plain_and_over_tls() {
    run(async {
        let mut proxies = Vec::new();
        for (tls, protocol) in [(false, BackendProtocol::Grpc), (true, BackendProtocol::Grpcs)] {
            let proxy = proxy(&[echo(tls).await], LocationPolicy::default(), protocol);
            let mut sender = sender(&proxy).await;
            for _ in 0..2 {
                let (response, mut out) = sender.send_request(call("/pkg.Service/Method"), false).unwrap();
                out.send_data(Bytes::from_static(b"hello"), true).unwrap();
                let response = response.await.unwrap();
                let said = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
                assert_eq!(response.status(), StatusCode::OK);
                assert_eq!((said("x-path"), said("x-te")), ("/pkg.Service/Method".into(), "trailers".into()));
                assert_eq!(said("x-authority"), "a.test");
                assert_eq!(said("x-scheme-seen"), if tls { "https" } else { "http" });
                let (body, trailers) = whole(&mut response.into_body()).await;
                assert_eq!(body, b"hello");
                assert_eq!(trailers.unwrap()["grpc-status"], "0");
            }
            proxies.push(proxy);
        }
        proxies
    });
}

#[test]
fn messages_go_both_ways_before_either_side_has_ended() {
    run(async {
        let proxy = proxy(&[echo(false).await], LocationPolicy::default(), BackendProtocol::Grpc);
        let mut sender = sender(&proxy).await;
        let (response, mut out) = sender.send_request(call("/chat"), false).unwrap();
        let mut body = response.await.unwrap().into_body();
        for message in ["one", "two", "three"] {
            out.send_data(Bytes::from(message), false).unwrap();
            assert_eq!(body.data().await.unwrap().unwrap(), message);
            body.flow_control().release_capacity(message.len()).unwrap();
        }
        out.send_data(Bytes::new(), true).unwrap();
        let (rest, trailers) = whole(&mut body).await;
        assert_eq!((rest, trailers.unwrap()["grpc-status"].as_bytes()), (vec![], &b"0"[..]));
        proxy
    });
}

/// Sends until the window is full; without more of it for a while, it stays full.
async fn fill(out: &mut h2::SendStream<Bytes>) {
    loop {
        out.reserve_capacity(16 * 1024);
        let room = std::future::poll_fn(|cx| out.poll_capacity(cx));
        match tokio::time::timeout(Duration::from_millis(300), room).await {
            Ok(room) => out.send_data(vec![b'x'; room.unwrap().unwrap()].into(), false).unwrap(),
            Err(_) => return out.reserve_capacity(0),
        }
    }
}

#[test]
fn calls_that_are_not_read_stop_no_other_of_their_connection() {
    run(async {
        let proxy = proxy(&[echo(false).await], LocationPolicy::default(), BackendProtocol::Grpc);
        let mut sender = sender(&proxy).await;
        let mut stalled = Vec::new();
        for _ in 0..8 {
            let (response, mut out) = sender.send_request(call("/stalled"), false).unwrap();
            fill(&mut out).await;
            stalled.push((response, out));
        }
        let (response, mut out) = sender.send_request(call("/chat"), false).unwrap();
        out.send_data(Bytes::from_static(b"hello"), true).unwrap();
        let (body, _) = whole(&mut response.await.unwrap().into_body()).await;
        assert_eq!(body, b"hello");
        drop(stalled);
        proxy
    });
}

#[test]
fn responses_of_calls_that_are_not_read_are_charged() {
    run(async {
        let budgets = Budgets::default();
        let mut proxy = Proxy::within(Limits::default(), budgets.clone());
        let policy =
            LocationPolicy { backend_protocol: Some(BackendProtocol::Grpc.into()), ..Default::default() };
        proxy.policies(false, &[("/flood", policy)]);
        proxy.endpoints("flood", &[echo(false).await]);
        let mut sender = sender_with(&proxy, client::Builder::new().initial_window_size(0)).await;
        let mut calls = Vec::new();
        for _ in 0..10 {
            let (response, _) = sender.send_request(call("/flood"), true).unwrap();
            calls.push(response.await.unwrap());
        }
        // Most of it: a piece that is about to be written is not charged.
        while budgets.bytes.used() < 8 * FLOOD {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        proxy
    });
}

#[test]
fn bodies_that_are_kept_until_there_is_a_response_are_charged() {
    const CALLS: usize = 40;
    run(async {
        let budgets = Budgets::default();
        let mut proxy = Proxy::within(Limits::default(), budgets.clone());
        let policy =
            LocationPolicy { backend_protocol: Some(BackendProtocol::Grpc.into()), ..Default::default() };
        proxy.policies(false, &[("/taken", policy)]);
        proxy.endpoints("taken", &[echo(false).await]);
        let sender = sender(&proxy).await;
        let mut calls = Vec::new();
        for _ in 0..CALLS {
            let (response, mut out) =
                sender.clone().ready().await.unwrap().send_request(call("/taken"), false).unwrap();
            out.send_data(vec![b'x'; 60_000].into(), false).unwrap();
            calls.push((response, out));
        }
        while budgets.bytes.used() < CALLS * 50_000 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(calls);
        // For the connection itself a worker keeps up to two steps of 256 KiB.
        while budgets.bytes.used() > 512 << 10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(sender);
        proxy
    });
}

/// HTTP/1.1 has no windows: what its client does not read waits in that of the endpoint.
#[test]
fn responses_of_calls_that_a_client_of_http1_does_not_read_are_charged() {
    run(async {
        let budgets = Budgets::default();
        let mut proxy = Proxy::within(Limits::default(), budgets.clone());
        let policy =
            LocationPolicy { backend_protocol: Some(BackendProtocol::Grpc.into()), ..Default::default() };
        proxy.policies(false, &[("/endless", policy)]);
        proxy.endpoints("endless", &[echo(false).await]);
        let mut clients = Vec::new();
        for _ in 0..10 {
            let mut client = TcpStream::connect(proxy.http).await.unwrap();
            client.write_all(b"GET /endless HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
            clients.push(client);
        }
        // The window of a call, most of which is in no piece that is being written.
        while budgets.bytes.used() < 10 * 60_000 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(clients);
        while budgets.bytes.used() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        proxy
    });
}

/// Many servers end a body so. The connection of a client of HTTP/1.1 was cut there, before the last chunk.
#[test]
fn an_empty_frame_of_a_call_is_nothing_to_a_client_of_http1() {
    run(async {
        let proxy = proxy(&[echo(false).await], LocationPolicy::default(), BackendProtocol::Grpc);
        let mut client = TcpStream::connect(proxy.http).await.unwrap();
        for (path, more) in [("/pieces/length", ""), ("/pieces", ""), ("/pieces", "Connection: close\r\n")] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{more}\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
        }
        let mut got = String::new();
        client.read_to_string(&mut got).await.unwrap();
        let count = |text: &str| got.matches(text).count();
        assert_eq!((count("HTTP/1.1 200 "), count("\r\n0\r\n\r\n")), (3, 2), "{got}");
        proxy
    });
}

#[test]
fn grpc_message_longer_than_a_window_passes_both_ways() {
    run(async {
        let proxy = proxy(&[echo(false).await], LocationPolicy::default(), BackendProtocol::Grpc);
        let mut sender = sender(&proxy).await;
        let (response, mut out) = sender.send_request(call("/large"), false).unwrap();
        out.send_data(Bytes::from(vec![b'x'; 900_000]), true).unwrap();
        let (body, trailers) = whole(&mut response.await.unwrap().into_body()).await;
        assert_eq!((body.len(), trailers.is_some()), (900_000, true));
        proxy
    });
}

#[test]
fn a_status_without_a_body_is_the_head() {
    run(async {
        let proxy = proxy(&[echo(false).await], LocationPolicy::default(), BackendProtocol::Grpc);
        let mut sender = sender(&proxy).await;
        let (response, _) = sender.send_request(call("/trailers-only"), true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "5");
        assert!(response.into_body().is_end_stream());
        proxy
    });
}

#[test]
fn a_client_that_gives_up_cancels_the_endpoint_and_so_does_a_timeout() {
    run(async {
        let address = echo(false).await;
        let patient = proxy(&[address], LocationPolicy::default(), BackendProtocol::Grpc);
        let (response, mut out) = sender(&patient).await.send_request(call("/silent"), false).unwrap();
        out.send_data(Bytes::from_static(b"x"), true).unwrap();
        while REACHED.load(Ordering::Relaxed) < 1 {
            tokio::task::yield_now().await;
        }
        out.send_reset(h2::Reason::CANCEL);
        assert!(response.await.is_err());
        drop(out);
        while CANCELLED.load(Ordering::Relaxed) < 1 {
            tokio::task::yield_now().await;
        }
        let policy = LocationPolicy { proxy_read_timeout: Some(1), ..LocationPolicy::default() };
        let proxy = proxy(&[address], policy, BackendProtocol::Grpc);
        let mut sender = sender(&proxy).await;
        let (response, _) = sender.send_request(call("/silent"), true).unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::GATEWAY_TIMEOUT);
        while CANCELLED.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        (patient, proxy)
    });
}

#[test]
fn a_refused_connection_goes_elsewhere_and_all_of_them_are_502() {
    run(async {
        let address = echo(false).await;
        let both = proxy(&[refusing(), address], LocationPolicy::default(), BackendProtocol::Grpc);
        let none = proxy(&[refusing()], LocationPolicy::default(), BackendProtocol::Grpc);
        let http1 = Origin::says("no HTTP/2");
        let other = proxy(&[http1.address], LocationPolicy::default(), BackendProtocol::Grpc);
        for (proxy, status) in [(&both, 200), (&both, 200), (&none, 502), (&other, 502)] {
            let mut sender = sender(proxy).await;
            let (response, _) = sender.send_request(call("/"), true).unwrap();
            assert_eq!(response.await.unwrap().status(), status);
        }
        (both, none, other)
    });
}

#[test]
fn a_call_that_takes_its_time_keeps_its_trailers() {
    run(async {
        let said = LocationPolicy { limit_rate: Some(20), ..LocationPolicy::default() };
        let proxy = proxy(&[echo(false).await], said, BackendProtocol::Grpc);
        let mut sender = sender(&proxy).await;
        let begun = std::time::Instant::now();
        let (response, mut out) = sender.send_request(call("/slow"), false).unwrap();
        out.send_data(vec![b'x'; 40 * 1024].into(), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        let mut length = 0;
        while let Some(piece) = body.data().await {
            let piece = piece.unwrap();
            length += piece.len();
            body.flow_control().release_capacity(piece.len()).unwrap();
        }
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!((length, trailers["grpc-status"].as_bytes()), (40 * 1024, &b"0"[..]));
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(700), "{took:?}");
        proxy
    });
}

/// As of other endpoints.
#[test]
fn what_an_endpoint_says_to_proxies_is_for_the_log_alone() {
    run(async {
        let hidden = TextList { values: vec!["X-Hidden".into()] };
        let mut proxy = proxy(&[echo(false).await], LocationPolicy::default(), BackendProtocol::Grpc);
        let defaults = LocationPolicy {
            hide_headers: Some(hidden),
            log_format_upstream: Some("$upstream_http_x_own $upstream_http_x_hidden".into()),
            ..LocationPolicy::default()
        };
        proxy.defaults(defaults);
        let mut sender = sender(&proxy).await;
        let (response, _) = sender.send_request(call("/own"), true).unwrap();
        let response = response.await.unwrap();
        let all = |name: &str| -> Vec<&str> {
            response.headers().get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
        };
        assert_eq!(all("x-own"), ["2"]);
        for name in ["server", "x-accel-expires", "x-hidden"] {
            assert_eq!(all(name), [""; 0], "{name}");
        }
        whole(&mut response.into_body()).await;
        while proxy.log.text().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(proxy.log.text(), "2 3\n");
        proxy
    });
}

/// In nginx, `proxy_intercept_errors` has no effect on `grpc_pass`, whatever the request is.
#[test]
fn a_listed_status_of_an_endpoint_is_passed_on() {
    let errors = answers("418 Teapot");
    run(async {
        let said = LocationPolicy {
            custom_http_errors: Some(StatusList { values: vec![404] }),
            default_backend: Some("ns/errors/80".into()),
            ..LocationPolicy::default()
        };
        let mut proxy = proxy(&[echo(false).await], said, BackendProtocol::Grpc);
        proxy.service("errors", Default::default());
        proxy.endpoints("errors", &[errors.address]);
        let mut sender = sender(&proxy).await;
        for kind in ["application/json", "application/grpc"] {
            let request =
                Request::get("http://a.test/missing").header("content-type", kind).body(()).unwrap();
            let (response, _) = sender.send_request(request, true).unwrap();
            assert_eq!(response.await.unwrap().status(), StatusCode::NOT_FOUND, "{kind}");
        }
        proxy
    });
    assert!(errors.seen().is_empty());
}

/// What is said of the whole host is that of another Ingress: nginx has nothing of the kind for gRPC.
#[test]
fn an_endpoint_is_verified_only_if_its_own_location_says_so() {
    const KEY: &str = "ns/ca/proxy-ssl";
    run(async {
        let mut proxies = Vec::new();
        for (is_own, status) in [(false, StatusCode::OK), (true, StatusCode::BAD_GATEWAY)] {
            let verified = BackendTls {
                material: KEY.into(),
                verify: true,
                name: "pod.test".into(),
                ..BackendTls::default()
            };
            let own = is_own.then(|| verified.clone());
            let said = LocationPolicy { backend_tls: own, ..LocationPolicy::default() };
            let mut proxy = proxy(&[echo(true).await], said, BackendProtocol::Grpcs);
            proxy.live(KEY, identity(Some(&Authority::new("one")), None));
            let policy = HostPolicy { backend_tls: Some(verified), ..HostPolicy::default() };
            proxy.config(vec![("a.test", Resource::Host(Host { policy, ..Host::default() }))]);
            let mut sender = sender(&proxy).await;
            let (response, _) = sender.send_request(call("/x"), true).unwrap();
            assert_eq!(response.await.unwrap().status(), status);
            proxies.push(proxy);
        }
        proxies
    });
}
