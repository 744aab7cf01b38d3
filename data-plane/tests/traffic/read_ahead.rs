//! Responses that are read as fast as their backend sends them, whatever their client takes (`proxy-buffering`).

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use data_plane::local::{Budgets, Limits};
use shared::policy::LocationPolicy;
use test_kit::client::h2::Connection;

use super::harness::*;

/// More than kernels hold for a client that reads nothing.
const LENGTH: usize = 24 << 20;

/// How many responses a backend has sent whole, and how many broke off.
#[derive(Default)]
struct Counts {
    whole: AtomicUsize,
    broken: AtomicUsize,
}

impl Counts {
    fn has_sent(&self) -> bool {
        self.whole.load(Ordering::SeqCst) > 0
    }
}

fn byte(place: usize) -> u8 {
    (place % 251) as u8
}

/// Sends a long response with this header line, and counts it. One to `/cut` lacks its end.
fn long(header: &'static str) -> (Origin, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let counted = Arc::clone(&counts);
    let origin = Origin::raw(move |mut stream, connection, _| {
        while let Some(request) = read_request(&mut stream, connection) {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n{header}\r\n");
            let length = if request.line().contains("/cut") { LENGTH / 2 } else { LENGTH };
            let body: Vec<u8> = (0..length).map(byte).collect();
            let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
            let count = if sent.is_ok() { &counted.whole } else { &counted.broken };
            count.fetch_add(1, Ordering::SeqCst);
            if sent.is_err() || length < LENGTH {
                return;
            }
        }
    });
    (origin, counts)
}

fn buffering() -> LocationPolicy {
    LocationPolicy { proxy_buffering: Some(true), ..LocationPolicy::default() }
}

/// `/own` of `a.test` with this policy, before this backend.
fn serving(own: LocationPolicy, origin: &Origin) -> (Proxy, Budgets) {
    let budgets = Budgets::default();
    let mut proxy = Proxy::within(Limits::default(), budgets.clone());
    proxy.policies(false, &[("/own", own)]);
    proxy.endpoints("own", &[origin.address]);
    (proxy, budgets)
}

/// A client that has asked and reads nothing.
fn asking(proxy: &Proxy, target: &str) -> TcpStream {
    let mut client = TcpStream::connect(proxy.http).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(client, "GET {target} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
    client
}

/// The whole body, as far as it came.
fn body(mut client: TcpStream) -> Vec<u8> {
    let mut text = Vec::new();
    // The end may be a reset.
    let _ = client.read_to_end(&mut text);
    let head = text.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    text.split_off(head + 4)
}

fn is_prefix(body: &[u8], length: usize) -> bool {
    body.len() == length && body.iter().enumerate().all(|(place, it)| *it == byte(place))
}

#[test]
fn a_backend_is_done_though_its_client_reads_nothing() {
    let (off, waits) = long("");
    let (plain, _) = serving(LocationPolicy::default(), &off);
    let waiting = asking(&plain, "/own");
    let (origin, counts) = long("");
    let (proxy, budgets) = serving(buffering(), &origin);
    let client = asking(&proxy, "/own");
    eventually("it has sent all", || counts.has_sent());
    assert!(!waits.has_sent(), "without buffering it waits for its client");
    assert!(budgets.spill.used() > LENGTH / 2);
    assert!(is_prefix(&body(client), LENGTH));
    eventually("the file is given back", || budgets.spill.used() == 0);
    assert!(is_prefix(&body(waiting), LENGTH));
}

#[test]
fn a_backend_says_itself_whether_its_response_is_buffered() {
    let (no, waits) = long("X-Accel-Buffering: No\r\n");
    let (yes, counts) = long("X-Accel-Buffering: yes\r\n");
    let (streaming, budgets) = serving(buffering(), &no);
    let (keeping, _) = serving(LocationPolicy::default(), &yes);
    let clients = [asking(&streaming, "/own"), asking(&keeping, "/own")];
    eventually("one has sent all", || counts.has_sent());
    assert!(!waits.has_sent() && budgets.spill.used() == 0);
    for client in clients {
        assert!(is_prefix(&body(client), LENGTH));
    }
}

#[test]
fn a_client_that_leaves_ends_the_reading() {
    let (origin, counts) = long("");
    let own = LocationPolicy { proxy_max_temp_file_size: Some(0), ..buffering() };
    let (proxy, budgets) = serving(own, &origin);
    let client = asking(&proxy, "/own");
    eventually("something is kept", || budgets.bytes.used() > 0);
    assert!(!counts.has_sent(), "nothing is written to a file");
    client.shutdown(Shutdown::Both).unwrap();
    drop(client);
    eventually("its connection is closed", || counts.broken.load(Ordering::SeqCst) > 0);
    eventually("all is given back", || budgets.bytes.used() == 0);
}

#[test]
fn what_came_of_a_response_that_breaks_off_is_passed_on() {
    let (origin, counts) = long("");
    let (proxy, budgets) = serving(buffering(), &origin);
    let client = asking(&proxy, "/own/cut");
    eventually("it has sent half of it", || counts.has_sent());
    assert!(is_prefix(&body(client), LENGTH / 2));
    eventually("the file is given back", || budgets.spill.used() == 0);
    let log = proxy.stop(Duration::ZERO, Duration::ZERO);
    assert!(log.contains("GET /own/cut"), "{log}");
}

#[test]
fn the_time_of_a_backend_ends_with_its_response() {
    let text = vec![b'x'; LENGTH];
    let origin = Origin::new(move |_| {
        (
            [format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").into_bytes(), text.clone()]
                .concat(),
            true,
        )
    });
    let (mut proxy, budgets) = serving(buffering(), &origin);
    let defaults = LocationPolicy {
        log_format_upstream: Some("$request_time $upstream_response_time $upstream_response_length".into()),
        ..LocationPolicy::default()
    };
    proxy.defaults(defaults);
    let client = asking(&proxy, "/own");
    eventually("nothing more comes", || {
        let before = budgets.spill.used();
        std::thread::sleep(Duration::from_millis(300));
        before > 0 && before == budgets.spill.used()
    });
    assert_eq!(body(client).len(), LENGTH);
    let log = proxy.stop(Duration::ZERO, Duration::ZERO);
    let figures: Vec<f64> = log.split_whitespace().map(|it| it.parse().unwrap()).collect();
    assert!(figures[0] > figures[1] + 0.2 && figures[2] == LENGTH as f64, "{log}");
}

#[test]
fn http2_chunks_and_a_rate_limit_get_the_same_body() {
    let origin = Origin::new(|request| {
        let body: Vec<u8> = (0..1 << 20).map(byte).collect();
        let head = match request.line().contains("/chunks") {
            true => format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len()),
            false => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()),
        };
        let end: &[u8] = if request.line().contains("/chunks") { b"\r\n0\r\n\r\n" } else { b"" };
        ([head.as_bytes(), &body, end].concat(), true)
    });
    for own in [buffering(), LocationPolicy { limit_rate: Some(100_000), ..buffering() }] {
        let (proxy, _) = serving(own, &origin);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Connection::plain(proxy.http).await.unwrap();
            for target in ["/own", "/own/chunks"] {
                let answer = client.get("a.test", target).await.unwrap();
                assert!(answer.status == 200 && is_prefix(&answer.body, 1 << 20), "{target}");
            }
        });
        let mut client = Client::new(proxy.http);
        for target in ["/own", "/own/chunks", "/own"] {
            let answer = client.get(target);
            assert!(answer.status == 200 && is_prefix(&answer.body, 1 << 20), "{target}");
        }
    }
    assert!(origin.connections() <= 4, "its connections are used again");
}

/// What is batched for the file gets full anywhere in the last bytes that arrive, for some of these lengths: the backend
/// has nothing more to say then.
#[test]
fn a_response_ends_wherever_its_batch_gets_full() {
    let length = |number: usize| (1 << 18) + number * 1_500;
    let origin = Origin::new(move |request| {
        let number = request.line().split('/').find_map(|part| part.split(' ').next()?.parse().ok()).unwrap();
        let body: Vec<u8> = (0..length(number)).map(byte).collect();
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in body.chunks(5_000) {
            answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            answer.extend_from_slice(chunk);
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(b"0\r\n\r\n");
        (answer, true)
    });
    let few = LocationPolicy { proxy_buffers_number: Some(2), proxy_buffer_size: Some(1_024), ..buffering() };
    let (proxy, _) = serving(few, &origin);
    let mut client = Client::new(proxy.http);
    for number in 0..44 {
        let answer = client.get(&format!("/own/{number}"));
        assert!(answer.status == 200 && is_prefix(&answer.body, length(number)), "{number}");
    }
    assert_eq!(origin.connections(), 1, "it is used again");
}

/// The end of the response waits, and nothing before it does.
#[test]
fn what_has_come_is_passed_on_while_the_backend_pauses() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::raw(move |mut stream, connection, _| {
        let _ = read_request(&mut stream, connection);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", LENGTH + 1);
        let body: Vec<u8> = (0..LENGTH).map(byte).collect();
        let _ = stream.write_all(&[head.as_bytes(), &body].concat());
        let _ = wait.lock().unwrap().recv();
        let _ = stream.write_all(&[byte(LENGTH)]);
    });
    let (proxy, budgets) = serving(buffering(), &origin);
    let mut client = asking(&proxy, "/own");
    eventually("some of it is in a file", || budgets.spill.used() > 0);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).unwrap();
        head.extend_from_slice(&byte);
    }
    let mut text = vec![0; LENGTH];
    client.read_exact(&mut text).unwrap();
    assert!(is_prefix(&text, LENGTH));
    go.send(()).unwrap();
    client.read_exact(&mut byte).unwrap();
}

/// Its client, which reads nothing, does not notice.
#[test]
fn a_backend_that_pauses_for_too_long_is_left() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let origin = Origin::raw(move |mut stream, connection, _| {
        let _ = read_request(&mut stream, connection);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
        let body: Vec<u8> = (0..LENGTH / 2).map(byte).collect();
        let _ = stream.write_all(&[head.as_bytes(), &body].concat());
        let _ = read_request(&mut stream, connection);
        count.fetch_add(1, Ordering::SeqCst);
    });
    let (proxy, _) = serving(LocationPolicy { proxy_read_timeout: Some(1), ..buffering() }, &origin);
    let client = asking(&proxy, "/own");
    eventually("its connection is closed", || ended.load(Ordering::SeqCst) > 0);
    assert!(is_prefix(&body(client), LENGTH / 2));
}

/// A piece does not wait for the next one, nor the end for anything.
#[test]
fn each_piece_is_passed_on_when_it_comes() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::raw(move |mut stream, connection, _| {
        let _ = read_request(&mut stream, connection);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
        for piece in [&b"3\r\ntwo\r\n"[..], b"0\r\n\r\n"] {
            let _ = wait.lock().unwrap().recv();
            let _ = stream.write_all(piece);
        }
        let _ = read_request(&mut stream, connection);
    });
    let (proxy, _) = serving(buffering(), &origin);
    let mut client = asking(&proxy, "/own");
    let mut text = Vec::new();
    for end in ["one\r\n", "two\r\n", "0\r\n\r\n"] {
        while !text.ends_with(end.as_bytes()) {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            text.push(byte[0]);
        }
        // The client waits by now for what is to come.
        std::thread::sleep(Duration::from_millis(20));
        let _ = go.send(());
    }
}

#[test]
fn a_response_without_its_end_is_passed_on_without_it() {
    let origin = Origin::raw(|mut stream, connection, _| {
        let _ = read_request(&mut stream, connection);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
        std::thread::sleep(Duration::from_millis(50));
    });
    let (proxy, _) = serving(buffering(), &origin);
    let text = body(asking(&proxy, "/own"));
    assert_eq!(String::from_utf8(text).unwrap(), "4\r\nhalf\r\n");
}
