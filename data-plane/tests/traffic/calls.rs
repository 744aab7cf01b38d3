//! Connections that calls to an endpoint share: how many there are, and what happens to calls when one ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use data_plane::local::Limits;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream, client};
use http::{HeaderValue, Request, Response, StatusCode};
use shared::policy::{BackendProtocol, LocationPolicy};
use shared::resource::{PathType, Resource, Route};
use test_kit::client::frames::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, SETTINGS, frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::grpc::{call, run, sender, whole};
use super::harness::*;

/// Bytes after which a call to `/elsewhere-late` is refused: more than is kept of a body that is not buffered.
const LATE: usize = 100_000;
/// Bytes that a client may send before its endpoint says anything (RFC 9113 section 6.9.2).
const WINDOW: usize = 65_535;

/// An endpoint that counts.
struct Endpoint {
    address: SocketAddr,
    counts: Arc<Counts>,
}

struct Counts {
    connections: AtomicUsize,
    open: AtomicUsize,
    calls: AtomicUsize,
    /// Calls to `/held` wait for one of its permits.
    held: Semaphore,
    /// Number of waiting calls.
    waiting: AtomicUsize,
    /// Maximum number of concurrent calls on one connection.
    most: AtomicUsize,
    /// Connections from this number on are accepted, and nothing more happens on them.
    silent_from: AtomicUsize,
}

impl Endpoint {
    /// An endpoint that allows this many concurrent calls per connection.
    #[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
    async fn new(streams: Option<u32>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let [connections, open, calls, waiting, most] = Default::default();
        let (held, silent_from) = (Semaphore::new(0), AtomicUsize::new(usize::MAX));
        let counts = Arc::new(Counts { connections, open, calls, held, waiting, most, silent_from });
        let seen = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, streams, Arc::clone(&seen)));
            }
        });
        Self { address, counts }
    }

    fn count(&self, which: impl Fn(&Counts) -> &AtomicUsize) -> usize {
        which(&self.counts).load(Ordering::Relaxed)
    }

    async fn until(&self, so: impl Fn(&Counts) -> bool) {
        while !so(&self.counts) {
            tokio::task::yield_now().await;
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn serve(stream: TcpStream, streams: Option<u32>, counts: Arc<Counts>) {
    let number = counts.connections.fetch_add(1, Ordering::Relaxed);
    counts.open.fetch_add(1, Ordering::Relaxed);
    if number >= counts.silent_from.load(Ordering::Relaxed) {
        return std::future::pending().await;
    }
    let mut builder = Builder::new();
    if let Some(streams) = streams {
        builder.max_concurrent_streams(streams);
    }
    let mut connection: Connection<_, Bytes> = builder.handshake(stream).await.unwrap();
    let now = Arc::new(AtomicUsize::new(0));
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        counts.calls.fetch_add(1, Ordering::Relaxed);
        match request.uri().path() {
            // The last call of this connection.
            "/last" => connection.graceful_shutdown(),
            // Refused as unprocessed on the first connection.
            "/elsewhere" if number.is_multiple_of(2) => {
                respond.send_reset(Reason::REFUSED_STREAM);
                continue;
            }
            // The same, when much of its body has arrived.
            "/elsewhere-late" if number.is_multiple_of(2) => {
                tokio::spawn(async move {
                    let (mut body, mut read) = (request.into_body(), 0);
                    while read < LATE {
                        let piece = body.data().await.unwrap().unwrap();
                        read += piece.len();
                        body.flow_control().release_capacity(piece.len()).unwrap();
                    }
                    respond.send_reset(Reason::REFUSED_STREAM);
                });
                continue;
            }
            "/broken" => {
                connection.abrupt_shutdown(Reason::INTERNAL_ERROR);
                continue;
            }
            _ => {}
        }
        let (now, counts) = (Arc::clone(&now), Arc::clone(&counts));
        tokio::spawn(async move {
            counts.most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            answer(request, respond, &counts).await;
            now.fetch_sub(1, Ordering::Relaxed);
        });
    }
    counts.open.fetch_sub(1, Ordering::Relaxed);
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, counts: &Counts) {
    let path = request.uri().path().to_owned();
    if path == "/held" {
        counts.waiting.fetch_add(1, Ordering::Relaxed);
        counts.held.acquire().await.unwrap().forget();
    }
    let (body, _) = whole(&mut request.into_body()).await;
    let mut response = Response::new(());
    if path == "/overlong" {
        // More than is passed on, and less than HTTP/2 itself refuses.
        for number in 0..9 {
            response.headers_mut().append("x-long", long(number));
        }
    }
    if let Ok(mut out) = respond.send_response(response, false) {
        let _ = out.send_data(body.into(), true);
    }
}

fn long(number: u8) -> HeaderValue {
    HeaderValue::from_bytes(&[b'a' + number; 8_000]).unwrap()
}

fn grpc(limits: Limits, endpoints: &[&Endpoint]) -> Proxy {
    let addresses: Vec<_> = endpoints.iter().map(|it| it.address).collect();
    let mut proxy = Proxy::serving(limits, &addresses);
    with_policy(&mut proxy, LocationPolicy::default());
    proxy
}

/// One call with a body; returns its status and the echo.
async fn ask(sender: &mut client::SendRequest<Bytes>, path: &str) -> (StatusCode, Vec<u8>) {
    ask_with(sender, path, b"hello".to_vec()).await
}

async fn ask_with(
    sender: &mut client::SendRequest<Bytes>,
    path: &str,
    body: Vec<u8>,
) -> (StatusCode, Vec<u8>) {
    let (response, mut out) = sender.send_request(call(path), false).unwrap();
    out.send_data(body.into(), true).unwrap();
    let response = response.await.unwrap();
    let status = response.status();
    (status, whole(&mut response.into_body()).await.0)
}

#[test]
fn calls_share_one_connection_one_after_the_other_and_at_once() {
    run(async {
        let endpoint = Endpoint::new(None).await;
        let proxy = grpc(Limits::default(), &[&endpoint]);
        let mut one = sender(&proxy).await;
        // At once from the start: they wait for the connection that one of them opens.
        let at_once = (0..20).map(|_| {
            let mut sender = one.clone();
            async move { ask(&mut sender, "/").await }
        });
        for answered in futures::future::join_all(at_once).await {
            assert_eq!(answered, (StatusCode::OK, b"hello".to_vec()));
        }
        for _ in 0..5 {
            assert_eq!(ask(&mut one, "/").await.0, StatusCode::OK);
        }
        let worker = proxy.metrics.worker(0);
        assert_eq!((endpoint.count(|it| &it.connections), endpoint.count(|it| &it.calls)), (1, 25));
        assert_eq!((worker.connected.value(), worker.reused.value()), (1, 24));
        proxy
    });
}

#[test]
fn no_more_calls_are_on_a_connection_than_its_endpoint_allows() {
    run(async {
        let endpoint = Endpoint::new(Some(2)).await;
        let proxy = grpc(Limits::default(), &[&endpoint]);
        let sender = sender(&proxy).await;
        let at_once = (0..6).map(|_| {
            let mut sender = sender.clone();
            async move { ask(&mut sender, "/held").await }
        });
        let let_go = async {
            endpoint.until(|it| it.waiting.load(Ordering::Relaxed) == 6).await;
            endpoint.counts.held.add_permits(6);
        };
        let (answers, ()) = futures::join!(futures::future::join_all(at_once), let_go);
        assert!(answers.iter().all(|(status, _)| *status == StatusCode::OK));
        assert_eq!(endpoint.count(|it| &it.most), 2);
        assert!((3..=6).contains(&endpoint.count(|it| &it.connections)));
        proxy
    });
}

#[test]
fn a_cold_endpoint_gets_no_more_connections_than_its_calls_need() {
    run(async {
        let endpoint = Endpoint::new(Some(20)).await;
        let proxy = grpc(Limits::default(), &[&endpoint]);
        let sender = sender(&proxy).await;
        let at_once = (0..100).map(|_| {
            let mut sender = sender.clone();
            async move { ask(&mut sender, "/held").await.0 }
        });
        let let_go = async {
            endpoint.until(|it| it.waiting.load(Ordering::Relaxed) == 100).await;
            endpoint.counts.held.add_permits(100);
        };
        let (answers, ()) = futures::join!(futures::future::join_all(at_once), let_go);
        assert!(answers.iter().all(|status| *status == StatusCode::OK));
        assert_eq!(endpoint.count(|it| &it.connections), 5);
        proxy
    });
}

/// A connection with all the calls that its endpoint takes on one, which are held. Nothing happens on further ones.
struct Full {
    proxy: Proxy,
    endpoint: Endpoint,
    sender: client::SendRequest<Bytes>,
    held: [JoinHandle<StatusCode>; 3],
}

impl Full {
    async fn new() -> Self {
        let endpoint = Endpoint::new(Some(3)).await;
        let mut limits = Limits::default();
        limits.timeouts.connect = 2 * PATIENCE;
        let proxy = grpc(limits, &[&endpoint]);
        let sender = sender(&proxy).await;
        assert_eq!(asking(&sender, "/").await.unwrap(), StatusCode::OK);
        endpoint.counts.silent_from.store(1, Ordering::Relaxed);
        let held = [(); 3].map(|()| asking(&sender, "/held"));
        endpoint.until(|it| it.waiting.load(Ordering::Relaxed) == 3).await;
        Self { proxy, endpoint, sender, held }
    }
}

/// One call, in a task of its own.
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
fn asking(sender: &client::SendRequest<Bytes>, path: &'static str) -> JoinHandle<StatusCode> {
    let mut sender = sender.clone();
    tokio::spawn(async move { ask(&mut sender, path).await.0 })
}

#[test]
fn a_call_that_waits_for_a_connection_takes_a_place_that_becomes_free_on_another() {
    run(async {
        let Full { proxy, endpoint, sender, held } = Full::new().await;
        // One opens another connection, on which nothing happens, and the other waits for that.
        let (one, other) = (asking(&sender, "/"), asking(&sender, "/"));
        endpoint.until(|it| it.connections.load(Ordering::Relaxed) == 2).await;
        endpoint.counts.held.add_permits(1);
        let answered = tokio::select! { answered = one => answered, answered = other => answered };
        assert_eq!(answered.unwrap(), StatusCode::OK);
        drop(held);
        proxy
    });
}

/// An endpoint that accepts connections and never shakes hands; it hangs up where that is wanted.
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn dead(hangs_up: Option<Arc<Semaphore>>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, accepted) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            match &hangs_up {
                Some(permits) => permits.acquire().await.unwrap().forget(),
                None => held.push(stream),
            }
        }
    });
    (address, accepted)
}

#[test]
fn calls_that_wait_for_a_connection_share_its_failure() {
    run(async {
        let mut proxies = Vec::new();
        for (protocol, hangs_up, status) in [
            (BackendProtocol::Grpcs, true, StatusCode::BAD_GATEWAY),
            (BackendProtocol::Grpcs, false, StatusCode::GATEWAY_TIMEOUT),
            // Connected, and closed before its SETTINGS.
            (BackendProtocol::Grpc, true, StatusCode::BAD_GATEWAY),
        ] {
            let permits = Arc::new(Semaphore::new(0));
            let (address, accepted) = dead(hangs_up.then(|| Arc::clone(&permits))).await;
            let policy = LocationPolicy {
                proxy_connect_timeout: Some(1),
                proxy_next_upstream_tries: Some(1),
                ..LocationPolicy::default()
            };
            let proxy = super::grpc::proxy(&[address], policy, protocol);
            let sender = sender(&proxy).await;
            let at_once = (0..20).map(|_| {
                let mut sender = sender.clone();
                async move { ask(&mut sender, "/").await.0 }
            });
            let let_go = async {
                // All of them arrive within one turn of the worker.
                while accepted.load(Ordering::Relaxed) == 0 {
                    tokio::task::yield_now().await;
                }
                permits.add_permits(20);
            };
            let (answers, ()) = futures::join!(futures::future::join_all(at_once), let_go);
            assert!(answers.iter().all(|it| *it == status), "{answers:?}");
            assert_eq!(accepted.load(Ordering::Relaxed), 1);
            proxies.push(proxy);
        }
        proxies
    });
}

#[test]
fn a_failed_connection_counts_once_against_its_endpoint_however_many_calls_waited() {
    run(async {
        let mut proxies = Vec::new();
        for protocol in [BackendProtocol::Grpc, BackendProtocol::Grpcs] {
            let permits = Arc::new(Semaphore::new(0));
            let addresses = [(); 2].map(|()| dead(Some(Arc::clone(&permits))));
            let [(one, accepted), (other, _)] =
                futures::future::join_all(addresses).await.try_into().unwrap();
            let proxy = super::grpc::proxy(&[one, other], LocationPolicy::default(), protocol);
            let sender = sender(&proxy).await;
            let at_once = (0..40).map(|_| {
                let mut sender = sender.clone();
                async move { ask(&mut sender, "/").await.0 }
            });
            let let_go = async {
                while accepted.load(Ordering::Relaxed) == 0 {
                    tokio::task::yield_now().await;
                }
                permits.add_permits(80);
            };
            let (answers, ()) = futures::join!(futures::future::join_all(at_once), let_go);
            assert!(answers.iter().all(|it| *it == StatusCode::BAD_GATEWAY), "{answers:?}");
            assert_eq!(proxy.metrics.worker(0).ejected.value(), 0);
            proxies.push(proxy);
        }
        proxies
    });
}

#[test]
fn calls_that_lost_their_connection_share_the_next_one() {
    run(async {
        let endpoint = Endpoint::new(None).await;
        let proxy = grpc(Limits::default(), &[&endpoint]);
        let mut one = sender(&proxy).await;
        assert_eq!(ask(&mut one, "/").await.0, StatusCode::OK);
        let at_once = (0..50).map(|_| {
            let mut sender = one.clone();
            async move { ask(&mut sender, "/elsewhere").await.0 }
        });
        let answers = futures::future::join_all(at_once).await;
        assert!(answers.iter().all(|it| *it == StatusCode::OK), "{answers:?}");
        assert_eq!(endpoint.count(|it| &it.connections), 2);
        proxy
    });
}

#[test]
fn a_connection_that_says_goodbye_ends_its_calls_and_gets_no_more() {
    run(async {
        let endpoint = Endpoint::new(None).await;
        let proxy = grpc(Limits::default(), &[&endpoint]);
        let mut one = sender(&proxy).await;
        let mut other = one.clone();
        let held = ask(&mut other, "/held");
        let rest = async {
            endpoint.until(|it| it.waiting.load(Ordering::Relaxed) == 1).await;
            assert_eq!(ask(&mut one, "/last").await.0, StatusCode::OK);
            for _ in 0..3 {
                assert_eq!(ask(&mut one, "/").await, (StatusCode::OK, b"hello".to_vec()));
            }
            assert_eq!(endpoint.count(|it| &it.connections), 2);
            assert_eq!(endpoint.count(|it| &it.open), 2, "the first one's call is not over");
            assert_eq!(proxy.metrics.worker(0).retries.value(), 0, "nobody was asked in vain");
            endpoint.counts.held.add_permits(1);
        };
        let (held, ()) = futures::join!(held, rest);
        assert_eq!(held, (StatusCode::OK, b"hello".to_vec()));
        endpoint.until(|it| it.open.load(Ordering::Relaxed) == 1).await;
        proxy
    });
}

#[test]
fn a_call_that_nobody_has_looked_at_goes_elsewhere_with_its_body() {
    run(async {
        let (one, other) = (Endpoint::new(None).await, Endpoint::new(None).await);
        let proxy = grpc(Limits::default(), &[&one, &other]);
        let mut sender = sender(&proxy).await;
        // One of the two endpoints refuses it, on existing connections and on the first one.
        for _ in 0..4 {
            let asked = one.count(|it| &it.calls) + other.count(|it| &it.calls);
            assert_eq!(ask(&mut sender, "/elsewhere").await, (StatusCode::OK, b"hello".to_vec()));
            assert!(one.count(|it| &it.calls) + other.count(|it| &it.calls) >= asked + 2);
        }
        proxy
    });
}

/// A body that is streamed is kept up to a limit; one that is buffered is there anyway.
#[test]
fn a_buffered_body_is_sent_again_however_long_it_is() {
    run(async {
        let endpoint = Endpoint::new(None).await;
        let proxy = grpc(Limits::default(), &[&endpoint]);
        assert_eq!(ask(&mut sender(&proxy).await, "/").await.0, StatusCode::OK);
        let mut client = TcpStream::connect(proxy.http).await.unwrap();
        let body = "x".repeat(3 * LATE);
        let head = format!("Host: a.test\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        client
            .write_all(format!("POST /elsewhere-late HTTP/1.1\r\n{head}\r\n{body}").as_bytes())
            .await
            .unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 "), "{}", &response[..100]);
        assert!(response.matches('x').count() >= body.len());
        assert_eq!(endpoint.count(|it| &it.calls), 3);
        proxy
    });
}

#[test]
fn a_call_that_may_have_been_served_is_not_made_twice() {
    run(async {
        let endpoint = Endpoint::new(None).await;
        let proxy = grpc(Limits::default(), &[&endpoint, &endpoint]);
        let mut sender = sender(&proxy).await;
        assert_eq!(ask(&mut sender, "/").await.0, StatusCode::OK);
        assert_eq!(ask(&mut sender, "/broken").await.0, StatusCode::BAD_GATEWAY);
        assert_eq!(endpoint.count(|it| &it.calls), 2);
        // The next call gets another connection.
        assert_eq!(ask(&mut sender, "/").await.0, StatusCode::OK);
        proxy
    });
}

#[test]
fn a_call_that_is_given_up_leaves_its_neighbours_alone() {
    run(async {
        let endpoint = Endpoint::new(None).await;
        let proxy = grpc(Limits::default(), &[&endpoint]);
        let mut one = sender(&proxy).await;
        let (given_up, mut out) = one.send_request(call("/held"), false).unwrap();
        out.send_data(Bytes::from_static(b"x"), true).unwrap();
        endpoint.until(|it| it.waiting.load(Ordering::Relaxed) == 1).await;
        out.send_reset(Reason::CANCEL);
        assert!(given_up.await.is_err());
        assert_eq!(ask(&mut one, "/").await.0, StatusCode::OK);
        assert_eq!((endpoint.count(|it| &it.connections), endpoint.count(|it| &it.open)), (1, 1));
        proxy
    });
}

/// More calls than h2 remembers of those that were given up.
const GIVEN_UP: u32 = 60;

/// An endpoint that answers the call after these, and before that sends 1,100 frames for the first of them. With the number
/// of calls so far.
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn late() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, calls) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&calls);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        stream.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        let last = 2 * GIVEN_UP + 1;
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.unwrap();
            let [a, b, c, kind, flags, of @ ..] = head;
            stream.read_exact(&mut vec![0; u32::from_be_bytes([0, a, b, c]) as usize]).await.unwrap();
            match kind {
                SETTINGS if flags == 0 => stream.write_all(&frame(SETTINGS, 1, 0, &[])).await.unwrap(),
                HEADERS if u32::from_be_bytes(of) == last => break,
                HEADERS => _ = seen.fetch_add(1, Ordering::Relaxed),
                _ => {}
            }
        }
        let answer = frame(HEADERS, END_HEADERS | END_STREAM, last, &[0x88]);
        stream.write_all(&[frame(DATA, 0, 1, b"x").repeat(1_100), answer].concat()).await.unwrap();
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    });
    (address, calls)
}

/// What an endpoint sends before it knows is no error of it, whatever h2 has forgotten.
#[test]
fn what_comes_late_for_calls_that_were_given_up_ends_no_connection() {
    run(async {
        let (address, calls) = late().await;
        let mut proxy = Proxy::serving(Limits::default(), &[address]);
        with_policy(&mut proxy, LocationPolicy::default());
        let mut one = sender(&proxy).await;
        for number in 1..=GIVEN_UP as usize {
            let (given_up, mut out) = one.send_request(call("/"), false).unwrap();
            while calls.load(Ordering::Relaxed) < number {
                tokio::task::yield_now().await;
            }
            out.send_reset(Reason::CANCEL);
            assert!(given_up.await.is_err());
        }
        assert_eq!(ask(&mut one, "/").await, (StatusCode::OK, Vec::new()));
        proxy
    });
}

#[test]
fn a_connection_that_nobody_uses_is_closed_and_none_is_kept_where_none_may_be() {
    run(async {
        let mut proxies = Vec::new();
        let short = Limits { upstream_idle: Duration::from_millis(1), ..Limits::default() };
        let none = Limits { idle_upstreams: 0, ..Limits::default() };
        for limits in [short, none] {
            let endpoint = Endpoint::new(None).await;
            let proxy = grpc(limits, &[&endpoint]);
            assert_eq!(ask(&mut sender(&proxy).await, "/").await.0, StatusCode::OK);
            endpoint.until(|it| it.open.load(Ordering::Relaxed) == 0).await;
            proxies.push(proxy);
        }
        proxies
    });
}

#[test]
fn a_connection_to_an_endpoint_that_left_gets_no_more_calls() {
    run(async {
        let (one, other) = (Endpoint::new(None).await, Endpoint::new(None).await);
        let mut proxy = grpc(Limits::default(), &[&one]);
        let mut sender = sender(&proxy).await;
        assert_eq!(ask(&mut sender, "/").await.0, StatusCode::OK);
        proxy.endpoints("echo", &[other.address]);
        assert_eq!(ask(&mut sender, "/").await.0, StatusCode::OK);
        assert_eq!((one.count(|it| &it.calls), other.count(|it| &it.calls)), (1, 1));
        one.until(|it| it.open.load(Ordering::Relaxed) == 0).await;
        proxy
    });
}

/// A policy with this and gRPC for the location of `grpc`.
fn with_policy(proxy: &mut Proxy, policy: LocationPolicy) {
    let policy = LocationPolicy { backend_protocol: Some(BackendProtocol::Grpc.into()), ..policy };
    let paths = vec![to("/", PathType::Prefix, "echo")];
    let route = Route { paths, policy, ..Route::default() };
    proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
}

#[test]
fn a_connection_with_all_its_calls_is_closed() {
    run(async {
        let endpoint = Endpoint::new(None).await;
        let mut proxy = grpc(Limits::default(), &[&endpoint]);
        with_policy(
            &mut proxy,
            LocationPolicy { upstream_keepalive_requests: Some(2), ..LocationPolicy::default() },
        );
        let mut sender = sender(&proxy).await;
        for _ in 0..3 {
            assert_eq!(ask(&mut sender, "/").await.0, StatusCode::OK);
        }
        assert_eq!(endpoint.count(|it| &it.connections), 2);
        endpoint.until(|it| it.open.load(Ordering::Relaxed) == 1).await;
        proxy
    });
}

/// The others would wait for it in vain.
#[test]
fn no_more_calls_wait_for_a_connection_than_it_will_carry() {
    run(async {
        let Full { proxy, endpoint, sender, held } = Full::new().await;
        let more = [(); 4].map(|()| asking(&sender, "/"));
        endpoint.until(|it| it.connections.load(Ordering::Relaxed) == 3).await;
        drop((held, more));
        proxy
    });
}

/// An endpoint that answers the first call on its first connection with these frames, once it has as much of the body as its
/// window allows, and serves all others.
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn answering(frames: Vec<u8>) -> Endpoint {
    let endpoint = Endpoint::new(None).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, counts) = (listener.local_addr().unwrap(), Arc::clone(&endpoint.counts));
    let seen = Arc::clone(&counts);
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        first.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let mut preface = [0; PREFACE.len()];
        first.read_exact(&mut preface).await.unwrap();
        let mut data = 0;
        loop {
            let mut head = [0; 9];
            first.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            first.read_exact(&mut vec![0; length]).await.unwrap();
            if head[3] == SETTINGS && head[4] == 0 {
                first.write_all(&frame(SETTINGS, 1, 0, &[])).await.unwrap();
            }
            data += if head[3] == DATA { length } else { 0 };
            if head[3] == DATA && (head[4] & END_STREAM != 0 || data == WINDOW) {
                break;
            }
        }
        first.write_all(&frames).await.unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, None, Arc::clone(&seen)));
        }
    });
    Endpoint { address, counts }
}

#[test]
fn a_call_after_the_last_one_of_a_goodbye_goes_elsewhere() {
    run(async {
        let endpoint = answering(frame(GOAWAY, 0, 0, &[0; 8])).await;
        let proxy = grpc(Limits::default(), &[&endpoint]);
        assert_eq!(ask(&mut sender(&proxy).await, "/").await, (StatusCode::OK, b"hello".to_vec()));
        assert_eq!(endpoint.count(|it| &it.calls), 1);
        proxy
    });
}

/// It has sent no more of it than fits into the window.
#[test]
fn a_long_call_after_the_last_one_of_a_goodbye_goes_elsewhere() {
    run(async {
        let endpoint = answering(frame(GOAWAY, 0, 0, &[0; 8])).await;
        let proxy = grpc(Limits::default(), &[&endpoint]);
        let (status, echo) = ask_with(&mut sender(&proxy).await, "/", vec![b'x'; 200_000]).await;
        assert_eq!((status, echo.len()), (StatusCode::OK, 200_000));
        proxy
    });
}

/// It may have been served: the proxy's own goodbye says nothing about that.
#[test]
fn a_call_whose_endpoint_breaks_the_rules_is_not_made_twice() {
    run(async {
        let endpoint = answering(frame(DATA, 0, 0, b"on no stream")).await;
        let proxy = grpc(Limits::default(), &[&endpoint]);
        assert_eq!(ask(&mut sender(&proxy).await, "/").await.0, StatusCode::BAD_GATEWAY);
        assert_eq!(endpoint.count(|it| &it.calls), 0);
        proxy
    });
}

#[test]
fn an_overlong_head_of_a_call_is_not_passed_on() {
    run(async {
        let endpoint = Endpoint::new(None).await;
        let proxy = grpc(Limits::default(), &[&endpoint]);
        let mut sender = sender(&proxy).await;
        assert_eq!(ask(&mut sender, "/overlong").await.0, StatusCode::BAD_GATEWAY);
        assert_eq!(ask(&mut sender, "/").await.0, StatusCode::OK);
        assert_eq!(endpoint.count(|it| &it.connections), 1);
        proxy
    });
}

/// It is not the endpoint that is slow.
#[test]
fn a_call_whose_client_sends_nothing_is_the_client_s_timeout() {
    run(async {
        let endpoint = Endpoint::new(None).await;
        let mut limits = Limits::default();
        limits.timeouts.client_body = Duration::from_millis(1);
        let proxy = grpc(limits, &[&endpoint]);
        let (response, _out) = sender(&proxy).await.send_request(call("/"), false).unwrap();
        assert_eq!(response.await.unwrap_err().reason(), Some(Reason::CANCEL), "there is no answer to it");
        proxy
    });
}
