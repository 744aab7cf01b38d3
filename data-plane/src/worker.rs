//! A worker: one thread and one runtime, with its own sockets, pools, timers, buffers and counters. Nothing of a
//! request ever moves to another thread.
//!
//! **Invariant:** a worker never waits for another worker or for the control thread; all it reads from them is one
//! pointer.

mod open;
mod pace;
mod parked;
mod streams;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures::FutureExt as _;
use shared::budget::Level;
use shared::drain::{Phase, Watcher};
use shared::telemetry::Seldom;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_local};
use tracing::{debug, error, warn};

use crate::access_log;
use crate::codec::stream::Socket;
use crate::http::conn::{self, Parked};
use crate::http::peer::{LocalPort, Peer};
use crate::http::server::Server;
use crate::listen::{self, Accepted, Listener, PublicPorts, Queue, Scheme};
use crate::local::isolated::isolated;
use crate::local::timer::TICK;
use crate::local::{Budgets, KnownNames, Limits, Local, Reach};
use crate::metrics::WorkerMetrics;
use crate::table::Tables;
use crate::table::streams::Service;
use crate::tcp;
use crate::tls::backends::Backends;
use open::{ConnectionPermit, Open};
use pace::Pace;
use parked::ParkedSet;
use streams::Streams;

/// Number of idle connections that are closed at a time to make room.
const SHED: usize = 8;

/// The same when no memory is left for new requests.
const SHED_AT_FULL: usize = 128;

/// Minimum idle time before a connection is closed to free memory: a new client is about to send a request.
const SETTLED: Duration = Duration::from_secs(1);

/// Minimum time between two warnings that no connection can be accepted, of which there may be a hundred failures a
/// second.
const WARNINGS: Duration = Duration::from_secs(10);

/// The configuration of a worker.
#[derive(Debug)]
pub struct WorkerConfig {
    /// Its number, for the thread's name.
    pub index: usize,
    /// Its own sockets, from [`listen::bind`].
    pub listeners: Vec<Listener>,
    /// The ports that clients use.
    pub ports: PublicPorts,
    /// The tables that it reads.
    pub tables: Arc<Tables>,
    /// Certificates and protocols of its TLS listeners.
    pub tls: Arc<rustls::ServerConfig>,
    /// Tells it to shut down.
    pub drain: Watcher,
    /// True when there is something to serve; it listens from then on.
    pub begin: watch::Receiver<bool>,
    /// Receives its log lines.
    pub access_log: access_log::Handle,
    /// Its counters.
    pub metrics: Arc<WorkerMetrics>,
    /// Size limits and timeouts.
    pub limits: Limits,
    /// The budgets that it shares with the others.
    pub budgets: Budgets,
    /// Names that are known without lookups.
    pub names: KnownNames,
    /// Restrictions on addresses that it connects to on behalf of tenants.
    pub reach: Reach,
}

/// Starts a worker's thread, which ends when the drain is over or when it is closing and no connection is open.
///
/// # Errors
/// The thread cannot be started.
pub fn spawn(config: WorkerConfig) -> io::Result<thread::JoinHandle<io::Result<()>>> {
    thread::Builder::new().name(format!("worker-{}", config.index)).spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        // Dropping the runtime closes every connection that is still open.
        runtime.block_on(until_broken(|own| serve(config, own)))
    })
}

/// The state of the worker: what its connections use, and their number.
struct Worker {
    index: usize,
    server: Rc<Server>,
    budgets: Budgets,
    parked_set: ParkedSet,
    open: Cell<usize>,
    /// Connections that were told to close for others and have not ended yet.
    ending: Cell<usize>,
    /// Connections that were accepted in advance for those, and have no slot yet.
    owed: Cell<usize>,
    /// Slots of ended connections, each for one that was accepted without a slot.
    paid: RefCell<Vec<ConnectionPermit>>,
    /// That no connection can be accepted.
    warning: RefCell<Seldom>,
}

impl Worker {
    fn new(index: usize, server: Server, budgets: Budgets) -> io::Result<Self> {
        Ok(Self {
            index,
            server: Rc::new(server),
            budgets,
            parked_set: ParkedSet::new()?,
            open: Cell::new(0),
            ending: Cell::new(0),
            owed: Cell::new(0),
            paid: RefCell::default(),
            warning: RefCell::new(Seldom::new(WARNINGS)),
        })
    }

    /// Whether there is no slot for a further connection.
    fn is_full(&self) -> bool {
        self.budgets.connections.used() >= self.budgets.connections.limit()
    }

    /// Changes the number of open connections.
    fn count(&self, more: isize) {
        self.open.set(self.open.get().saturating_add_signed(more));
        self.server.local.metrics.open.set(self.open.get() as u64);
    }

    /// Updates the number of parked connections.
    fn count_parked(&self) {
        self.server.local.metrics.parked.set(self.parked_set.count());
    }
}

/// Works until it is done, or until one of the worker's own tasks panics: without its clock or a listener it would not
/// work properly. Its end ends the process.
async fn until_broken<F: Future<Output = io::Result<()>>>(work: impl FnOnce(Own) -> F) -> io::Result<()> {
    let (own, mut panicked) = mpsc::channel(1);
    tokio::select! {
        biased;
        Some(what) = panicked.recv() => Err(io::Error::other(what)),
        ended = work(Own(own)) => ended,
    }
}

/// Starts a worker's own tasks, and receives their panics.
#[derive(Clone)]
struct Own(mpsc::Sender<String>);

impl Own {
    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
        let own = self.0.clone();
        spawn_local(async move {
            if let Err(panic) = isolated(task).await {
                // The first panic is enough.
                let _ = own.try_send(format!("{name} panicked: {panic}"));
            }
        })
    }
}

async fn serve(config: WorkerConfig, own: Own) -> io::Result<()> {
    let WorkerConfig {
        index,
        listeners,
        ports,
        tables,
        tls,
        mut drain,
        mut begin,
        access_log,
        metrics,
        limits,
        budgets,
        names,
        reach,
    } = config;
    let lines = access_log.lines(Arc::clone(&metrics));
    let backends = Backends::new().map_err(io::Error::other)?;
    let local = Local::new(limits, &budgets, (names, reach), metrics, lines);
    let https = listeners.iter().find(|it| it.scheme == Scheme::Https).map(|it| it.address.port());
    let server = Server::new(local, &tables, tls, backends, ports).with_https(https);
    let worker = Rc::new(Worker::new(index, server, budgets)?);
    let local = Rc::clone(&worker.server.local);
    let ticking = own.spawn("the clock", tick(Rc::clone(&worker.server)));
    own.spawn("the parking lot", parked::keep(Rc::clone(&worker)));
    let begun = tokio::select! {
        biased;
        () = drain.reached(Phase::Leaving) => false,
        begun = begin.wait_for(|begun| *begun) => begun.is_ok(),
    };
    let mut accepting = Vec::with_capacity(listeners.len());
    for listener in listeners.into_iter().filter(|_| begun) {
        let (scheme, address) = (listener.scheme, listener.address);
        // As in ingress-nginx: for TLS the port that clients use is reported, for plain HTTP the actual one.
        let port = match scheme {
            Scheme::Http => LocalPort::from(address.port()),
            Scheme::Https => LocalPort::known_as(address.port(), worker.server.ports.https),
        };
        let ip = address.ip();
        let entry = Entry { scheme, port, ip: (!ip.is_unspecified()).then_some(ip) };
        let queue = Rc::new(listener.into_queue()?);
        debug!(worker = index, %address, scheme = scheme.as_str(), "listening");
        let accept = accept(Rc::clone(&worker), Rc::clone(&queue), entry.clone(), drain.clone());
        let task = own.spawn("a listener", accept);
        accepting.push((task, queue, entry));
    }

    let streams = Rc::new(RefCell::new(Streams::default()));
    let keeping = streams::keep(Rc::clone(&worker), own.clone(), Rc::clone(&streams));
    let keeping = own.spawn("the ports", keeping);
    drain.reached(Phase::Leaving).await;
    local.timers.enter(Phase::Leaving);
    drain.reached(Phase::Closing).await;
    keeping.abort();
    streams.borrow_mut().end(&worker);
    for (task, queue, entry) in accepting {
        // The task ends by itself, because it may have just accepted a connection. Its reference to the socket is
        // dropped with it.
        let _ = task.await;
        for accepted in queue.rest() {
            admit(&worker, accepted, &entry);
        }
    }
    local.timers.enter(Phase::Closing);
    drain.reached(Phase::Over).await;
    ticking.abort();
    if worker.open.get() > 0 {
        warn!(worker = index, connections = worker.open.get(), "connections are cut");
    }
    local.log.borrow_mut().flush();
    Ok(())
}

/// Advances the coarse clock, wakes tasks whose deadline has passed, closes idle upstream connections that cannot be
/// used.
async fn tick(server: Rc<Server>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let local = &server.local;
    loop {
        ticks.tick().await;
        let now = shared::clock::now();
        local.timers.tick(now);
        local.is_behind.set(false);
        local.date.borrow_mut().update(shared::clock::wall());
        server.renew_kept();
        server.upstreams.borrow_mut().sweep(now);
        server.backends().sweep();
        server.handshakes().sweep();
        match local.quota.level() {
            Level::Calm => {}
            Level::Tight => shed(&server, SHED),
            Level::Full => shed(&server, SHED_AT_FULL),
        }
        if local.reserve.is_awaited() {
            server.upstreams.borrow_mut().shed();
            local.pipes.shed();
        }
        local.log.borrow_mut().flush();
        local.requests.borrow_mut().tick();
        server.renew_table();
    }
}

/// Closes idle connections, at most `most`, to free shared memory.
fn shed(server: &Server, most: usize) {
    let shed = server.local.timers.shed(most, SETTLED);
    server.local.metrics.shed.add(shed as u64);
    server.upstreams.borrow_mut().shed();
}

/// What a listener knows about its clients.
#[derive(Clone)]
struct Entry {
    scheme: Scheme,
    port: LocalPort,
    /// The address that it listens on, if it is only one.
    ip: Option<IpAddr>,
}

/// Accepts until the worker closes. No error ends it.
async fn accept(worker: Rc<Worker>, queue: Rc<Queue>, entry: Entry, mut drain: Watcher) {
    let mut pace = Pace::default();
    let mut closing = pin!(drain.reached(Phase::Closing));
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut closing => return,
            come = next(&worker, &queue) => come,
        };
        if worker.is_full() {
            // Those that were accepted just before have not reported yet that they are idle.
            tokio::task::yield_now().await;
        }
        if pace.take() {
            let begun = shared::clock::now();
            // Meanwhile the runtime polls this one, too, and notices if it was closed again, as after a long wait.
            tokio::task::yield_now().await;
            let is_long = pace.turned(shared::clock::now().duration_since(begun));
            // Other listeners may be behind as well.
            if is_long {
                worker.server.local.is_behind.set(true);
            }
        }
        admit(&worker, accepted, &entry);
    }
}

/// Accepts the next connection. While the reserve of descriptors is not full, none is accepted: existing connections
/// have precedence.
async fn next(worker: &Worker, queue: &Queue) -> Accepted {
    let reserve = &worker.budgets.reserve;
    // Checked for each connection in the queue, and not only when waiting begins. If there are no connections, there
    // is nothing to wait for.
    let is_held = || reserve.is_short() && worker.budgets.connections.used() > 0;
    loop {
        let come = poll_fn(|cx| match is_held() {
            true => Poll::Ready(None),
            false => queue.poll_accept(cx).map(Some),
        });
        match come.await {
            Some(Ok(come)) => return come,
            Some(Err(error)) => accept_failed(worker, &error).await,
            None => {
                reserve.fill();
                if is_held() {
                    tokio::time::sleep(listen::PAUSE).await;
                }
            }
        }
    }
}

/// Makes room when descriptors are short, and waits if that is not possible.
async fn accept_failed(worker: &Worker, error: &io::Error) {
    worker.server.local.metrics.accept_errors.add(1);
    let Some(pause) = listen::pause_after(error) else {
        return;
    };
    if let Some(missed) = worker.warning.borrow_mut().now(shared::clock::now()) {
        warn!(%error, missed, "accept failed");
    }
    // A client has precedence over idle connections to endpoints.
    if !worker.server.upstreams.borrow_mut().shed() {
        tokio::time::sleep(pause).await;
    }
}

/// The same for a connection to a TCP service.
fn admit_stream(worker: &Rc<Worker>, (stream, address): Accepted, to: &Service) {
    let Some(open) = opened(worker, || local_ip(&stream)) else {
        return;
    };
    let stream = match TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => return debug!(%error, "a connection cannot be registered"),
    };
    let server = Rc::clone(&worker.server);
    let (said, cell) = (Arc::clone(&to.config), Arc::clone(&to.cell));
    spawn_local(async move {
        let _open = open;
        let metrics = Arc::clone(&server.local.metrics);
        if let Err(panic) = isolated(tcp::serve(server, stream, address, said, cell)).await {
            metrics.panics.add(1);
            error!(%panic, "a connection's task panicked; the connection is closed");
        }
    });
}

/// Counts a connection to this address of the proxy. `None`: clients may not connect to it, or too many are open and none
/// of them is idle.
fn opened(worker: &Rc<Worker>, local: impl FnOnce() -> Option<IpAddr>) -> Option<Open> {
    let metrics = &worker.server.local.metrics;
    metrics.accepted.add(1);
    let open = worker.server.listens_at(local).then(|| Open::new(worker)).flatten();
    if open.is_none() {
        metrics.refused.add(1);
    }
    open
}

/// The address that a client connected to.
fn local_ip(stream: &std::net::TcpStream) -> Option<IpAddr> {
    stream.local_addr().ok().map(|local| local.ip())
}

/// Gives a connection its task, or closes it.
fn admit(worker: &Rc<Worker>, (stream, address): Accepted, entry: &Entry) {
    let local = entry.ip.or_else(|| local_ip(&stream));
    let Some(open) = opened(worker, || local) else {
        return;
    };
    let number = worker.server.local.metrics.accepted.value();
    let server = Rc::clone(&worker.server);
    let peer =
        Peer::new(address, entry.scheme, entry.port.clone()).with_number(number).with_local_address(local);
    attend(open, conn::serve(server, Socket::from(stream), peer));
}

/// Gives a connection a task, until its end or until it can be parked. Not an async block, which would store the
/// future twice.
fn attend(open: Open, serving: impl Future<Output = Option<Parked>> + 'static) {
    spawn_local(isolated(serving).map(move |left| match left {
        Ok(None) => drop(open),
        Ok(Some(parked)) => open.park(parked),
        Err(panic) => {
            open.panicked();
            error!(%panic, "a connection's task panicked; the connection is closed");
        }
    }));
}

#[cfg(test)]
mod tests;
