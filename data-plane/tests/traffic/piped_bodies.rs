//! Large buffered request bodies, which go from the client's socket to the endpoint's through a pipe: no one can tell.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use data_plane::local::{Budgets, Limits, Spill};
use data_plane::table::Sizes;
use rustls::{ServerConnection, StreamOwned};
use shared::budget::Budget;
use shared::policy::{BackendProtocol, LocationPolicy};
use shared::resource::PathType;
use socket2::SockRef;

use super::backend_tls::server;
use super::harness::*;

/// The maximum size of a body that is not kept in a file.
const ORDINARY: usize = 1 << 20;

/// A different byte at each place, as far as a fault could confuse them.
fn octets(count: usize) -> Vec<u8> {
    (0..count as u32).map(|at| ((at / 7) ^ (at >> 11)) as u8).collect()
}

fn head(method: &str, length: usize) -> Vec<u8> {
    format!("{method} /echo HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

/// Sends in segments of this size.
fn send(client: &mut Client, bytes: &[u8], segment: usize) {
    bytes.chunks(segment).for_each(|part| client.send(part));
}

/// A proxy in front of this endpoint, and the budget of its descriptors.
fn counted(origin: &Origin) -> (Proxy, Budget) {
    let budgets = Budgets::default();
    let descriptors = budgets.descriptors.clone();
    let mut proxy = Proxy::within(Limits::default(), budgets);
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    (proxy, descriptors)
}

#[test]
fn body_of_any_size_and_segmentation_arrives_and_the_next_request_does_too() {
    let origin = Origin::says("whole");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    let mut expected = 0;
    for size in [100_000, 131_072, 150_000, 163_840, 200_001, 400_000, 700_001, ORDINARY - 1, ORDINARY] {
        let body = octets(size);
        for segment in [usize::MAX, 300, 1_448, 16_384, 70_000] {
            let mut request = head("POST", size);
            request.extend_from_slice(&body);
            // The first segment of the next request may arrive together with the last one of the body.
            request.extend(b"GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n");
            send(&mut client, &request, segment.min(request.len()));
            assert_eq!(client.receive(false).unwrap().text(), "whole");
            assert_eq!(client.receive(false).unwrap().text(), "whole");
            let seen = origin.seen();
            let [.., post, next] = &seen[..] else { panic!("two requests") };
            assert!(post.body == body, "{size} in {segment}: {}", post.body.len());
            assert_eq!((next.line(), next.body.len()), ("GET /next HTTP/1.1", 0));
            expected += size as u64;
        }
    }
    assert_eq!(proxy.metrics.worker(0).received.value(), expected);
}

/// An endpoint that reads this much of a body, and closes.
fn breaking(after: usize) -> Origin {
    Origin::raw(move |mut stream, _, _| {
        let _ = stream.read_exact(&mut vec![0; after]);
    })
}

#[test]
fn second_endpoint_gets_the_whole_body_after_the_first_took_a_part() {
    let body = octets(ORDINARY);
    for after in [1, 20_000, 500_000, ORDINARY] {
        let (good, bad) = (Origin::says("good"), breaking(after));
        let proxy = Proxy::serving(Limits::default(), &[bad.address, good.address]);
        let mut client = Client::new(proxy.http);
        for _ in 0..3 {
            client.send(head("PUT", body.len()));
            client.send(&body);
            assert_eq!(client.receive(false).unwrap().text(), "good", "{after}");
        }
        assert!(bad.connections() > 0);
        assert!(good.seen().iter().all(|seen| seen.body == body), "{after}");
    }
}

#[test]
fn body_is_not_sent_again_if_its_method_forbids() {
    let (good, bad) = (Origin::says("good"), breaking(500_000));
    let proxy = Proxy::serving(Limits::default(), &[bad.address, good.address]);
    let mut client = Client::new(proxy.http);
    let statuses = [0; 4].map(|_| {
        client.send(head("POST", ORDINARY));
        client.send(octets(ORDINARY));
        client.receive(false).unwrap().status
    });
    assert!(statuses.contains(&502) && good.seen().len() + bad.connections() as usize == 4, "{statuses:?}");
}

#[test]
fn client_that_waits_is_told_to_go_on() {
    let origin = Origin::says("whole");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    let body = octets(ORDINARY);
    client.send(format!(
        "PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    ));
    assert_eq!(client.receive(false).unwrap().status, 100);
    client.send(&body);
    assert_eq!(client.receive(false).unwrap().text(), "whole");
    assert!(origin.seen()[0].body == body);
}

/// One that pauses, and one that sends what can be read but not spliced.
#[test]
fn body_that_stops_flowing_is_taken_out_of_its_pipe() {
    let origin = Origin::says("whole");
    let (proxy, descriptors) = counted(&origin);
    let mut client = Client::new(proxy.http);
    let body = octets(ORDINARY);
    let (first, rest) = body.split_at(600_000);
    for is_urgent in [false, true] {
        client.send(head("PUT", body.len()));
        client.send(first);
        if is_urgent {
            thread::sleep(Duration::from_millis(200));
            SockRef::from(&client.stream).send_out_of_band(b"!").unwrap();
            thread::sleep(Duration::from_millis(200));
        } else {
            // The client's connection, and the endpoint's in the second round.
            eventually("a pipe that is given back", || descriptors.used() <= 4);
        }
        client.send(rest);
        assert_eq!(client.receive(false).unwrap().text(), "whole");
        assert!(origin.seen().pop().unwrap().body == body, "{is_urgent}");
    }
}

#[test]
fn client_that_leaves_in_the_middle_leaves_nothing() {
    let origin = Origin::says("whole");
    let (proxy, descriptors) = counted(&origin);
    for resets in [false, true] {
        let mut client = Client::new(proxy.http);
        client.send(head("PUT", ORDINARY));
        client.send(octets(600_000));
        if resets {
            test_kit::origin::resets(&client.stream).unwrap();
        } else {
            client.stream.shutdown(Shutdown::Write).unwrap();
            assert!(client.ended());
        }
    }
    let before = || descriptors.used();
    eventually("nothing is left", || before() == 0);
    let mut client = Client::new(proxy.http);
    let body = octets(ORDINARY);
    client.send(head("PUT", ORDINARY));
    client.send(&body);
    assert_eq!(client.receive(false).unwrap().text(), "whole");
    assert_eq!(origin.seen().len(), 1);
    assert!(origin.seen()[0].body == body);
}

#[test]
fn endpoint_that_pauses_gets_all_of_it() {
    let origin = Origin::raw(|mut stream, number, seen| {
        let mut some = vec![0; 100_000];
        stream.read_exact(&mut some).unwrap();
        thread::sleep(Duration::from_millis(300));
        let request = read_request(&mut some.chain(&mut stream), number).unwrap();
        seen.lock().unwrap().push(request);
        stream.write_all(&ok("whole")).unwrap();
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    let body = octets(ORDINARY);
    client.send(head("POST", body.len()));
    client.send(&body);
    assert_eq!(client.receive(false).unwrap().text(), "whole");
    assert!(origin.seen()[0].body == body);
}

#[test]
fn early_response_ends_the_sending() {
    let origin = Origin::raw(|mut stream, _, _| {
        stream.read_exact(&mut [0; 4_096]).unwrap();
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig").unwrap();
        thread::park();
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(head("POST", ORDINARY));
    client.send(octets(ORDINARY));
    assert_eq!(client.receive(false).unwrap().text(), "big");
}

#[test]
fn body_that_is_too_large_is_413() {
    let origin = Origin::says("whole");
    let sizes = Sizes { body: 500_000, ..Sizes::default() };
    let proxy = Proxy::serving(Limits { sizes, ..Limits::default() }, &[origin.address]);
    for size in [500_001, 500_000] {
        let mut client = Client::new(proxy.http);
        client.send(head("POST", size));
        client.send(octets(size));
        let status = if size > 500_000 { 413 } else { 200 };
        assert_eq!(client.receive(false).unwrap().status, status);
    }
}

/// With few descriptors, and without memory beyond the body's buffer.
#[test]
fn without_room_for_a_pipe_it_is_read() {
    let body = octets(ORDINARY);
    for budgets in [
        Budgets { descriptors: Budget::new(4), ..Budgets::default() },
        Budgets { spill: Spill::into_dir(std::env::temp_dir()), ..Budgets::default() },
    ] {
        let origin = Origin::says("whole");
        let mut proxy = Proxy::within(Limits::default(), budgets);
        proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
        proxy.endpoints("echo", &[origin.address]);
        let mut client = Client::new(proxy.http);
        client.send(head("PUT", body.len()));
        client.send(&body);
        assert_eq!(client.receive(false).unwrap().text(), "whole");
        assert!(origin.seen()[0].body == body);
    }
}

#[test]
fn endpoint_behind_tls_and_mirror_get_the_same() {
    let body = octets(ORDINARY);
    let config = server();
    let secure = Origin::raw(move |stream, number, seen| {
        let session = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        while let Some(request) = read_request(&mut stream, number) {
            seen.lock().unwrap().push(request);
            stream.write_all(&ok("whole")).and_then(|()| stream.flush()).unwrap();
        }
    });
    let (plain, mirror) = (Origin::says("whole"), Origin::says("ignored"));
    let over_tls =
        LocationPolicy { backend_protocol: Some(BackendProtocol::Https.into()), ..LocationPolicy::default() };
    let target = Some(format!("http://{}$request_uri", mirror.address));
    let mirrored = LocationPolicy { mirror_target: target, ..LocationPolicy::default() };
    for (origin, policy) in [(&secure, over_tls), (&plain, mirrored)] {
        let mut proxy = Proxy::start();
        proxy.policies(false, &[("/echo", policy)]);
        proxy.endpoints("echo", &[origin.address]);
        let mut client = Client::new(proxy.http);
        for _ in 0..2 {
            client.send(head("PUT", body.len()));
            client.send(&body);
            assert_eq!(client.receive(false).unwrap().text(), "whole");
            assert!(origin.seen().pop().unwrap().body == body);
        }
    }
    eventually("two copies", || mirror.seen().len() == 2);
    assert!(mirror.seen().iter().all(|copy| copy.body == body));
}

/// The kernel takes all of it, so the response is what is waited for.
#[test]
fn endpoint_that_stops_reading_is_504() {
    let origin = Origin::raw(|mut stream, _, _| {
        stream.read_exact(&mut [0; 4_096]).unwrap();
        thread::park();
    });
    let mut proxy = Proxy::start();
    let policy = LocationPolicy {
        proxy_send_timeout: Some(1),
        proxy_read_timeout: Some(1),
        ..LocationPolicy::default()
    };
    proxy.policies(false, &[("/echo", policy)]);
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    let body = octets(ORDINARY);
    client.send(head("POST", body.len()));
    client.send(&body);
    assert_eq!(client.receive(false).unwrap().status, 504);
}
