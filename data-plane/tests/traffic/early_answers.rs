//! Endpoints that respond before they have all of a request whose body is streamed: it is sent on meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use data_plane::local::Limits;
use data_plane::table::{Sizes, Timeouts};
use test_kit::client::frames::{Block, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RESET};

use super::harness::*;
use super::hostile::Frames;

const PIECES: [&[u8]; 3] = [b"first", b"other", b"final"];

/// Bodies are streamed.
fn streaming() -> Limits {
    let timeouts = Timeouts { client_body: Duration::from_secs(1), ..Timeouts::default() };
    Limits { sizes: Sizes { buffering: false, ..Sizes::default() }, timeouts, ..Limits::default() }
}

/// Reads until what came ends like this. `None`: the stream ends before.
pub(super) fn until(stream: &mut TcpStream, end: &[u8]) -> Option<Vec<u8>> {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(end) {
        stream.read_exact(&mut byte).ok()?;
        all.push(byte[0]);
    }
    Some(all)
}

/// Responds at once, and says each piece of the request as it comes. The body has all of them if it is chunked, too.
fn echo() -> Origin {
    Origin::raw(|mut stream, _, _| {
        while let Some(head) = until(&mut stream, b"\r\n\r\n") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
            if head.starts_with(b"POST") {
                for piece in PIECES {
                    if until(&mut stream, piece).is_none() {
                        return;
                    }
                    stream.write_all(&[b"5\r\n", piece, b"\r\n"].concat()).unwrap();
                }
                if String::from_utf8(head).unwrap().to_lowercase().contains("chunked") {
                    until(&mut stream, b"0\r\n\r\n").unwrap();
                }
            }
            stream.write_all(b"0\r\n\r\n").unwrap();
        }
    })
}

#[test]
fn who_answers_early_hears_the_rest() {
    let origin = echo();
    let proxy = Proxy::serving(streaming(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    for framing in ["Content-Length: 15", "Transfer-Encoding: chunked"] {
        client.send(format!("POST / HTTP/1.1\r\nHost: a.test\r\n{framing}\r\n\r\n"));
        until(&mut client.stream, b"\r\n\r\n").unwrap();
        for piece in PIECES {
            let chunk = [b"5\r\n", piece, b"\r\n"].concat();
            client.send(if framing.starts_with('C') { piece } else { &chunk });
            assert_eq!(until(&mut client.stream, piece), Some([b"5\r\n", piece].concat()));
            until(&mut client.stream, b"\r\n").unwrap();
        }
        if framing.starts_with('T') {
            client.send("0\r\n\r\n");
        }
        until(&mut client.stream, b"0\r\n\r\n").unwrap();
    }
    assert_eq!(client.get("/").status, 200);
    assert_eq!(origin.connections(), 1, "it is used again");
}

/// The next frame of this kind.
fn next(client: &mut Frames, wanted: u8) -> Vec<u8> {
    loop {
        let (kind, stream, payload) = client.next().unwrap();
        assert!(![RESET, GOAWAY].contains(&kind), "{kind} of {stream}: {payload:?}");
        if kind == wanted {
            return payload;
        }
    }
}

#[test]
fn who_answers_early_hears_the_rest_from_a_client_of_http2() {
    let origin = echo();
    let proxy = Proxy::serving(streaming(), &[origin.address]);
    let mut client = Frames::new(&proxy);
    for stream in [1, 3] {
        client.send(HEADERS, END_HEADERS, stream, Block::request("POST", "a.test", "/").bytes());
        next(&mut client, HEADERS);
        for (number, piece) in PIECES.into_iter().enumerate() {
            let flags = if number + 1 == PIECES.len() { END_STREAM } else { 0 };
            client.send(DATA, flags, stream, piece);
            assert_eq!(next(&mut client, DATA), piece);
        }
        while client.next_with_flags().unwrap().2 & END_STREAM == 0 {}
    }
    assert_eq!(origin.connections(), 1, "it is used again");
}

/// The rest of the request is not wanted then, and is discarded.
#[test]
fn an_answer_that_ends_early_ends_the_sending() {
    let origin = Origin::raw(|mut stream, _, _| {
        until(&mut stream, b"first").unwrap();
        stream.write_all(&ok("enough")).unwrap();
    });
    let proxy = Proxy::serving(streaming(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    for _ in 0..2 {
        let answer = client.ask("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 15\r\n\r\nfirst");
        assert_eq!((answer.status, answer.text()), (200, "enough"));
        client.send("otherfinal");
    }
}

/// It has as long for each part of its body as before the response began.
#[test]
fn a_client_that_stalls_after_an_early_answer_is_cut() {
    let origin = echo();
    let proxy = Proxy::serving(streaming(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 15\r\n\r\nfirst");
    until(&mut client.stream, b"first\r\n").unwrap();
    assert!(client.ended(), "it looks incomplete");
    let mut client = Frames::new(&proxy);
    client.send(HEADERS, END_HEADERS, 1, Block::request("POST", "a.test", "/").bytes());
    client.send(DATA, 0, 1, b"first");
    while client.next().unwrap().0 != RESET {}
}
