//! Clients and endpoints that read slowly but steadily, on a simulated clock: the kernel reports no room before much more
//! is free than they read before a timeout, and they are waited for all the same.

use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::task::Poll;

use test_kit::client::frames::{
    END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PREFACE, SETTINGS, WINDOW_UPDATE, frame,
};

use super::whole::{GET, SWITCHED, UPGRADE, answered, beside, fixture};
use super::*;
use crate::codec::error::Kind;
use crate::codec::stream::Stream;

/// Bytes that a client reads at a time.
const READ: usize = 32 * 1024;
/// More than a kernel takes.
const MUCH: usize = 4 << 20;
/// A request body that is more than such an endpoint reads.
const BODY: usize = 1_000_000;

/// Runs something for as long as it goes on by itself.
async fn settle<F: Future + ?Sized>(running: &mut Pin<Box<F>>) -> Poll<F::Output> {
    for _ in 0..20 {
        if let Poll::Ready(outcome) = poll!(&mut *running) {
            return Poll::Ready(outcome);
        }
        yield_now().await;
    }
    Poll::Pending
}

/// Has the client read a little each minute, and then nothing more.
async fn read_slowly<F>(fixture: &Fixture, mut client: StdStream, sending: &mut Pin<Box<F>>) -> F::Output
where
    F: Future<Output: Debug> + ?Sized,
{
    assert!(settle(sending).await.is_pending());
    let mut half_minutes = 0..;
    for _ in 0..4 {
        client.read_exact(&mut [0; READ]).unwrap();
        for half_minute in half_minutes.by_ref().take(2) {
            fixture.at(30.2 * f64::from(half_minute + 1));
            assert!(settle(sending).await.is_pending(), "it reads");
        }
    }
    // There may still be room of what it read last.
    for half_minute in half_minutes.take(6) {
        fixture.at(30.2 * f64::from(half_minute + 1));
        if let Poll::Ready(outcome) = settle(sending).await {
            return outcome;
        }
    }
    panic!("it reads nothing, and is waited for");
}

/// Writes a long page; returns why that ended.
async fn page<S: Stream>(fixture: &Fixture, mut near: S, client: StdStream) -> Kind {
    let local = &fixture.server.local;
    let (mut input, mut unread, timer) = (BytesMut::new(), Unread::nothing(), local.timers.timer());
    let mut record = RequestRecord::refused(local, &Fixture::peer(Scheme::Http), &input);
    let reply = Reply::configured_page(local, 200, "text/html".into(), vec![b'x'; MUCH]);
    let whom = Client { version: Version::Http11, to_head: false, keep_alive: true };
    let connection = (&mut near, &mut input, &mut unread);
    let mut writing = Box::pin(async {
        let written = answer::write(local, &timer, connection, reply, whom, &mut record.info).await;
        written.err().map(|cut| cut.error.kind)
    });
    read_slowly(fixture, client, &mut writing).await.expect("it is not written to its end")
}

#[tokio::test]
async fn a_page_for_a_slow_reader_is_not_cut() {
    let fixture = Fixture::new();
    let (near, client) = narrow();
    assert_eq!(page(&fixture, near, client).await, Kind::ClientTimeout);
}

#[tokio::test]
async fn a_page_for_a_slow_reader_is_not_cut_over_tls() {
    let fixture = Fixture::new();
    let (near, client) = narrow();
    let (stream, client) = secured(fixture._writer.tables(), near, client).await;
    assert_eq!(page(&fixture, stream, client.sock).await, Kind::ClientTimeout);
}

/// A connection that asks an endpoint, which sends much after this head; returns how it was left.
async fn relayed(ask: &[u8], head: &[u8]) -> bool {
    let (fixture, origin) = fixture(Duration::ZERO).await;
    let (near, mut client) = narrow();
    client.write_all(ask).unwrap();
    let session = Session::new(Rc::clone(&fixture.server), near, Fixture::peer(Scheme::Http), true);
    let mut connection: Pin<Box<dyn Future<Output = bool>>> = Box::pin(async {
        match session.run().await {
            Left::Http2(session) => crate::http::conn::http2(session).await.is_none(),
            left => matches!(left, Left::Nothing),
        }
    });
    let mut endpoint = beside(&mut connection, answered(&origin, head)).await;
    // More than is read; the rest stays with the endpoint.
    let sent = beside(&mut connection, async { endpoint.write(&vec![b'x'; MUCH]).await.unwrap() }).await;
    assert!(sent > TAKEN, "{sent}");
    read_slowly(&fixture, client, &mut connection).await
}

#[tokio::test]
async fn a_response_for_a_slow_reader_is_not_cut() {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n");
    assert!(relayed(GET, head.as_bytes()).await, "it was piped");
    assert!(relayed(GET, b"HTTP/1.1 200 OK\r\n\r\n").await, "it was read");
}

#[tokio::test]
async fn a_tunnel_to_a_slow_reader_is_not_cut() {
    assert!(relayed(UPGRADE, SWITCHED).await);
}

#[tokio::test]
async fn a_response_for_a_slow_reader_is_not_cut_over_http2() {
    let window = (16_u32 << 20).to_be_bytes();
    let settings = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window].concat();
    // GET http://a.test/
    let fields = [&[0x82, 0x86, 0x84, 0x41, 6][..], b"a.test"].concat();
    let ask = [
        PREFACE,
        &frame(SETTINGS, 0, 0, &settings),
        &frame(WINDOW_UPDATE, 0, 0, &window),
        &frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields),
    ];
    let asking = Box::pin(async { relayed(&ask.concat(), b"HTTP/1.1 200 OK\r\n\r\n").await });
    assert!(tokio::task::LocalSet::new().run_until(asking).await);
}

#[tokio::test]
async fn a_request_for_an_endpoint_that_reads_slowly_is_not_cut() {
    let (fixture, origin) = fixture(Duration::ZERO).await;
    SockRef::from(&origin).set_recv_buffer_size(4096).unwrap();
    let (mut connection, mut client) = fixture.connection();
    let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {BODY}\r\n\r\n");
    beside(&mut connection, client.write_all(head.as_bytes())).await.unwrap();
    beside(&mut connection, client.write_all(&vec![b'x'; BODY])).await.unwrap();
    let (mut endpoint, _) = beside(&mut connection, origin.accept()).await.unwrap();
    let mut half_minutes = 0..;
    for half_minute in half_minutes.by_ref().take(10) {
        beside(&mut connection, endpoint.read_exact(&mut [0; READ])).await.unwrap();
        fixture.at(30.2 * f64::from(half_minute));
        assert!(settle(&mut connection).await.is_pending());
        assert!(poll!(pin!(client.read_u8())).is_pending(), "it reads");
    }
    for half_minute in half_minutes.take(4) {
        fixture.at(30.2 * f64::from(half_minute));
        assert!(settle(&mut connection).await.is_pending());
    }
    let mut answer = [0; 12];
    beside(&mut connection, client.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 504", "it reads nothing");
}
