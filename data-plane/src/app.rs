//! Wires up the control thread, the service thread and the workers. No decisions are made here.
//!
//! ```text
//! control     one thread: stream, tables, replies; nothing on it blocks
//! service     one thread: admin and health pages, staples
//! journal     one thread: reads and writes the state on disk
//! access-log  one thread: writes the lines that workers leave
//! worker-N    one thread a core: traffic
//! ```
//!
//! No global state: several data planes may run in one process, as in `firth up` and the tests.

mod disk;
mod identity;
mod listeners;
mod metrics;
mod plan;
mod threads;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use prometheus_client::registry::Registry;
use shared::admin::{Bound, Pages};
use shared::drain::Drain;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tracing::field::{DisplayValue, display};
use tracing::info;

use crate::admin::{Figures, ProxyPages};
use crate::args::Args;
use crate::journal::Stats;
use crate::listen::ports::Ports;
use crate::listen::{Listener, ListenerSet};
use crate::local::{Budgets, KnownNames, Reach};
use crate::metrics::Metrics;
use crate::staple::{self, Places};
use crate::subscribe::View;
use crate::worker::{self, WorkerConfig};
use crate::{access_log, tls};
use disk::Restored;
use listeners::Listeners;
use metrics::{StapleMetrics, TableMetrics};
use plan::Plan;
use threads::Threads;

/// Capacity of the queue of certificates that were used for the first time and need an OCSP response.
const SHOWN: usize = 1024;

/// How long the end waits for the goodbye to the control plane, which may be out of reach.
const FAREWELL: Duration = Duration::from_millis(500);

/// Runs until `shutdown` completes, then drains the connections.
///
/// # Errors
/// The arguments are inconsistent, an address is in use, or a thread ends unexpectedly.
pub async fn run(args: Args, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    start(args).await?.until(shutdown).await
}

/// Like [`run`], but these names are known and not looked up, and ports of TCP and UDP services are not shared with
/// another process: this one has no successor.
///
/// # Errors
/// As for [`run`].
pub async fn run_knowing(
    args: Args,
    names: KnownNames,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    start_knowing(args, names, true).await?.until(shutdown).await
}

/// A running data plane.
#[derive(Debug)]
pub struct Running {
    /// The addresses of plain HTTP.
    pub http: Vec<SocketAddr>,
    /// The addresses of HTTPS.
    pub https: Vec<SocketAddr>,
    /// The address of the admin pages.
    pub admin: Option<SocketAddr>,
    /// The address of the health pages.
    pub health: Option<SocketAddr>,
    grace: Duration,
    deadline: Duration,
    drain: Drain,
    /// Whether it has begun to listen.
    has_listened: Arc<AtomicBool>,
    metrics: Metrics,
    view: watch::Receiver<View>,
    /// Stops the control and the service thread.
    stop: watch::Sender<bool>,
    threads: Threads,
    /// Ends by itself after the control thread. Not joined like the others: its disk may never respond.
    journal: Option<thread::JoinHandle<()>>,
    log: access_log::Writer,
}

/// Binds the addresses and starts the threads. Clients can connect when the first configuration is complete.
///
/// # Errors
/// The arguments are inconsistent, an address is in use, or a thread cannot be started.
pub async fn start(args: Args) -> anyhow::Result<Running> {
    start_knowing(args, KnownNames::default(), false).await
}

async fn start_knowing(args: Args, names: KnownNames, alone: bool) -> anyhow::Result<Running> {
    let plan = Plan::of(args)?;
    let journal = Arc::new(Stats::default());
    let Restored { subscription, writer, thread: journal_thread } =
        disk::open(plan.subscription, plan.state_dir, plan.key_dir, &journal).await?;

    let listeners = Listeners::bind(&plan.http, &plan.https, plan.admin, plan.health, plan.workers)?;
    let (lines, log) = access_log::start(&plan.access_log).context("--access-log")?;
    let ports = Ports::new(plan.stream_address, plan.workers, &listeners.own())
        .with_descriptors(&plan.budgets.descriptors);
    let ports = if alone { ports.alone() } else { ports };
    let clients_may_come = ports.begun();
    let writer = writer.with_ports(ports);
    let tables = Arc::clone(writer.tables());
    let (telling, shown) = mpsc::channel(SHOWN);
    let tls = Arc::new(tls::server_config(Arc::clone(&tables), Some(telling))?);
    // What clients may make it hold is half of the memory.
    let metrics = Metrics::new(plan.workers).within(plan.budgets.bytes.limit().saturating_mul(2));
    let (drain, watcher) = Drain::new();
    let (stop, stopped) = watch::channel(false);

    let staples = Arc::new(staple::Stats::default());
    let of_tables = TableMetrics::new(Arc::clone(writer.counters()), plan.view.clone(), journal);
    let registry = registry(&metrics, &plan.budgets, of_tables, &staples);
    let figures = Figures { registry, metrics: metrics.clone(), labels: identity::labels() };
    let pages = ProxyPages::new(figures, plan.view.clone(), watcher.clone(), Arc::clone(&tables));
    let Listeners { listeners, http, https, admin, health } = listeners;
    let mut running = Running {
        http,
        https,
        admin: admin.as_ref().and_then(Bound::address),
        health: health.as_ref().and_then(Bound::address),
        grace: plan.grace,
        deadline: plan.deadline,
        drain,
        has_listened: Arc::clone(&clients_may_come),
        metrics: metrics.clone(),
        view: plan.view,
        stop,
        threads: Threads::default(),
        journal: journal_thread,
        log,
    };

    // The old proxy beside this one has tables: no client may connect to this one until it has some, too.
    let (begin, begun) = watch::channel(false);
    let complete = running.opening(&listeners, clients_may_come, begin);
    let leaving = watcher.clone();
    running.threads.start("control", stopped.clone(), || subscription.run(writer, leaving, complete))?;
    let stapled = (Arc::clone(&tables), (Places::new(plan.places), names.clone()));
    running.threads.start("service", stopped, || {
        serve_pages(admin, health, pages, staple::keep(stapled.0, shown, stapled.1, staples))
    })?;
    for (index, listeners) in listeners.into_iter().enumerate() {
        let worker = worker::spawn(WorkerConfig {
            index,
            listeners,
            ports: plan.ports,
            tables: Arc::clone(&tables),
            tls: Arc::clone(&tls),
            drain: watcher.clone(),
            begin: begun.clone(),
            access_log: lines.clone(),
            metrics: metrics.worker(index),
            limits: plan.limits.clone(),
            budgets: plan.budgets.clone(),
            names: names.clone(),
            reach: Reach::with(plan.reach.clone()),
        });
        running.threads.adopt(worker.context("cannot start a worker")?);
    }
    Ok(running)
}

/// The service thread. All of its parts run forever: an end is a fault, and ends the thread.
async fn serve_pages(
    admin: Option<Bound>,
    health: Option<Bound>,
    pages: ProxyPages,
    stapling: impl Future<Output = ()>,
) {
    let full: Arc<dyn Pages> = Arc::new(pages.clone().with_debug());
    let plain: Arc<dyn Pages> = Arc::new(pages);
    tokio::select! {
        () = listeners::serve(admin, full) => {}
        () = listeners::serve(health, plain) => {}
        () = stapling => {}
    }
}

/// For the log; `None`: there is none.
fn listed(addresses: &[SocketAddr]) -> Option<DisplayValue<String>> {
    let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| display(texts.join(", ")))
}

/// The metrics of `/metrics` in addition to ingress-nginx' own families.
fn registry(
    metrics: &Metrics,
    budgets: &Budgets,
    of_tables: TableMetrics,
    staples: &Arc<staple::Stats>,
) -> Arc<Registry> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    registry.register_collector(Box::new(budgets.clone()));
    registry.register_collector(Box::new(of_tables));
    registry.register_collector(Box::new(StapleMetrics(Arc::clone(staples))));
    Arc::new(registry)
}

impl Running {
    /// What the first complete configuration does: clients may connect from then on.
    fn opening(
        &self,
        listeners: &[Vec<Listener>],
        clients_may_come: Arc<AtomicBool>,
        begin: watch::Sender<bool>,
    ) -> impl FnOnce() + use<> {
        let listening = ListenerSet::of(listeners);
        let (http, https, workers) = (self.http.clone(), self.https.clone(), listeners.len());
        info!(
            http = listed(&http),
            https = listed(&https),
            admin = self.admin.map(display),
            health = self.health.map(display),
            "waiting for the first configuration before listening"
        );
        move || {
            // The worker that owns the socket will meet the error again, which ends the process.
            let _ = listening.open();
            clients_may_come.store(true, Ordering::Relaxed);
            begin.send_replace(true);
            info!(http = listed(&http), https = listed(&https), workers, "serving");
        }
    }

    /// For the handler of log rotation.
    pub fn access_log(&self) -> access_log::Reopen {
        self.log.reopen()
    }

    /// Serves until `shutdown` completes, then drains in phases: not ready but accepting, then closing until no
    /// connection is open, then over.
    ///
    /// # Errors
    /// A thread ends unexpectedly.
    pub async fn until(mut self, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
        let failed = tokio::select! {
            () = shutdown => None,
            failed = self.threads.ended() => Some(failed),
        };
        info!(open = self.metrics.open(), "leaving");
        let metrics = self.metrics;
        // If a part of the process is broken, there is no grace period; nor for clients that could never come.
        let (grace, deadline) = match failed {
            None if self.has_listened.load(Ordering::Relaxed) => (self.grace, self.deadline),
            None => (Duration::ZERO, self.deadline),
            Some(_) => (Duration::ZERO, Duration::ZERO),
        };
        self.drain.run(grace, deadline, || metrics.open() > 0).await;
        // With nothing open that is over before the control thread, on a busy node, has said goodbye.
        let _ = timeout(FAREWELL, self.view.wait_for(|view| view.parted)).await;
        self.stop.send_replace(true);
        let ended = self.threads.join().await;
        disk::written(self.journal).await;
        self.log.finish();
        match failed {
            Some(failed) => bail!("{failed}"),
            None => ended,
        }
    }
}

#[cfg(test)]
mod tests;
