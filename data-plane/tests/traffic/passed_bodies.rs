//! Long responses, whose bodies go from the endpoint's socket to the client's without being read.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use data_plane::local::{Budgets, Limits};
use data_plane::table::Timeouts;
use shared::budget::Budget;

use super::harness::*;

/// More than all sockets and pipes hold.
const LONG: usize = 24_000_000;

fn octets(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at / 11 % 251) as u8).collect()
}

/// An endpoint that announces this length and sends these bytes.
fn sending(announced: usize, body: Vec<u8>) -> Origin {
    Origin::new(move |_| {
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {announced}\r\n\r\n").into_bytes();
        answer.extend_from_slice(&body);
        (answer, body.len() == announced)
    })
}

#[test]
fn spliced_body_arrives_whole_at_a_pausing_client_and_connections_are_reused() {
    let body = octets(LONG);
    let origin = sending(LONG, body.clone());
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        // The sockets and the pipe are full by then.
        std::thread::sleep(Duration::from_millis(300));
        let answer = client.receive(false).unwrap();
        assert!(answer.body == body, "{} bytes", answer.body.len());
    }
    let seen = origin.seen();
    assert_eq!((seen[0].connection, seen[1].connection), (0, 0), "the endpoint's connection was kept");
    assert_eq!(client.get("/").body.len(), LONG);
}

#[test]
fn one_that_breaks_off_ends_the_connection_after_what_came_of_it() {
    let part = octets(LONG / 2);
    let origin = sending(LONG, part.clone());
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let rest = client.rest();
    assert!(rest.ends_with(&part), "{} bytes", rest.len());
    assert!(rest.len() < part.len() + 1_000);
}

/// A pipe takes two descriptors, which connections need more.
#[test]
fn without_descriptors_for_a_pipe_it_is_read() {
    let body = octets(3_000_000);
    let origin = sending(body.len(), body.clone());
    let budgets = Budgets { descriptors: Budget::new(2), ..Budgets::default() };
    let mut proxy = Proxy::within(Limits::default(), budgets);
    proxy.host("a.test", false, &[("/", shared::resource::PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    assert!(client.get("/").body == body);
}

/// Urgent data can only be read, not spliced; the same holds for sockets in a BPF sockmap.
#[test]
fn body_that_cannot_be_spliced_is_copied() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let timeouts = Timeouts { read: PATIENCE / 2, tries: 1, ..Timeouts::default() };
    let limits = Limits { timeouts, ..Limits::default() };
    let proxy = Proxy::serving(limits, &[listener.local_addr().unwrap()]);
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 16]).unwrap();
        let part = octets(1_000_000);
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n").unwrap();
        stream.write_all(&part).unwrap();
        // Once, and not together with the bytes before or after it: another one would make those readable.
        std::thread::sleep(Duration::from_millis(200));
        socket2::SockRef::from(&stream).send_out_of_band(b"!").unwrap();
        std::thread::sleep(Duration::from_millis(200));
        stream.write_all(&part.repeat(2)).unwrap();
        stream
    });
    let begun = Instant::now();
    let answer = Client::new(proxy.http).get("/");
    assert!(answer.body == octets(1_000_000).repeat(3), "{} bytes", answer.body.len());
    assert!(begun.elapsed() < PATIENCE / 2);
    drop(answering.join().unwrap());
}

/// A client that disconnects leaves nothing of its response for the next one.
#[test]
fn a_client_that_goes_takes_the_rest_with_it() {
    let body = octets(LONG);
    let origin = sending(LONG, body.clone());
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    for _ in 0..3 {
        let mut stream = std::net::TcpStream::connect(proxy.http).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        stream.read_exact(&mut vec![0; LONG / 4]).unwrap();
    }
    let mut client = Client::new(proxy.http);
    assert!(client.get("/").body == body);
}
