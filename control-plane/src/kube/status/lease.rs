//! Takes part in the election: acquires, renews and releases the Lease.
//!
//! **Invariant:** a hold expires by itself: whatever the API server does, it is not used longer than the election
//! permits.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use http::Method;
use kube::Client;
use serde_json::Value;
use shared::clock;
use shared::name::ObjectName;
use shared::telemetry::Seldom;
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use super::super::ask::{Answer, AskError, ask, get};
use super::super::now;
use crate::publish::election::{Bid, Election, Record};

/// Minimum interval of warnings.
const WARNINGS: Duration = Duration::from_secs(300);

/// Takes part in the election until the shutdown; then releases the Lease, and reports that.
///
/// # Errors
/// Never: without the Lease nothing is written.
pub(in crate::kube) async fn run(
    client: Client,
    name: ObjectName,
    mut election: Election,
    hold: watch::Sender<Option<Instant>>,
    mut leaving: oneshot::Receiver<oneshot::Sender<()>>,
) -> Result<(), Infallible> {
    let lease = Lease { client, name };
    let mut warning = Seldom::new(WARNINGS);
    loop {
        let asked = now();
        match lease.stand(&mut election, asked).await {
            Ok(true) => {
                if hold.send_replace(Some(asked + election.good_for())).is_none() {
                    info!(lease = %lease.name, "this replica writes the status of Ingresses");
                }
            }
            Ok(false) => {
                if hold.send_replace(None).is_some() {
                    info!(lease = %lease.name, "another replica writes the status of Ingresses");
                }
            }
            Err(error) => {
                if let Some(before) = warning.now(clock::now()) {
                    warn!(lease = %lease.name, before, "cannot find out which replica writes the status of Ingresses: {error}");
                }
            }
        }
        // A hold that was not renewed in time has expired, whoever has the Lease now.
        let until = *hold.borrow();
        if until.is_some_and(|until| until <= now()) {
            hold.send_replace(None);
        }
        tokio::select! {
            done = &mut leaving => {
                if hold.send_replace(None).is_some() && let Err(error) = lease.release(&election).await {
                    info!(lease = %lease.name, "the Lease could not be released; it will expire: {error}");
                }
                if let Ok(done) = done {
                    let _ = done.send(());
                }
                return std::future::pending().await;
            }
            () = tokio::time::sleep(election.pace()) => {}
        }
    }
}

struct Lease {
    client: Client,
    name: ObjectName,
}

impl Lease {
    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.name.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name.name)
    }

    async fn find(&self) -> Result<Option<Record>, String> {
        match get(&self.client, &self.path()).await {
            Ok(text) => Record::read(&text).map(Some),
            Err(AskError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Tries to acquire or renew the Lease; returns whether it is held.
    async fn stand(&self, election: &mut Election, now: Instant) -> Result<bool, String> {
        let found = self.find().await?;
        let Some(Bid { is_new, lease }) = election.bid(found, now, clock::wall()) else {
            return Ok(false);
        };
        match self.write(is_new, lease).await? {
            Answer::Done(_) => Ok(true),
            Answer::Conflict => Ok(false),
            Answer::Absent if is_new => Err(format!("there is no namespace {}", self.name.namespace)),
            Answer::Absent => Ok(false),
        }
    }

    /// Releases the Lease, if it is held.
    async fn release(&self, election: &Election) -> Result<(), String> {
        let Some(record) = self.find().await? else { return Ok(()) };
        let Some(lease) = election.release(&record, clock::wall()) else { return Ok(()) };
        self.write(false, lease).await?;
        Ok(())
    }

    async fn write(&self, is_new: bool, mut lease: Value) -> Result<Answer, AskError> {
        lease["metadata"]["name"] = (*self.name.name).into();
        lease["metadata"]["namespace"] = (*self.name.namespace).into();
        let (method, path) = match is_new {
            true => (Method::POST, self.collection()),
            false => (Method::PUT, self.path()),
        };
        ask(&self.client, method, &path, Some(lease.to_string())).await
    }
}
