use std::net::SocketAddr;

use serde_json::{Value, json};
use shared::version::Lineage;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::room::CONNECTIONS;
use super::*;
use crate::freshness::Freshness;
use crate::metrics::{Original, Proxies};
use crate::problem::Problems;
use crate::store::Store;

/// A webhook's certificate, and a client that trusts it. The files exist as long as the folder.
fn certificate() -> (Certificate, TlsConnector, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf =
        rcgen::CertificateParams::new(vec!["webhook.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (certificate, secret) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    std::fs::write(&certificate, leaf.pem()).unwrap();
    std::fs::write(&secret, key.serialize_pem()).unwrap();
    let pair = Certificate::Files(Arc::new(Pair::open(certificate, secret).unwrap()));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(leaf.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    (pair, TlsConnector::from(Arc::new(config)), dir)
}

/// A webhook on a socket.
async fn webhook(questions: mpsc::Sender<Question>) -> (SocketAddr, TlsConnector, JoinSet<()>) {
    let (pair, tls, dir) = certificate();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let _dir = dir;
        let ending = watch::Sender::new(false).subscribe();
        let _ = serve(listener, pair, questions, Arc::new(Metrics::new()), ending).await;
    });
    (address, tls, tasks)
}

/// The connections of a webhook without a socket. A paused clock advances when all tasks are idle: over a socket that
/// is also the case while bytes are still in the kernel, for a time that depends on the machine.
struct InMemory {
    certificate: Certificate,
    tls: TlsConnector,
    desk: Arc<Desk>,
    ending: watch::Sender<bool>,
    tasks: JoinSet<()>,
    _dir: TempDir,
}

impl InMemory {
    fn new(questions: mpsc::Sender<Question>) -> Self {
        let (certificate, tls, dir) = certificate();
        let metrics = Arc::new(Metrics::new());
        let ending = watch::Sender::new(false);
        let places = Semaphore::new(AT_ONCE);
        let desk = Arc::new(Desk { questions, places, metrics, ending: ending.subscribe() });
        Self { certificate, tls, desk, ending, tasks: JoinSet::new(), _dir: dir }
    }

    /// A connection that has sent nothing yet.
    fn open(&mut self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(HEAD);
        let (certificate, desk) = (self.certificate.clone(), Arc::clone(&self.desk));
        self.tasks.spawn(connection(theirs, certificate, desk, Arc::default()));
        ours
    }

    async fn connect(&mut self) -> TlsStream<DuplexStream> {
        let stream = self.open();
        self.tls.connect("webhook.test".try_into().unwrap(), stream).await.unwrap()
    }
}

async fn connect(address: SocketAddr, tls: &TlsConnector) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    tls.connect("webhook.test".try_into().unwrap(), stream).await.unwrap()
}

/// Status and body of the answer to a request on a connection of its own.
async fn ask(address: SocketAddr, tls: &TlsConnector, method: &str, body: &[u8]) -> (u16, Vec<u8>) {
    ask_once(connect(address, tls).await, method, body).await
}

/// Status and body of the only answer on a connection.
async fn ask_once(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    body: &[u8],
) -> (u16, Vec<u8>) {
    let head = format!(
        "{method} / HTTP/1.1\r\nHost: webhook.test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // A client that is rejected early may not have sent everything.
    let _ = stream.write_all(body).await;
    let _ = stream.flush().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
    (status, answer[end + 4..].to_vec())
}

fn question(name: &str) -> Vec<u8> {
    let object = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {}});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u1", "operation": "CREATE", "object": object,
        "kind": {"group": "networking.k8s.io", "version": "v1", "kind": "Ingress"}}})
    .to_string()
    .into_bytes()
}

/// Refuses every Ingress named `bad`.
fn judge(mut questions: mpsc::Receiver<Question>, tasks: &mut JoinSet<()>) {
    tasks.spawn(async move {
        while let Some(question) = questions.recv().await {
            question.judge(|ingress| {
                let refused = (&*ingress.metadata.name == "bad").then(|| "spec: it is bad".to_owned());
                Some(Verdict { refused, ..Verdict::default() })
            });
        }
    });
}

fn response(body: &[u8]) -> Value {
    serde_json::from_slice::<Value>(body).unwrap()["response"].take()
}

#[tokio::test]
async fn a_question_is_answered_over_tls() {
    let (asks, questions) = mpsc::channel(1);
    let (address, tls, mut tasks) = webhook(asks).await;
    judge(questions, &mut tasks);
    let (status, body) = ask(address, &tls, "POST", &question("good")).await;
    assert_eq!((status, response(&body)), (200, json!({"uid": "u1", "allowed": true})));
    let (_, body) = ask(address, &tls, "POST", &question("bad")).await;
    let refused = response(&body);
    assert_eq!(
        (&refused["allowed"], &refused["status"]["message"]),
        (&json!(false), &json!("spec: it is bad"))
    );
    assert_eq!(ask(address, &tls, "GET", b"").await.0, 405);
    assert_eq!(ask(address, &tls, "POST", b"{}").await.0, 400);
}

#[tokio::test]
async fn a_question_has_so_many_bytes() {
    let (asks, questions) = mpsc::channel(1);
    let (address, tls, mut tasks) = webhook(asks).await;
    judge(questions, &mut tasks);
    let padded = |bytes: usize| {
        let mut body = question("good");
        body.resize(bytes, b' ');
        body
    };
    assert_eq!(ask(address, &tls, "POST", &padded(MOST)).await.0, 200);
    assert_eq!(ask(address, &tls, "POST", &padded(MOST + 1)).await.0, 413);
    assert_eq!(ask(address, &tls, "POST", &question("good")).await.0, 200);
    let mut stream = connect(address, &tls).await;
    let field = format!("POST / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(HEAD));
    let _ = stream.write_all(field.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 431 "));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_judge_in_time_passes() {
    // The questions are not read, or not answered.
    for held in [false, true] {
        let (asks, questions) = mpsc::channel(1);
        let mut webhook = InMemory::new(asks);
        let _kept = held.then_some(questions);
        let (status, body) = ask_once(webhook.connect().await, "POST", &question("bad")).await;
        let passed = response(&body);
        assert_eq!((status, &passed["allowed"]), (200, &json!(true)));
        assert!(passed["warnings"][0].as_str().unwrap().starts_with("not checked"), "{passed}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_silent_or_slow_is_let_go() {
    let (asks, _questions) = mpsc::channel(1);
    let mut webhook = InMemory::new(asks);
    // No handshake, no head, no body.
    let begun = Instant::now();
    let mut silent = webhook.open();
    assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
    let begun = Instant::now();
    let mut idle = webhook.connect().await;
    assert_eq!(idle.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
    let begun = Instant::now();
    let mut slow = webhook.connect().await;
    slow.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{").await.unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert_eq!(begun.elapsed().as_secs(), WHOLE.as_secs());
}

/// Asks on a connection that stays.
async fn ask_on(stream: &mut TlsStream<DuplexStream>, body: &[u8]) -> String {
    let head = format!("POST / HTTP/1.1\r\nHost: webhook.test\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}}") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "it was closed");
    }
    String::from_utf8(answer).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_kept_for_longer_than_api_servers_keep_it() {
    let (asks, questions) = mpsc::channel(1);
    let mut webhook = InMemory::new(asks);
    judge(questions, &mut webhook.tasks);
    let mut stream = webhook.connect().await;
    for _ in 0..3 {
        let answer = ask_on(&mut stream, &question("good")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        sleep(Duration::from_secs(100)).await;
    }
    let begun = Instant::now();
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "and not for ever");
    assert!(begun.elapsed() <= IDLE);
}

/// The API server's next question is on another connection, and so goes to a replica that stays.
#[tokio::test]
async fn who_ends_answers_and_closes() {
    let (asks, questions) = mpsc::channel(1);
    let mut webhook = InMemory::new(asks);
    judge(questions, &mut webhook.tasks);
    let (mut kept, mut new) = (webhook.connect().await, webhook.connect().await);
    ask_on(&mut kept, &question("good")).await;
    webhook.ending.send_replace(true);
    for stream in [&mut kept, &mut new] {
        let answer = ask_on(stream, &question("good")).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close"), "{answer}");
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "it is closed");
    }
}

/// Under the names that ingress-nginx has, too.
#[tokio::test]
async fn reviews_are_counted_by_their_verdict() {
    let (asks, questions) = mpsc::channel(1);
    let mut webhook = InMemory::new(asks);
    judge(questions, &mut webhook.tasks);
    for name in ["good", "bad", "good"] {
        assert_eq!(ask_once(webhook.connect().await, "POST", &question(name)).await.0, 200);
    }
    let head = Store::new(Lineage([1; 16]), clock::now()).1.head();
    let (proxies, problems) = (Proxies::default(), Problems::default());
    let (fresh, original) = (Freshness::default(), Original::default());
    let text = webhook.desk.metrics.render(&head, &proxies, &problems, &fresh, &original);
    for (name, label, count) in [
        ("firth_control_reviews_total{", "verdict=\"allowed\"", 2),
        ("firth_control_reviews_total{", "verdict=\"refused\"", 1),
        ("nginx_ingress_controller_check_success{", "ingress=\"good\",namespace=\"default\"", 2),
        ("nginx_ingress_controller_check_errors{", "ingress=\"bad\",namespace=\"default\"", 1),
    ] {
        let mut lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
        let line = lines.next().unwrap_or_else(|| panic!("{name} {label} in {text}"));
        assert!(line.ends_with(&format!("}} {count}")) && lines.next().is_none(), "{line}");
    }
}

#[tokio::test]
async fn a_question_makes_room_once_it_is_answered_and_not_before() {
    let (asks, mut questions) = mpsc::channel(1);
    let (address, tls, _tasks) = webhook(asks).await;
    let body = question("good");
    let mut asking = connect(address, &tls).await;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    asking.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    let asked = questions.recv().await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(silent[0].read(&mut [0]).await.unwrap_or(0), 0, "the oldest of the silent ones made room");
    asked.judge(|_| Some(Verdict::default()));
    let mut answer = [0; 12];
    asking.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");

    silent.push(TcpStream::connect(address).await.unwrap());
    let (mut rest, mut byte) = (Vec::new(), [0]);
    tokio::select! {
        _ = asking.read_to_end(&mut rest) => {}
        _ = silent[1].read(&mut byte) => panic!("a younger one made room"),
    }
}

/// A slow client does not prevent others from getting an answer, as long as their requests have ordinary size.
#[tokio::test(start_paused = true)]
async fn an_ordinary_question_waits_for_nobody() {
    let (asks, questions) = mpsc::channel(1);
    let mut webhook = InMemory::new(asks);
    judge(questions, &mut webhook.tasks);
    let mut slow = Vec::new();
    for _ in 0..2 * AT_ONCE {
        let mut stream = webhook.connect().await;
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {MOST}\r\n\r\n{{");
        stream.write_all(head.as_bytes()).await.unwrap();
        // Half of them have a place.
        stream.write_all(&vec![b' '; slow.len() % 2 * 2 * ORDINARY]).await.unwrap();
        stream.flush().await.unwrap();
        slow.push(stream);
    }
    let mut long = question("good");
    long.resize(ORDINARY / 2, b' ');
    let asked = timeout(WHOLE / 2, ask_once(webhook.connect().await, "POST", &long)).await;
    assert_eq!(asked.unwrap().0, 200);
    long.resize(ORDINARY + 1, b' ');
    let asked = timeout(WHOLE / 9, ask_once(webhook.connect().await, "POST", &long)).await;
    assert!(asked.is_err(), "a longer one waits");
}

/// One pod used to keep all API servers out: requests that never end were spared, and who had just connected was not.
#[tokio::test]
async fn requests_that_never_end_keep_nobody_out() {
    let (asks, questions) = mpsc::channel(1);
    let (address, tls, mut tasks) = webhook(asks).await;
    judge(questions, &mut tasks);
    let mut server = TcpSocket::new_v4().unwrap();
    let mut slow = Vec::new();
    for round in 0..2 * CONNECTIONS {
        let mut stream = connect(address, &tls).await;
        stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{").await.unwrap();
        stream.flush().await.unwrap();
        slow.push(stream);
        if round % 16 != 0 {
            continue;
        }
        server.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let stream = server.connect(address).await.unwrap();
        server = TcpSocket::new_v4().unwrap();
        // Others come before it has said anything.
        for _ in 0..8 {
            slow.push(connect(address, &tls).await);
        }
        let stream = tls.connect("webhook.test".try_into().unwrap(), stream).await.unwrap();
        assert_eq!(ask_once(stream, "POST", &question("good")).await.0, 200, "{round}");
    }
}

#[tokio::test]
async fn the_newest_connection_gets_in() {
    let (asks, questions) = mpsc::channel(1);
    let (address, tls, mut tasks) = webhook(asks).await;
    judge(questions, &mut tasks);
    let mut silent = Vec::new();
    for _ in 0..=CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(ask(address, &tls, "POST", &question("good")).await.0, 200);
    assert_eq!(silent[0].read(&mut [0]).await.unwrap_or(0), 0, "the oldest made room");
}
