//! A proxy is replaced by another process beside it on the same ports: no request of any protocol is lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use integration_tests::client::{Connection, websocket};
use integration_tests::objects::{self, Edit};
use integration_tests::origin::Script;
use integration_tests::process::Signal;
use integration_tests::site::{NAMESPACE, ingress};
use integration_tests::{DataPlane, FolderSite, Ledger, Protocol, Question, Traffic};
use serde_json::json;
use test_kit::certificates;

const PLAIN: &str = "a.test";
const SECURE: &str = "tls.test";
/// How often the process is replaced.
const TIMES: usize = 3;
/// How long the old one accepts.
const GRACE: Duration = Duration::from_secs(2);
/// Longer than any request, and than a WebSocket that its client closes.
const DEADLINE: &str = "60";
/// How long a process may take to end.
const ENDING: Duration = Duration::from_secs(90);

/// Clients of each kind, with a ledger of their own.
struct Load(Vec<(&'static str, Traffic)>);

impl Load {
    fn start(proxy: &DataPlane) -> Self {
        let plain = [
            Question::new(PLAIN, "/", &["one"]),
            Question::new(PLAIN, "/up", &["one"]).posting(50_000),
            Question::new(PLAIN, "/slow", &["slow"]),
        ];
        let secure =
            [Question::new(SECURE, "/", &["slow"]), Question::new(SECURE, "/up", &["slow"]).posting(5_000)];
        let traffic = || Traffic::on(Ledger::new());
        let [mut once, mut kept, mut streams, mut sockets] = [(); 4].map(|()| traffic());
        once.join_at(200, proxy.http(), 4, Protocol::Http1Once, &plain);
        kept.join(proxy.http(), 4, Protocol::Http1, &plain);
        streams.join(proxy.https(), 6, Protocol::Http2OverTls, &secure);
        sockets.join_at(300, proxy.http(), 3, Protocol::WebSocket, &plain[..1]);
        Self(vec![
            ("new connections", once),
            ("kept connections", kept),
            ("streams over TLS", streams),
            ("WebSockets", sockets),
        ])
    }

    async fn goes_on(&self, when: &str) {
        for (what, traffic) in &self.0 {
            traffic.goes_on(&format!("{what} are served {when}"), 60).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_where_one_process_replaces_another() {
    let (certificate, key) = certificates::self_signed(&[SECURE]);
    let secret = objects::tls_secret(NAMESPACE, "tls", &certificate, &key);
    let grace = GRACE.as_secs().to_string();
    let drain = ["--drain-grace", &*grace, "--drain-deadline", DEADLINE];
    let mut site = FolderSite::start_with(&[secret], &[], &drain).await;
    // Answers of the slow one are always under way.
    let (_one, slow) = (site.origin("one").await, site.origin("slow").await);
    slow.script(Script::Delay(Duration::from_millis(20)));
    site.folder.apply(&ingress("web", PLAIN, &[("/", "one"), ("/slow", "slow")]));
    let tls = json!([{"hosts": [SECURE], "secretName": "tls"}]);
    site.folder.apply(&ingress("secure", SECURE, &[("/", "slow")]).with("/spec/tls", tls));
    site.proxy.serves(PLAIN, "/slow", "slow").await;
    site.proxy.answers(SECURE, "/", 308).await;
    let load = Load::start(&site.proxy);
    load.goes_on("by the first").await;

    let [http, https] = [site.proxy.http(), site.proxy.https()].map(|address| address.to_string());
    let same = [&["--http", &*http, "--https", &*https], &drain[..]].concat();
    for number in 1..=TIMES {
        let new = DataPlane::start_with(site.control.listen(), &same).await;
        let mut old = std::mem::replace(&mut site.proxy, new);
        load.goes_on(&format!("by both, {number}")).await;
        let told = Instant::now();
        old.process().signal(Signal::Term);
        let ended = old.process().wait(ENDING).await;
        assert!(ended.success() && told.elapsed() >= GRACE, "{ended} after {:?}", told.elapsed());
        assert!(!old.log().contains("connections are cut"), "{}", old.log());
        load.goes_on(&format!("by the new one, {number}")).await;
    }
    for (what, traffic) in load.0 {
        let summary = traffic.stop().await;
        eprintln!("{what}: {} requests", summary.sent);
        summary.assert_clean();
    }
}

/// One that its client does not close is served until the deadline, and no longer.
#[tokio::test]
async fn a_websocket_that_stays_is_served_until_the_deadline() {
    let (grace, deadline) = (Duration::from_secs(1), Duration::from_secs(3));
    let mut site = FolderSite::start_with(&[], &[], &["--drain-grace=1", "--drain-deadline=3"]).await;
    let one = site.origin("one").await;
    site.route("web", PLAIN, &one).await;
    let mut socket = Connection::open(site.proxy.http()).await.unwrap();
    assert_eq!(websocket::handshake(&mut socket, PLAIN, "/chat").await.unwrap().status, 101);
    let told = Instant::now();
    site.proxy.process().signal(Signal::Term);
    let mut echoes = 0;
    let ended = loop {
        let text = format!("message {echoes}");
        let echo = match socket.send(websocket::client_frame(&text)).await {
            Ok(()) => websocket::read(&mut socket).await,
            Err(error) => Err(error),
        };
        match echo {
            Ok(echo) => assert_eq!(echo, format!("one: {text}")),
            Err(_) => break told.elapsed(),
        }
        echoes += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(ended >= grace + deadline, "it ended after {ended:?} and {echoes} messages");
    assert!(echoes > 20, "{echoes} messages in {ended:?}");
    assert!(site.proxy.process().wait(ENDING).await.success());
    site.proxy.logs("connections are cut").await;
}
