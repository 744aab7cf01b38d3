//! A worker: one thread, one runtime, its own sockets, pools, timers, buffers and counters. Nothing of a request ever
//! crosses to another thread.
//!
//! **Invariant:** a worker never waits for another one or for the control thread; what it reads of them is one pointer.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use shared::drain::{Phase, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tracing::{debug, error, warn};

use crate::access_log;
use crate::http::conn::{self, Peer};
use crate::listen::{self, Listener, Scheme};
use crate::metrics::WorkerMetrics;
use crate::table::{HostTable, TableReader, Tables};
use crate::upstream::Upstreams;
use crate::worker::buffers::Buffers;
use crate::worker::date::HttpDate;
use crate::worker::guard::{Open, isolated};
pub use crate::worker::limits::Limits;
use crate::worker::timer::{TICK, Timers};

pub(crate) mod buffers;
pub(crate) mod date;
pub(crate) mod guard;
pub(crate) mod limits;
pub(crate) mod timer;

/// What a worker is made of.
#[derive(Debug)]
pub struct WorkerConfig {
    /// Its number, for the thread's name.
    pub index: usize,
    /// Its own sockets, from [`listen::bind`].
    pub listeners: Vec<Listener>,
    /// The tables that it reads.
    pub tables: Arc<Tables>,
    /// Certificates and protocols of its TLS listeners.
    pub tls: Arc<rustls::ServerConfig>,
    /// Tells it to end.
    pub drain: Watcher,
    /// True when there is something to serve; it listens from then on.
    pub begin: watch::Receiver<bool>,
    /// Where its log lines go.
    pub access_log: access_log::Handle,
    /// Its counters.
    pub metrics: Arc<WorkerMetrics>,
    /// Sizes and times.
    pub limits: Limits,
}

/// Starts a worker's thread, which ends when the drain is over or when it closes and nothing is open.
///
/// # Errors
/// When the thread cannot be started.
pub fn spawn(config: WorkerConfig) -> io::Result<JoinHandle<io::Result<()>>> {
    std::thread::Builder::new().name(format!("worker-{}", config.index)).spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        // Dropping the runtime cuts every connection that is still open.
        runtime.block_on(run(config))
    })
}

/// What the connections of one worker share.
///
/// A `RefCell` here is borrowed for one call and never across an await.
pub(crate) struct Worker {
    tables: RefCell<TableReader>,
    pub(crate) upstreams: RefCell<Upstreams>,
    pub(crate) timers: Rc<Timers>,
    pub(crate) buffers: Buffers,
    pub(crate) log: RefCell<access_log::Lines>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) limits: Limits,
    pub(crate) date: RefCell<HttpDate>,
    tls: tokio_rustls::TlsAcceptor,
    open: Cell<usize>,
}

impl Worker {
    /// Asks the table of this moment; a request asks once. The table cannot leave the closure: were a request to keep
    /// it, the worker might be the one to free it.
    pub(crate) fn with_table<R>(&self, ask: impl FnOnce(&HostTable) -> R) -> R {
        ask(self.tables.borrow_mut().load())
    }

    /// Whether connections have to end after the present request.
    pub(crate) fn closing(&self) -> bool {
        self.timers.phase() >= Phase::Closing
    }

    /// Turns plain connections into TLS ones.
    pub(crate) fn tls(&self) -> &tokio_rustls::TlsAcceptor {
        &self.tls
    }
}

async fn run(config: WorkerConfig) -> io::Result<()> {
    let WorkerConfig { index, listeners, tables, tls, mut drain, mut begin, access_log, metrics, limits } =
        config;
    let worker = Rc::new(Worker {
        tables: RefCell::new(tables.reader()),
        upstreams: RefCell::new(Upstreams::new(limits.idle_upstreams, limits.upstream_idle)),
        timers: Timers::new(shared::clock::now()),
        buffers: Buffers::new(),
        log: RefCell::new(access_log.lines(Arc::clone(&metrics))),
        metrics,
        limits,
        date: RefCell::new(HttpDate::default()),
        tls: tls.into(),
        open: Cell::new(0),
    });
    worker.date.borrow_mut().update(shared::clock::wall());
    let ticking = spawn_local(tick(Rc::clone(&worker)));
    let begun = tokio::select! {
        biased;
        () = drain.reached(Phase::Leaving) => false,
        begun = begin.wait_for(|begun| *begun) => begun.is_ok(),
    };
    let mut accepting = Vec::with_capacity(listeners.len());
    for listener in listeners.into_iter().filter(|_| begun) {
        let (scheme, address) = (listener.scheme, listener.address);
        let socket = Rc::new(listener.into_tokio()?);
        debug!(worker = index, %address, scheme = scheme.as_str(), "listening");
        let task = spawn_local(accept(Rc::clone(&worker), Rc::clone(&socket), scheme));
        accepting.push((task, socket, scheme));
    }

    drain.reached(Phase::Leaving).await;
    worker.timers.enter(Phase::Leaving);
    drain.reached(Phase::Closing).await;
    for (task, socket, scheme) in accepting {
        task.abort();
        // Gone with the task is its share of the socket.
        let _ = task.await;
        for (stream, address) in listen::rest(&socket) {
            admit(&worker, stream, address, scheme);
        }
    }
    worker.timers.enter(Phase::Closing);
    drain.reached(Phase::Over).await;
    ticking.abort();
    if worker.open.get() > 0 {
        warn!(worker = index, connections = worker.open.get(), "connections are cut");
    }
    worker.log.borrow_mut().flush();
    Ok(())
}

/// Moves the coarse clock, wakes what is over its time, closes idle upstream connections that nobody may use.
async fn tick(worker: Rc<Worker>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = shared::clock::now();
        worker.timers.tick(now);
        worker.date.borrow_mut().update(shared::clock::wall());
        worker.upstreams.borrow_mut().sweep(now);
        worker.log.borrow_mut().flush();
        // A worker without requests would otherwise keep an old table alive.
        worker.tables.borrow_mut().load();
    }
}

/// Accepts until aborted. No error ends it.
async fn accept(worker: Rc<Worker>, socket: Rc<TcpListener>, scheme: Scheme) {
    loop {
        match socket.accept().await {
            Ok((stream, address)) => admit(&worker, stream, address, scheme),
            Err(error) => {
                worker.metrics.accept_errors.add(1);
                let Some(pause) = listen::pause_after(&error) else {
                    continue;
                };
                warn!(%error, "accept failed");
                // Idle connections to endpoints are worth less than a client.
                if !worker.upstreams.borrow_mut().shed() {
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

/// Gives a connection its task, or closes it when there are too many.
fn admit(worker: &Rc<Worker>, stream: TcpStream, address: SocketAddr, scheme: Scheme) {
    worker.metrics.accepted.add(1);
    if worker.open.get() >= worker.limits.max_connections {
        worker.metrics.refused.add(1);
        return;
    }
    let local_port = stream.local_addr().map_or(0, |local| local.port());
    let peer = Peer::new(address, scheme, local_port);
    let open = Open::new(worker);
    let shared = Rc::clone(worker);
    spawn_local(async move {
        let _open = open;
        let metrics = Arc::clone(&shared.metrics);
        if let Err(panic) = isolated(conn::serve(shared, stream, peer)).await {
            metrics.panics.add(1);
            error!(%panic, "a connection's task panicked; the connection is closed");
        }
    });
}

#[cfg(test)]
mod tests;
