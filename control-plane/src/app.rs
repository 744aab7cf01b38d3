//! Wiring: source -> pipeline -> store -> streams and inspection. Nothing is decided here.
//!
//! No global state: several may run in one process, as `firth up` and the tests do.

mod identity;
mod status;

use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use shared::admin;
use shared::budget;
use shared::clock;
use shared::name::ObjectName;
use shared::tasks::Supervisor;
use shared::version::Lineage;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::service::Routes;
use tracing::{info, warn};

use crate::admin::ControlPages;
use crate::announce::{self, edge::Seen};
use crate::args::Args;
use crate::barrier::Barrier;
use crate::enrol::Registrar;
use crate::event::{Inputs, Wants};
use crate::index::{self, Index};
use crate::inspect::Inspect;
use crate::kube::status::Statuses;
use crate::kube::{KubeOptions, KubeSource};
use crate::manifests::{Companion, FolderSource};
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::pipeline::{Outputs, Pipeline};
use crate::placed::Places;
use crate::problem::Problems;
use crate::serve::limits::{DESCRIPTORS_RESERVED, Limits};
use crate::serve::registry::Registry;
use crate::serve::{self, Service, convergence};
use crate::store::{Bounds, Journal, Store};
use crate::tickets;
use crate::webhook::{self, Pair};

/// Inputs that a source may be ahead of the pipeline.
const INPUTS: usize = 256;
/// Decisions that the pipeline may be ahead of the source.
const HOLDS: usize = 64;
/// Decisions about the pin that may wait for the source.
const PINS: usize = 16;
/// Events that may wait for the one that writes them.
const ANNOUNCEMENTS: usize = 64;
/// Questions about Ingresses that may wait for the pipeline.
const QUESTIONS: usize = 16;
/// How long streams may take to end on the way out.
const LEAVING: Duration = Duration::from_secs(5);
/// Proxies go to other replicas one after the other, so far apart: each of them costs the others a handshake.
const APART: Duration = Duration::from_millis(5);
/// All of them within this time, however few or many there are.
const WITHIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// After that, those that have found no other replica yet have so long.
const STAY: Duration = Duration::from_secs(5);

/// Runs until `shutdown` is over, then lets the streams go.
///
/// # Errors
/// Where the arguments do not fit together, an address is taken, the source is not usable, or a task fails.
pub async fn run(args: Args, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    start(args, None).await?.until(shutdown).await
}

/// As [`run`], with somebody beside the folder that is read.
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

/// A control plane under way.
#[derive(Debug)]
pub struct Running {
    /// Where proxies connect to.
    pub listen: SocketAddr,
    /// Where health and metrics are.
    pub admin: Option<SocketAddr>,
    tasks: Supervisor,
    exit: Exit,
    served: oneshot::Receiver<()>,
    status: Option<(status::Writers, status::Last)>,
}

/// What is needed to end without leaving anybody alone.
#[derive(Debug)]
struct Exit {
    /// Nobody is sent here any more.
    ends: watch::Sender<bool>,
    /// Proxies go to other replicas, within this time.
    moving: watch::Sender<Option<Duration>>,
    /// Streams end.
    leaving: watch::Sender<bool>,
    registry: Arc<Registry>,
    peers: Peers,
}

/// Binds the addresses, opens the source and starts the tasks.
///
/// # Errors
/// As [`run`].
pub async fn start(args: Args, companion: Option<Companion>) -> anyhow::Result<Running> {
    let Args {
        ref manifests,
        ref kubeconfig,
        listen,
        insecure,
        ca_dir: _,
        ref ca_secret,
        ref ticket_keys_secret,
        account: _,
        certificate_life,
        ref peers,
        settle,
        admin,
        max_connections,
        max_connections_per_peer,
        memory,
        ref group,
        ref default_ssl_certificate,
        ref default_backend_service,
        disable_sync_events,
        disable_catch_all,
        disable_svc_external_name,
        ref annotations_prefix,
        enable_ssl_passthrough,
        ref ingress_class,
        ingress_class_by_name,
        ref controller_class,
        watch_ingress_without_class,
        ref watch_namespace,
        ref configmap,
        ref tcp_services_configmap,
        ref udp_services_configmap,
        ref state_dir,
        history_count,
        history_bytes,
        history_age,
        status: ref status_args,
        metrics: ref metrics_args,
        pod_namespace: _,
        validating_webhook,
        validating_webhook_certificate: _,
        validating_webhook_key: _,
        ref validating_webhook_configuration,
        log: _,
    } = args;
    if insecure {
        check_plaintext(listen)?;
    }
    let publishing = status::options(&args)?;
    let listener = bind("--listen", listen).await?;
    let admin = match admin {
        Some(address) => Some(bind("--admin", address).await?),
        None => None,
    };

    let webhook = match validating_webhook {
        Some(address) => {
            let pair = webhook_pair(&args)?;
            Some((bind("--validating-webhook", address).await?, pair))
        }
        None => None,
    };

    let mut tasks = Supervisor::new();
    let metrics = Arc::new(Metrics::new());
    let registry = Arc::new(Registry::new(settle));
    tasks.spawn("proxies", Arc::clone(&registry).keep());
    let (leaving, leaves) = watch::channel(false);
    let (ends, ending) = watch::channel(false);
    let (moving, moves) = watch::channel(None);
    let (mut store, published) = Store::new(Lineage::random(), clock::now());
    let bounds = Bounds {
        count: history_count,
        bytes: usize::try_from(history_bytes).unwrap_or(usize::MAX),
        age: history_age,
    };
    store.bound(bounds);
    if let Some(dir) = state_dir {
        let opened = Journal::open(dir, bounds);
        let (journal, history) = opened
            .with_context(|| format!("--state-dir {}: the history cannot be kept there", dir.display()))?;
        store.remember(journal, history);
    }
    let ticket_keys = ObjectName::new(args.decisions_namespace(), ticket_keys_secret.as_str());
    let index = Index::new(index::Options {
        ingress_class: ingress_class.clone(),
        controller_class: controller_class.clone(),
        request_metrics: metrics_args.told(controller_class),
        class_by_name: ingress_class_by_name,
        watch_without_class: watch_ingress_without_class,
        default_certificate: default_ssl_certificate.clone(),
        configmap: configmap.clone(),
        tcp_services: tcp_services_configmap.clone(),
        udp_services: udp_services_configmap.clone(),
        default_backend: default_backend_service.clone(),
        disable_catch_all,
        no_external_names: disable_svc_external_name,
        prefix: index::Prefix::new(annotations_prefix),
        passes_tls: enable_ssl_passthrough,
        ticket_keys: ticket_keys.clone(),
        watch_namespace: watch_namespace.as_deref().filter(|_| manifests.is_none()).map(Arc::from),
        folder: manifests.is_some(),
        // A folder is read whole.
        on_demand: manifests.is_none(),
    });

    let (inputs, receivers) = Inputs::channel(INPUTS);
    let (wants, wanted) = watch::channel(Wants::default());
    let (holds, asked) = mpsc::channel(HOLDS);
    let (pins, decided) = mpsc::channel(PINS);
    let (problems, known) = watch::channel(Problems::default());
    let (mut cluster, mut bundle) = (None, None);
    let mut announcements = None;
    let mut writers = None;
    let (places, placed) = watch::channel(Places::default());
    let (told, reads) = watch::channel(None);
    let barrier = Barrier::default();
    let source = match manifests {
        Some(dir) => {
            told.send_replace(Some(identity::of_folder(dir)));
            let source = open_folder(dir, state_dir.as_deref())?.beside(companion);
            let vault = tickets::Vault::process(ticket_keys, state_dir.clone(), inputs.clone());
            tasks.spawn("ticket keys", tickets::run(vault, wanted));
            let source = source.refreshed_by(barrier.clone());
            let freshness = source.freshness();
            tasks.spawn("manifests", source.run(inputs, asked, decided));
            freshness
        }
        None => {
            let options = KubeOptions {
                kubeconfig: kubeconfig.clone(),
                watch_namespace: watch_namespace.clone(),
                configmaps: vec![
                    configmap.clone(),
                    tcp_services_configmap.clone(),
                    udp_services_configmap.clone(),
                ],
                decisions_namespace: args.decisions_namespace(),
                statuses: publishing.as_ref().map(|_| Statuses::default()),
            };
            let statuses = options.statuses.clone().unwrap_or_default();
            let source = KubeSource::connect(options).await.context("cannot reach a cluster")?;
            let source = source.refreshed_by(barrier.clone());
            cluster = Some(source.trust(ObjectName::new(args.decisions_namespace(), ca_secret.as_str())));
            let configuration = webhook.as_ref().and_then(|_| validating_webhook_configuration.clone());
            bundle = configuration.map(|name| source.bundle(name));
            if !disable_sync_events {
                let (say, said) = mpsc::channel(ANNOUNCEMENTS);
                tasks.spawn("events", source.announce(said));
                announcements = Some(say);
            }
            if let Some(publishing) = publishing {
                writers = Some(status::spawn(&mut tasks, &source, publishing, statuses, placed.clone()));
            }
            let freshness = source.freshness();
            tasks.spawn("cluster", source.identify(told));
            let vault = tickets::Vault::Cluster(source.record(ticket_keys, tickets::record::RECORD));
            tasks.spawn("ticket keys", tickets::run(vault, wanted.clone()));
            tasks.spawn("kube", source.run(inputs, wanted, asked, decided));
            freshness
        }
    };
    let (awaited, awaits) = watch::channel(None);
    let outputs = Outputs { wants, awaited, holds, pins: pins.clone(), problems, places };
    let (asks, questions) = mpsc::channel(QUESTIONS);
    let questions = webhook.is_some().then_some(questions);
    let pipeline = Pipeline::new(index, store, receivers, outputs, Arc::clone(&metrics));
    let pipeline = pipeline.answering(questions).passing(barrier.clone());
    tasks.spawn("pipeline", async { pipeline.run().await.map(|never| match never {}) });

    let limits = stream_limits(memory, max_connections, max_connections_per_peer);
    let service = Service::new(
        group,
        published.clone(),
        Arc::clone(&registry),
        Arc::clone(&metrics),
        limits,
        leaves.clone(),
    )
    .reading(reads)
    .behind(barrier)
    .moving(moves);
    if let Some(to) = announcements {
        let seen = Seen {
            published: published.clone(),
            places: placed.clone(),
            problems: known.clone(),
            registry: Arc::clone(&registry),
        };
        tasks.spawn("announce", announce::edge::run(seen, to));
    }
    let measuring = convergence::measure(published.clone(), Arc::clone(&registry), Arc::clone(&metrics));
    tasks.spawn("convergence", measuring);
    let inspect =
        Inspect::new(published.clone(), Arc::clone(&registry), known.clone(), placed, pins, leaves.clone())?;
    let listen = listener.local_addr()?;
    let registrar = match insecure {
        true => None,
        false => {
            let opened = identity::open(&args, cluster).await?;
            Some(identity::spawn(&mut tasks, opened, group, certificate_life))
        }
    };
    if let Some((listener, pair)) = webhook {
        let own = registrar.as_ref().map(|it| webhook::Certificate::Own(it.current()));
        let files = pair.map(|pair| webhook::Certificate::Files(Arc::new(pair)));
        let certificate = files.or(own).context("--validating-webhook: there is no certificate to show")?;
        tasks.spawn("webhook", webhook::serve(listener, certificate, asks, Arc::clone(&metrics)));
    }
    if let Some((bundle, registrar)) = bundle.zip(registrar.as_ref()) {
        tasks.spawn("webhook's authority", webhook::believed::keep(bundle, registrar.current()));
    }
    let peers = Peers::new(peers.clone(), registrar.clone(), published.clone(), settle);
    tasks.spawn("peers", peers.clone().keep(Arc::clone(&registry), Arc::clone(&metrics)));
    let service = service.among(peers.newest());
    let last = status::Last {
        is_asked: status_args.update_status_on_shutdown,
        registry: Arc::clone(&registry),
        peers: peers.clone(),
    };
    let inspect = Routes::new(inspect.beside(peers.clone()).ending(ending.clone()).into_server());
    let exit = Exit { ends, moving, leaving, registry: Arc::clone(&registry), peers };
    let served = spawn_server(&mut tasks, listener, service, inspect, registrar.clone(), leaves);
    let pages = ControlPages {
        published,
        registrar,
        registry,
        problems: known,
        metrics,
        source,
        awaited: awaits,
        original: status::original(&args, writers.is_some()),
        hold: writers.as_ref().map(|writers| writers.hold.clone()),
        leaving: ending,
    };
    let admin = spawn_admin(&mut tasks, admin, pages)?;
    info!(%listen, group = %args.group, version = shared::telemetry::VERSION, "control plane started");
    Ok(Running { listen, admin, tasks, exit, served, status: writers.map(|writers| (writers, last)) })
}

impl Running {
    /// Runs until `shutdown` is over, then tells the streams to connect elsewhere and waits for them.
    ///
    /// # Errors
    /// Where a task ends before that.
    pub async fn until(mut self, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
        tokio::select! {
            failed = self.tasks.failed() => match failed {
                Ok(never) => match never {},
                Err(reason) => bail!(reason),
            },
            () = shutdown => {}
        }
        let Self { exit, served, status, .. } = self;
        exit.ends.send_replace(true);
        let streams = async {
            exit.hand_over().await;
            info!("shutting down: proxies are told to connect again");
            exit.leaving.send_replace(true);
            if tokio::time::timeout(LEAVING, served).await.is_err() {
                warn!("some connections did not end within {} s", LEAVING.as_secs());
            }
        };
        let status = async {
            if let Some((writers, last)) = status {
                writers.end(&last).await;
            }
        };
        tokio::join!(streams, status);
        Ok(())
    }
}

impl Exit {
    /// Has proxies go to the other replicas, where there are any, and waits for that. Until then they are served here: each leaves
    /// when it has found another one that takes it.
    async fn hand_over(&self) {
        if self.peers.is_none() {
            return;
        }
        let within = within(self.registry.len());
        info!(
            proxies = self.registry.len(),
            ?within,
            "shutting down: proxies are told to go to other replicas"
        );
        self.moving.send_replace(Some(within));
        if tokio::time::timeout(within + STAY, self.registry.emptied()).await.is_err() {
            warn!(proxies = self.registry.len(), "some proxies have found no other replica");
        }
        // From now on it is not one that does not answer.
        self.peers.leave().await;
    }
}

/// In which time so many proxies go elsewhere.
fn within(proxies: usize) -> Duration {
    let apart = APART.saturating_mul(u32::try_from(proxies).unwrap_or(u32::MAX));
    apart.clamp(WITHIN.0, WITHIN.1)
}

/// Raises the limit of open files as far as it goes, and sees what fits below it and into memory.
fn stream_limits(memory: Option<u64>, connections: Option<NonZeroUsize>, per_peer: NonZeroUsize) -> Limits {
    let descriptors = rlimit::increase_nofile_limit(rlimit::INFINITY).unwrap_or(1024);
    let mut limits = Limits::within(memory.unwrap_or_else(budget::memory), descriptors);
    if let Some(connections) = connections {
        let most = descriptors.saturating_sub(DESCRIPTORS_RESERVED);
        limits.connections = connections.get().min(usize::try_from(most).unwrap_or(usize::MAX)).max(1);
        if limits.connections < connections.get() {
            warn!(
                descriptors,
                connections = limits.connections,
                "few files may be open at once; raise the limit"
            );
        }
    }
    limits.per_peer = per_peer.get();
    limits
}

fn check_plaintext(listen: SocketAddr) -> anyhow::Result<()> {
    if !listen.ip().is_loopback() {
        bail!(
            "--insecure is refused on {listen}, which is not loopback: private keys would cross the network in the \
             clear, to whoever asks"
        );
    }
    Ok(())
}

/// The files with what API servers are shown; `None`: it is of the authority.
fn webhook_pair(args: &Args) -> anyhow::Result<Option<Pair>> {
    let files = args.validating_webhook_certificate.clone().zip(args.validating_webhook_key.clone());
    match (files, &args.validating_webhook_configuration) {
        (Some(_), Some(_)) => bail!(
            "--validating-webhook-configuration and --validating-webhook-certificate: expected one of them"
        ),
        (Some((certificate, key)), None) => {
            Ok(Some(Pair::open(certificate, key).context("--validating-webhook")?))
        }
        (None, Some(_)) if args.insecure || args.manifests.is_some() => {
            bail!(
                "--validating-webhook-configuration needs a cluster, and the authority that --insecure does without"
            )
        }
        (None, Some(_)) => Ok(None),
        (None, None) => bail!(
            "--validating-webhook needs --validating-webhook-certificate and --validating-webhook-key, or \
             --validating-webhook-configuration"
        ),
    }
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{flag} {address}: cannot listen there"))
}

fn open_folder(dir: &Path, state_dir: Option<&Path>) -> anyhow::Result<FolderSource> {
    let opened = FolderSource::open(dir.to_owned(), state_dir.map(Path::to_owned));
    opened.with_context(|| format!("--manifests {}: cannot read it", dir.display()))
}

/// Serves as a task whose end is a fault, unless it was told to leave: then the receiver hears of it.
fn spawn_server(
    tasks: &mut Supervisor,
    listener: TcpListener,
    service: Service,
    inspect: Routes,
    registrar: Option<Registrar>,
    leaves: watch::Receiver<bool>,
) -> oneshot::Receiver<()> {
    let (done, served) = oneshot::channel();
    tasks.spawn("serve", async move {
        serve::run(listener, service, inspect, registrar).await?;
        if *leaves.borrow() {
            // Nobody waits any more when the patience is over.
            let _ = done.send(());
            return std::future::pending().await;
        }
        Ok::<_, serve::ServeError>(())
    });
    served
}

fn spawn_admin(
    tasks: &mut Supervisor,
    listener: Option<TcpListener>,
    pages: ControlPages,
) -> anyhow::Result<Option<SocketAddr>> {
    let Some(listener) = listener else {
        return Ok(None);
    };
    let address = listener.local_addr()?;
    tasks.spawn("admin", admin::serve(listener, Arc::new(pages)));
    Ok(Some(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_proxies_move_at_once_and_many_one_after_the_other() {
        let seconds = [0, 100, 1_000, 2_000, usize::MAX].map(|proxies| within(proxies).as_secs_f64());
        assert_eq!(seconds, [0.5, 0.5, 5.0, 10.0, 10.0]);
        // With what the chart gives: 30 s.
        assert!(WITHIN.1 + STAY + crate::peers::ANSWER + LEAVING < Duration::from_secs(30));
    }

    #[test]
    fn plaintext_stays_on_loopback() {
        for (address, allowed) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.0.2.1:1", false),
        ] {
            assert_eq!(check_plaintext(address.parse().unwrap()).is_ok(), allowed, "{address}");
        }
    }
}
