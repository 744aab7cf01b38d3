//! Faults around requests, which are recorded on a ledger: endpoints that vanish without notice, clients that
//! disconnect at any moment, lack of descriptors, lack of CPU time, certificates that change (the faults F10, F14, F17,
//! F18 and F22 of docs/benchmarks.md).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the runtime of the test owns its tasks")]

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use integration_tests::client::{self, Connection, tls};
use integration_tests::objects::{self, Edit};
use integration_tests::origin::Script;
use integration_tests::process::{Process, Signal};
use integration_tests::site::{NAMESPACE, ingress};
use integration_tests::{DataPlane, FolderSite, Origin, Question, Traffic, eventually};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;
use test_kit::certificates;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const HOST: &str = "a.test";

/// A Service of endpoints at these addresses, a slice each, behind `a.test` with these annotations.
async fn serve(site: &FolderSite, addresses: &[SocketAddr], said: &[(&str, &str)], shown_by: &str) {
    site.folder.apply(&objects::service(NAMESPACE, "web"));
    for (place, address) in addresses.iter().enumerate() {
        site.folder.apply(&objects::slice(NAMESPACE, "web", &place.to_string(), &[*address]));
    }
    let object = ingress("web", HOST, &[("/", "web")]);
    site.folder.apply(&said.iter().fold(object, |object, (name, value)| object.annotated(name, value)));
    eventually("the host is served", || async {
        let answer = client::get(site.proxy.http(), HOST, "/").await.map_err(|error| error.to_string())?;
        if answer.origin() == Some(shown_by) {
            Ok(())
        } else {
            Err(format!("{} {:?}", answer.status, answer.origin()))
        }
    })
    .await;
}

async fn origins(count: usize) -> Vec<Origin> {
    let mut origins = Vec::new();
    for number in 0..count {
        origins.push(Origin::start(&format!("origin-{number}")));
    }
    origins
}

async fn counted(proxy: &DataPlane, family: &str) -> f64 {
    proxy.metrics().await.sum(family)
}

/// An unresponsive address: its queue is full, and the kernel drops packets.
struct BlackHole {
    address: SocketAddr,
    _listener: TcpListener,
    _queue: Vec<tokio::task::JoinHandle<std::io::Result<TcpStream>>>,
}

impl BlackHole {
    async fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let queue: Vec<_> = (0..8).map(|_| tokio::spawn(TcpStream::connect(address))).collect();
        eventually("nobody gets in any more", || async {
            match tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
                Err(_) => Ok(()),
                Ok(got) => Err(format!("{got:?}")),
            }
        })
        .await;
        Self { address, _listener: listener, _queue: queue }
    }
}

/// F14: no request fails, and once the endpoint is ejected few wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_of_which_nothing_is_heard_is_left_alone() {
    let site = FolderSite::start(&[]).await;
    let (origins, hole) = (origins(3).await, BlackHole::new().await);
    let addresses: Vec<_> = origins.iter().map(Origin::address).collect();
    serve(&site, &addresses, &[("proxy-connect-timeout", "1")], "origin-0").await;
    let names: Vec<&str> = origins.iter().map(Origin::name).collect();
    let question = Question::new(HOST, "/", &names);
    let traffic = Traffic::start(site.proxy.http(), 8, &[question.clone(), question.posting(2_000)]);
    traffic.goes_on("all are served", 50).await;
    site.folder.apply(&objects::slice(NAMESPACE, "web", "hole", &[hole.address]));
    eventually("it is out", || async {
        let ejected = counted(&site.proxy, "firth_endpoints_ejected").await;
        if ejected == 1.0 { Ok(()) } else { Err(ejected) }
    })
    .await;
    traffic.goes_on("requests go on", 2_000).await;
    let metrics = site.proxy.metrics().await;
    let waited = metrics.sum_where("firth_upstream_failures", "kind", "connect_timeout");
    // Those under way when the fifth failed, and one for each time that the endpoint was probed.
    assert!((5.0..=5.0 + 8.0 + 8.0).contains(&waited), "{waited} requests waited");
    assert_eq!(metrics.sum("firth_endpoints_ejected"), 1.0, "and nobody else");
    traffic.stop().await.assert_clean();
}

/// F14: no client sees the responses that were retried elsewhere, and their endpoint gets no more requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_answers_500_is_left_alone_where_that_is_tried_elsewhere() {
    let site = FolderSite::start(&[]).await;
    let origins = origins(4).await;
    let addresses: Vec<_> = origins.iter().map(Origin::address).collect();
    serve(&site, &addresses, &[("proxy-next-upstream", "error timeout http_500")], "origin-0").await;
    let names: Vec<&str> = origins.iter().map(Origin::name).collect();
    let traffic = Traffic::start(site.proxy.http(), 8, &[Question::new(HOST, "/", &names[1..])]);
    traffic.ledger().allow_repeats();
    origins[0].script(Script::Exactly(b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n".to_vec()));
    eventually("it is out", || async {
        let ejected = counted(&site.proxy, "firth_endpoints_ejected").await;
        if ejected == 1.0 { Ok(()) } else { Err(ejected) }
    })
    .await;
    traffic.goes_on("requests go on", 2_000).await;
    let summary = traffic.stop().await;
    assert!(summary.repeated <= 5 + 8 + 8, "{} of {} were tried again", summary.repeated, summary.sent);
}

/// F17: whenever a client disconnects, nothing of it remains, and nothing of it reaches another client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_go_at_any_moment_leave_nothing_behind() {
    const EACH: usize = 60;
    let mut site = FolderSite::start(&[]).await;
    let origin = site.origin("one").await;
    site.route("web", HOST, &origin).await;
    let process = site.proxy.process().id();
    let traffic = Traffic::start(site.proxy.http(), 2, &[Question::new(HOST, "/", &["one"]).posting(500)]);
    traffic.goes_on("all is open", 50).await;
    let before = open_files(process);
    let post =
        |rest: &str| format!("POST /gone HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 100000\r\n{rest}");
    let moments: [(String, bool); 6] = [
        (String::new(), false),
        ("GET / HT".to_owned(), false),
        (post(""), false),
        (post("\r\n"), false),
        (post(&format!("\r\n{}", "x".repeat(60_000))), false),
        (format!("GET /gone HTTP/1.1\r\nHost: {HOST}\r\n\r\n"), true),
    ];
    for _ in 0..EACH {
        for (said, answered) in &moments {
            let mut client = Connection::open(site.proxy.http()).await.unwrap();
            client.send(said.clone()).await.unwrap();
            let (stream, _) = client.into_parts();
            if *answered {
                // Some of its answer was on the way.
                let _ = stream.readable().await;
            }
            stream.set_zero_linger().unwrap();
        }
    }
    traffic.goes_on("the others go on", 200).await;
    eventually("their connections are gone", || async {
        let now = open_files(process);
        if now.abs_diff(before) <= 5 { Ok(()) } else { Err(format!("{before} descriptors, now {now}")) }
    })
    .await;
    assert!(origin.seen().iter().all(|seen| seen.method == "GET"), "no half of a body went anywhere");
    assert_eq!(counted(&site.proxy, "firth_panics").await, 0.0);
    traffic.stop().await.assert_clean();
}

/// F17, F13: a client that disconnects before its request was processed costs nothing. While a proxy is overloaded,
/// most connections that it finds are of this kind: its own socket is not watched yet when it is woken.
#[tokio::test]
async fn a_request_whose_client_has_gone_is_sent_to_nobody() {
    const GONE: usize = 20;
    let mut site = FolderSite::start(&[]).await;
    let origin = site.origin("one").await;
    site.route("web", HOST, &origin).await;
    let mut clients = Vec::new();
    for _ in 0..GONE {
        let mut client = Connection::open(site.proxy.http()).await.unwrap();
        assert_eq!(client.get(HOST, "/").await.unwrap().status, 200);
        clients.push(client);
    }
    eventually("their connections are parked", || async {
        let parked = counted(&site.proxy, "firth_connections_parked").await;
        if parked == GONE as f64 { Ok(()) } else { Err(parked) }
    })
    .await;
    site.proxy.process().signal(Signal::Stop);
    for mut client in clients {
        client.send(format!("GET /gone HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await.unwrap();
    }
    site.proxy.process().signal(Signal::Cont);
    eventually("they were found to have gone", || async {
        let gone = counted(&site.proxy, "firth_requests_abandoned").await;
        if gone >= GONE as f64 { Ok(()) } else { Err(gone) }
    })
    .await;
    assert!(origin.seen().iter().all(|seen| seen.target == "/"), "{:?}", origin.seen());
    assert_eq!(client::get(site.proxy.http(), HOST, "/").await.unwrap().status, 200);
}

/// The number of a process' open files. Without access to the folder's entries, its size is used (Linux 6.2).
fn open_files(process: u32) -> u64 {
    let folder = format!("/proc/{process}/fd");
    match fs::read_dir(&folder) {
        Ok(files) => files.count() as u64,
        Err(_) => fs::metadata(&folder).unwrap().len(),
    }
}

/// Limits the open files of a process from now on; `None`: to the maximum.
fn allow(process: u32, files: Option<u64>) {
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let said = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let maximum: u64 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    let limit = Rlimit { current: Some(files.unwrap_or(maximum)), maximum: Some(maximum) };
    prlimit(Pid::from_raw(i32::try_from(process).unwrap()), Resource::Nofile, limit).unwrap();
}

/// F18: without descriptors, existing connections are kept and served; new ones wait; and all are served once there are
/// some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descriptors_that_run_out_end_nothing() {
    let mut site = FolderSite::start(&[]).await;
    let origin = site.origin("one").await;
    site.route("web", HOST, &origin).await;
    let mut there = Vec::new();
    for _ in 0..8 {
        let mut client = Connection::open(site.proxy.http()).await.unwrap();
        assert_eq!(client.get(HOST, "/").await.unwrap().status, 200);
        there.push(client);
    }
    let process = site.proxy.process().id();
    let open = open_files(process);
    allow(process, Some(open + 2));
    let address = site.proxy.http();
    let come: Vec<_> = (0..40).map(|_| tokio::spawn(client::get(address, HOST, "/"))).collect();
    for _ in 0..50 {
        for client in &mut there {
            assert_eq!(client.get(HOST, "/").await.expect("who is there is answered").status, 200);
        }
    }
    allow(process, None);
    for client in come {
        assert_eq!(client.await.unwrap().expect("who came is answered").status, 200);
    }
    for client in &mut there {
        assert_eq!(client.get(HOST, "/").await.unwrap().status, 200, "all is as before");
    }
    assert_eq!(client::get(address, HOST, "/").await.unwrap().status, 200);
    let errors = counted(&site.proxy, "firth_accept_errors").await;
    assert!(errors >= 1.0, "it was tried: {errors}");
}

/// F22: lack of CPU time is not taken for a fault of an endpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_is_busy_takes_nobody_out() {
    let site = FolderSite::start(&[]).await;
    let origins = origins(3).await;
    let addresses: Vec<_> = origins.iter().map(Origin::address).collect();
    serve(&site, &addresses, &[], "origin-0").await;
    let names: Vec<&str> = origins.iter().map(Origin::name).collect();
    let traffic = Traffic::start(site.proxy.http(), 8, &[Question::new(HOST, "/", &names)]);
    let logs = tempfile::TempDir::new().unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    let busy: Vec<Process> = (0..cores * 4)
        .map(|_| Process::spawn("busy", Command::new("sh").args(["-c", "while :; do :; done"]), logs.path()))
        .collect();
    traffic.goes_on("requests go on", 1_000).await;
    drop(busy);
    assert_eq!(counted(&site.proxy, "firth_endpoints_ejected").await, 0.0);
    site.control.inspect().await.in_sync(1).await;
    traffic.stop().await.assert_clean();
}

/// F10: no handshake fails while certificates change, and the newest is shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_change_cost_no_handshake() {
    const CHANGES: usize = 100;
    let secret = |number: usize| {
        let (certificate, key) = certificates::self_signed(&[HOST, &format!("v{number}.test")]);
        objects::tls_secret(NAMESPACE, "secret", &certificate, &key)
    };
    let site = FolderSite::start(&[secret(0)]).await;
    let _origin = site.origin("one").await;
    let listed = json!([{"hosts": [HOST], "secretName": "secret"}]);
    site.folder.apply(&ingress("web", HOST, &[("/", "one")]).with("/spec/tls", listed));
    site.proxy.answers(HOST, "/", 308).await;
    let https = site.proxy.https();
    let (stop, shaken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (stop, shaken) = (Arc::clone(&stop), Arc::clone(&shaken));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let (answer, names) =
                        tls::get(https, HOST, "/").await.expect("a handshake and an answer");
                    assert_eq!((answer.status, names[0].as_str()), (200, HOST));
                    shaken.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for number in 1..=CHANGES {
        site.folder.apply(&secret(number));
        // Some of them meet each.
        let due = number * 5;
        while shaken.load(Ordering::Relaxed) < due
            && !clients.iter().any(tokio::task::JoinHandle::is_finished)
        {
            tokio::task::yield_now().await;
        }
    }
    let newest = format!("v{CHANGES}.test");
    eventually("the newest is shown", || async {
        let (_, names) = tls::get(https, HOST, "/").await.map_err(|error| error.to_string())?;
        if names.contains(&newest) { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("no handshake failed");
    }
    assert_eq!(site.proxy.metrics().await.sum("firth_tls_handshake_failures"), 0.0);
}

/// Sequential requests use one connection per worker to an endpoint, and concurrent ones as many connections as there
/// are requests: as many as ingress-nginx' workers open, each of which keeps its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_sees_no_more_connections_than_there_are_workers_or_requests_at_once() {
    const WORKERS: u64 = 4;
    const AT_ONCE: u64 = 12;
    let site = FolderSite::start_with(&[], &[], &["--workers", &WORKERS.to_string()]).await;
    let origin = site.origin("one").await;
    site.route("web", HOST, &origin).await;
    for _ in 0..100 {
        assert_eq!(client::get(site.proxy.http(), HOST, "/").await.unwrap().status, 200);
    }
    let alone = origin.connections();
    assert!(alone <= WORKERS, "{alone} connections for one request at a time");
    let names = [origin.name()];
    let traffic = Traffic::start(site.proxy.http(), AT_ONCE as usize, &[Question::new(HOST, "/", &names)]);
    traffic.goes_on("all of them are served", 2_000).await;
    traffic.stop().await.assert_clean();
    let all = origin.connections();
    assert!(all <= WORKERS + AT_ONCE, "{all} connections for {AT_ONCE} requests at once");
}
