//! Every timeout of a connection, with its default, on a simulated clock.

use std::net::{Ipv4Addr, TcpListener as StdListener, TcpStream as StdStream};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::poll;
use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use socket2::{Domain, SockRef, Socket as Raw, Type};
use test_kit::client::frames::{PREFACE, SETTINGS, frame};
use test_kit::client::tls::trusting;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_rustls::TlsAcceptor;

use super::client_body::Unread;
use super::session::Left;
use super::*;
use crate::codec::h1::Client;
use crate::codec::head::Version;
use crate::http::pipeline::log::{REQUEST as REQUEST_HELD, RequestRecord};
use crate::http::reply::Reply;
use crate::listen::PublicPorts;
use crate::local::Local;
use crate::local::quota::{Quota, Share};
use crate::table::{Tables, Writer};
use crate::tls::backends::Backends;

mod slow_readers;
mod storm;
mod whole;

/// Bytes that the kernel of a proxy takes for a [`narrow`] client.
const TAKEN: usize = 512 * 1024;

struct Fixture {
    server: Rc<Server>,
    start: Instant,
    _writer: Writer,
}

impl Fixture {
    fn new() -> Self {
        let writer = Writer::new();
        let tables = Arc::clone(writer.tables());
        let tls = Arc::new(crate::tls::server_config(Arc::clone(&tables), None).unwrap());
        let local = Local::for_tests();
        let start = local.timers.now();
        Self {
            server: Rc::new(Server::new(
                local,
                &tables,
                tls,
                Backends::new().unwrap(),
                PublicPorts::default(),
            )),
            start,
            _writer: writer,
        }
    }

    /// Sets the clock to this time after the start.
    fn at(&self, seconds: f64) {
        self.server.local.timers.tick(self.start + Duration::from_secs_f64(seconds));
    }

    fn peer(scheme: Scheme) -> Peer {
        Peer::new(([127, 0, 0, 1], 1).into(), scheme, 80)
    }

    /// A plain HTTP connection, and its client's end. Whenever it is idle, it is parked and gets a new task at once.
    fn connection(&self) -> (Pin<Box<dyn Future<Output = bool>>>, DuplexStream) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let server = Rc::clone(&self.server);
        let mut session = Session::new(Rc::clone(&server), near, Self::peer(Scheme::Http), false);
        let serving = async move {
            loop {
                match session.run().await {
                    Left::Nothing => return true,
                    Left::Http2(_) => return false,
                    Left::Silent(silent) => {
                        session = Session::of_silent(Rc::clone(&server), silent.into_silent(), false);
                    }
                }
            }
        };
        (Box::pin(serving), far)
    }
}

/// A connection of which the kernel of the client takes little, and that of the proxy as much as [`TAKEN`].
pub(in crate::http::conn) fn narrow() -> (Socket, StdStream) {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = Raw::new(Domain::IPV4, Type::STREAM, None).unwrap();
    client.set_recv_buffer_size(4096).unwrap();
    client.connect(&listener.local_addr().unwrap().into()).unwrap();
    let (near, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    // The kernel doubles it.
    SockRef::from(&near).set_send_buffer_size(TAKEN / 2).unwrap();
    (near.into(), client.into())
}

/// Both ends of a connection after its TLS handshake.
pub(in crate::http::conn) async fn secured(
    tables: &Arc<Tables>,
    near: Socket,
    client: StdStream,
) -> (Tls, StreamOwned<ClientConnection, StdStream>) {
    let greeting = greeting(client);
    let config = crate::tls::server_config(Arc::clone(tables), None).unwrap();
    let mut below = Gathered::in_turns(Prefixed::new(BytesMut::new(), near));
    below.at_once();
    let stream = TlsAcceptor::from(Arc::new(config)).accept(below).await.unwrap();
    (Box::new(stream), greeting.await.unwrap())
}

/// The handshake of a client.
pub(in crate::http::conn) fn greeting(
    client: StdStream,
) -> JoinHandle<StreamOwned<ClientConnection, StdStream>> {
    let name = ServerName::try_from("a.test").unwrap();
    let session = ClientConnection::new(Arc::new(trusting(&[])), name).unwrap();
    spawn_blocking(move || {
        let mut stream = StreamOwned::new(session, client);
        stream.conn.complete_io(&mut stream.sock).unwrap();
        stream
    })
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn a_client_that_says_nothing_has_ten_seconds() {
    let fixture = Fixture::new();
    let (mut connection, _client) = fixture.connection();
    for (at, over) in [(0.0, false), (9.9, false), (10.2, true)] {
        fixture.at(at);
        assert_eq!(poll!(&mut connection).is_ready(), over, "{at}");
    }
}

#[tokio::test]
async fn a_head_has_ten_seconds_in_all_however_it_dribbles_in() {
    let fixture = Fixture::new();
    let (mut connection, mut client) = fixture.connection();
    for (number, byte) in REQUEST.iter().enumerate() {
        let at = number as f64;
        fixture.at(at);
        let over = poll!(&mut connection).is_ready();
        assert_eq!(over, at >= 11.0, "{at}");
        if over {
            return;
        }
        client.write_all(&[*byte]).await.unwrap();
        assert!(poll!(&mut connection).is_pending());
    }
    panic!("it was waited for");
}

#[tokio::test]
async fn a_connection_may_be_idle_for_75_seconds() {
    let fixture = Fixture::new();
    let (mut connection, mut client) = fixture.connection();
    for round in [0.0, 70.0] {
        fixture.at(round);
        client.write_all(REQUEST).await.unwrap();
        assert!(poll!(&mut connection).is_pending());
        let mut answer = vec![0; 4096];
        let count = client.read(&mut answer).await.unwrap();
        assert!(answer[..count].starts_with(b"HTTP/1.1 404 "));
    }
    for (at, over) in [(80.0, false), (144.9, false), (145.2, true)] {
        fixture.at(at);
        assert_eq!(poll!(&mut connection).is_ready(), over, "{at}");
    }
}

/// In a runtime in which it cannot be registered.
#[test]
fn a_connection_that_comes_with_its_request_is_never_registered() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let fixture = Fixture::new();
    let serving = serve(Rc::clone(&fixture.server), stream.into(), Fixture::peer(Scheme::Http));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(serving).is_none());
    let mut answer = String::new();
    io::Read::read_to_string(&mut client, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

#[tokio::test]
async fn a_tls_handshake_has_ten_seconds_in_all() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    for begun in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let fixture = Fixture::new();
        let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = Box::pin(serve(
            Rc::clone(&fixture.server),
            stream.into_std().unwrap().into(),
            Fixture::peer(Scheme::Https),
        ));
        assert!(poll!(&mut connection).is_pending());
        client.writable().await.unwrap();
        assert_eq!(client.try_write(begun).unwrap(), begun.len());
        for (at, over) in [(5.0, false), (9.9, false), (10.2, true)] {
            fixture.at(at);
            yield_now().await;
            assert_eq!(poll!(&mut connection).is_ready(), over, "{at} {begun:?}");
        }
    }
}

/// HTTP/2 with prior knowledge, and its client's end. As with HTTP/1.1, it gets a new task whenever it is idle.
fn http2(fixture: &Fixture) -> (Pin<Box<dyn Future<Output = ()>>>, DuplexStream) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let server = Rc::clone(&fixture.server);
    let serving = async move {
        let mut left = h2::serve(server, Fixture::peer(Scheme::Http), near, BytesMut::new()).await;
        while let Some(silent) = left {
            left = silent.again().await;
        }
    };
    (Box::pin(serving), far)
}

#[tokio::test]
async fn a_connection_of_http2_has_the_same_times() {
    let fixture = Fixture::new();
    let (mut connection, _client) = http2(&fixture);
    for (at, over) in [(0.0, false), (9.9, false), (10.2, true)] {
        fixture.at(at);
        assert_eq!(poll!(&mut connection).is_ready(), over, "a greeting, {at}");
    }
    let fixture = Fixture::new();
    let (mut connection, mut client) = http2(&fixture);
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    // When its idle timeout has passed it gets a GOAWAY, and has a second to close.
    for (at, over) in [(0.0, false), (74.9, false), (75.2, false), (76.1, false), (76.4, true)] {
        fixture.at(at);
        assert_eq!(poll!(&mut connection).is_ready(), over, "{at}");
    }
}

#[tokio::test]
async fn a_client_takes_nothing_for_60_seconds() {
    let fixture = Fixture::new();
    // The response does not fit.
    let (near, mut client) = tokio::io::duplex(REQUEST.len());
    let session = Session::new(Rc::clone(&fixture.server), near, Fixture::peer(Scheme::Http), false);
    let mut connection = Box::pin(session.run());
    client.write_all(REQUEST).await.unwrap();
    for (at, over) in [(0.0, false), (59.9, false), (60.2, true)] {
        fixture.at(at);
        assert_eq!(poll!(&mut connection).is_ready(), over, "{at}");
    }
}

#[tokio::test]
async fn a_page_that_nobody_takes_is_counted() {
    let fixture = Fixture::new();
    let local = &fixture.server.local;
    let (mut near, _client) = tokio::io::duplex(REQUEST.len());
    let (mut input, mut unread, timer) = (BytesMut::new(), Unread::nothing(), local.timers.timer());
    let mut record = RequestRecord::refused(local, &Fixture::peer(Scheme::Http), &input);
    let reply = Reply::configured_page(local, 200, "text/html".into(), vec![b'x'; 50_000]);
    let whom = Client { version: Version::Http11, to_head: false, keep_alive: true };
    let connection = (&mut near, &mut input, &mut unread);
    let mut writing = Box::pin(answer::write(local, &timer, connection, reply, whom, &mut record.info));
    let before = local.quota.held();
    assert!(poll!(&mut writing).is_pending());
    let held = local.quota.held() - before;
    assert!((50_000..51_000).contains(&held), "{held} bytes are held");
    drop(writing);
    assert_eq!(local.quota.held(), before);
}

/// Thousands of clients that sent most of a head held more than the pod had, and all of it again after ten seconds.
#[tokio::test]
async fn a_head_that_is_still_arriving_is_counted() {
    let fixture = Fixture::new();
    let quota = &fixture.server.local.quota;
    let begun = |length: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(length));
    for (length, held) in [(500, 500..5_000), (5_000, 5_000..40_000)] {
        let (mut connection, mut client) = fixture.connection();
        client.write_all(begun(length).as_bytes()).await.unwrap();
        assert!(poll!(&mut connection).is_pending());
        assert!(held.contains(&quota.held()), "{length}: {}", quota.held());
        client.write_all(b"x").await.unwrap();
        assert!(poll!(&mut connection).is_pending());
        assert!(held.contains(&quota.held()), "{length}: {}", quota.held());
        drop(connection);
        assert_eq!(quota.held(), 0);
    }
    let others: Vec<_> = std::iter::from_fn(|| quota.open(1 << 20)).collect();
    for (length, is_closed) in [(500, false), (5_000, true)] {
        let (mut connection, mut client) = fixture.connection();
        client.write_all(begun(length).as_bytes()).await.unwrap();
        assert_eq!(poll!(&mut connection).is_ready(), is_closed, "{length}");
    }
    drop(others);
}

/// Thousands of clients whose requests were refused held a buffer each, for which nobody had paid.
#[tokio::test]
async fn a_client_that_is_heard_out_holds_no_buffer() {
    let body = "x".repeat(4_000);
    for (head, is_kept) in [
        ("POST /%00 HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", false),
        ("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n", false),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", true),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n", true),
    ] {
        let fixture = Fixture::new();
        let Local { buffers, quota, .. } = &*fixture.server.local;
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let (mut connection, mut client) = fixture.connection();
            client.write_all([head, &body].concat().as_bytes()).await.unwrap();
            assert!(poll!(&mut connection).is_pending());
            let mut answer = vec![0; 4096];
            let count = client.read(&mut answer).await.unwrap();
            assert!(answer[..count].starts_with(b"HTTP/1.1 40"), "{head}");
            client.write_all(body.as_bytes()).await.unwrap();
            assert!(poll!(&mut connection).is_pending());
            waiting.push((connection, client));
        }
        // The log of a request whose connection goes on has all of its body, so its head stays where it came.
        let (unused, held) = if is_kept { (3, 3 * (REQUEST_HELD + 2 * head.len())) } else { (1, 0) };
        assert!(buffers.unused() >= unused, "{head}: {} for all", buffers.unused());
        assert!(quota.held() <= held, "{head}: {} bytes", quota.held());
    }
}

/// A header block that goes on in further frames may have 64 KiB, of which the client has sent all but the end.
#[tokio::test]
async fn what_comes_of_a_frame_or_of_a_head_is_counted() {
    const HEADERS: u8 = 1;
    const CONTINUATION: u8 = 9;
    let mut part = frame(HEADERS, 4, 1, &[0; 16_000]);
    part.truncate(12_000);
    let block = [frame(HEADERS, 0, 1, b"\x82"), frame(CONTINUATION, 0, 1, &[b'v'; 16_000])].concat();
    let longer = frame(CONTINUATION, 0, 1, &[b'v'; 16_000]);
    for (begun, least) in [(vec![], 0), (part, 12_000), ([&block[..], &longer].concat(), 32_000)] {
        let fixture = Fixture::new();
        let quota = &fixture.server.local.quota;
        let (mut connection, mut client) = http2(&fixture);
        client.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &begun[..]].concat()).await.unwrap();
        assert!(poll!(&mut connection).is_pending());
        let held = quota.held();
        assert!((least + 1..2 * least + 8_000).contains(&held), "{held} for {}", begun.len());
        drop(connection);
        assert_eq!(quota.held(), 0);
        // Where nothing is left for it.
        let _others = all_of(quota);
        let (mut connection, mut client) = http2(&fixture);
        client.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &begun[..]].concat()).await.unwrap();
        assert_eq!(poll!(&mut connection).is_ready(), !begun.is_empty());
        assert_eq!(fixture.server.local.metrics.refusals.value(), u64::from(!begun.is_empty()));
    }
}

/// All that there is.
fn all_of(quota: &Rc<Quota>) -> Vec<Share> {
    let mut all = Vec::new();
    for step in [1 << 20, 1 << 10, 1] {
        all.extend(std::iter::from_fn(|| quota.take(step)));
    }
    all
}

#[tokio::test]
async fn an_upload_that_nobody_wants_has_30_seconds_and_5_without_a_byte() {
    for dribbles in [false, true] {
        let fixture = Fixture::new();
        let (mut connection, mut client) = fixture.connection();
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";
        client.write_all(head).await.unwrap();
        assert!(poll!(&mut connection).is_pending());
        let mut answer = vec![0; 4096];
        let count = client.read(&mut answer).await.unwrap();
        assert!(answer[..count].starts_with(b"HTTP/1.1 404 "));
        let most = if dribbles { 30.0 } else { 5.0 };
        for step in 1.. {
            let at = f64::from(step) * 0.2;
            fixture.at(at);
            let over = poll!(&mut connection).is_ready();
            assert_eq!(over, at > most + 0.05, "{at}");
            if over {
                break;
            }
            if dribbles && step % 20 == 0 {
                client.write_all(b"x").await.unwrap();
                assert!(poll!(&mut connection).is_pending());
            }
        }
    }
}
