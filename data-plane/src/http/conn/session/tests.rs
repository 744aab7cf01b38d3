use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use futures::poll;
use tokio::task::spawn_blocking;

use super::*;
use crate::codec::stream::{Last, Socket};
use crate::http::conn::tests::{narrow, secured};
use crate::listen::{PublicPorts, Scheme};
use crate::local::Local;
use crate::table::Writer;
use crate::tls::backends::Backends;

fn session<S: Stream>(stream: S) -> Session<S> {
    let writer = Writer::new();
    let tls = Arc::new(crate::tls::server_config(Arc::clone(writer.tables()), None).unwrap());
    let (local, backends) = (Local::for_tests(), Backends::new().unwrap());
    let server = Server::new(local, writer.tables(), tls, backends, PublicPorts::default());
    let peer = Peer::new(([127, 0, 0, 1], 1).into(), Scheme::Http, 80);
    Session::new(Rc::new(server), stream, peer, false)
}

/// A session over a socket, and its client.
fn connected() -> (Session<Socket>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    accepted.set_nonblocking(true).unwrap();
    (session(Socket::from(accepted)), client)
}

/// The size of the future is written anew for each request, and held by each one in progress: what few requests need
/// (a handshake with a backend, a body, a gRPC call, an error backend) is boxed where it starts.
#[tokio::test]
async fn a_request_has_no_room_for_what_few_need() {
    let mut session = session(tokio::io::empty());
    let mut input = BytesMut::from("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = RequestReader::new(HeadLimits::REQUEST).feed(&mut input).unwrap().unwrap();
    let size = size_of_val(&session.exchange(head));
    assert!(size <= 4 * 1024, "{size}");
    let idle = size_of_val(&session.run());
    assert!(idle <= 256, "{idle}");
}

/// Whoever ends the connection, whether or not its socket was waited for: the next request has arrived since the first
/// one was read, and a socket that is closed now is reset before the response has left it.
#[tokio::test]
async fn a_last_response_arrives_although_another_request_has_come() {
    for (by, is_registered) in
        [Closing::Client, Closing::Proxy].into_iter().flat_map(|by| [(by, false), (by, true)])
    {
        let (mut session, mut client) = connected();
        if is_registered {
            session.stream.registered().unwrap();
        }
        Last(&mut session.stream).write_all(b"response").await.unwrap();
        client.write_all(b"GET /next HTTP/1.1\r\n\r\n").unwrap();
        let received = spawn_blocking(move || {
            let mut all = String::new();
            client.read_to_string(&mut all).map(|_| all)
        });
        session.close(true, by).await;
        drop(session);
        assert_eq!(received.await.unwrap().unwrap(), "response", "registered: {is_registered}");
    }
}

/// The kernel has more of a response than its client takes, and the next request arrives after the last look.
#[tokio::test]
async fn one_that_may_lag_is_heard_out() {
    for may_lag in [false, true] {
        let (mut session, client) = connected();
        session.may_lag = may_lag;
        let mut closing = Box::pin(session.close(true, Closing::Proxy));
        assert_eq!(poll!(&mut closing).is_pending(), may_lag);
        drop(client);
        if may_lag {
            closing.await;
        }
    }
}

/// The same over TLS, where the kernel still has most of the response.
#[tokio::test]
async fn a_last_response_arrives_over_tls_although_another_request_has_come() {
    for by in [Closing::Client, Closing::Proxy] {
        let (near, client) = narrow();
        let writer = Writer::new();
        let (stream, mut client) = secured(writer.tables(), near, client).await;
        let mut session = session(stream);
        let response = "x".repeat(200_000);
        session.stream.write_all(response.as_bytes()).await.unwrap();
        client.write_all(b"GET /next HTTP/1.1\r\n\r\n").unwrap();
        let closing = async {
            session.close(true, by).await;
            drop(session);
        };
        let mut closing = Box::pin(closing);
        assert!(poll!(&mut closing).is_pending(), "what it has sent is to be read");
        let received = spawn_blocking(move || {
            let mut all = String::new();
            client.read_to_string(&mut all).map(|_| all)
        });
        closing.await;
        assert!(received.await.unwrap().unwrap() == response);
    }
}
