use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_plane::local::Limits;
use data_plane::metrics::Kind;
use data_plane::table::Sizes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use shared::policy::{Buffers, LocationPolicy};
use shared::resource::PathType;
use test_kit::certificates::Authority;
use test_kit::client::tls::trusting;
use tokio::net::TcpStream;

use super::client_certs;
use super::harness::*;

type Sender = SendRequest<Full<Bytes>>;

#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn prior_knowledge(address: SocketAddr) -> Sender {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(method: Method, uri: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::builder().method(method).uri(uri).body(Full::new(body.into())).unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.unwrap() });
}

#[test]
fn partial_response_before_a_disconnect_is_delivered() {
    let origin = Origin::raw(|mut stream, connection, _| {
        let last: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
        if read_request(&mut stream, connection).is_some() {
            stream.write_all(last).unwrap();
        }
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    run(async {
        let mut sender = prior_knowledge(proxy.http).await;
        for _ in 0..8 {
            let response = sender.send_request(request(Method::GET, "http://a.test/", "")).await;
            let mut body = response.unwrap().into_body();
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "hello");
            assert!(body.frame().await.unwrap().is_err(), "it is not complete");
        }
    });
}

#[test]
fn a_stream_is_a_request_like_any_other() {
    let origin = Origin::new(|seen| (ok(&format!("{} {}", seen.line(), seen.body.len())), true));
    let sizes = Sizes { body: 0, ..Sizes::default() };
    let proxy = Proxy::serving(Limits { sizes, ..Limits::default() }, &[origin.address]);
    run(async {
        let mut sender = prior_knowledge(proxy.http).await;
        let mut get = request(Method::GET, "http://a.test/x?y=1", "");
        for crumb in ["a=1", "b=2"] {
            get.headers_mut().append("cookie", crumb.parse().unwrap());
        }
        let response = sender.send_request(get).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-length"], "21");
        assert_eq!(text(response).await, "GET /x?y=1 HTTP/1.1 0");
        for size in [10, 3_000_000] {
            let post = request(Method::POST, "http://a.test/", vec![b'x'; size]);
            let response = sender.send_request(post).await.unwrap();
            assert_eq!(text(response).await, format!("POST / HTTP/1.1 {size}"));
        }
        let missing = request(Method::GET, "http://nobody.test/", "");
        let response = sender.send_request(missing).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert!(text(response).await.contains("<h1>404 Not Found</h1>"));
    });
    let seen = &origin.seen()[0];
    assert_eq!((seen.all("host"), seen.all("cookie")), (vec!["a.test"], vec!["a=1; b=2"]));
    assert_eq!(seen.all("x-forwarded-host"), ["a.test"]);
}

#[test]
fn requests_of_a_connection_are_numbered_from_1() {
    let origin = Origin::says("in");
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let log_format_upstream = Some("$connection_requests".to_owned());
    proxy.defaults(LocationPolicy { log_format_upstream, ..LocationPolicy::default() });
    run(async {
        let mut sender = prior_knowledge(proxy.http).await;
        for _ in 0..2 {
            let response = sender.send_request(request(Method::GET, "http://a.test/", "")).await.unwrap();
            assert_eq!(text(response).await, "in");
        }
    });
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert_eq!(log.lines().collect::<Vec<_>>(), ["1", "2"]);
}

#[test]
fn answers_of_every_framing() {
    let origin = Origin::new(|seen| {
        let target = seen.line().split(' ').nth(1).unwrap().to_owned();
        match target.as_str() {
            "/204" => (b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), true),
            "/head" => (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec(), true),
            "/chunks" => (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n".to_vec(),
                true,
            ),
            "/cut" => (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc".to_vec(), false),
            _ => (b"HTTP/1.1 200 OK\r\n\r\nuntil close".to_vec(), false),
        }
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    run(async {
        let mut sender = prior_knowledge(proxy.http).await;
        let mut ask = async |method: Method, path: &str| {
            let uri = format!("http://a.test{path}");
            sender.send_request(request(method, &uri, "")).await
        };
        let response = ask(Method::GET, "/204").await.unwrap();
        assert_eq!((response.status(), text(response).await.as_str()), (StatusCode::NO_CONTENT, ""));
        let response = ask(Method::HEAD, "/head").await.unwrap();
        assert_eq!(response.headers()["content-length"], "9");
        assert_eq!(text(response).await, "");
        let response = ask(Method::GET, "/chunks").await.unwrap();
        assert!(!response.headers().contains_key("transfer-encoding"));
        assert_eq!(text(response).await, "abcde");
        let response = ask(Method::GET, "/close").await.unwrap();
        assert_eq!(text(response).await, "until close");
        // The stream is reset, before or after its head was sent.
        if let Ok(response) = ask(Method::GET, "/cut").await {
            assert!(response.into_body().collect().await.is_err());
        }
    });
}

#[test]
fn over_tls_by_the_clients_choice() {
    let origin = Origin::new(|seen| (ok(seen.all("x-forwarded-proto")[0]), true));
    let mut proxy = Proxy::start();
    let log_format_upstream = Some("[$http2] [$ssl_alpn_protocol]".to_owned());
    let defaults = LocationPolicy { log_format_upstream, ..LocationPolicy::default() };
    proxy.defaults(defaults);
    proxy.host("a.test", true, &[("/", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    run(async {
        for alpn in [&b"h2"[..], b"http/1.1", b"http/1.0", b""] {
            let offered = [alpn];
            let stream = TcpStream::connect(proxy.https).await.unwrap();
            let name = ServerName::try_from("a.test").unwrap();
            let connector = tokio_rustls::TlsConnector::from(Arc::new(trusting(if alpn.is_empty() {
                &[]
            } else {
                &offered
            })));
            let stream = connector.connect(name, stream).await.unwrap();
            let chosen = stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec();
            assert_eq!(chosen, alpn);
            let response = over(stream, alpn == b"h2").await;
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(text(response).await, "https");
        }
    });
    assert_eq!(proxy.metrics.worker(0).handshake_failures.value(), 0);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let mut lines: Vec<_> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[] [-]", "[] [http/1.0]", "[] [http/1.1]", "[h2] [h2]"]);
}

#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn over(stream: tokio_rustls::client::TlsStream<TcpStream>, h2: bool) -> Response<Incoming> {
    if h2 {
        let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        return sender.send_request(request(Method::GET, "https://a.test/", "")).await.unwrap();
    }
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut get = request(Method::GET, "/", "");
    get.headers_mut().insert("host", "a.test".parse().unwrap());
    sender.send_request(get).await.unwrap()
}

#[test]
fn over_tls_a_connection_goes_on_that_was_parked() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::start();
    proxy.host("a.test", true, &[("/", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    run(async {
        let mut sender = by_name(&proxy, "a.test").await;
        for _ in 0..3 {
            let mut get = request(Method::GET, "https://a.test/", "");
            // The second time it is a reference to the first.
            get.headers_mut().insert("x-long", "x".repeat(1_000).parse().unwrap());
            assert_eq!(text(sender.send_request(get).await.unwrap()).await, "hello");
            while proxy.metrics.parked() == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    assert_eq!(origin.seen().iter().filter(|seen| seen.all("x-long")[0].len() == 1_000).count(), 3);
    assert_eq!(proxy.metrics.worker(0).accepted.value(), 1);
}

#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn by_name(proxy: &Proxy, name: &'static str) -> Sender {
    let stream = TcpStream::connect(proxy.https).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(trusting(&[b"h2"])));
    let stream = connector.connect(ServerName::try_from(name).unwrap(), stream).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Browsers send what is for other names of a certificate on a connection that they have.
#[test]
fn a_request_for_another_host_ends_no_connection() {
    let (authority, origin) = (Authority::new("one"), Origin::says("in"));
    let mut proxy = client_certs::proxy(&origin, client_certs::asking(), &authority);
    run(async {
        let mut sender = by_name(&proxy, "b.test").await;
        let mut ask = async |uri| sender.send_request(request(Method::GET, uri, "")).await.unwrap().status();
        for _ in 0..3 {
            assert_eq!([ask("https://b.test/").await, ask("https://a.test/").await], [200, 421]);
        }
        // Its own host asks for a certificate now: without an end, it would be 421 for ever.
        proxy.config(vec![("b.test", client_certs::host(Some(client_certs::asking()), false))]);
        assert_eq!(ask("https://b.test/").await, 421);
        while !sender.is_closed() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn many_streams_at_once_and_an_idle_connection_ends() {
    let origin = Origin::says("hello");
    let limits = Limits { idle: Duration::from_millis(1), ..Limits::default() };
    let proxy = Proxy::serving(limits, &[origin.address]);
    run(async {
        let sender = prior_knowledge(proxy.http).await;
        let asks = (0..50).map(|_| {
            let mut sender = sender.clone();
            async move {
                let response = sender.send_request(request(Method::GET, "http://a.test/", "")).await.unwrap();
                text(response).await
            }
        });
        for answer in futures::future::join_all(asks).await {
            assert_eq!(answer, "hello");
        }
    });
    eventually("the connection is closed", || proxy.metrics.open() == 0);
}

#[test]
fn draining_lets_streams_finish() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::new(move |_| {
        let _ = wait.lock().unwrap().recv();
        (ok("done"), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    run(async {
        let mut sender = prior_knowledge(proxy.http).await;
        let answer = sender.send_request(request(Method::GET, "http://a.test/", ""));
        let stopping = async {
            let began = || origin.seen().len() == 1;
            while !began() {
                tokio::task::yield_now().await;
            }
            let stopping = std::thread::spawn(move || proxy.stop(Duration::ZERO, PATIENCE));
            go.send(()).unwrap();
            stopping
        };
        let (answer, stopping) = futures::join!(answer, stopping);
        assert_eq!(text(answer.unwrap()).await, "done");
        stopping.join().unwrap();
    });
}

/// A frame: type, flags, stream and payload.
type Frame = (u8, u8, u32, Vec<u8>);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// A byte-level HTTP/2 client.
struct Frames(std::net::TcpStream);

impl Frames {
    /// After the preface.
    fn new(address: SocketAddr) -> Self {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let mut frames = Self(stream);
        frames.send(SETTINGS, 0, 0, &[]);
        frames
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat()).unwrap();
    }

    /// `GET / HTTP/1.1` of `a.test`, without the dynamic table (RFC 7541 appendix A).
    fn get(&mut self, stream: u32) {
        let fields = [&[0x82, 0x86, 0x84, 0x01, 6][..], b"a.test"].concat();
        self.send(HEADERS, 0x5, stream, &fields);
    }

    /// A POST whose body is still to come.
    fn post(&mut self, stream: u32) {
        let fields = [&[0x83, 0x86, 0x84, 0x01, 6][..], b"a.test"].concat();
        self.send(HEADERS, 0x4, stream, &fields);
    }

    /// The next frame that is not an acknowledgement, `None` at the end; SETTINGS and PINGs are acknowledged.
    fn next(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            match self.0.read_exact(&mut head) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return None,
                Err(error) => panic!("{error}"),
            }
            let [a, b, c, kind, flags, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.0.read_exact(&mut payload).unwrap();
            if matches!(kind, SETTINGS | PING) {
                if flags & 1 == 0 {
                    self.send(kind, 1, 0, if kind == PING { &payload } else { &[] });
                }
                continue;
            }
            return Some((kind, flags, u32::from_be_bytes(stream), payload));
        }
    }

    /// The last stream that the peer will process, according to a GOAWAY without error; earlier frames are skipped.
    fn goodbye(&mut self) -> u32 {
        loop {
            let (kind, _, _, payload) = self.next().unwrap();
            if kind == GOAWAY {
                let (last, code) = payload.split_at(4);
                assert_eq!(code, [0; 4]);
                return u32::from_be_bytes(last.try_into().unwrap());
            }
        }
    }
}

#[test]
fn a_connection_has_128_streams_at_once() {
    let mut proxy = Proxy::serving(Limits::default(), &[refusing()]);
    let refused = |proxy: &Proxy, streams| {
        let mut client = Frames::new(proxy.http);
        (0..=streams).for_each(|number| client.post(2 * number + 1));
        // REFUSED_STREAM: it was not processed.
        let reset = std::iter::from_fn(|| client.next()).find(|(kind, ..)| *kind == RST_STREAM);
        assert_eq!(reset, Some((RST_STREAM, 0, 2 * streams + 1, vec![0, 0, 0, 7])));
    };
    refused(&proxy, 128);
    // Or as many as configured for the fleet.
    let defaults = LocationPolicy { http2_max_concurrent_streams: Some(7), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    refused(&proxy, 7);
}

#[test]
fn a_head_may_be_as_long_as_in_http_1() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let status = |proxy: &Proxy, path: usize, field: usize| {
        let mut status = StatusCode::IM_A_TEAPOT;
        run(async {
            let uri = format!("http://a.test/{}", "x".repeat(path));
            let mut get = request(Method::GET, &uri, "");
            get.headers_mut().insert("x-long", "x".repeat(field).parse().unwrap());
            let mut sender = prior_knowledge(proxy.http).await;
            status = sender.send_request(get).await.unwrap().status();
        });
        status.as_u16()
    };
    let of =
        |proxy: &Proxy| [(7_000, 7_000), (20_000, 1), (1, 20_000)].map(|(path, it)| status(proxy, path, it));
    assert_eq!(of(&proxy), [200, 414, 400]);
    let large_client_header_buffers = Some(Buffers { number: 4, size: 32 << 10 });
    let defaults = LocationPolicy { large_client_header_buffers, ..LocationPolicy::default() };
    proxy.defaults(defaults);
    assert_eq!(of(&proxy), [200; 3]);
    assert_eq!([status(&proxy, 33_000, 1), status(&proxy, 1, 33_000)], [414, 400]);
}

#[test]
fn a_drain_says_goodbye_and_ends_what_was_begun() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::new(move |_| {
        let _ = wait.lock().unwrap().recv();
        (ok("done"), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let (mut busy, mut idle) = (Frames::new(proxy.http), Frames::new(proxy.http));
    busy.get(1);
    // SETTINGS come first: both connections are known to be HTTP/2.
    idle.send(PING, 0, 0, &[7; 8]);
    eventually("the request has arrived", || origin.seen().len() == 1);
    eventually("both are connected", || proxy.metrics.open() == 2);
    let stopping = std::thread::spawn(move || proxy.stop(Duration::ZERO, PATIENCE));
    // First a warning, for requests in flight; then the last stream (RFC 9113 section 6.8).
    assert_eq!((busy.goodbye(), busy.goodbye()), (0x7fff_ffff, 1));
    assert_eq!((idle.goodbye(), idle.goodbye()), (0x7fff_ffff, 0));
    assert_eq!(idle.next(), None);
    go.send(()).unwrap();
    let answer: Vec<Frame> = std::iter::from_fn(|| busy.next()).collect();
    assert!(answer.iter().all(|(_, _, stream, _)| *stream == 1));
    assert_eq!(answer.first().map(|frame| frame.0), Some(HEADERS));
    let (_, flags, _, payload) = answer.last().unwrap();
    assert_eq!((flags & 1, payload.as_slice()), (1, &b"done"[..]));
    stopping.join().unwrap();
}

#[test]
fn trailers_that_hold_a_target_make_no_request() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Frames::new(proxy.http);
    // Plain, Huffman-coded, from the static table, and in a second frame.
    let plain = &b"\x00\x05:path\x05/evil"[..];
    let huffman = &b"\x00\x84\xb9\x58\xd3\x3f\x05/evil"[..];
    let blocks = [(plain, &b""[..]), (huffman, b""), (b"\x82", b""), (b"", b"\x04\x05/evil")];
    let mut status = |stream: u32, trailers: Option<(&[u8], &[u8])>| {
        client.post(stream);
        client.send(DATA, u8::from(trailers.is_none()), stream, b"hello");
        if let Some((first, second)) = trailers {
            client.send(HEADERS, 1 | if second.is_empty() { 4 } else { 0 }, stream, first);
            if !second.is_empty() {
                client.send(CONTINUATION, 4, stream, second);
            }
        }
        let answer = std::iter::from_fn(|| client.next());
        let (_, _, of, payload) = { answer }.find(|(kind, ..)| *kind == HEADERS).unwrap();
        assert_eq!(of, stream);
        payload[0]
    };
    // 8 and 12 of the static table are `:status: 200` and `400`.
    for (place, block) in (0..).zip(blocks) {
        assert_eq!(status(4 * place + 1, Some(block)), 0x80 | 12, "{block:?}");
        assert_eq!(status(4 * place + 3, Some((b"\x00\x05x-sum\x011", b""))), 0x80 | 8);
    }
    assert_eq!(status(101, None), 0x80 | 8);
    assert_eq!(origin.seen().len(), blocks.len() + 1);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
fn an_answer_that_nobody_takes_ends_its_stream() {
    let origin = Origin::says("hello");
    let limits = Limits { client_send: Duration::from_millis(1), ..Limits::default() };
    let proxy = Proxy::serving(limits, &[origin.address]);
    run(async {
        let stream = TcpStream::connect(proxy.http).await.unwrap();
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(0);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        for target in ["http://a.test/", "http://nobody.test/"] {
            let get = request(Method::GET, target, "");
            let response = sender.send_request(get).await.unwrap();
            assert!(response.into_body().collect().await.is_err(), "{target}");
        }
        // The connection is still usable.
        let head = request(Method::HEAD, "http://a.test/", "");
        assert_eq!(sender.send_request(head).await.unwrap().status(), StatusCode::OK);
    });
    let failures = &proxy.metrics.worker(0).failures[Kind::ClientTimeout as usize];
    eventually("both are counted", || failures.value() == 2);
}
