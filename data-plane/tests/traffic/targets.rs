//! Request targets that HTTP/1.1 allows and h2 does not: over both they are the same request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use data_plane::local::Limits;
use test_kit::client::frames::{END_HEADERS, END_STREAM, HEADERS, RESET};

use super::harness::*;
use super::hostile::Frames;

const CONTINUATION: u8 = 9;

/// Each as plain text, and Huffman-coded.
const TARGETS: [(&[u8], &[u8]); 3] = [
    (b"/api?q=up{job=\"x\"}", b"\x60\x75\x9b\xfc\xed\x05\xb5\xff\xfe\xe8\x78\xe0\xfe\x7c\xff\x3f\xfe\xff"),
    (b"/?a=<b>", b"\x63\xfc\x1c\x1f\xff\x23\xff\xbf"),
    (b"/<b>/`", b"\x63\xff\xe4\x7f\xf6\xc7\xff\xdf"),
];

/// An endpoint that reports the exact targets of its requests.
fn endpoint() -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.unwrap(), Vec::new());
            while !head.ends_with(b"\r\n\r\n") {
                let mut octet = [0];
                stream.read_exact(&mut octet).unwrap();
                head.push(octet[0]);
            }
            let target = head.split(|octet| *octet == b' ').nth(1).unwrap();
            if tell.send(target.to_vec()).is_err() {
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (address, told)
}

/// The indexed status of a stream's response; 0 if it is reset.
fn answer(client: &mut Frames, stream: u32) -> u8 {
    loop {
        match client.next().unwrap() {
            (HEADERS, of, payload) if of == stream => return payload[0],
            (RESET, of, _) if of == stream => return 0,
            _ => {}
        }
    }
}

/// `GET http://a.test` with this encoded `:path`, indexed in the table.
fn spelled(path: &[u8], is_huffman: bool) -> Vec<u8> {
    let length = path.len() as u8 | if is_huffman { 0x80 } else { 0 };
    [&[0x82, 0x86, 0x01, 6][..], b"a.test", &[0x44, length], path].concat()
}

#[test]
fn a_target_is_the_same_over_http_1_and_2() {
    let (address, told) = endpoint();
    let proxy = Proxy::serving(Limits::default(), &[address]);
    let mut client = Frames::new(&proxy);
    let mut stream = 1;
    let mut ask = |block: &[u8], cut: usize| {
        stream += 2;
        let (first, second) = block.split_at(cut);
        client.send(HEADERS, END_STREAM, stream, first);
        client.send(CONTINUATION, END_HEADERS, stream, second);
        assert_eq!(answer(&mut client, stream), 0x88);
        told.recv_timeout(PATIENCE).unwrap()
    };
    for (target, coded) in TARGETS {
        let mut plain = TcpStream::connect(proxy.http).unwrap();
        let request = [b"GET ", target, b" HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"].concat();
        plain.write_all(&request).unwrap();
        let mut text = Vec::new();
        plain.read_to_end(&mut text).unwrap();
        assert!(text.starts_with(b"HTTP/1.1 200"), "{}", text.escape_ascii());
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), target);
        for (path, is_huffman) in [(target, false), (coded, true)] {
            let block = spelled(path, is_huffman);
            for cut in [0, 8, block.len() - 3, block.len()] {
                assert_eq!(ask(&block, cut).escape_ascii().to_string(), target.escape_ascii().to_string());
                // The newest entry of the table.
                let again = [&block[..10], &[0xbe]].concat();
                assert_eq!(ask(&again, cut.min(10)), target);
            }
        }
    }
    // Another target does not replace it.
    assert_eq!(ask(&spelled(b"/plain", false), 0), b"/plain");
}

#[test]
fn invalid_http2_target_is_refused_and_logged() {
    let (address, told) = endpoint();
    let proxy = Proxy::serving(Limits::default(), &[address]);
    let mut client = Frames::new(&proxy);
    for (stream, path) in [
        (1, &b"/a b"[..]),
        (3, b"/\x01"),
        (5, b"a"),
        (7, b"/\r\nX: y"),
        (9, b"ftp://a.test/"),
        (11, b"/caf\xe9"),
        (13, b"/\xff\x80?\xe9=\""),
    ] {
        let block = spelled(path, false);
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &block);
        assert_eq!(answer(&mut client, stream), 0x8c, "{}", path.escape_ascii());
    }
    eventually("a line for each", || proxy.log.text().lines().count() == 7);
    assert!(told.try_recv().is_err());
}
