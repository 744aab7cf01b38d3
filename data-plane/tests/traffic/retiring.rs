//! Endpoints that take few calls on a connection, refuse some, or break off: which calls go elsewhere, and which must not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use shared::policy::{BackendProtocol, LocationPolicy, TextList};
use test_kit::client::frames::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, RESET, SETTINGS, frame,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::grpc::{call, proxy, run, sender};

/// What an endpoint does with calls beyond those that it takes on a connection.
#[derive(Clone, Copy)]
enum Then {
    /// It has said that it takes no more, and does not look at them.
    Goodbye,
    /// It closes the connection when it gets one.
    Close,
    /// It resets each.
    Reset,
}

/// An endpoint that takes so many calls on a connection, and counts those that it has answered, on all of them.
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
async fn taking(most: usize, then: Then) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, answered) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&answered);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, (most, then), Arc::clone(&count)));
        }
    });
    (address, answered)
}

async fn serve(mut stream: TcpStream, (most, then): (usize, Then), answered: Arc<AtomicUsize>) {
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    stream.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
    let (mut taken, mut last) = (0, 0);
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let [a, b, c, kind, flags, of @ ..] = head;
        let (length, of) = (u32::from_be_bytes([0, a, b, c]), u32::from_be_bytes(of));
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        let mut out = Vec::new();
        match (kind, then) {
            (SETTINGS, _) if flags == 0 => out = frame(SETTINGS, 1, 0, &[]),
            (HEADERS, _) if taken < most => {
                (taken, last) = (taken + 1, of);
                if let (true, Then::Goodbye) = (taken == most, then) {
                    out = frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat());
                }
            }
            (HEADERS, Then::Close) => return,
            (HEADERS, Then::Reset) => out = frame(RESET, 0, of, &2_u32.to_be_bytes()),
            _ => {}
        }
        if matches!(kind, HEADERS | DATA) && of <= last && flags & END_STREAM != 0 {
            answered.fetch_add(1, Ordering::Relaxed);
            out.extend(frame(HEADERS, END_HEADERS | END_STREAM, of, &[0x88]));
        }
        // The proxy may have closed it by now.
        let _ = stream.write_all(&out).await;
    }
}

fn retrying(words: &str, tries: u32) -> LocationPolicy {
    let values = words.split(' ').map(str::to_owned).collect();
    LocationPolicy {
        proxy_next_upstream: Some(TextList { values }),
        proxy_next_upstream_tries: Some(tries),
        ..LocationPolicy::default()
    }
}

/// nginx gives each call a connection of its own, and so loses none.
#[test]
fn no_call_is_lost_where_an_endpoint_takes_few_on_a_connection() {
    run(async {
        let mut proxies = Vec::new();
        for (most, policy) in
            [(1, retrying("error timeout", 1)), (1, retrying("off", 3)), (3, retrying("off", 1))]
        {
            let (address, answered) = taking(most, Then::Goodbye).await;
            let proxy = proxy(&[address], policy, BackendProtocol::Grpc);
            let sender = sender(&proxy).await;
            let calls = (0..50).map(|_| {
                let mut sender = sender.clone();
                async move {
                    let (response, mut out) = sender.send_request(call("/"), false).unwrap();
                    out.send_data(Bytes::from_static(b"hello"), true).unwrap();
                    response.await.unwrap().status()
                }
            });
            let statuses = futures::future::join_all(calls).await;
            let lost = statuses.iter().filter(|status| **status != StatusCode::OK).count();
            assert_eq!((lost, answered.load(Ordering::Relaxed)), (0, 50), "{most} on a connection");
            proxies.push(proxy);
        }
        proxies
    });
}

/// The statuses of requests without a body, one after the other.
async fn asked(policy: LocationPolicy, method: Method, endpoints: &[SocketAddr]) -> Vec<u16> {
    let proxy = proxy(endpoints, policy, BackendProtocol::Grpc);
    let (mut sender, mut statuses) = (sender(&proxy).await, Vec::new());
    for _ in 0..4 {
        let request = Request::builder().method(&method).uri("http://a.test/").body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        statuses.push(response.await.unwrap().status().as_u16());
    }
    drop(sender);
    tokio::task::spawn_blocking(|| drop(proxy)).await.unwrap();
    statuses
}

/// As nginx does it for whatever is no POST, with the list that is configured.
#[test]
fn a_request_that_may_be_made_twice_goes_elsewhere_after_an_error() {
    run(async {
        let (broken, _) = taking(0, Then::Close).await;
        let (good, answered) = taking(usize::MAX, Then::Close).await;
        let both = [broken, good];
        assert_eq!(asked(LocationPolicy::default(), Method::GET, &both).await, [200; 4]);
        assert_eq!(answered.load(Ordering::Relaxed), 4);
        let of = |status: u16, all: &[u16]| all.iter().filter(|it| **it == status).count();
        let never = asked(retrying("off", 3), Method::GET, &both).await;
        assert_eq!((of(200, &never), of(502, &never)), (2, 2));
        let once = asked(LocationPolicy::default(), Method::POST, &both).await;
        assert!(of(502, &once) >= 1, "{once:?}");
        assert_eq!(asked(LocationPolicy::default(), Method::GET, &[broken]).await, [502; 4]);
    });
}

/// That is a response, though none that is passed on: the connection is as good as before.
#[test]
fn a_request_that_an_endpoint_resets_is_made_once() {
    run(async {
        let (address, answered) = taking(1, Then::Reset).await;
        let statuses = asked(LocationPolicy::default(), Method::GET, &[address]).await;
        // The others found the connection of the first.
        assert_eq!((statuses, answered.load(Ordering::Relaxed)), (vec![200, 502, 502, 502], 1));
    });
}
