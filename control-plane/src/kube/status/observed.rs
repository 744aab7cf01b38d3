//! The status of Ingresses as the watch reports it, on a channel of its own, so that it never reaches the compiler.
//!
//! **Invariant:** the watch never waits: values that were not taken yet are overwritten.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use shared::name::ObjectName;
use tokio::sync::Notify;

use super::super::KubeError;
use super::super::follow::{Sink, Without};
use super::super::sink::Objects;
use super::super::watch::{Change, Item};
use super::super::wire::{Decode, Decoded, Whole};
use crate::publish::addresses::{self, Addresses};
use crate::publish::ledger::Status;

/// Statuses that were received since the last call of `take`. Clones share state.
#[derive(Clone, Debug, Default)]
pub struct Statuses(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    observed: Mutex<HashMap<ObjectName, Option<Status>>>,
    news: Notify,
}

impl Statuses {
    /// The latest status of each Ingress that changed; `None`: it was deleted.
    pub fn take(&self) -> HashMap<ObjectName, Option<Status>> {
        std::mem::take(&mut *self.0.observed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until there is a change.
    pub async fn changed(&self) {
        self.0.news.notified().await;
    }

    pub(super) fn observe(&self, statuses: impl Iterator<Item = (ObjectName, Option<Status>)>) {
        self.0.observed.lock().unwrap_or_else(PoisonError::into_inner).extend(statuses);
        self.0.news.notify_one();
    }
}

/// Decodes Ingresses together with their status.
#[derive(Clone, Copy, Debug)]
pub(in crate::kube) struct WithStatus(pub(in crate::kube) Whole);

impl Decode for WithStatus {
    type Value = (Decoded, Addresses);

    fn decode(&self, text: &str) -> Option<Item<Self::Value>> {
        let Item { name, uid, revision, value } = self.0.decode(text)?;
        Some(Item { name, uid, revision, value: (value, addresses::of_status(text)) })
    }
}

/// Sends Ingresses to the index, and their status to the writer.
#[derive(Clone, Debug)]
pub(in crate::kube) struct Aside {
    pub(in crate::kube) objects: Objects,
    pub(in crate::kube) statuses: Statuses,
}

impl Sink<(Decoded, Addresses)> for Aside {
    async fn changes(
        &mut self,
        changes: Vec<Change<(Decoded, Addresses)>>,
        afresh: bool,
    ) -> Result<(), KubeError> {
        let observed = changes.iter().map(|change| match change {
            Change::Put(Item { name, revision, value: (_, addresses), .. }) => {
                let status = Status { revision: Arc::clone(&revision.0), addresses: Arc::clone(addresses) };
                (name.clone(), Some(status))
            }
            Change::Gone(name) => (name.clone(), None),
        });
        self.statuses.observe(observed);
        let objects = changes.into_iter().map(|change| match change {
            Change::Put(Item { name, uid, revision, value: (value, _) }) => {
                Change::Put(Item { name, uid, revision, value })
            }
            Change::Gone(name) => Change::Gone(name),
        });
        self.objects.changes(objects.collect(), afresh).await
    }

    async fn synced(&mut self) -> Result<(), KubeError> {
        self.objects.synced().await
    }

    async fn forbidden(&mut self) -> Result<Without, KubeError> {
        self.objects.forbidden().await
    }
}
