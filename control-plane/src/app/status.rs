//! Who writes the status of Ingresses, and how that ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use shared::clock;
use shared::name::ObjectName;
use shared::tasks::Supervisor;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::args::Args;
use crate::kube::status::{Farewell, Hold, Published, Seen, StatusOptions, Statuses};
use crate::kube::{KubeSource, pod};
use crate::metrics::Original;
use crate::peers::Peers;
use crate::placed::Places;
use crate::publish::addresses::{Address, sorted};
use crate::serve::registry::Registry;

/// How long the last words may take. Kubernetes waits for half a minute.
const LAST_WORDS: Duration = Duration::from_secs(15);
/// How long giving back the Lease may take.
const RELEASE: Duration = Duration::from_secs(3);

/// What is asked for; `None`: nobody writes it.
pub(super) fn options(args: &Args) -> anyhow::Result<Option<StatusOptions>> {
    let status = &args.status;
    let fixed = status.publish_status_address.iter().map(|text| text.trim()).filter(|text| !text.is_empty());
    let fixed = sorted(fixed.map(Address::of));
    let namespace = args.decisions_namespace();
    let published = match (&status.publish_service, &*fixed, &status.publish_nodes) {
        (Some(_), [_, ..], _) => {
            bail!("--publish-service and --publish-status-address: expected one of them")
        }
        (None, [_, ..], _) => Published::Fixed(Arc::clone(&fixed)),
        (Some(service), [], _) => Published::Service(service.clone()),
        (None, [], Some(selector)) => Published::Nodes {
            namespace: namespace.clone(),
            selector: selector.clone(),
            internal: status.report_node_internal_ip_address,
        },
        (None, [], None) => return Ok(None),
    };
    if !status.update_status || status.disable_leader_election {
        return Ok(None);
    }
    if args.manifests.is_some() {
        info!("no status is written: the source is a folder of manifests");
        return Ok(None);
    }
    let lease = ObjectName::new(namespace, status.election_id.as_str());
    let (interval, ttl) = (status.status_update_interval, status.election_ttl);
    Ok(Some(StatusOptions { published, interval, lease, ttl }))
}

/// What ingress-nginx' families are labelled with, as proxies label theirs.
pub(super) fn original(args: &Args, leads: bool) -> Original {
    Original {
        class: args.controller_class.clone(),
        namespace: args.decisions_namespace(),
        pod: pod().unwrap_or_default(),
        leads: leads.then(|| (args.status.election_id.clone(), false)),
    }
}

/// Those who write it.
#[derive(Debug)]
pub(super) struct Writers {
    farewell: oneshot::Sender<Farewell>,
    resigns: oneshot::Sender<oneshot::Sender<()>>,
    /// Whether this replica is the one.
    pub(super) hold: Hold,
}

/// Starts them.
pub(super) fn spawn(
    tasks: &mut Supervisor,
    source: &KubeSource,
    options: StatusOptions,
    statuses: Statuses,
    places: watch::Receiver<Places>,
) -> Writers {
    let (held, hold) = watch::channel::<Option<Instant>>(None);
    let (resigns, leaving) = oneshot::channel();
    let (farewell, told) = oneshot::channel();
    tasks.spawn("election", source.elect(&options, held, leaving));
    let seen = Seen { statuses, places, hold: hold.clone(), farewell: told };
    tasks.spawn("status", source.publish(options, seen));
    Writers { farewell, resigns, hold }
}

/// What has to be so for a status to be emptied: each proxy that was ever known said that it leaves, and nobody else controls any.
/// That none is connected says nothing: one that is cut off serves on.
#[derive(Debug)]
pub(super) struct Last {
    /// It is asked for.
    pub(super) is_asked: bool,
    /// Who serves: proxies outlive their control plane.
    pub(super) registry: Arc<Registry>,
    /// Other control planes.
    pub(super) peers: Peers,
}

impl Last {
    async fn is_so(&self) -> bool {
        let have_left = || self.registry.have_all_left(clock::now());
        // Again, after the others were asked: meanwhile one may have come.
        self.is_asked && have_left() && self.peers.ask(None).await.is_empty() && have_left()
    }
}

impl Writers {
    /// Has them end: the status is emptied where nobody is left to serve, and the Lease given back.
    pub(super) async fn end(self, last: &Last) {
        let Self { farewell, resigns, hold } = self;
        if hold.borrow().is_some() {
            let (done, ended) = oneshot::channel();
            let told = farewell.send(Farewell { clears: last.is_so().await, done });
            if told.is_ok() && timeout(LAST_WORDS, ended).await.is_err() {
                warn!("the final status of some Ingresses could not be written");
            }
        }
        let (done, ended) = oneshot::channel();
        if resigns.send(done).is_ok() {
            // It ends by itself where nobody hears of it.
            let _ = timeout(RELEASE, ended).await;
        }
    }
}
