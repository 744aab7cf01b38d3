//! HTTP/2 messages with an invalid field: each is a stream error, and other streams continue (RFC 9113 section 8.1.1).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use data_plane::local::Limits;
use data_plane::metrics::Kind;
use h2::Reason;
use http::StatusCode;
use shared::policy::{BackendProtocol, LocationPolicy};
use test_kit::client::frames::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RESET, SETTINGS, WINDOW_UPDATE, frame,
};

use super::grpc::{call, proxy, run, sender, whole};
use super::harness::*;
use super::hostile::Frames;

const CONTINUATION: u8 = 9;

/// `:status: 200` and `400` of the static table.
const OK: u8 = 0x88;
const BAD: u8 = 0x8c;

/// The first stream with a malformed request.
const FIRST: u32 = 5;

/// Bytes of a response that does not fit into a client's window.
const LONG: usize = 200_000;

/// A literal field, indexed or not.
fn field(first: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[first, name.len() as u8][..], name, &[value.len() as u8], value].concat()
}

/// A literal field that is indexed.
fn kept(name: &[u8], value: &[u8]) -> Vec<u8> {
    field(0x40, name, value)
}

fn request(method: &[u8], path: &[u8], fields: &[u8]) -> Vec<u8> {
    let head = [field(0, b":method", method), field(0, b":scheme", b"http"), field(0, b":path", path)];
    [&head.concat()[..], &field(0, b":authority", b"a.test"), fields].concat()
}

/// One whose scheme is empty.
fn without_scheme() -> Vec<u8> {
    let whole = request(b"GET", b"/malformed", b"");
    let [scheme, none] = [b"http" as &[u8], b""].map(|it| field(0, b":scheme", it));
    let at = whole.windows(scheme.len()).position(|it| it == scheme).unwrap();
    [&whole[..at], &none, &whole[at + scheme.len()..]].concat()
}

/// Malformed requests, each with a field that h2 cannot represent.
fn malformed() -> Vec<Vec<u8>> {
    let behind = [
        kept(b"X-Up", b"a"),
        kept(b"x\x01y", b"a"),
        kept(b"x y", b"a"),
        kept(b"x:y", b"a"),
        kept(b":foo", b"a"),
        kept(b"x-nul", b"a\0b"),
        kept(b"x-line", b"a\nb"),
        kept(b"x-del", b"a\x7fb"),
        kept(b"connectioN", b"close"),
        field(0x10, b"content-lengtH", b"5"),
        // Huffman-coded `X` and `:x`, and a value with a control octet.
        b"\x40\x81\xfc\x01a".to_vec(),
        b"\x00\x82\xb9\xe7\x01a".to_vec(),
        b"\x40\x01x\x84\x1f\xff\xfd\x8f".to_vec(),
    ];
    let mut all: Vec<_> = behind.iter().map(|field| request(b"GET", b"/malformed", field)).collect();
    all.extend([
        request(b"GET", b"/ \xe9", b""),
        request(b"G T", b"/malformed", b""),
        request(b"", b"/malformed", b""),
        without_scheme(),
        [field(0x40, b":status", b"20"), request(b"GET", b"/malformed", b"")].concat(),
        [field(0x40, b":protocol", b"\xff"), request(b"GET", b"/malformed", b"")].concat(),
    ]);
    // What h2 sees itself, and forgets where the frame ends within the last field.
    let (twice, late) =
        (field(0, b":path", b"/other"), [field(0, b"a", b"b"), field(0, b":path", b"/")].concat());
    all.extend(
        [twice, late]
            .map(|field| request(b"GET", b"/malformed", &[field, kept(b"x-cut", b"value")].concat())),
    );
    all
}

/// What a client receives until a stream has ended: the first bytes of heads, the streams that are reset, and the
/// number of body bytes of streams before [`FIRST`].
#[derive(Default, Debug)]
struct Heard {
    heads: Vec<(u32, u8)>,
    resets: Vec<(u32, u32)>,
    bytes: usize,
}

impl Heard {
    fn until(&mut self, client: &mut Frames, is_over: impl Fn(&Self) -> bool) {
        while !is_over(self) {
            let (kind, stream, payload) = client.next().unwrap_or_else(|| panic!("the end, after {self:?}"));
            match kind {
                HEADERS => self.heads.push((stream, payload[0])),
                DATA if stream < FIRST => self.bytes += payload.len(),
                RESET => self.resets.push((stream, u32::from_be_bytes(payload.try_into().unwrap()))),
                GOAWAY => panic!("goodbye {payload:?}, after {self:?}"),
                _ => {}
            }
        }
    }

    /// Whether a stream was reset with a protocol error, or its target refused.
    fn refuses(&self, stream: u32) -> bool {
        self.resets.contains(&(stream, 1)) || self.heads.contains(&(stream, BAD))
    }
}

#[test]
fn a_malformed_request_leaves_its_neighbours_alone() {
    let origin = Origin::new(|seen| {
        let long = if seen.line().contains("/long") { LONG } else { 0 };
        (ok(&format!("{}{}", seen.body.len(), "x".repeat(long))), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Frames::new(&proxy);
    let mut heard = Heard::default();
    // An upload and a download in progress.
    client.send(HEADERS, END_HEADERS, 1, &request(b"POST", b"/upload", b""));
    client.send(DATA, 0, 1, &[b'x'; 1_000]);
    client.send(HEADERS, END_HEADERS | END_STREAM, 3, &request(b"GET", b"/long", b""));
    heard.until(&mut client, |heard| heard.bytes == 65_535);
    let mut stream = FIRST - 2;
    for block in malformed() {
        stream += 2;
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &block);
        heard.until(&mut client, |heard| heard.refuses(stream));
        stream += 2;
        // In two frames, split anywhere.
        let (first, second) = block.split_at(block.len() - 3);
        client.send(HEADERS, END_STREAM, stream, first);
        client.send(CONTINUATION, END_HEADERS, stream, second);
        heard.until(&mut client, |heard| heard.refuses(stream));
        stream += 2;
        // One byte at a time, with a body to come.
        for byte in frame(HEADERS, END_HEADERS, stream, &block) {
            client.stream.write_all(&[byte]).unwrap();
        }
        heard.until(&mut client, |heard| heard.refuses(stream));
    }
    let before = heard.bytes;
    for of in [0, 3] {
        client.send(WINDOW_UPDATE, 0, of, &1_000_000_u32.to_be_bytes());
    }
    client.send(DATA, END_STREAM, 1, &[b'x'; 500]);
    heard.until(&mut client, |heard| heard.bytes >= before + LONG - 65_535 + 1 + 4);
    assert!(heard.heads.contains(&(1, OK)) && heard.heads.contains(&(3, OK)));
    let seen = origin.seen();
    let seen: Vec<_> = seen.iter().map(|seen| (seen.line(), seen.body.len())).collect();
    assert!(seen.contains(&("POST /upload HTTP/1.1", 1_500)) && seen.len() == 2, "{seen:?}");
    assert_eq!(proxy.metrics.worker(0).accepted.value(), 1);
    assert_eq!(proxy.metrics.worker(0).sent_away.value(), 0);
}

#[test]
fn hpack_reference_to_an_invalid_field_is_malformed() {
    let origin = Origin::new(|seen| (ok(&seen.all("x-good").concat()), true));
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Frames::new(&proxy);
    let mut heard = Heard::default();
    let mut ask = |stream: u32, fields: &[u8]| {
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &request(b"GET", b"/", fields));
        let head =
            |heard: &Heard| heard.heads.iter().find(|(of, _)| *of == stream).map(|(_, status)| *status);
        heard.until(&mut client, |heard| head(heard).is_some() || heard.resets.contains(&(stream, 1)));
        head(&heard).unwrap_or(0)
    };
    assert_eq!(ask(1, &kept(b"x-good", b"first")), OK);
    assert_eq!(ask(3, &kept(b"X-Good", b"bad")), 0);
    assert_eq!(ask(5, &[0xbf]), OK, "the one before");
    assert_eq!(ask(7, &[0xbe]), 0);
    assert_eq!(ask(9, b"\x7e\x01a"), 0, "its name alone");
    assert_eq!(ask(11, &kept(b"x-good", b"a\x01")), 0);
    assert_eq!(ask(13, b"\x7e\x06second"), OK, "this name is one");
    assert_eq!(ask(15, &[0xbe]), OK);
    let seen = origin.seen();
    let good: Vec<_> = seen.iter().map(|seen| seen.all("x-good").concat()).collect();
    assert_eq!(good, ["first", "first", "second", "second"]);
}

#[test]
fn trailers_with_a_field_that_is_none_end_their_request() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Frames::new(&proxy);
    let mut heard = Heard::default();
    // `:authority` is in the table since the first request.
    let trailers = [kept(b"X-Sum", b"1"), kept(b"x-sum", b"\x01"), vec![0xc0], kept(b"x-sum", b"1")];
    let is_malformed = [true, true, true, false];
    client.send(HEADERS, END_HEADERS, 1, &[&[0x83, 0x86, 0x84][..], &[0x41, 6], b"a.test"].concat());
    client.send(DATA, END_STREAM, 1, b"hello");
    heard.until(&mut client, |heard| heard.heads.contains(&(1, OK)));
    for (place, (block, is_malformed)) in (1..).zip(trailers.into_iter().zip(is_malformed)) {
        let stream = 2 * place + 1;
        client.send(HEADERS, END_HEADERS, stream, &request(b"POST", b"/", b""));
        client.send(DATA, 0, stream, b"hello");
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &block);
        heard.until(&mut client, |heard| heard.heads.iter().any(|(of, _)| *of == stream));
        assert_eq!(heard.heads.last().unwrap().1 == BAD, is_malformed, "{block:?}");
    }
    assert_eq!(origin.seen().len(), 2);
}

#[test]
fn non_utf8_octets_in_an_http2_target_are_refused() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Frames::new(&proxy);
    let mut heard = Heard::default();
    for (stream, path, status) in [(1, "/é".as_bytes(), OK), (3, b"/\xe9", BAD)] {
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &request(b"GET", path, b""));
        heard.until(&mut client, |heard| heard.heads.contains(&(stream, status)));
    }
}

/// Frames of a response: type, flags, payload.
type Answer = Vec<(u8, u8, Vec<u8>)>;

/// An endpoint that begins its first response, sends these for the other calls, and then ends the first one.
fn endpoint(answers: Vec<Answer>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        let mut first = None;
        let mut answers = answers.into_iter();
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).is_err() {
                return;
            }
            let [_, a, b, kind, _, of @ ..] = head;
            stream.read_exact(&mut vec![0; usize::from(u16::from_be_bytes([a, b]))]).unwrap();
            let of = u32::from_be_bytes(of);
            if kind != HEADERS {
                continue;
            }
            if first.is_none() {
                first = Some(of);
                let begun = [frame(HEADERS, END_HEADERS, of, &[OK]), frame(DATA, 0, of, b"begun")];
                stream.write_all(&begun.concat()).unwrap();
                continue;
            }
            for (kind, flags, payload) in answers.next().unwrap() {
                stream.write_all(&frame(kind, flags, of, &payload)).unwrap();
            }
            if answers.len() == 0 {
                let trailers =
                    frame(HEADERS, END_HEADERS | END_STREAM, first.unwrap(), &kept(b"grpc-status", b"0"));
                stream
                    .write_all(&[frame(DATA, 0, first.unwrap(), b" and ended"), trailers].concat())
                    .unwrap();
            }
        }
    });
    address
}

#[test]
fn a_malformed_answer_leaves_other_calls_alone() {
    run(async {
        let end = END_HEADERS | END_STREAM;
        let head = |fields: &[u8]| vec![(HEADERS, end, [&[OK], fields].concat())];
        let good = vec![(HEADERS, END_HEADERS, vec![OK]), (DATA, 0, b"good".to_vec())];
        let with = |trailers: &[u8]| [good.clone(), vec![(HEADERS, end, trailers.to_vec())]].concat();
        let bad_heads = [
            head(&kept(b"X-Up", b"a")),
            head(&kept(b"x-up", b"a\x01")),
            // The newest entry of the table.
            head(&[0xbe]),
            head(b"\x40\x81\xfc\x01a"),
            vec![(HEADERS, end, kept(b":status", b"20"))],
            vec![(HEADERS, END_STREAM, vec![OK, 0, 1]), (CONTINUATION, END_HEADERS, b"X\x01a".to_vec())],
        ];
        let bad_trailers = [with(&kept(b"Grpc-Status", b"0")), with(&kept(b"grpc-status", b"\x7f"))];
        let answers = [&bad_heads[..], &bad_trailers, &[with(&kept(b"grpc-status", b"0"))]].concat();
        let proxy = proxy(&[endpoint(answers)], LocationPolicy::default(), BackendProtocol::Grpc);
        let mut sender = sender(&proxy).await;
        let (first, _) = sender.send_request(call("/first"), true).unwrap();
        let mut first = first.await.unwrap().into_body();
        assert_eq!(first.data().await.unwrap().unwrap(), "begun");
        for _ in &bad_heads {
            let (answer, _) = sender.send_request(call("/bad"), true).unwrap();
            assert_eq!(answer.await.unwrap().status(), StatusCode::BAD_GATEWAY);
        }
        for _ in &bad_trailers {
            let (answer, _) = sender.send_request(call("/bad"), true).unwrap();
            // With the head, if both have arrived by then.
            let Ok(answer) = answer.await else { panic!("the connection has ended") };
            if answer.status() == StatusCode::OK {
                let mut body = answer.into_body();
                let error = loop {
                    match body.data().await {
                        Some(Ok(_)) => {}
                        Some(Err(error)) => break error,
                        None => panic!("{:?}", body.trailers().await),
                    }
                };
                assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
            }
        }
        let (answer, _) = sender.send_request(call("/good"), true).unwrap();
        let (body, trailers) = whole(&mut answer.await.unwrap().into_body()).await;
        assert_eq!((&body[..], &trailers.unwrap()["grpc-status"]), (&b"good"[..], &"0".parse().unwrap()));
        let (body, trailers) = whole(&mut first).await;
        assert_eq!(
            (&body[..], &trailers.unwrap()["grpc-status"]),
            (&b" and ended"[..], &"0".parse().unwrap())
        );
        let worker = proxy.metrics.worker(0);
        assert_eq!(worker.connected.value(), 1, "one connection carried all of them");
        assert!(worker.failures[Kind::InvalidHead as usize].value() >= bad_heads.len() as u64);
        proxy
    });
}
