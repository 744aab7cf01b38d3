//! Tasks that write the status of Ingresses, and their shutdown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use shared::clock;
use shared::name::ObjectName;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::args::Args;
use crate::kube::status::{Farewell, Hold, Published, Seen, StatusOptions, Statuses};
use crate::kube::{KubeSource, pod};
use crate::metrics::Original;
use crate::peers::Peers;
use crate::placement::Placements;
use crate::publish::addresses::{Address, sorted};
use crate::serve::registry::Registry;
use crate::tasks::Supervisor;

/// Timeout for clearing statuses at the end; Kubernetes kills the pod after half a minute.
const LAST_WORDS: Duration = Duration::from_secs(15);
/// Timeout for releasing the Lease.
const RELEASE: Duration = Duration::from_secs(3);

/// The options from the flags; `None`: no statuses are written.
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

/// Labels of ingress-nginx' metric families, as proxies label theirs.
pub(super) fn original(args: &Args, leads: bool) -> Original {
    Original {
        class: args.controller_class.clone(),
        namespace: args.decisions_namespace(),
        pod: pod().unwrap_or_default(),
        leads: leads.then(|| (args.status.election_id.clone(), false)),
    }
}

/// The tasks.
#[derive(Debug)]
pub(super) struct Writers {
    farewell: oneshot::Sender<Farewell>,
    resigns: oneshot::Sender<oneshot::Sender<()>>,
    /// Whether this replica is the leader.
    pub(super) hold: Hold,
}

/// Starts the tasks.
pub(super) fn spawn(
    tasks: &mut Supervisor,
    source: &KubeSource,
    options: StatusOptions,
    statuses: Statuses,
    places: watch::Receiver<Placements>,
) -> Writers {
    let (held, hold) = watch::channel::<Option<Instant>>(None);
    let (resigns, leaving) = oneshot::channel();
    let (farewell, told) = oneshot::channel();
    tasks.spawn("election", source.elect(&options, held, leaving));
    let seen = Seen { statuses, places, hold: hold.clone(), farewell: told };
    tasks.spawn("status", source.publish(options, seen));
    Writers { farewell, resigns, hold }
}

/// Conditions for clearing the status: every proxy that was ever known announced that it leaves, and no other control
/// plane is running. That no proxy is connected is not enough: a disconnected proxy keeps serving.
#[derive(Debug)]
pub(super) struct Last {
    /// The flags ask for it.
    pub(super) is_asked: bool,
    /// The known proxies, which outlive their control plane.
    pub(super) registry: Arc<Registry>,
    /// Other control planes.
    pub(super) peers: Peers,
}

impl Last {
    async fn is_so(&self) -> bool {
        let have_left = || self.registry.have_all_left(clock::now());
        // Checked again after the query: a proxy may have connected meanwhile.
        self.is_asked && have_left() && self.peers.ask(None).await.is_empty() && have_left()
    }
}

impl Writers {
    /// Ends the tasks: clears the status if nobody is left to serve, and releases the Lease.
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
            // The Lease expires by itself otherwise.
            let _ = timeout(RELEASE, ended).await;
        }
    }
}
