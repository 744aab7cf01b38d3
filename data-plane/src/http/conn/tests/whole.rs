//! The timeout of a whole request, on a simulated clock, with an endpoint that never finishes.

use std::task::Poll;

use shared::resource::{EndpointPort, Endpoints, Resource};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::access_log;
use crate::local::{Budgets, Limits};
use crate::metrics::WorkerMetrics;
use crate::table::world::{backend, entry, host, route};

/// A proxy with this timeout for requests, and its only endpoint.
pub(super) async fn fixture(request: Duration) -> (Fixture, TcpListener) {
    let origin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = origin.local_addr().unwrap().port();
    let mut writer = Writer::new();
    let paths = [("/", "ns/s1/80")];
    writer.apply_config(
        vec![host("a.test", None), route("ingress/ns/i/a.test", &paths), backend("ns/s1/80")],
        &[],
    );
    let slice = Endpoints {
        service: "ns/s1".into(),
        ports: vec![EndpointPort { name: "http".into(), port, udp: false }],
        ipv4: vec![Ipv4Addr::LOCALHOST],
        ipv6: Vec::new(),
    };
    writer.apply_live(vec![entry("ns/s1-1", Resource::Endpoints(slice))], &[]);
    let tables = Arc::clone(writer.tables());
    let tls = Arc::new(crate::tls::server_config(Arc::clone(&tables), None).unwrap());
    let limits = Limits { request, ..Limits::default() };
    let metrics: Arc<WorkerMetrics> = Arc::default();
    let (log, _) = access_log::write_to(io::sink()).unwrap();
    let lines = log.lines(Arc::clone(&metrics));
    let local = Local::new(limits, &Budgets::default(), Default::default(), metrics, lines);
    let start = local.timers.now();
    let backends = Backends::new().unwrap();
    let server = Rc::new(Server::new(local, &tables, tls, backends, PublicPorts::default()));
    (Fixture { server, start, _writer: writer }, origin)
}

/// Runs a connection while its endpoint does something; returns whether the connection has ended.
pub(super) async fn beside<T>(
    connection: &mut Pin<Box<dyn Future<Output = bool>>>,
    origin: impl Future<Output = T>,
) -> T {
    let mut origin = pin!(origin);
    loop {
        assert!(poll!(&mut *connection).is_pending());
        if let Poll::Ready(done) = poll!(&mut origin) {
            return done;
        }
        yield_now().await;
    }
}

pub(super) const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
pub(super) const UPGRADE: &[u8] =
    b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// The endpoint's side of a request, which gets this response.
pub(super) async fn answered(origin: &TcpListener, with: &[u8]) -> TcpStream {
    let (mut stream, _) = origin.accept().await.unwrap();
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut asked).await.unwrap(), 0);
    }
    stream.write_all(with).await.unwrap();
    stream
}

/// What a client has received by now.
async fn got(client: &mut DuplexStream) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let count = client.read(&mut bytes).await.unwrap();
    bytes.truncate(count);
    bytes
}

/// Advances the clock while the endpoint sends a byte every 5 seconds; returns the second at which the connection was
/// closed.
async fn dribbled(fixture: &Fixture, request: &[u8], answer: &[u8], origin: &TcpListener) -> Option<u32> {
    let (mut connection, mut client) = fixture.connection();
    client.write_all(request).await.unwrap();
    let mut stream = beside(&mut connection, answered(origin, answer)).await;
    beside(&mut connection, got(&mut client)).await;
    for second in 1..=4_000_u32 {
        fixture.at(f64::from(second));
        if poll!(&mut connection).is_ready() {
            return Some(second);
        }
        if second % 5 == 0 {
            let both = async {
                stream.write_all(b"1\r\nx\r\n").await.unwrap();
                assert!(!got(&mut client).await.is_empty());
            };
            beside(&mut connection, both).await;
        }
    }
    None
}

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
pub(super) const SWITCHED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[tokio::test]
async fn a_whole_request_has_its_time_and_no_more() {
    let (bounded, origin) = fixture(Duration::from_secs(100)).await;
    assert_eq!(dribbled(&bounded, GET, CHUNKED, &origin).await, Some(101), "an answer is cut");
    let (free, origin) = fixture(Duration::ZERO).await;
    assert_eq!(dribbled(&free, GET, CHUNKED, &origin).await, None, "where nobody says a time there is none");
}

#[tokio::test]
async fn a_tunnel_is_no_request() {
    let (bounded, origin) = fixture(Duration::from_secs(100)).await;
    assert_eq!(dribbled(&bounded, UPGRADE, SWITCHED, &origin).await, None);
}

/// Otherwise each byte of it would be read and written.
#[tokio::test]
async fn a_tunnel_between_sockets_goes_through_a_pipe() {
    let (fixture, origin) = fixture(Duration::ZERO).await;
    let (near, client) = narrow();
    client.set_nonblocking(true).unwrap();
    let mut client = TcpStream::from_std(client).unwrap();
    let session = Session::new(Rc::clone(&fixture.server), near, Fixture::peer(Scheme::Http), true);
    let mut connection: Pin<Box<dyn Future<Output = bool>>> =
        Box::pin(async { matches!(session.run().await, Left::Nothing) });
    client.write_all(UPGRADE).await.unwrap();
    let mut endpoint = beside(&mut connection, answered(&origin, SWITCHED)).await;
    let sent = vec![b'x'; 1 << 20];
    let receiving = async {
        let mut received = Vec::new();
        while !received.ends_with(&sent) {
            assert_ne!(client.read_buf(&mut received).await.unwrap(), 0);
        }
    };
    let (written, ()) =
        beside(&mut connection, async { tokio::join!(endpoint.write_all(&sent), receiving) }).await;
    written.unwrap();
    // A direction that waits has given it back.
    assert_eq!(format!("{:?}", fixture.server.local.pipes), "1 pipes");
}

#[tokio::test]
async fn response_timeout_is_504_without_retry() {
    let (bounded, origin) = fixture(Duration::from_secs(30)).await;
    let (mut connection, mut client) = bounded.connection();
    for round in 0..8_u32 {
        let begin = f64::from(round) * 40.0;
        bounded.at(begin);
        client.write_all(GET).await.unwrap();
        let _stream = beside(&mut connection, answered(&origin, b"")).await;
        bounded.at(begin + 29.9);
        assert!(poll!(&mut connection).is_pending());
        bounded.at(begin + 30.2);
        let answer = beside(&mut connection, got(&mut client)).await;
        assert!(answer.starts_with(b"HTTP/1.1 504 "), "{round}");
    }
    let metrics = &bounded.server.local.metrics;
    assert_eq!(metrics.retries.value(), 0, "nobody else is asked");
}
