//! Shared connections to an endpoint that end badly: what happens to the calls that follow.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::client::SendRequest;
use http::StatusCode;
use shared::policy::{BackendProtocol, LocationPolicy};
use test_kit::client::frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, RESET, SETTINGS, WINDOW_UPDATE, frame,
};

use super::grpc::{call, proxy, run, sender, whole};
use super::harness::*;

const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;

/// A scripted endpoint.
struct Scripted {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Number of open connections.
    open: Arc<AtomicUsize>,
}

/// A frame received by an endpoint.
struct Frame {
    /// The number of its connection, from 0.
    connection: usize,
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// Whether it is the last one of a call.
    fn ends(&self) -> bool {
        matches!(self.kind, HEADERS | DATA) && self.flags & END_STREAM != 0
    }

    /// A successful response to its call.
    fn good(&self) -> Vec<u8> {
        // `:status: 200` of the static table.
        frame(HEADERS, END_HEADERS | END_STREAM, self.stream, &[0x88])
    }
}

impl Scripted {
    /// The script returns the reply to each frame; `None`: nothing more, and it stops reading.
    fn new(script: impl Fn(&Frame) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self::until(|_| false, script)
    }

    /// The same; connections are closed behind the reply to such a frame.
    fn until(
        closes: impl Fn(&Frame) -> bool + Send + Sync + 'static,
        script: impl Fn(&Frame) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let [connections, open]: [Arc<AtomicUsize>; 2] = Default::default();
        let (script, count, left) = (Arc::new((script, closes)), Arc::clone(&connections), Arc::clone(&open));
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (script, number) = (Arc::clone(&script), count.fetch_add(1, Ordering::Relaxed));
                let left = Arc::clone(&left);
                left.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || {
                    converse(stream, number, &script.0, &script.1);
                    left.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, connections, open }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn converse(
    mut stream: TcpStream,
    connection: usize,
    script: &dyn Fn(&Frame) -> Option<Vec<u8>>,
    closes: &dyn Fn(&Frame) -> bool,
) {
    if stream.read_exact(&mut [0; 24]).is_err() {
        return;
    }
    while let Some(frame) = next(&mut stream, connection) {
        let Some(said) = script(&frame) else {
            thread::sleep(PATIENCE);
            return;
        };
        if stream.write_all(&said).is_err() || closes(&frame) {
            return;
        }
    }
}

fn next(stream: &mut TcpStream, connection: usize) -> Option<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let [a, b, c, kind, flags, of @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).ok()?;
    Some(Frame { connection, kind, flags, stream: u32::from_be_bytes(of), payload })
}

/// The mandatory replies of an endpoint: to SETTINGS its own, with these settings, and an acknowledgement; to PING an
/// acknowledgement.
fn polite(frame: &Frame, settings: &[u8]) -> Vec<u8> {
    match (frame.kind, frame.flags & ACK) {
        (SETTINGS, 0) => [self::frame(SETTINGS, 0, 0, settings), self::frame(SETTINGS, ACK, 0, &[])].concat(),
        (PING, 0) => self::frame(PING, ACK, 0, &frame.payload),
        _ => Vec::new(),
    }
}

/// One call with a body of this size; returns its status.
async fn ask(sender: &mut SendRequest<Bytes>, bytes: usize) -> StatusCode {
    let (response, mut out) = sender.send_request(call("/"), false).unwrap();
    out.send_data(vec![b'x'; bytes].into(), true).unwrap();
    response.await.unwrap().status()
}

/// A proxy with this read timeout in seconds.
fn patient(endpoint: &Scripted, seconds: u32) -> Proxy {
    let policy = LocationPolicy {
        proxy_read_timeout: Some(seconds),
        proxy_send_timeout: Some(seconds),
        ..LocationPolicy::default()
    };
    proxy(&[endpoint.address], policy, BackendProtocol::Grpc)
}

/// An endpoint whose first connection goes dead silently when told to.
fn dying() -> (Scripted, Arc<AtomicBool>) {
    let dies = Arc::new(AtomicBool::new(false));
    let dead = Arc::clone(&dies);
    let endpoint = Scripted::new(move |frame| {
        if frame.connection == 0 && dead.load(Ordering::Relaxed) {
            return None;
        }
        Some(if frame.ends() { frame.good() } else { polite(frame, &[]) })
    });
    (endpoint, dies)
}

#[test]
fn a_connection_that_died_without_a_word_costs_one_call() {
    run(async {
        let (endpoint, dies) = dying();
        let proxy = patient(&endpoint, 1);
        let mut sender = sender(&proxy).await;
        assert_eq!(ask(&mut sender, 5).await, 200);
        dies.store(true, Ordering::Relaxed);
        assert_eq!(ask(&mut sender, 5).await, 504);
        for _ in 0..3 {
            assert_eq!(ask(&mut sender, 5).await, 200);
        }
        assert_eq!(endpoint.connections(), 2);
        proxy
    });
}

#[test]
fn clients_that_give_up_leave_a_dead_connection_to_itself() {
    run(async {
        let (endpoint, dies) = dying();
        let proxy = patient(&endpoint, 60);
        let mut sender = sender(&proxy).await;
        assert_eq!(ask(&mut sender, 5).await, 200);
        dies.store(true, Ordering::Relaxed);
        let (response, mut out) = sender.send_request(call("/"), false).unwrap();
        out.send_data(Bytes::from_static(b"x"), true).unwrap();
        assert!(tokio::time::timeout(Duration::from_secs(1), response).await.is_err());
        out.send_reset(Reason::CANCEL);
        drop(out);
        // It is noticed before the next call starts.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(ask(&mut sender, 5).await, 200);
        assert_eq!(endpoint.connections(), 2);
        proxy
    });
}

#[test]
fn an_endpoint_that_is_slow_and_there_is_asked_and_keeps_its_connection() {
    run(async {
        let questions = Arc::new(AtomicUsize::new(0));
        let is_slow = Arc::new(AtomicBool::new(true));
        let (asked, slow) = (Arc::clone(&questions), Arc::clone(&is_slow));
        let endpoint = Scripted::new(move |frame| {
            asked.fetch_add(usize::from(frame.kind == PING && frame.flags & ACK == 0), Ordering::Relaxed);
            let answers = frame.ends() && !slow.load(Ordering::Relaxed);
            Some(if answers { frame.good() } else { polite(frame, &[]) })
        });
        let proxy = patient(&endpoint, 1);
        let mut sender = sender(&proxy).await;
        assert_eq!(ask(&mut sender, 5).await, 504);
        is_slow.store(false, Ordering::Relaxed);
        // The reply to the PING is on its way.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(ask(&mut sender, 5).await, 200);
        assert_eq!((endpoint.connections(), questions.load(Ordering::Relaxed)), (1, 1));
        proxy
    });
}

/// A service that is sent a stream may respond at once, and then says nothing but that it takes more.
#[test]
fn an_endpoint_that_takes_a_long_request_is_not_silent() {
    run(async {
        let endpoint = Scripted::new(|frame| {
            let taken = (frame.payload.len() as u32).to_be_bytes();
            Some(match frame.kind {
                HEADERS => self::frame(HEADERS, END_HEADERS, frame.stream, &[0x88]),
                DATA if frame.ends() => self::frame(DATA, END_STREAM, frame.stream, b""),
                DATA => self::frame(WINDOW_UPDATE, 0, frame.stream, &taken),
                _ => polite(frame, &[]),
            })
        });
        let proxy = patient(&endpoint, 3);
        let mut sender = sender(&proxy).await;
        let (response, mut out) = sender.send_request(call("/"), false).unwrap();
        let mut body = response.await.unwrap().into_body();
        // Longer than the timeout.
        for _ in 0..12 {
            out.send_data("x".into(), false).unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        out.send_data("x".into(), true).unwrap();
        assert!(body.data().await.is_none_or(|piece| piece.unwrap().is_empty()));
        proxy
    });
}

#[test]
fn a_connection_of_which_many_calls_were_cancelled_takes_no_more_and_keeps_those_it_has() {
    run(async {
        // Responses start on the first connection, and end on others.
        let resets = Arc::new(AtomicUsize::new(0));
        let reset = Arc::clone(&resets);
        let endpoint = Scripted::new(move |frame| {
            reset.fetch_add(usize::from(frame.kind == RESET), Ordering::Relaxed);
            Some(match (frame.connection, frame.kind) {
                (0, HEADERS) => self::frame(HEADERS, END_HEADERS, frame.stream, &[0x88]),
                (1.., _) if frame.ends() => frame.good(),
                _ => polite(frame, &[]),
            })
        });
        let proxy = patient(&endpoint, 60);
        let mut sender = sender(&proxy).await;
        let mut first = sender.send_request(call("/"), true).unwrap().0.await.unwrap().into_body();
        for number in 1..=100 {
            let (response, mut out) = sender.send_request(call("/"), false).unwrap();
            assert_eq!(response.await.unwrap().status(), 200);
            out.send_reset(Reason::CANCEL);
            while resets.load(Ordering::Relaxed) < number {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(endpoint.connections(), 1);
        assert_eq!(ask(&mut sender, 5).await, 200);
        assert_eq!(endpoint.connections(), 2);
        assert!(tokio::time::timeout(Duration::from_millis(100), first.data()).await.is_err());
        proxy
    });
}

#[test]
fn a_call_that_is_not_read_holds_up_no_other_one() {
    run(async {
        let taken = Arc::new(AtomicUsize::new(0));
        let took = Arc::clone(&taken);
        // It accepts the initial window, and never any more.
        let endpoint = Scripted::new(move |frame| {
            if frame.kind == DATA && frame.connection == 0 {
                took.fetch_add(frame.payload.len(), Ordering::Relaxed);
            }
            Some(if frame.ends() { frame.good() } else { polite(frame, &[]) })
        });
        let proxy = patient(&endpoint, 3);
        let mut sender = sender(&proxy).await;
        let (_stuck, mut out) = sender.send_request(call("/"), false).unwrap();
        out.send_data(vec![b'x'; 100_000].into(), false).unwrap();
        while taken.load(Ordering::Relaxed) < 65_535 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // That may be temporary.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(ask(&mut sender, 5).await, 200);
        assert_eq!(ask(&mut sender, 5).await, 200);
        assert_eq!(endpoint.connections(), 2);
        let (response, _) = sender.send_request(call("/"), true).unwrap();
        assert_eq!((response.await.unwrap().status(), endpoint.connections()), (StatusCode::OK, 2));
        proxy
    });
}

/// A SETTINGS payload with SETTINGS_MAX_CONCURRENT_STREAMS.
fn at_once(calls: u32) -> Vec<u8> {
    [&3_u16.to_be_bytes()[..], &calls.to_be_bytes()].concat()
}

#[test]
fn a_connection_that_takes_no_more_calls_is_not_waited_for_and_closes() {
    run(async {
        // One call each.
        let endpoint = Scripted::new(|frame| {
            Some(match frame.ends() {
                true => [frame.good(), self::frame(SETTINGS, 0, 0, &at_once(0))].concat(),
                false => polite(frame, &at_once(100)),
            })
        });
        let proxy = patient(&endpoint, 60);
        let mut sender = sender(&proxy).await;
        for _ in 0..3 {
            let asked = tokio::time::timeout(Duration::from_secs(3), ask(&mut sender, 5)).await;
            assert_eq!(asked.unwrap(), 200);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(endpoint.connections(), 3);
        while endpoint.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        proxy
    });
}

#[test]
fn an_endpoint_that_takes_no_calls_is_passed_by_when_it_had_its_time_to_connect() {
    run(async {
        let none = Scripted::new(|frame| Some(polite(frame, &at_once(0))));
        let some = Scripted::new(|frame| Some(if frame.ends() { frame.good() } else { polite(frame, &[]) }));
        let policy = || LocationPolicy { proxy_connect_timeout: Some(1), ..LocationPolicy::default() };
        let both = proxy(&[none.address, some.address], policy(), BackendProtocol::Grpc);
        let mut sender_of_both = sender(&both).await;
        for _ in 0..2 {
            assert_eq!(ask(&mut sender_of_both, 5).await, 200);
        }
        assert_eq!(some.connections(), 1);
        let alone = proxy(&[none.address], policy(), BackendProtocol::Grpc);
        assert_eq!(ask(&mut sender(&alone).await, 5).await, 504);
        while none.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        (both, alone)
    });
}

/// HEADERS that end a stream, with one field of this size followed by a status.
fn trailers(stream: u32, bytes: usize) -> Vec<u8> {
    let text = |text: &[u8]| {
        let mut said = Vec::new();
        let mut left = text.len();
        if left < 127 {
            said.push(left as u8);
        } else {
            said.push(127);
            left -= 127;
            while left >= 128 {
                said.push(left as u8 | 128);
                left >>= 7;
            }
            said.push(left as u8);
        }
        [said, text.to_vec()].concat()
    };
    let field = |name: &[u8], value: &[u8]| [vec![0], text(name), text(value)].concat();
    let block = [field(b"grpc-details", &vec![b'x'; bytes]), field(b"grpc-status", b"3")].concat();
    let parts: Vec<_> = block.chunks(16_384).collect();
    let kind = |place| if place == 0 { (HEADERS, END_STREAM) } else { (CONTINUATION, 0) };
    let flags = |place| if place + 1 == parts.len() { END_HEADERS } else { 0 };
    let frames = parts.iter().enumerate().map(|(place, part)| {
        let (kind, ends) = kind(place);
        frame(kind, ends | flags(place), stream, part)
    });
    frames.collect::<Vec<_>>().concat()
}

#[test]
fn trailers_that_are_too_long_are_no_end() {
    run(async {
        let length = Arc::new(AtomicUsize::new(0));
        let said = Arc::clone(&length);
        let endpoint = Scripted::new(move |frame| {
            if !frame.ends() {
                return Some(polite(frame, &[]));
            }
            let head = self::frame(HEADERS, END_HEADERS, frame.stream, &[0x88]);
            Some([head, trailers(frame.stream, said.load(Ordering::Relaxed))].concat())
        });
        let proxy = patient(&endpoint, 60);
        let mut sender = sender(&proxy).await;
        for (bytes, arrives) in
            [(1_000, true), (70_000, false), (120_000, false), (150_000, false), (1_000, true)]
        {
            length.store(bytes, Ordering::Relaxed);
            let (response, _) = sender.send_request(call("/"), true).unwrap();
            let ended = match response.await {
                // The reset has overtaken the head.
                Err(error) => Err(error),
                Ok(response) => {
                    let mut body = response.into_body();
                    match body.data().await {
                        Some(Err(error)) => Err(error),
                        _ => body.trailers().await,
                    }
                }
            };
            match arrives {
                true => assert_eq!(ended.unwrap().unwrap()["grpc-status"], "3"),
                false => assert!(ended.is_err(), "{bytes}: {ended:?}"),
            }
        }
        assert_eq!(endpoint.connections(), 1);
        proxy
    });
}

/// As nginx does. Some octets are not those of a URI, and HTTP/1.1 takes them.
#[test]
fn a_target_goes_to_the_endpoint_as_it_came() {
    const TARGET: &str = "/caf/<`>{?\"<>|";
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let endpoint = Scripted::new(move |frame| {
        if frame.kind == HEADERS {
            seen.lock().unwrap().extend_from_slice(&frame.payload);
        }
        Some(if frame.ends() { frame.good() } else { polite(frame, &[]) })
    });
    let proxy = patient(&endpoint, 60);
    let mut client = TcpStream::connect(proxy.http).unwrap();
    let request = format!("GET {TARGET} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let heads = heads.lock().unwrap();
    let is_there = heads.windows(TARGET.len()).any(|text| text == TARGET.as_bytes());
    assert!(is_there, "{}", heads.escape_ascii());
}

#[test]
fn interim_responses_are_not_the_response() {
    run(async {
        let endpoint = Scripted::new(|frame| {
            let early = self::frame(HEADERS, END_HEADERS, frame.stream, b"\x08\x03103\x00\x04link\x01x");
            Some(if frame.ends() { [&early[..], &early, &frame.good()].concat() } else { polite(frame, &[]) })
        });
        let proxy = patient(&endpoint, 60);
        let (response, _) = sender(&proxy).await.send_request(call("/"), true).unwrap();
        let response = response.await.unwrap();
        assert_eq!((response.status(), response.headers().get("link")), (StatusCode::OK, None));
        proxy
    });
}

/// RFC 9113 section 8.1: the endpoint does not want the rest of the request.
#[test]
fn a_complete_response_is_passed_on_though_its_stream_is_reset() {
    run(async {
        let endpoint = Scripted::new(|frame| {
            if frame.kind != HEADERS {
                return Some(polite(frame, &[]));
            }
            let head = self::frame(HEADERS, END_HEADERS, frame.stream, &[0x88]);
            let body = self::frame(DATA, END_STREAM, frame.stream, b"enough");
            Some([head, body, self::frame(RESET, 0, frame.stream, &[0; 4])].concat())
        });
        let proxy = patient(&endpoint, 60);
        let mut sender = sender(&proxy).await;
        for _ in 0..2 {
            let (response, _out) = sender.send_request(call("/"), false).unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(whole(&mut response.into_body()).await, (b"enough".to_vec(), None));
        }
        assert_eq!(endpoint.connections(), 1);
        proxy
    });
}

#[test]
fn a_response_of_another_length_than_it_says_breaks_off() {
    run(async {
        let endpoint = Scripted::new(|frame| {
            let head = self::frame(HEADERS, END_HEADERS, frame.stream, b"\x88\x0f\x0d\x015");
            let body = self::frame(DATA, END_STREAM, frame.stream, b"four");
            Some(if frame.ends() { [head, body].concat() } else { polite(frame, &[]) })
        });
        let proxy = patient(&endpoint, 60);
        let (response, _) = sender(&proxy).await.send_request(call("/"), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        while let Some(piece) = body.data().await {
            if piece.is_err() {
                return proxy;
            }
        }
        panic!("it is not whole");
    });
}

/// The replies to these are written before more of what has come is taken.
#[test]
fn a_response_behind_many_questions_is_taken() {
    run(async {
        let mut proxies = Vec::new();
        for closes in [false, true] {
            let endpoint = Scripted::until(
                move |frame| closes && frame.ends(),
                |frame| {
                    let questions = self::frame(PING, 0, 0, b"present?").repeat(300);
                    Some(if frame.ends() { [questions, frame.good()].concat() } else { polite(frame, &[]) })
                },
            );
            let proxy = patient(&endpoint, 60);
            assert_eq!(ask(&mut sender(&proxy).await, 5).await, 200, "{closes}");
            proxies.push(proxy);
        }
        proxies
    });
}
