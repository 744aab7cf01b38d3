//! Starts the tasks of a control plane and connects them: source -> pipeline -> store -> streams and inspection.
//! Nothing is decided here.
//!
//! No global state: several may run in one process, as `firth up` and the tests do.

mod aside;
pub mod check;
mod exit;
mod flags;
mod identity;
mod listeners;
mod rights;
mod source;
mod stale;
mod status;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use shared::version::Source;
use tokio::sync::{mpsc, watch};
use tonic::service::Routes;
use tracing::info;

use crate::admin::ControlPages;
use crate::announce::{self, edge::Seen};
use crate::args::Args;
use crate::barrier::Barrier;
use crate::event::{Inputs, PinRequest, Wants};
use crate::inspect::Inspect;
use crate::kube::events::Announcement;
use crate::kube::status::StatusOptions;
use crate::manifests::Companion;
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::pipeline::{Outputs, Pipeline, Question, Start};
use crate::placement::Placements;
use crate::problem::Problems;
use crate::serve::registry::Registry;
use crate::serve::{Service, convergence};
use crate::store::Published;
use crate::tasks::Supervisor;
use crate::webhook;
use aside::Aside;
use exit::{Ends, Exit};
use listeners::Listeners;
use source::{Asks, Cluster};

/// Capacity of the channel from the source to the pipeline.
const INPUTS: usize = 256;
/// Capacity of the channel of hold decisions from the pipeline to the source.
const HOLDS: usize = 64;
/// Capacity of the channel of pin decisions to the source.
const PINS: usize = 16;
/// Capacity of the channel of questions about Ingresses to the pipeline.
const QUESTIONS: usize = 16;

/// Runs until `shutdown` resolves, then hands the streams over.
///
/// # Errors
/// If the arguments contradict each other, an address is in use, the source is not usable, or a task fails.
pub async fn run(args: Args, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    start(args, None).await?.until(shutdown).await
}

/// As [`run`], with a companion beside the folder.
///
/// # Errors
/// As [`run`].
pub async fn run_beside(
    args: Args,
    companion: Companion,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    start(args, Some(companion)).await?.until(shutdown).await
}

/// A running control plane.
#[derive(Debug)]
pub struct Running {
    /// The address that proxies connect to.
    pub listen: SocketAddr,
    /// The address of health checks and metrics.
    pub admin: Option<SocketAddr>,
    tasks: Supervisor,
    exit: Exit,
    /// How long reviews are answered after the shutdown began.
    reviews: Duration,
    status: Option<(status::Writers, status::Last)>,
}

/// Handles to the pipeline's output and to the source.
struct Compiled {
    published: Published,
    problems: watch::Receiver<Problems>,
    placed: watch::Receiver<Placements>,
    /// What is missing before anything can be offered.
    start: Start,
    /// Accepts decisions about the pin.
    pins: mpsc::Sender<PinRequest>,
    /// Accepts questions about Ingresses that do not exist yet.
    asks: mpsc::Sender<Question>,
    barrier: Barrier,
    /// For questions about a folder.
    questions_of_folder: Barrier,
    /// The identity of the source.
    identity: watch::Receiver<Option<Source>>,
}

/// Binds the addresses, opens the source and starts the tasks.
///
/// # Errors
/// As [`run`].
pub async fn start(args: Args, companion: Option<Companion>) -> anyhow::Result<Running> {
    flags::fit(&args)?;
    let publishing = status::options(&args)?;
    let listeners = Listeners::bind(&args).await?;
    let mut tasks = Supervisor::new();
    let metrics = Arc::new(Metrics::new());
    let (compiled, cluster) = compile(&mut tasks, &args, publishing, companion, &metrics).await?;
    serve(tasks, &args, listeners, compiled, cluster, metrics).await
}

/// Starts the tasks that compile objects.
async fn compile(
    tasks: &mut Supervisor,
    args: &Args,
    publishing: Option<StatusOptions>,
    companion: Option<Companion>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<(Compiled, Cluster)> {
    let (store, published) = flags::store(args)?;
    let (inputs, receivers) = Inputs::channel(INPUTS);
    let (wants, wanted) = watch::channel(Wants::default());
    let (holds, asked) = mpsc::channel(HOLDS);
    let (pins, decided) = mpsc::channel(PINS);
    let (asks, questions) = mpsc::channel(QUESTIONS);
    let (problems, known) = watch::channel(Problems::default());
    let (places, placed) = watch::channel(Placements::default());
    let (awaited, awaits) = watch::channel(None);
    let (barrier, questions_of_folder) = (Barrier::default(), Barrier::of_cheap_rounds());

    let wanted = Asks {
        inputs,
        wants: wanted,
        holds: asked,
        pins: decided,
        barrier: barrier.clone(),
        questions_of_folder: questions_of_folder.clone(),
        ticket_keys: flags::ticket_keys(args),
    };
    let source = match &args.manifests {
        Some(dir) => source::of_folder(tasks, dir, args.state_dir.as_deref(), companion, wanted)?,
        None => source::of_cluster(tasks, args, publishing, placed.clone(), wanted).await?,
    };
    let outputs = Outputs { wants, awaited, holds, pins: pins.clone(), problems, places };
    let pipeline = Pipeline::new(flags::index(args), store, receivers, outputs, Arc::clone(metrics));
    let whose = identity::of_history(args, source.identity.clone());
    let pipeline =
        pipeline.with_questions(args.validating_webhook.map(|_| questions)).with_barrier(barrier.clone());
    let pipeline = pipeline
        .with_questions_of_folder(questions_of_folder.clone())
        .with_source(whose, &args.group)
        .with_clock();
    tasks.spawn("pipeline", async { pipeline.run().await.map(|never| match never {}) });
    let compiled = Compiled {
        published,
        problems: known,
        placed,
        start: Start { awaited: awaits, source: source.freshness },
        pins,
        asks,
        barrier,
        questions_of_folder,
        identity: source.identity,
    };
    Ok((compiled, source.cluster))
}

/// Starts the tasks that serve the result: to proxies, to other replicas, and to tools.
async fn serve(
    mut tasks: Supervisor,
    args: &Args,
    listeners: Listeners,
    compiled: Compiled,
    cluster: Cluster,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Running> {
    let Cluster { trust, bundle, announcements, writers } = cluster;
    let ends = Ends::new();
    let registry = Arc::new(Registry::new(args.settle));
    let seen = Seen {
        published: compiled.published.clone(),
        places: compiled.placed.clone(),
        problems: compiled.problems.clone(),
        registry: Arc::clone(&registry),
    };
    follow_fleet(&mut tasks, seen, announcements, &metrics);

    let registrar = identity::registrar(&mut tasks, args, trust).await?;
    if let Some(webhook) = listeners.webhook {
        let asks = compiled.asks.clone();
        webhook.open(&mut tasks, registrar.as_ref(), asks, &metrics, ends.ending())?;
    }
    if let Some((bundle, registrar)) = bundle.zip(registrar.as_ref()) {
        tasks.spawn("webhook's authority", webhook::ca_bundle::keep(bundle, registrar.current()));
    }
    let (published, freshness) = (compiled.published.clone(), compiled.start.source.clone());
    let peers = Peers::new(args.peers.clone(), registrar.clone(), published, args.settle, freshness);
    tasks.spawn("peers", peers.clone().keep(Arc::clone(&registry), Arc::clone(&metrics)));

    follow_peers(&mut tasks, &peers, &compiled, &registry, &ends);

    let service = service(args, &compiled, &registry, &peers, &metrics, &ends);
    let inspect = inspect(args, &compiled, &registry, &peers, &ends)?;
    let listen = listeners.listen.local_addr()?;
    let served = listeners::spawn_server(
        &mut tasks,
        listeners.listen,
        service,
        inspect,
        registrar.clone(),
        ends.leaving(),
    );

    let last = status::Last {
        is_asked: args.status.update_status_on_shutdown,
        registry: Arc::clone(&registry),
        peers: peers.clone(),
    };
    let pages = ControlPages {
        published: compiled.published,
        registrar,
        registry: Arc::clone(&registry),
        problems: compiled.problems,
        metrics,
        start: compiled.start,
        original: status::original(args, writers.is_some()),
        hold: writers.as_ref().map(|writers| writers.hold.clone()),
        leaving: ends.ending(),
    };
    let admin = listeners::spawn_admin(&mut tasks, listeners.admin, pages)?;
    info!(%listen, group = %args.group, version = shared::telemetry::VERSION, "control plane started");
    let exit = Exit { ends, registry, peers, served };
    let reviews = args.validating_webhook.map(|_| webhook::STAY).unwrap_or_default();
    Ok(Running { listen, admin, tasks, exit, reviews, status: writers.map(|writers| (writers, last)) })
}

/// Starts what follows the fleet: which proxies are there, how long changes take to reach them, and what the owners of
/// objects are told.
fn follow_fleet(
    tasks: &mut Supervisor,
    seen: Seen,
    announcements: Option<mpsc::Sender<Announcement>>,
    metrics: &Arc<Metrics>,
) {
    tasks.spawn("proxies", Arc::clone(&seen.registry).keep());
    let (published, registry) = (seen.published.clone(), Arc::clone(&seen.registry));
    tasks.spawn("convergence", convergence::measure(published, registry, Arc::clone(metrics)));
    if let Some(to) = announcements {
        tasks.spawn("announce", announce::edge::run(seen, to));
    }
}

/// Starts what sends proxies away while this replica is behind others.
fn follow_peers(
    tasks: &mut Supervisor,
    peers: &Peers,
    compiled: &Compiled,
    registry: &Arc<Registry>,
    ends: &Ends,
) {
    let told = peers.clone();
    let tells = move |is| told.set_stale(is);
    let aside = Arc::new(Aside::new(ends.mover(), ends.ending(), Arc::clone(registry), tells));
    tasks.spawn("staleness", stale::keep(peers.doubts(), compiled.barrier.clone(), Arc::clone(&aside)));
    let asked = peers.clone();
    let ask = move || {
        let peers = asked.clone();
        async move { peers.ask_ahead().await }
    };
    let (barrier, source) = (compiled.barrier.clone(), compiled.start.source.clone());
    tasks.spawn("rights", rights::keep(peers.ahead(), ask, barrier, source, aside));
}

/// The service for proxies.
fn service(
    args: &Args,
    compiled: &Compiled,
    registry: &Arc<Registry>,
    peers: &Peers,
    metrics: &Arc<Metrics>,
    ends: &Ends,
) -> Service {
    let limits = listeners::stream_limits(args.memory, args.max_connections, args.max_connections_per_peer);
    let (shared, counted) = (Arc::clone(registry), Arc::clone(metrics));
    Service::new(&args.group, compiled.published.clone(), shared, counted, limits, ends.leaving())
        .with_source(compiled.identity.clone())
        .with_barrier(compiled.barrier.clone())
        .with_newest_revision(peers.newest())
        .with_moves(ends.moving())
}

/// The services for tools.
fn inspect(
    args: &Args,
    compiled: &Compiled,
    registry: &Arc<Registry>,
    peers: &Peers,
    ends: &Ends,
) -> anyhow::Result<Routes> {
    let inspect = Inspect::new(
        compiled.published.clone(),
        Arc::clone(registry),
        compiled.problems.clone(),
        compiled.placed.clone(),
        compiled.pins.clone(),
        ends.leaving(),
        args.configmap.clone(),
    )?;
    let inspect = inspect
        .with_peers(peers.clone())
        .starting(compiled.start.clone())
        .of_folder(args.manifests.as_ref().map(|_| compiled.questions_of_folder.clone()))
        .with_shutdown(ends.ending());
    Ok(Routes::new(inspect.into_server()))
}

impl Running {
    /// Runs until `shutdown` resolves, then tells the streams to connect elsewhere and waits for them, and for reviews
    /// that API servers still send here.
    ///
    /// # Errors
    /// If a task ends before that.
    pub async fn until(mut self, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
        tokio::select! {
            failed = self.tasks.failed() => match failed {
                Ok(never) => match never {},
                Err(reason) => bail!(reason),
            },
            () = shutdown => {}
        }
        // The tasks keep running until both have ended.
        let Self { exit, status, reviews, tasks: _tasks, .. } = self;
        exit.begin();
        let status = async {
            if let Some((writers, last)) = status {
                writers.end(&last).await;
            }
        };
        tokio::join!(exit.leave(), status, tokio::time::sleep(reviews));
        Ok(())
    }
}
