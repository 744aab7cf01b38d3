use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use shared::drain::Drain;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;
use crate::listen;
use crate::local::timer::SILENCE;
use crate::metrics::Metrics;
use crate::table::Writer;
use crate::tls::backends::Backends;

/// Nothing here takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

struct Proxy {
    address: SocketAddr,
    begin: watch::Sender<bool>,
    drain: Drain,
    metrics: Metrics,
    worker: thread::JoinHandle<io::Result<()>>,
    _log: access_log::Writer,
}

/// One worker, which is not told to begin.
fn proxy() -> Proxy {
    let listeners = listen::bind(&[([127, 0, 0, 1], 0).into()], &[], 1).unwrap().remove(0);
    let writer = Writer::new();
    let (drain, watcher) = Drain::new();
    let (begin, begun) = watch::channel(false);
    let metrics = Metrics::new(1);
    let (lines, log) = access_log::write_to(io::sink()).unwrap();
    let config = WorkerConfig {
        index: 0,
        tables: Arc::clone(writer.tables()),
        tls: Arc::new(crate::tls::server_config(Arc::clone(writer.tables()), None).unwrap()),
        drain: watcher,
        begin: begun,
        access_log: lines,
        metrics: metrics.worker(0),
        limits: Limits::default(),
        budgets: Budgets::default(),
        ports: PublicPorts::default(),
        names: KnownNames::default(),
        reach: Reach::default(),
        listeners,
    };
    Proxy {
        address: config.listeners[0].address,
        begin,
        drain,
        metrics,
        worker: spawn(config).unwrap(),
        _log: log,
    }
}

/// The state of a worker with this number, which has nothing open.
pub(super) fn bare(index: usize, writer: &Writer) -> Rc<Worker> {
    let tls = Arc::new(crate::tls::server_config(Arc::clone(writer.tables()), None).unwrap());
    let (local, backends) = (Local::for_tests(), Backends::new().unwrap());
    let server = Server::new(local, writer.tables(), tls, backends, PublicPorts::default());
    Rc::new(Worker::new(index, server, Budgets::default()).unwrap())
}

fn drained(proxy: Proxy, deadline: Duration) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let metrics = proxy.metrics;
    runtime.block_on(proxy.drain.run(Duration::ZERO, deadline, || metrics.open() > 0));
    proxy.worker.join().unwrap().unwrap();
}

/// Connects as soon as somebody listens.
fn connect(address: SocketAddr) -> std::net::TcpStream {
    let deadline = shared::clock::now() + PATIENCE;
    loop {
        match std::net::TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(shared::clock::now() < deadline, "{error}"),
        }
        thread::yield_now();
    }
}

#[test]
fn listens_when_there_is_something_to_serve() {
    let proxy = proxy();
    std::net::TcpStream::connect(proxy.address).unwrap_err();
    proxy.begin.send_replace(true);
    let mut stream = connect(proxy.address);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    drained(proxy, PATIENCE);
}

#[test]
fn worker_waiting_to_start_ends_at_once_on_drain() {
    let (done, ended) = mpsc::channel();
    let waiting = proxy();
    thread::spawn(move || {
        drained(waiting, PATIENCE);
        done.send(()).unwrap();
    });
    ended.recv_timeout(PATIENCE).unwrap();
    // Also if there is nobody left to tell it to begin.
    let mut orphan = proxy();
    orphan.begin = watch::channel(false).0;
    drained(orphan, PATIENCE);
}

#[test]
fn connection_in_the_accept_queue_at_drain_is_served() {
    // More than are taken in a turn, so that it may close while one of them is in hand.
    for _ in 0..20 {
        let proxy = proxy();
        proxy.begin.send_replace(true);
        let mut clients: Vec<_> = (0..100).map(|_| connect(proxy.address)).collect();
        let asking = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
        clients.iter_mut().for_each(|client| client.write_all(asking).unwrap());
        drained(proxy, PATIENCE);
        for client in &mut clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        }
    }
}

#[test]
fn connection_about_to_send_at_drain_is_served() {
    for _ in 0..20 {
        let proxy = proxy();
        proxy.begin.send_replace(true);
        let (asks, asked) = mpsc::channel();
        let clients = [connect(proxy.address), connect(proxy.address)].map(|client| {
            let asks = asks.clone();
            thread::spawn(move || ask_until_close(client, &asks))
        });
        clients.iter().for_each(|_| asked.recv().unwrap());
        drained(proxy, PATIENCE);
        clients.into_iter().for_each(|client| client.join().unwrap());
    }
}

/// Sends a request as soon as the one before is answered, until an answer says that it was the last one.
fn ask_until_close(mut client: std::net::TcpStream, asks: &mpsc::Sender<()>) {
    let mut answered = None;
    loop {
        let idle = answered.map_or(Duration::ZERO, |at| shared::clock::now().duration_since(at));
        let (sent, answer) = ask(&mut client);
        // A thread that gets no CPU for so long is not a busy client.
        if idle > SILENCE / 2 {
            return;
        }
        sent.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        if answer.contains("\r\nConnection: close\r\n") {
            return;
        }
        answered = Some(shared::clock::now());
        let _ = asks.send(());
    }
}

/// The head of the answer to a request; it may be incomplete.
fn ask(client: &mut std::net::TcpStream) -> (io::Result<()>, String) {
    let sent = client.write_all(b"HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|count| count > 0) {
        head.extend(byte);
    }
    (sent, String::from_utf8(head).unwrap())
}

/// A worker whose clock has stopped or that has lost a listener must not go on.
#[test]
fn a_panic_of_its_own_is_the_end_of_a_worker() {
    let runtime = Builder::new_current_thread().build_local(LocalOptions::default()).unwrap();
    let ended = runtime.block_on(until_broken(|own| async move {
        own.spawn("the clock", async { panic!("a bug") });
        std::future::pending().await
    }));
    assert_eq!(ended.unwrap_err().to_string(), "the clock panicked: a bug");
    // A task that merely ends is no problem.
    let ended = runtime.block_on(until_broken(|own| async move {
        let task = own.spawn("a listener", std::future::pending());
        task.abort();
        let _ = task.await;
        Ok(())
    }));
    assert!(ended.is_ok());
}

/// Counts the warnings of a thread.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_connection_takes_memory_and_the_longest_idle_makes_room_for_it() {
    let worker = bare(0, &Writer::new());
    let quota = &worker.server.local.quota;
    let open = Open::new(&worker).unwrap();
    let each = quota.held();
    assert!(each > 0);
    let mut others: Vec<_> = std::iter::from_fn(|| quota.take(1 << 20)).collect();
    others.extend(std::iter::from_fn(|| quota.take(1)));
    assert!(Open::new(&worker).is_none(), "nothing is left, and nobody is idle");
    let timer = worker.server.local.timers.timer();
    timer.idle(true);
    let further = Open::new(&worker).unwrap();
    assert!(timer.has_to_end());
    drop(open);
    drop(further);
    drop(others);
    worker.paid.take();
    assert_eq!(quota.held(), 0);
}

/// There are a hundred failures a second.
#[tokio::test(start_paused = true)]
async fn a_shortage_is_not_told_for_each_accept_that_fails() {
    let (writer, warnings) = (Writer::new(), Warnings::default());
    let _log = tracing::subscriber::set_default(warnings.clone());
    let worker = bare(0, &writer);
    for _ in 0..100 {
        accept_failed(&worker, &io::Error::from_raw_os_error(24)).await;
    }
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1);
    assert_eq!(worker.server.local.metrics.accept_errors.value(), 100);
}
