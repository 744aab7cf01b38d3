//! A storm of handshakes next to requests, measured in turns of the event loop that both share.

use std::cell::Cell;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener as StdListener, TcpStream as StdStream};

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};

use super::*;
use crate::http::conn::hello::HANDSHAKE;
use crate::http::peer::SESSION;

/// Handshakes that are ready at once.
const STORM: usize = 2_000;
/// Established connections beside them, and requests on each.
const KEPT: usize = 4;
const REQUESTS: usize = 100;

/// A ClientHello.
fn hello() -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let name = ServerName::try_from("a.test").unwrap();
    let mut hello = Vec::new();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut hello).unwrap();
    hello
}

/// Both ends of a connection.
fn pair(listener: &StdListener) -> (StdStream, StdStream) {
    let client = StdStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    (client, near)
}

fn served(server: &Rc<Server>, near: StdStream, scheme: Scheme) {
    let peer = Peer::new(near.peer_addr().unwrap(), scheme, 80);
    spawn_local(serve(Rc::clone(server), near.into(), peer));
}

/// Sends a request and waits for the whole response.
async fn ask(client: &mut TcpStream) {
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
            if body.len() == length.parse::<usize>().unwrap() {
                return;
            }
        }
        assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0, "{answer:?}");
    }
}

/// Number of handshake steps, and of turns of the event loop.
type Moment = (u64, u64);

/// When each request of a connection was answered.
async fn asked(client: StdStream, now: impl Fn() -> Moment) -> Vec<Moment> {
    client.set_nonblocking(true).unwrap();
    let mut client = TcpStream::from_std(client).unwrap();
    let mut answered = vec![now()];
    for _ in 0..REQUESTS {
        ask(&mut client).await;
        answered.push(now());
    }
    answered
}

#[test]
fn requests_are_answered_between_the_handshakes_of_a_storm() {
    rlimit::increase_nofile_limit(rlimit::INFINITY).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let writer = Writer::new();
        let tables = Arc::clone(writer.tables());
        let tls = Arc::new(crate::tls::server_config(Arc::clone(&tables), None).unwrap());
        let backends = Backends::new().unwrap();
        let server = Rc::new(Server::new(Local::for_tests(), &tables, tls, backends, PublicPorts::default()));
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let hello = hello();
        let storm: Vec<StdStream> = (0..STORM)
            .map(|_| {
                let (mut client, near) = pair(&listener);
                client.write_all(&hello).unwrap();
                served(&server, near, Scheme::Https);
                client
            })
            .collect();
        // Continues after all ready tasks, each time that the runtime polls the kernel: one turn.
        let turns = Rc::new(Cell::new(0));
        let counted = Rc::clone(&turns);
        let counting = spawn_local(async move {
            loop {
                yield_now().await;
                counted.set(counted.get() + 1);
            }
        });
        let mut kept = Vec::new();
        for _ in 0..KEPT {
            let (client, near) = pair(&listener);
            served(&server, near, Scheme::Http);
            let (server, turns) = (Rc::clone(&server), Rc::clone(&turns));
            kept.push(spawn_local(asked(client, move || {
                (server.local.handshake_queue.taken(), turns.get())
            })));
        }
        let mut longest = (0, 0);
        for connection in kept {
            let answered = connection.await.unwrap();
            for pair in answered.windows(2) {
                let (steps, turns) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
                // One step per turn, except for the turn that began before and the one that has not ended.
                assert!(steps <= turns + 2, "{steps} steps of handshakes in {turns} turns");
                longest = longest.max((steps, turns));
            }
            let (last, _) = answered[REQUESTS];
            assert!(
                last < STORM as u64,
                "{last} handshakes were computed before {REQUESTS} requests were answered"
            );
        }
        println!("at most {} steps of handshakes, in {} turns, between two answers", longest.0, longest.1);
        // All of them get their turn.
        while server.local.handshake_queue.taken() < STORM as u64 {
            yield_now().await;
        }
        counting.abort();
        drop(storm);
    });
}

#[tokio::test]
async fn handshake_memory_is_charged_and_refused_without_budget() {
    let writer = Writer::new();
    let tables = Arc::clone(writer.tables());
    let tls = Arc::new(crate::tls::server_config(Arc::clone(&tables), None).unwrap());
    let local = Local::for_tests();
    let quota = Rc::clone(&local.quota);
    let backends = Backends::new().unwrap();
    let server = Rc::new(Server::new(local, &tables, tls, backends, PublicPorts::default()));
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            let (mut client, near) = pair(&listener);
            client.write_all(&hello()).unwrap();
            served(&server, near, Scheme::Https);
            while server.local.handshake_queue.taken() == 0 {
                yield_now().await;
            }
            assert_eq!(quota.held(), HANDSHAKE);
            drop(client);
            while quota.held() > 0 {
                yield_now().await;
            }
            assert_eq!(server.local.metrics.handshake_failures.value(), 1);
            // What is left of it stays as long as the connection.
            let (client, near) = pair(&listener);
            served(&server, near, Scheme::Https);
            let mut client = greeting(client).await.unwrap();
            while server.local.metrics.handshakes.value() == 0 {
                yield_now().await;
            }
            assert_eq!(quota.held(), SESSION);
            // A record of which most has come.
            let record = [&[23, 3, 3, 0x40, 0][..], &[0; 12_000]].concat();
            client.sock.write_all(&record).unwrap();
            while quota.held() < SESSION + record.len() {
                yield_now().await;
            }
            drop(client);
            while quota.held() > 0 {
                yield_now().await;
            }
            let taken = server.local.handshake_queue.taken();
            // Bytes held by others.
            let mut others = Vec::new();
            others.extend(std::iter::from_fn(|| quota.open(1 << 20)));
            let (mut client, near) = pair(&listener);
            client.write_all(&hello()).unwrap();
            served(&server, near, Scheme::Https);
            while server.local.metrics.handshake_failures.value() == 1 {
                yield_now().await;
            }
            assert_eq!(server.local.handshake_queue.taken(), taken, "nothing is computed for it");
            // A hello of which there is only the beginning counts as much.
            let (mut client, near) = pair(&listener);
            client.write_all(&hello()[..1]).unwrap();
            served(&server, near, Scheme::Https);
            while server.local.metrics.handshake_failures.value() == 2 {
                yield_now().await;
            }
            drop(others);
            let (mut client, near) = pair(&listener);
            client.write_all(&hello()[..1]).unwrap();
            served(&server, near, Scheme::Https);
            while quota.held() != HANDSHAKE {
                yield_now().await;
            }
        })
        .await;
}
