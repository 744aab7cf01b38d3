use std::io::{ErrorKind, Read as _};

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::*;
use crate::admin::{Body, Pieces};

struct One;

impl Pages for One {
    fn page(&self, path: &str, query: Option<&str>) -> Option<Page> {
        match path {
            "/one" => Some(Page::text(StatusCode::OK, query.unwrap_or("none").to_owned())),
            "/large" => Some(Page::text(StatusCode::OK, vec![b'x'; 16 << 20])),
            "/lines" => {
                let query = query.unwrap_or_default();
                let (lines, end) = query.split_once(',').unwrap_or((query, ""));
                let lines = Lines { left: lines.parse().unwrap(), breaks: end == "breaks" };
                Some(Page::prometheus(Body::Pieces(Box::new(lines))))
            }
            _ => None,
        }
    }
}

/// Makes so many lines.
struct Lines {
    left: usize,
    /// Whether the last one cannot be made.
    breaks: bool,
}

/// Bytes of all [`Lines`] that were made.
static MADE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

impl Pieces for Lines {
    fn append(&mut self, out: &mut String) -> bool {
        let before = out.len();
        self.left -= 1;
        assert!(self.left > 0 || !self.breaks, "it cannot be made");
        out.push_str(&format!("line {:>10}\n", self.left));
        MADE.fetch_add(out.len() - before, std::sync::atomic::Ordering::Relaxed);
        self.left > 0
    }
}

const ASK: &str = "GET /one?a=b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

async fn ask(mut stream: impl Connection, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Sends requests to a server with these limits, as long as they take.
async fn with<T>(limits: Limits, questions: impl AsyncFnOnce(SocketAddr) -> T) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::select! {
        _ = serve_within(limits, listener.into(), Arc::new(One)) => unreachable!("it serves for ever"),
        answer = questions(address) => answer,
    }
}

/// Reads until the other side is gone.
async fn gone(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest).await {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn the_limits_are_those_of_the_budgets_page() {
    let Limits { connections, young, patience, head, head_bytes, pages, page, life, farewell, warnings } =
        Limits::default();
    assert_eq!([young, patience].map(|time| time.as_millis()), [25, 250]);
    assert_eq!((connections, head_bytes, pages), (64, 8 * 1024, 2));
    assert_eq!([head, page, life, farewell, warnings].map(|time| time.as_secs()), [5, 10, 60, 5, 1]);
}

#[tokio::test]
async fn a_client_that_talks_nonsense_harms_nobody_else() {
    with(Limits::default(), async |address| {
        let nonsense = ask(TcpStream::connect(address).await.unwrap(), "nonsense\r\n\r\n").await;
        assert!(!nonsense.contains(" 200 "));
        let answer = ask(TcpStream::connect(address).await.unwrap(), ASK).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\na=b"), "{answer}");
    })
    .await;
}

#[tokio::test]
async fn a_client_that_accepts_gzip_gets_large_pages_compressed() {
    with(Limits::default(), async |address| {
        let get = async |path: &str, accepted: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{accepted}\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
            let body = answer.split_off(head);
            (String::from_utf8(answer).unwrap(), body)
        };
        let (head, body) = get("/large", "Accept-Encoding: gzip\r\n").await;
        assert!(head.contains("content-encoding: gzip\r\n"), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        let mut page = Vec::new();
        flate2::read::GzDecoder::new(&*body).read_to_end(&mut page).unwrap();
        assert!(body.len() < 1 << 20 && page == vec![b'x'; 16 << 20]);

        for (path, accepted, length) in [
            ("/large", "", 16 << 20),
            ("/one", "Accept-Encoding: gzip\r\n", 4),
            ("/readyz", "Accept-Encoding: gzip\r\n", 10),
        ] {
            let (head, body) = get(path, accepted).await;
            assert_eq!((body.len(), head.contains("content-encoding")), (length, false), "{head}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_page_that_is_made_while_it_is_sent_arrives_whole_or_visibly_cut() {
    with(Limits::default(), async |address| {
        let get = async |lines: &str, more: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request =
                format!("GET /lines?{lines} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{more}\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
            let body = answer.split_off(head);
            (String::from_utf8(answer).unwrap(), body)
        };
        let (head, body) = get("10", "").await;
        assert!(head.contains("content-length: 160\r\n") && body.len() == 160, "{head}");
        let (head, body) = get("100000", "").await;
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        let whole = unchunked(&body).unwrap();
        let expected: String = (0..100_000).rev().map(|left| format!("line {left:>10}\n")).collect();
        assert_eq!(whole, expected.as_bytes());
        let (head, body) = get("100000", "Accept-Encoding: gzip\r\n").await;
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        assert!(head.contains("content-encoding: gzip\r\n"), "{head}");
        let mut page = Vec::new();
        flate2::read::GzDecoder::new(&*unchunked(&body).unwrap()).read_to_end(&mut page).unwrap();
        assert_eq!(page, whole);
        let (head, body) = get("100000,breaks", "").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(unchunked(&body).is_none(), "it has no end");
    })
    .await;
}

/// The content of a body in chunks, if it has an end.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let line = rest.windows(2).position(|end| end == b"\r\n")?;
        let length = usize::from_str_radix(str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        rest = &rest[line + 2..];
        if length == 0 {
            return (rest == b"\r\n").then_some(content);
        }
        content.extend_from_slice(rest.get(..length)?);
        rest = rest.get(length + 2..)?;
    }
}

#[tokio::test(start_paused = true)]
async fn what_its_client_does_not_take_of_a_page_is_not_made() {
    let limits = Limits { pages: 1, ..Limits::default() };
    with(limits, async |address| {
        let mut idler = TcpStream::connect(address).await.unwrap();
        // More than 100 GB.
        idler.write_all(b"GET /lines?9999999999 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        idler.read_exact(&mut [0; 64]).await.unwrap();
        let since = Instant::now();
        let answer = ask(TcpStream::connect(address).await.unwrap(), ASK).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let took = since.elapsed();
        assert!(took >= limits.page / 2 && took <= limits.page, "{took:?}");
        // What the kernel's buffers take, and the pages of other tests.
        let made = MADE.load(std::sync::atomic::Ordering::Relaxed);
        assert!(made < 64 << 20, "{made}");
    })
    .await;
}

#[tokio::test]
async fn a_probe_gets_in_however_many_are_silent() {
    with(Limits::default(), async |address| {
        let mut silent = Vec::new();
        for _ in 0..3 * 64 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let answer = ask(TcpStream::connect(address).await.unwrap(), ASK).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        for oldest in silent.iter_mut().take(2 * 64) {
            gone(oldest).await;
        }
    })
    .await;
}

/// Connects, and lets twice as many silent connections come as there is room for before it sends its request.
async fn asks_late(limits: Limits) -> io::Result<String> {
    with(limits, async |address| {
        let mut probe = TcpStream::connect(address).await?;
        let mut silent = Vec::new();
        for _ in 0..2 * limits.connections {
            silent.push(TcpStream::connect(address).await?);
        }
        // Far less than it takes to grow old, and enough to be closed by.
        sleep(Duration::from_millis(200)).await;
        probe.write_all(ASK.as_bytes()).await?;
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await?;
        Ok(answer)
    })
    .await
}

#[tokio::test]
async fn a_burst_closes_nobody_who_had_no_time_to_ask() {
    let hour = Duration::from_secs(3_600);
    let limits = Limits { young: hour, patience: hour, ..Limits::default() };
    assert!(asks_late(limits).await.unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
    // A client that holds up all others is not waited for.
    let impatient = Limits { young: hour, patience: Duration::ZERO, ..limits };
    assert!(!asks_late(impatient).await.is_ok_and(|answer| answer.contains("200")));
}

/// Time advances only by timers, so that each takes exactly as long as it is set to.
#[tokio::test(start_paused = true)]
async fn who_is_silent_idle_or_slow_is_let_go_in_time() {
    let limits = Limits::default();
    for begun in ["", "GET /one HT", "GET /one HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let took = with(limits, async |address| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(begun.as_bytes()).await.unwrap();
            let since = Instant::now();
            gone(&mut stream).await;
            since.elapsed()
        })
        .await;
        assert!(
            took >= limits.head && took < limits.head + Duration::from_secs(1),
            "{begun:?} took {took:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_read_holds_a_connection_for_its_life_at_most() {
    let limits = Limits { page: Duration::from_secs(3_600), ..Limits::default() };
    with(limits, async |address| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        sleep(limits.life + limits.farewell + Duration::from_secs(1)).await;
        let mut read = Vec::new();
        let _ = stream.read_to_end(&mut read).await;
        assert!(read.len() < 16 << 20, "it was cut");
    })
    .await;
}

/// A page that takes as long as the test wants, and counts how many are made at once.
struct Slow {
    is_open: std::sync::Mutex<bool>,
    opened: std::sync::Condvar,
    made: std::sync::atomic::AtomicUsize,
}

impl Pages for Slow {
    fn page(&self, path: &str, _: Option<&str>) -> Option<Page> {
        use std::sync::atomic::Ordering::SeqCst;
        if path == "/healthz" {
            return Some(Page::health(None));
        }
        self.made.fetch_add(1, SeqCst);
        let shut = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(shut, |is_open| !*is_open).unwrap());
        Some(Page::text(StatusCode::OK, "figures"))
    }
}

#[tokio::test]
async fn a_probe_waits_for_no_page() {
    let slow = Arc::new(Slow { is_open: false.into(), opened: std::sync::Condvar::new(), made: 0.into() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = JoinSet::new();
    server.spawn(serve(listener, Arc::clone(&slow) as Arc<dyn Pages>));
    let probe = "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut figures = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let asked = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(asked.as_bytes()).await.unwrap();
        figures.push(stream);
    }
    for _ in 0..3 {
        let answer = ask(TcpStream::connect(address).await.unwrap(), probe).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    let made = slow.made.load(std::sync::atomic::Ordering::SeqCst);
    assert!(made <= Limits::default().pages, "{made} are made at once");
    *slow.is_open.lock().unwrap() = true;
    slow.opened.notify_all();
    for stream in &mut figures {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("\r\n\r\nfigures"), "each in its turn: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_not_taken_makes_room() {
    let limits = Limits::default();
    with(limits, async |address| {
        let mut idlers = Vec::new();
        for _ in 0..limits.pages {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            // It is on its way.
            stream.read_exact(&mut [0; 64]).await.unwrap();
            idlers.push(stream);
        }
        let since = Instant::now();
        let answer = ask(TcpStream::connect(address).await.unwrap(), ASK).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let took = since.elapsed();
        assert!(took >= limits.page / 2 && took <= limits.page, "{took:?}");
    })
    .await;
}

#[tokio::test]
async fn a_head_has_so_many_bytes() {
    with(Limits::default(), async |address| {
        for (bytes, status) in [(8 * 1024 - 1, "200 "), (8 * 1024 + 1, "431 ")] {
            let (begin, end) = ("GET /one HTTP/1.1\r\nConnection: close\r\nA: ", "\r\n\r\n");
            let head = format!("{begin}{}{end}", "x".repeat(bytes - begin.len() - end.len()));
            let answer = ask(TcpStream::connect(address).await.unwrap(), &head).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{bytes}: {answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    with(Limits::default(), async |address| {
        let endless = format!("GET /one HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "x".repeat(16 * 1024));
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The other side may be gone before all of it is sent.
        let _ = stream.write_all(endless.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!String::from_utf8_lossy(&answer).contains(" 200 "));
    })
    .await;
}

#[tokio::test]
async fn a_socket_of_the_file_system_is_its_owners() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let bound = Bound::unix(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(Bound::unix(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
    tokio::select! {
        _ = serve(bound.listen().unwrap(), Arc::new(One)) => unreachable!("it serves for ever"),
        answer = async { ask(tokio::net::UnixStream::connect(&path).await.unwrap(), ASK).await } => {
            assert!(answer.ends_with("\r\n\r\na=b"), "{answer}");
        }
    }
    // What a process before left behind.
    Bound::unix(&path).unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    Bound::unix(&file).unwrap_err();
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn only_the_own_machine_is_local() {
    for good in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/run/a.sock"] {
        good.parse::<Local>().unwrap();
    }
    for bad in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost", "unix:a.sock", "/run/a.sock", ""] {
        bad.parse::<Local>().unwrap_err();
    }
}
