//! HTTP/2 bodies in frames of one byte that are not read for a while: they cost no one a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use data_plane::local::Limits;
use h2::server::Builder;
use h2::{RecvStream, SendStream, client};
use http::{Request, Response, StatusCode};
use shared::policy::{BackendProtocol, LocationPolicy};
use shared::resource::{PathType, Resource, Route};
use test_kit::client::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, frame};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::grpc::{call, proxy, run, whole};
use super::harness::*;

/// Frames that arrive together.
const BURST: usize = 4_000;

/// Frames without content.
const NOTHING: usize = 300;

/// The number of frames of a response.
const LONG: usize = 30_000;

/// An endpoint with a window of ten bytes per call, extended by what it has read. Calls to `/held` are read after
/// another one was answered.
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn endpoint() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut builder = Builder::new();
            builder.initial_window_size(10);
            let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
            let answered = Arc::new(Notify::new());
            tokio::spawn(async move {
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let answered = Arc::clone(&answered);
                    tokio::spawn(async move {
                        let is_held = request.uri().path() == "/held";
                        if is_held {
                            answered.notified().await;
                        }
                        let (body, _) = whole(&mut request.into_body()).await;
                        let mut out = respond.send_response(Response::new(()), false).unwrap();
                        out.send_data(body.into(), true).unwrap();
                        if !is_held {
                            answered.notify_one();
                        }
                    });
                }
            });
        }
    });
    address
}

/// An endpoint whose first response consists of many one-byte frames, and ends when the second call was answered.
fn endpoint_of_bytes() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        let mut first = None;
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).is_err() {
                return;
            }
            let [_, a, b, kind, _, of @ ..] = head;
            stream.read_exact(&mut vec![0; usize::from(u16::from_be_bytes([a, b]))]).unwrap();
            let of = u32::from_be_bytes(of);
            // `:status: 200` of the static table.
            let says = |flags| frame(HEADERS, END_HEADERS | flags, of, &[0x88]);
            match (kind, first) {
                (HEADERS, None) => {
                    first = Some(of);
                    stream.write_all(&says(0)).unwrap();
                    stream.write_all(&frame(DATA, 0, of, b"x").repeat(LONG)).unwrap();
                }
                (HEADERS, Some(first)) => {
                    let end = frame(DATA, END_STREAM, first, b"");
                    stream.write_all(&[says(END_STREAM), end].concat()).unwrap();
                }
                _ => {}
            }
        }
    });
    address
}

/// An endpoint that sends many empty frames before it responds.
fn endpoint_of_nothing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        let mut head = [0; 9];
        while stream.read_exact(&mut head).is_ok() {
            let [_, a, b, kind, _, of @ ..] = head;
            stream.read_exact(&mut vec![0; usize::from(u16::from_be_bytes([a, b]))]).unwrap();
            if kind == HEADERS {
                let of = u32::from_be_bytes(of);
                let nothing = frame(DATA, 0, of, b"").repeat(NOTHING);
                let answer =
                    [frame(HEADERS, END_HEADERS, of, &[0x88]), nothing, frame(DATA, END_STREAM, of, b"end")];
                stream.write_all(&answer.concat()).unwrap();
            }
        }
    });
    address
}

/// A client with this receive window for a response.
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn client(proxy: &Proxy, window: u32) -> client::SendRequest<Bytes> {
    let stream = TcpStream::connect(proxy.http).await.unwrap();
    let mut builder = client::Builder::new();
    builder.initial_window_size(window).data_frame_budget(usize::MAX / 2);
    let (sender, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn in_bytes(out: &mut SendStream<Bytes>, count: usize) {
    (0..count).for_each(|_| out.send_data(Bytes::from_static(b"x"), false).unwrap());
}

async fn length(mut body: RecvStream) -> usize {
    whole(&mut body).await.0.len()
}

#[test]
fn a_burst_of_short_messages_is_a_call_like_any_other() {
    run(async {
        let proxy = proxy(&[endpoint().await], LocationPolicy::default(), BackendProtocol::Grpc);
        let mut sender = client(&proxy, 65_535).await;
        let (held, mut out) = sender.send_request(call("/held"), false).unwrap();
        in_bytes(&mut out, BURST);
        let (other, mut ended) = sender.send_request(call("/"), false).unwrap();
        in_bytes(&mut ended, BURST);
        ended.send_data(Bytes::new(), true).unwrap();
        let other = other.await.expect("its neighbour sends short messages, too");
        assert_eq!((other.status(), length(other.into_body()).await), (StatusCode::OK, BURST));
        out.send_data(Bytes::from_static(b"end"), true).unwrap();
        let held = held.await.unwrap();
        assert_eq!((held.status(), length(held.into_body()).await), (StatusCode::OK, BURST + 3));
        assert_eq!(proxy.metrics.worker(0).accepted.value(), 1);
        proxy
    });
}

#[test]
fn an_answer_in_bytes_that_is_not_taken_leaves_its_neighbours_alone() {
    run(async {
        let proxy = proxy(&[endpoint_of_bytes()], LocationPolicy::default(), BackendProtocol::Grpc);
        let mut sender = client(&proxy, 1_000).await;
        let (long, _) = sender.send_request(call("/long"), true).unwrap();
        let long = long.await.unwrap();
        // Its response comes after all of those bytes.
        let (other, _) = sender.send_request(call("/"), true).unwrap();
        assert_eq!(other.await.expect("its neighbour is not taken").status(), StatusCode::OK);
        assert_eq!(length(long.into_body()).await, LONG);
        assert_eq!(proxy.metrics.worker(0).connected.value(), 1);
        proxy
    });
}

#[test]
fn frames_with_nothing_in_them_end_no_connection() {
    run(async {
        let proxy = proxy(&[endpoint_of_nothing()], LocationPolicy::default(), BackendProtocol::Grpc);
        let mut sender = client(&proxy, 65_535).await;
        for _ in 0..3 {
            let (answer, mut out) = sender.send_request(call("/"), false).unwrap();
            (0..NOTHING).for_each(|_| out.send_data(Bytes::new(), false).unwrap());
            out.send_data(Bytes::from_static(b"x"), true).unwrap();
            let answer = answer.await.expect("it is answered");
            assert_eq!((answer.status(), length(answer.into_body()).await), (StatusCode::OK, 3));
        }
        let worker = proxy.metrics.worker(0);
        assert_eq!((worker.accepted.value(), worker.connected.value()), (1, 1));
        proxy
    });
}

#[test]
fn a_body_in_bytes_that_is_buffered_or_streamed_arrives() {
    let origin = Origin::new(|seen| (ok(&seen.body.len().to_string()), true));
    for proxy_request_buffering in [None, Some(false)] {
        let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
        let policy = LocationPolicy { proxy_request_buffering, ..LocationPolicy::default() };
        let paths = vec![to("/", PathType::Prefix, "echo")];
        let route = Route { paths, policy, ..Route::default() };
        proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
        run(async {
            let mut sender = client(&proxy, 65_535).await;
            let post = Request::post("http://a.test/").body(()).unwrap();
            let (answer, mut out) = sender.send_request(post, false).unwrap();
            in_bytes(&mut out, BURST);
            out.send_data(Bytes::new(), true).unwrap();
            let answer = answer.await.unwrap();
            assert_eq!(whole(&mut answer.into_body()).await.0, BURST.to_string().as_bytes());
            proxy
        });
    }
}
