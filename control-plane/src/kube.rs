//! The source that watches a cluster; the only module tree that uses the kube crates.
//!
//! One task a kind, each with its own list and watch: `watch` is the state machine, `follow` its async edge,
//! `collection` builds its requests, `wire` decodes the responses, `sink` sends events to the index; `ask` is for all
//! other requests, `config` says to whom. Secrets and ConfigMaps are read if something refers to them (`demand`);
//! `decisions` and `pins` are ConfigMaps and Secrets of our own, `events` writes Events for the owners of objects,
//! `status` writes the addresses of Ingresses. `rounds` makes all of them list again for the freshness barrier;
//! `pulse` notices that nothing is heard any more.
//!
//! **Invariant:** what the API server says is passed on, never judged: what an object means is the index' business.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ::kube::Client;
use ::kube::config::InferConfigError;
use shared::name::ObjectName;
use shared::version::{Lineage, Source};
use tokio::sync::{mpsc, oneshot, watch as channel};

use self::bundle::Bundle;
use self::collection::Collection;
use self::decisions::Records;
use self::demand::{Metadata, Scope};
use self::events::Announcement;
use self::follow::{Follow, Sink};
use self::pins::Pins;
use self::record::Record;
use self::rounds::Rounds;
use self::sink::{Objects, Sender};
use self::status::observed::{Aside, WithStatus};
use self::status::{Seen, StatusOptions, Statuses};
use self::trust::Trust;
use self::wire::{Decode, MetadataOnly, Whole};
use crate::barrier::Barrier;
use crate::event::{HoldRequest, Inputs, PinRequest, Wants};
use crate::freshness::Freshness;
use crate::objects::{ObjectKind, ObjectRef};
use crate::publish::election::Election;
use crate::tasks::Supervisor;

mod ask;
pub mod bundle;
mod collection;
mod config;
mod decisions;
mod demand;
pub mod events;
mod follow;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
pub mod login;
mod pins;
mod pulse;
pub mod record;
mod rounds;
mod server_clock;
#[cfg(feature = "sim")]
pub(crate) mod sim;
mod sink;
pub mod status;
pub mod trust;
mod uid;
mod watch;
mod wire;

/// The name of this pod, if the process runs in one; set by the chart.
pub fn pod() -> Option<String> {
    std::env::var("POD_NAME").ok().filter(|name| !name.is_empty())
}

/// The clock that timers use.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The cluster to watch, and what to watch in it.
#[derive(Clone, Debug)]
pub struct KubeOptions {
    /// A kubeconfig file; `None`: what the environment says, else the service account of this pod.
    pub kubeconfig: Option<PathBuf>,
    /// The only namespace that is watched; `None`: all. IngressClasses have none; ConfigMaps are read by name anyway.
    pub watch_namespace: Option<String>,
    /// Whether IngressClasses are ignored: then they need not be readable.
    pub ignores_classes: bool,
    /// Whether Ingresses are selected by the labels of their namespaces.
    pub watches_namespaces: bool,
    /// ConfigMaps that are read by name.
    pub configmaps: Vec<ObjectName>,
    /// The namespace in which decisions are stored.
    pub decisions_namespace: String,
    /// Where to record the current status of Ingresses, if this process writes statuses.
    pub statuses: Option<Statuses>,
}

/// Why a cluster cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeError {
    /// The kubeconfig file cannot be used.
    #[error("the kubeconfig {path} cannot be used: {reason}")]
    Kubeconfig {
        /// The file, or those of a list.
        path: String,
        /// Why. It is part of the message, so it is not a `source`, which would be printed again.
        reason: String,
    },
    /// No kubeconfig was given, and the process does not run in a pod.
    #[error("no cluster is configured: give a kubeconfig, or run in a pod: {0}")]
    Unconfigured(Box<InferConfigError>),
    /// No client can be built from the configuration.
    #[error("no client can be made for the cluster: {0}")]
    Client(String),
    /// A task ended; the message says which.
    #[error("{0}")]
    Task(String),
    /// The receiver of events was dropped: the process is ending.
    #[error("nobody reads the events of the cluster any more")]
    Closed,
}

/// Watches a cluster, and sends its changes as events.
pub struct KubeSource {
    client: Client,
    options: KubeOptions,
    freshness: Freshness,
    barrier: Barrier,
}

impl std::fmt::Debug for KubeSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeSource").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Kinds that are watched completely, and whether an empty first list is read again.
///
/// An API server whose store was just restored or lost answers quickly with empty lists, while proxies may still have
/// objects. Each of these three kinds is checked by itself, because a server creates some Services and slices of its
/// own. A cluster that really has none starts 5 s later, or with the first object of the kind.
const WHOLE: [(ObjectKind, bool); 4] = [
    (ObjectKind::Ingress, true),
    (ObjectKind::IngressClass, false),
    (ObjectKind::Service, true),
    (ObjectKind::EndpointSlice, true),
];

/// Excludes Helm's release records: many Secrets, of up to a megabyte, that are of no use here.
const NOT_HELM: &str = "type!=helm.sh/release.v1";

impl KubeSource {
    /// Prepares a client. Nothing is requested yet: a cluster that is not reachable is waited for.
    ///
    /// # Errors
    /// If the configuration is missing or cannot be used.
    pub async fn connect(options: KubeOptions) -> Result<Self, KubeError> {
        let client = config::client(options.kubeconfig.as_deref()).await?;
        Ok(Self { client, options, freshness: Freshness::default(), barrier: Barrier::default() })
    }

    /// Lists everything again for each round of the freshness barrier.
    #[must_use]
    pub fn with_barrier(self, barrier: Barrier) -> Self {
        Self { barrier, ..self }
    }

    /// Its health, for metrics and readiness.
    pub fn freshness(&self) -> Freshness {
        self.freshness.clone()
    }

    /// Finds out which cluster it is, then ends.
    pub fn identify(
        &self,
        told: channel::Sender<Option<Source>>,
    ) -> impl Future<Output = Result<(), KubeError>> + use<> {
        uid::tell(self.client.clone(), self.options.decisions_namespace.clone(), told)
    }

    /// Writes announcements to the owners of objects, as Events.
    pub fn announce(
        &self,
        announcements: mpsc::Receiver<Announcement>,
    ) -> impl Future<Output = Result<(), std::convert::Infallible>> + use<> {
        events::run(self.client.clone(), pod().unwrap_or_else(|| "control-plane".to_owned()), announcements)
    }

    /// Takes part in the election of the replica that writes the status of Ingresses; gives the lease up at the end.
    pub fn elect(
        &self,
        options: &StatusOptions,
        hold: channel::Sender<Option<Instant>>,
        leaving: oneshot::Receiver<oneshot::Sender<()>>,
    ) -> impl Future<Output = Result<(), std::convert::Infallible>> + use<> {
        // Outside a cluster several processes may run on one host.
        let identity = pod().unwrap_or_else(|| Lineage::random().to_string());
        let election = Election::new(identity, options.ttl);
        status::elect(self.client.clone(), options.lease.clone(), election, hold, leaving)
    }

    /// Writes the status of Ingresses, while this replica is the one that does.
    pub fn publish(
        &self,
        options: StatusOptions,
        seen: Seen,
    ) -> impl Future<Output = Result<(), std::convert::Infallible>> + use<> {
        status::run(self.client.clone(), options, seen)
    }

    /// Access to what the authority of the planes stores in the cluster; `name` is that of its Secret.
    pub fn trust(&self, name: ObjectName) -> Trust {
        Trust::new(self.client.clone(), name)
    }

    /// Keeps the caBundle of this webhook configuration up to date.
    pub fn bundle(&self, configuration: String) -> Bundle {
        Bundle::new(self.client.clone(), configuration)
    }

    /// A text that is stored in a Secret of its own.
    pub fn record(&self, name: ObjectName, key: &'static str) -> Record {
        Record::new(self.client.clone(), name, key)
    }

    /// Watches as long as the process lives. `events`: receives what the owners of objects are told.
    ///
    /// # Errors
    /// If a task ends, which none does while the events are received.
    pub async fn run(
        self,
        inputs: Inputs,
        wants: channel::Receiver<Wants>,
        holds: mpsc::Receiver<HoldRequest>,
        pins: mpsc::Receiver<PinRequest>,
        events: Option<mpsc::Sender<Announcement>>,
    ) -> Result<(), KubeError> {
        let Self { client, options, freshness, barrier } = self;
        let mut follower = Follower {
            tasks: Supervisor::new(),
            client: client.clone(),
            sender: Sender::new(inputs.clone(), freshness.clone()),
            freshness: freshness.clone(),
            restored: channel::Sender::new(0),
            round: channel::Sender::new(0),
            rounds: Rounds::new(inputs),
            events,
        };
        follower.follow_kinds(&options).await?;
        follower.follow_records(&options);
        let (to, seen) = mpsc::channel(64);
        follower.follow_metadata(options.watch_namespace.as_deref(), &to);

        let fixed = options.configmaps.iter();
        let fixed = fixed.map(|name| ObjectRef { kind: ObjectKind::ConfigMap, name: name.clone() });
        let scope = Scope { namespace: options.watch_namespace.clone(), fixed: fixed.collect() };
        let Follower { mut tasks, sender, round, rounds, .. } = follower;
        let to_index = sender.clone();
        tasks.spawn("demand", demand::run(client.clone(), sender, scope, (seen, wants), rounds.part()));
        let probe = Collection::all(ObjectKind::Ingress, options.watch_namespace.as_deref()).metadata_only();
        tasks.spawn("pulse", pulse::keep(client.clone(), probe, freshness));
        tasks.spawn("rounds", rounds::begin(barrier, round));
        let namespace: Arc<str> = options.decisions_namespace.into();
        tasks.spawn("holds", decisions::write(client.clone(), Arc::clone(&namespace), to_index, holds));
        tasks.spawn("pin", pins::write(client, namespace, pins));

        match tasks.failed().await {
            Err(ended) => Err(KubeError::Task(ended)),
            Ok(never) => match never {},
        }
    }
}

/// Starts one task for each watch.
struct Follower {
    tasks: Supervisor,
    client: Client,
    sender: Sender,
    freshness: Freshness,
    restored: channel::Sender<u64>,
    round: channel::Sender<u64>,
    rounds: Rounds,
    events: Option<mpsc::Sender<Announcement>>,
}

impl Follower {
    /// The kinds of which every object is read.
    async fn follow_kinds(&mut self, options: &KubeOptions) -> Result<(), KubeError> {
        let is_read = |kind| kind != ObjectKind::IngressClass || !options.ignores_classes;
        for (kind, confirm_empty_list) in WHOLE.into_iter().filter(|(kind, _)| is_read(*kind)) {
            let sink = Objects::new(self.sender.clone(), kind);
            let all = Collection::all(kind, options.watch_namespace.as_deref());
            match options.statuses.clone().filter(|_| kind == ObjectKind::Ingress) {
                Some(statuses) => {
                    let aside = Aside { objects: sink, statuses };
                    self.follow(kind.lower(), all, WithStatus(Whole(kind)), aside, confirm_empty_list);
                }
                None => self.follow(kind.lower(), all, Whole(kind), sink, confirm_empty_list),
            }
        }
        if options.ignores_classes {
            tracing::info!("IngressClasses are not read, and spec.ingressClassName has no effect");
            self.sender.synced(ObjectKind::IngressClass).await?;
        }
        match options.watches_namespaces {
            true => {
                let sink = Objects::new(self.sender.clone(), ObjectKind::Namespace);
                let all = Collection::all(ObjectKind::Namespace, None);
                self.follow("namespace", all, Whole(ObjectKind::Namespace), sink, false);
            }
            // Without a selector, namespaces need not be readable.
            false => self.sender.synced(ObjectKind::Namespace).await?,
        }
        Ok(())
    }

    /// The ConfigMaps that flags name, and stored decisions. Decisions are in ConfigMaps and in Secrets; all of them belong
    /// to the completeness of ConfigMaps.
    fn follow_records(&mut self, options: &KubeOptions) {
        let configmaps = Objects::new(self.sender.clone(), ObjectKind::ConfigMap);
        for name in &options.configmaps {
            let collection = Collection::all(ObjectKind::ConfigMap, Some(&name.namespace))
                .fields(format!("metadata.name={}", name.name));
            self.follow("configmap", collection, Whole(ObjectKind::ConfigMap), configmaps.part(), false);
        }
        let namespace = Some(&*options.decisions_namespace);
        for kind in [ObjectKind::ConfigMap, ObjectKind::Secret] {
            let (key, value) = decisions::LABEL;
            let collection = Collection::all(kind, namespace).labels(format!("{key}={value}"));
            self.follow("decisions", collection, Whole(kind), Records::new(configmaps.part()), false);
        }
        let (key, value) = pins::LABEL;
        let record = Collection::all(ObjectKind::Secret, namespace).labels(format!("{key}={value}"));
        self.follow("pins", record, Whole(ObjectKind::Secret), Pins::new(configmaps), false);
    }

    /// The kinds of which most objects are not needed: what is, is read on demand.
    fn follow_metadata(&mut self, namespace: Option<&str>, to: &mpsc::Sender<demand::Seen>) {
        for (kind, name) in demand::METADATA {
            let mut all = Collection::all(kind, namespace).metadata_only();
            if kind == ObjectKind::Secret {
                all = all.fields(NOT_HELM);
            }
            self.follow(name, all, MetadataOnly, Metadata::new(kind, to.clone()), false);
        }
    }

    fn follow<D, S>(
        &mut self,
        name: &'static str,
        collection: Collection,
        decode: D,
        sink: S,
        confirm_empty_list: bool,
    ) where
        D: Decode + Sync + 'static,
        S: Sink<D::Value> + Sync + 'static,
    {
        let follow = Follow {
            client: self.client.clone(),
            collection,
            decode,
            sink,
            freshness: self.freshness.clone(),
            restored: self.restored.clone(),
            round: self.round.subscribe(),
            rounds: if S::IS_PART { self.rounds.part() } else { self.rounds.clone() },
            events: self.events.clone(),
            confirm_empty_list,
        };
        self.tasks.spawn(name, follow.run());
    }
}

#[cfg(test)]
pub(crate) mod tests;
