//! Opens the source of objects, a folder or a cluster, and what others need of it.

use std::path::Path;

use anyhow::Context as _;
use shared::name::ObjectName;
use shared::version::Source;
use tokio::sync::{mpsc, watch};

use super::{identity, status};
use crate::args::Args;
use crate::barrier::Barrier;
use crate::event::{HoldRequest, Inputs, PinRequest, Wants};
use crate::freshness::Freshness;
use crate::kube::bundle::Bundle;
use crate::kube::events::Announcement;
use crate::kube::status::{StatusOptions, Statuses};
use crate::kube::trust::Trust;
use crate::kube::{KubeOptions, KubeSource};
use crate::manifests::{Companion, FolderSource};
use crate::placement::Placements;
use crate::tasks::Supervisor;
use crate::tickets;

/// Capacity of the channel of announcements.
const ANNOUNCEMENTS: usize = 64;

/// The channels between a source and the pipeline.
pub(super) struct Asks {
    pub(super) inputs: Inputs,
    pub(super) wants: watch::Receiver<Wants>,
    pub(super) holds: mpsc::Receiver<HoldRequest>,
    pub(super) pins: mpsc::Receiver<PinRequest>,
    pub(super) barrier: Barrier,
    pub(super) questions_of_folder: Barrier,
    /// The Secret with the generated session ticket keys of the fleet.
    pub(super) ticket_keys: ObjectName,
}

/// A running source.
pub(super) struct Opened {
    pub(super) freshness: Freshness,
    /// Its identity, once that is known.
    pub(super) identity: watch::Receiver<Option<Source>>,
    /// What only a cluster provides.
    pub(super) cluster: Cluster,
}

/// What only a cluster provides; empty for a folder.
#[derive(Default)]
pub(super) struct Cluster {
    /// Access to the storage of the planes' authority.
    pub(super) trust: Option<Trust>,
    /// Keeps the caBundle of the webhook's configuration up to date, if this process does that.
    pub(super) bundle: Option<Bundle>,
    /// Receives announcements to be written as Events.
    pub(super) announcements: Option<mpsc::Sender<Announcement>>,
    /// Writes the status of Ingresses.
    pub(super) writers: Option<status::Writers>,
}

/// Follows a folder.
///
/// # Errors
/// If it does not exist, or cannot be read.
pub(super) fn of_folder(
    tasks: &mut Supervisor,
    dir: &Path,
    state_dir: Option<&Path>,
    companion: Option<Companion>,
    asks: Asks,
) -> anyhow::Result<Opened> {
    let Asks { inputs, wants, holds, pins, barrier, questions_of_folder, ticket_keys } = asks;
    let opened = FolderSource::open(dir.to_owned(), state_dir.map(Path::to_owned));
    let source = opened.with_context(|| format!("--manifests {}: cannot read it", dir.display()))?;
    let source = source.with_companion(companion).with_barrier(barrier).with_questions(questions_of_folder);
    let freshness = source.freshness();
    let vault = tickets::Vault::process(ticket_keys, state_dir.map(Path::to_owned), inputs.clone());
    tasks.spawn("ticket keys", tickets::run(vault, wants));
    tasks.spawn("manifests", source.run(inputs, holds, pins));
    let identity = watch::Sender::new(Some(identity::of_folder(dir))).subscribe();
    Ok(Opened { freshness, identity, cluster: Cluster::default() })
}

/// Follows a cluster, which need not be reachable yet.
///
/// # Errors
/// If no client can be built for it.
pub(super) async fn of_cluster(
    tasks: &mut Supervisor,
    args: &Args,
    publishing: Option<StatusOptions>,
    placed: watch::Receiver<Placements>,
    asks: Asks,
) -> anyhow::Result<Opened> {
    let Asks { inputs, wants, holds, pins, barrier, ticket_keys, .. } = asks;
    let statuses = publishing.as_ref().map(|_| Statuses::default());
    let options = KubeOptions {
        kubeconfig: args.kubeconfig.clone(),
        watch_namespace: args.watch_namespace.clone(),
        ignores_classes: args.ignore_ingress_classes,
        watches_namespaces: args.watch_namespace_selector.is_some(),
        configmaps: vec![
            args.configmap.clone(),
            args.tcp_services_configmap.clone(),
            args.udp_services_configmap.clone(),
        ],
        decisions_namespace: args.decisions_namespace(),
        statuses: statuses.clone(),
    };
    let source = KubeSource::connect(options).await.context("cannot reach a cluster")?.with_barrier(barrier);
    let freshness = source.freshness();

    let trust = Some(source.trust(ObjectName::new(args.decisions_namespace(), args.ca_secret.as_str())));
    let configuration = args.validating_webhook_configuration.clone();
    let bundle = configuration.filter(|_| args.validating_webhook.is_some()).map(|name| source.bundle(name));
    let announcements = (!args.disable_sync_events).then(|| {
        let (sender, receiver) = mpsc::channel(ANNOUNCEMENTS);
        tasks.spawn("events", source.announce(receiver));
        sender
    });
    let writers = publishing.zip(statuses);
    let writers = writers.map(|(options, statuses)| status::spawn(tasks, &source, options, statuses, placed));

    let (told, identity) = watch::channel(None);
    tasks.spawn("cluster", source.identify(told));
    let vault = tickets::Vault::Cluster(source.record(ticket_keys, tickets::record::RECORD));
    tasks.spawn("ticket keys", tickets::run(vault, wants.clone()));
    tasks.spawn("kube", source.run(inputs, wants, holds, pins, announcements.clone()));
    Ok(Opened { freshness, identity, cluster: Cluster { trust, bundle, announcements, writers } })
}
