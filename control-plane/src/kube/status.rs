//! Writes the status of Ingresses. `publish` decides on addresses, versions and timing; this module makes the requests.
//!
//! **Invariant:** nothing waits for it. It writes only while this replica holds the Lease, and only what it has read
//! since then: a replica that was suspended does not write stale addresses.

mod lease;
pub(super) mod observed;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use kube::core::params::ListParams;
use kube::core::request::Request;
use serde_json::json;
use shared::clock;
use shared::name::ObjectName;
use shared::telemetry::Seldom;
use tokio::sync::{oneshot, watch};
use tracing::field::display;
use tracing::{debug, info, warn};

use super::ask::{ANSWER, AskError, get, merge, within};
use super::{collection, now};
use crate::objects::ObjectKind;
use crate::placement::Placements;
use crate::publish::addresses::{self, Address, Addresses, listed};
use crate::publish::election::version_of;
use crate::publish::ledger::{Ledger, Next, Outcome, Write};
pub(super) use lease::run as elect;
pub use observed::Statuses;

/// Minimum interval of reading nodes: each is a request.
const NODES: Duration = Duration::from_secs(60);
/// Minimum interval of warnings.
const WARNINGS: Duration = Duration::from_secs(60);
/// At shutdown: consecutive failures after which no more are written.
const FAILED: u32 = 3;
/// The field manager (server-side apply).
const MANAGER: &str = "firth-control-plane";

/// The source of the addresses.
#[derive(Clone, Debug)]
pub enum Published {
    /// Given by a flag.
    Fixed(Addresses),
    /// The addresses of this Service.
    Service(ObjectName),
    /// The addresses of the nodes with ready pods that have these labels.
    Nodes {
        /// The pods' namespace.
        namespace: String,
        /// A label selector.
        selector: String,
        /// Whether to use internal addresses.
        internal: bool,
    },
}

/// `Service firth/edge`, for the log.
impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(_) => f.write_str("--publish-status-address"),
            Self::Service(name) => write!(f, "Service {name}"),
            Self::Nodes { namespace, selector, .. } => {
                write!(f, "nodes of pods in {namespace} with {selector}")
            }
        }
    }
}

/// Options for writing statuses.
#[derive(Clone, Debug)]
pub struct StatusOptions {
    /// The source of the addresses.
    pub published: Published,
    /// How often they are read.
    pub interval: Duration,
    /// The Lease that elects the replica that writes.
    pub lease: ObjectName,
    /// Time without renewal after which another replica may take over.
    pub ttl: Duration,
}

/// Until when this replica may write; `None`: it may not.
pub type Hold = watch::Receiver<Option<Instant>>;

/// Tells the writer that the process is shutting down.
#[derive(Debug)]
pub struct Farewell {
    /// Clear the statuses: no proxy is left at the addresses.
    pub clears: bool,
    /// Resolved when all is done.
    pub done: oneshot::Sender<()>,
}

/// The writer's inputs.
#[derive(Debug)]
pub struct Seen {
    /// The current statuses of Ingresses.
    pub statuses: Statuses,
    /// Which Ingresses are ours.
    pub places: watch::Receiver<Placements>,
    /// Whether this replica may write.
    pub hold: Hold,
    /// The shutdown.
    pub farewell: oneshot::Receiver<Farewell>,
}

/// Writes until the shutdown.
///
/// # Errors
/// Never: failures are retried.
pub(super) async fn run(client: Client, options: StatusOptions, mut seen: Seen) -> Result<(), Infallible> {
    let mut writer = Writer {
        client,
        options,
        ledger: Ledger::default(),
        read_at: None,
        warning: Seldom::new(WARNINGS),
        forbidden: false,
        nowhere: false,
    };
    loop {
        for (name, status) in seen.statuses.take() {
            writer.ledger.hear(name, status);
        }
        writer.ledger.place(&seen.places.borrow_and_update());
        let hold = *seen.hold.borrow_and_update();
        let wait = writer.step(hold).await;
        if wait.is_some_and(|wait| wait.is_zero()) && seen.farewell.is_empty() {
            continue;
        }
        tokio::select! {
            farewell = &mut seen.farewell => {
                let hold = *seen.hold.borrow();
                if let Ok(farewell) = farewell {
                    writer.conclude(farewell, hold).await;
                }
                return std::future::pending().await;
            }
            () = seen.statuses.changed() => {}
            changed = seen.places.changed() => if changed.is_err() { return std::future::pending().await },
            changed = seen.hold.changed() => if changed.is_err() { return std::future::pending().await },
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

/// Writes statuses.
struct Writer {
    client: Client,
    options: StatusOptions,
    ledger: Ledger,
    /// When to read the addresses again; `None`: now.
    read_at: Option<Instant>,
    warning: Seldom,
    /// It was logged that writing is forbidden.
    forbidden: bool,
    /// It was logged that no pod is ready.
    nowhere: bool,
}

impl Writer {
    /// Does one step; returns how long to wait before the next, `None`: until there is an event.
    async fn step(&mut self, hold: Option<Instant>) -> Option<Duration> {
        let now = now();
        if hold.is_none_or(|until| until <= now) {
            // The last read may be long ago when this replica leads again.
            self.ledger.want(None);
            self.read_at = None;
            return None;
        }
        if self.read_at.is_none_or(|at| at <= now) {
            self.read().await;
            return Some(Duration::ZERO);
        }
        let until_read = self.read_at.map_or(Duration::ZERO, |at| at - now);
        match self.ledger.next(now) {
            Next::Write(write) => {
                let outcome = self.write(&write).await;
                self.ledger.done(write, outcome, super::now());
                Some(Duration::ZERO)
            }
            Next::Wait(wait) => Some(wait.min(until_read)),
            Next::Nothing => Some(until_read),
        }
    }

    async fn read(&mut self) {
        let read = self.addresses().await;
        let is_of_nodes = matches!(self.options.published, Published::Nodes { .. });
        let interval = if is_of_nodes { self.options.interval.max(NODES) } else { self.options.interval };
        self.read_at = Some(now() + interval);
        match read {
            // If no pod is ready for a moment, their nodes may serve again before external-dns has reacted. The
            // previous addresses stay.
            Ok(addresses) if addresses.is_empty() && is_of_nodes => {
                if !std::mem::replace(&mut self.nowhere, true) {
                    let (from, kept) = (&self.options.published, self.ledger.wanted());
                    let kept = kept.map(|kept| display(listed(kept)));
                    warn!(
                        %from,
                        kept,
                        "no pod is ready on a node with an address: the status of Ingresses stays as it is"
                    );
                }
            }
            Ok(addresses) => {
                self.nowhere = false;
                if self.ledger.wanted() != Some(&addresses) {
                    let addresses = listed(&addresses);
                    info!(%addresses, "writing these addresses to the status of Ingresses");
                }
                self.ledger.want(Some(addresses));
            }
            // The previous addresses stay: a failed read says nothing about them.
            Err(error) => {
                if let Some(before) = self.warning.now(clock::now()) {
                    let from = &self.options.published;
                    warn!(before, %from, "the addresses for the status of Ingresses cannot be read: {error}");
                }
            }
        }
    }

    async fn addresses(&self) -> Result<Addresses, String> {
        match &self.options.published {
            Published::Fixed(addresses) => Ok(Arc::clone(addresses)),
            Published::Service(name) => {
                let path = collection::path(ObjectKind::Service, Some(&name.namespace));
                addresses::of_service(&get(&self.client, &format!("{path}/{}", name.name)).await?)
            }
            Published::Nodes { namespace, selector, internal } => {
                let params = ListParams::default().labels(selector);
                let pods = Request::new(format!("/api/v1/namespaces/{namespace}/pods")).list(&params);
                let pods = pods.map_err(|error| error.to_string())?;
                let pods = within(ANSWER, self.client.request_text(pods)).await?;
                let mut found: Vec<Address> = Vec::new();
                for node in addresses::nodes_of(&pods)? {
                    let text = match get(&self.client, &format!("/api/v1/nodes/{node}")).await {
                        Ok(text) => text,
                        // The node was deleted, and its pods are terminating.
                        Err(AskError::Refused { code: 404, .. }) => continue,
                        Err(error) => return Err(error.into()),
                    };
                    found.extend(addresses::of_node(&text, *internal)?);
                }
                Ok(addresses::sorted(found))
            }
        }
    }

    async fn write(&mut self, write: &Write) -> Outcome {
        let name = &write.name;
        if let Some(times) = write.fought {
            warn!(
                ingress = %name,
                times,
                "something else also writes the status of this Ingress, so external-dns sees its address change back and forth. If \
                 another controller serves the same class, set --update-status=false on one of the two"
            );
        }
        let error = match self.patch(write).await {
            Ok(text) => {
                debug!(ingress = %name, "its status is written");
                return version_of(&text).map_or(Outcome::Overtaken, |it| Outcome::Written(it.into()));
            }
            Err(error) => error,
        };
        match &error {
            AskError::Refused { code: 404 | 409, .. } => Outcome::Overtaken,
            AskError::Refused { code: 403, message } => {
                if !std::mem::replace(&mut self.forbidden, true) {
                    warn!(ingress = %name, "its status may not be written: allow patch of ingresses/status: {message}");
                }
                Outcome::Forbidden
            }
            AskError::Refused { code: 400..=428 | 430..=499, .. } => {
                self.warn(name, &error);
                Outcome::Refused
            }
            _ => {
                self.warn(name, &error);
                Outcome::Failed
            }
        }
    }

    /// Writes over the known version, or not at all.
    async fn patch(&self, write: &Write) -> Result<String, AskError> {
        let path = collection::path(ObjectKind::Ingress, Some(&write.name.namespace));
        let path = format!("{path}/{}/status?fieldManager={MANAGER}", write.name.name);
        let body = json!({
            "metadata": {"resourceVersion": &*write.revision},
            "status": addresses::json_of(&write.addresses),
        });
        merge(&self.client, &path, &body).await
    }

    async fn conclude(&mut self, farewell: Farewell, hold: Option<Instant>) {
        let holds = hold.is_some_and(|until| until > now());
        // As in ingress-nginx: with several addresses, others may still be valid.
        let is_last = self.ledger.wanted().is_some_and(|wanted| wanted.len() == 1);
        if farewell.clears && holds && is_last {
            let last = self.ledger.farewell();
            info!(ingresses = last.len(), "no proxy is left: clearing the status of these Ingresses");
            let mut failed = 0;
            for write in last {
                let is_failure = self.write(&write).await == Outcome::Failed;
                failed = if is_failure { failed + 1 } else { 0 };
                // The failures come from the server, not from the Ingresses.
                if failed == FAILED {
                    break;
                }
            }
        }
        let _ = farewell.done.send(());
    }

    fn warn(&mut self, name: &ObjectName, error: &AskError) {
        match self.warning.now(clock::now()) {
            Some(before) => warn!(ingress = %name, before, "its status cannot be written: {error}"),
            None => debug!(ingress = %name, "its status cannot be written: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
