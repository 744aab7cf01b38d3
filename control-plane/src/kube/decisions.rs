//! Holds stored in the cluster, each as a ConfigMap (for a Secret: a Secret) with a label.
//!
//! A record is named after the object that it holds, so all replicas use the same one, and has the object's source
//! under the key `object`, or packed under `object.zlib`. It is written by compare-and-swap, and takes effect on every
//! replica, including the writer, only when it is read back from the watch.
//!
//! **Invariant:** writing never delays reading; failed writes are retried until they succeed, seldom where they cannot.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use kube::Client;
use serde_json::json;
use shared::clock;
use shared::name::ObjectName;
use tokio::sync::mpsc;

use super::KubeError;
use super::ask::{Answer, AskError, ask, find};
use super::collection;
use super::follow::{Sink, Without};
use super::sink::{Objects, Sender};
use super::watch::Change;
use super::wire::Decoded;
use crate::event::{Event, Hold, HoldRequest};
use crate::hold::{Failures, record_name};
use crate::objects::{Object, ObjectKind, ObjectRef, json};

mod queue;
mod source;

use self::queue::{Next, Queue};

/// The label of a record, and its value for a hold.
pub(super) const LABEL: (&str, &str) = ("firth.dev/decision", "hold");

/// Reads records of one kind.
#[derive(Debug)]
pub(super) struct Records {
    objects: Objects,
    holding: Holding,
}

impl Records {
    /// Sends their events as a part of `objects`.
    pub(super) fn new(objects: Objects) -> Self {
        Self { objects, holding: Holding::default() }
    }
}

/// The object that each record holds, needed when the record is deleted.
#[derive(Debug, Default)]
pub(super) struct Holding(HashMap<ObjectName, ObjectRef>);

impl Holding {
    /// The events that a change of a record results in.
    pub(super) fn events(&mut self, change: Change<Decoded>) -> Vec<Event> {
        let (record, object) = match change {
            Change::Put(item) => match read(&item.value) {
                Ok(object) => (item.name, Some(object)),
                Err(reason) => {
                    tracing::warn!("the decision in {} cannot be read and is left out: {reason}", item.name);
                    (item.name, None)
                }
            },
            Change::Gone(name) => (name, None),
        };
        let now = object.as_ref().map(Object::reference);
        let before = match &now {
            Some(now) => self.0.insert(record, now.clone()),
            None => self.0.remove(&record),
        };
        let released = before.filter(|before| Some(before) != now.as_ref()).map(Event::Released);
        released.into_iter().chain(object.map(|object| Event::Held(Hold { object }))).collect()
    }
}

/// Parses the object that a record holds.
fn read(record: &Decoded) -> Result<Object, String> {
    let object = match record {
        Decoded::Bad(problem) => return Err(problem.reason.clone()),
        Decoded::Good(object) => object,
    };
    let text = match object {
        Object::ConfigMap(it) => source::unpack(&it.data, |value| Ok(value.to_owned()))?,
        Object::Secret(it) => source::unpack(&it.data, |value| {
            let bytes = STANDARD.decode(value).map_err(|it| it.to_string())?;
            String::from_utf8(bytes).map_err(|_| "expected text".to_owned())
        })?,
        other => {
            return Err(format!("expected a ConfigMap or a Secret, got {}", other.reference()));
        }
    };
    let held = json::from_source(&text).map_err(|error| error.to_string())?;
    let (name, named) = (record_name(&held.reference()), &*object.metadata().name);
    if name != named {
        return Err(format!("expected the name {name} for a hold of {}", held.reference()));
    }
    if (held.kind() == ObjectKind::Secret) != (object.kind() == ObjectKind::Secret) {
        return Err("expected a Secret to be held by a Secret, and all else by a ConfigMap".to_owned());
    }
    Ok(held)
}

impl Sink<Decoded> for Records {
    async fn changes(&mut self, changes: Vec<Change<Decoded>>, _afresh: bool) -> Result<(), KubeError> {
        let mut events = Vec::new();
        for change in changes {
            events.extend(self.holding.events(change));
        }
        self.objects.events(events).await
    }

    async fn listed(&mut self) -> Result<(), KubeError> {
        self.objects.events(vec![Event::HoldsListed]).await
    }

    async fn synced(&mut self) -> Result<(), KubeError> {
        self.objects.part_complete().await
    }

    async fn forbidden(&mut self) -> Result<Without, KubeError> {
        Ok(self.objects.without_decisions())
    }
}

/// Writes records on the index' requests, forever.
///
/// # Errors
/// Never: it ends with the process.
pub(super) async fn write(
    client: Client,
    namespace: Arc<str>,
    events: Sender,
    mut requests: mpsc::Receiver<HoldRequest>,
) -> Result<(), KubeError> {
    let (mut queue, mut failures) = (Queue::default(), Failures::default());
    let mut asked = true;
    loop {
        while let Ok(request) = requests.try_recv() {
            queue.add(request, clock::now());
        }
        let (object, job) = match queue.next(clock::now()) {
            Next::Ready(object, job) => (object, job),
            Next::Wait(until) => {
                tokio::select! {
                    request = requests.recv(), if asked => match request {
                        Some(request) => queue.add(request, clock::now()),
                        // No requests can arrive any more; the task lives as long as the process.
                        None => asked = false,
                    },
                    () = clock::sleep_until(until) => {}
                }
                continue;
            }
        };
        let outcome = fulfil(&client, &namespace, job.request()).await;
        match &outcome {
            Ok(()) => _ = failures.done(&object),
            // As it should be: both replicas write the same, and what is there is looked at again.
            Err(Unfulfilled::Overtaken) => {
                tracing::debug!("another replica changed the hold of {object} meanwhile")
            }
            Err(error) => {
                let is_write = matches!(job.request(), HoldRequest::Write(_));
                if let Some(reason) = error.lasts().filter(|_| is_write) {
                    let (object, reason) = (object.clone(), reason.into());
                    events.events(object.kind, vec![Event::Unstored { object, reason }]).await?;
                }
                if let Some(tries) = failures.failed(&object, &error.to_string()) {
                    let what = if is_write { "stored in" } else { "removed from" };
                    tracing::error!(tries, "the hold of {object} cannot be {what} {namespace}: {error}");
                }
            }
        }
        match outcome {
            Ok(()) => queue.done(object, clock::now()),
            Err(Unfulfilled::Unacceptable(_)) => queue.hopeless(object, job, clock::now()),
            Err(_) => queue.failed(object, job, clock::now()),
        }
    }
}

/// Why a request was not executed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum Unfulfilled {
    /// Another replica was faster.
    #[error("another replica changed it meanwhile")]
    Overtaken,
    /// The API server will not accept it as it is: a source may be too large for a record, even packed.
    #[error(
        "its last good version stays in use only until all control planes have ended, or the object is corrected: {0}"
    )]
    Unacceptable(String),
    /// The API server does not permit it, for now.
    #[error("{0}; it is tried again")]
    Forbidden(String),
    /// It may succeed later.
    #[error("{0}; it is tried again")]
    Failed(String),
}

impl Unfulfilled {
    /// The reason, if it stays until somebody changes something.
    fn lasts(&self) -> Option<&str> {
        match self {
            Self::Unacceptable(reason) | Self::Forbidden(reason) => Some(reason),
            Self::Overtaken | Self::Failed(_) => None,
        }
    }
}

impl From<AskError> for Unfulfilled {
    fn from(error: AskError) -> Self {
        match error {
            // 413: the body; 422: the sum of the data, which is judged as a field of the record.
            AskError::Refused { code: 413 | 422, message } => Self::Unacceptable(message),
            AskError::Refused { code: 403, message } => Self::Forbidden(message),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Executes one request. A record that is already as requested is left alone.
async fn fulfil(client: &Client, namespace: &str, request: &HoldRequest) -> Result<(), Unfulfilled> {
    match request {
        HoldRequest::Write(hold) => {
            let object = hold.object.reference();
            let (kind, name) = (record_kind(object.kind), record_name(&object));
            let collection = collection::path(kind, Some(namespace));
            let body = record(&name, namespace, &hold.object, None);
            match ask(client, Method::POST, &collection, Some(body)).await? {
                Answer::Done(_) => {
                    tracing::warn!("{object} is held at its last good version, stored in {namespace}/{name}");
                    return Ok(());
                }
                Answer::Absent => return Err(Unfulfilled::Failed("there is no such namespace".to_owned())),
                Answer::Conflict => {}
            }
            let Some(there) = find(client, kind, namespace, &name).await? else {
                return Err(Unfulfilled::Overtaken);
            };
            if read(&Decoded::Good(there.clone()))
                .is_ok_and(|held| json::source(&held) == json::source(&hold.object))
            {
                return Ok(());
            }
            let body = record(&name, namespace, &hold.object, Some(&there.metadata().resource_version));
            match ask(client, Method::PUT, &format!("{collection}/{name}"), Some(body)).await? {
                Answer::Done(_) => Ok(()),
                Answer::Conflict | Answer::Absent => Err(Unfulfilled::Overtaken),
            }
        }
        HoldRequest::Erase(object) => {
            let (kind, name) = (record_kind(object.kind), record_name(object));
            let Some(there) = find(client, kind, namespace, &name).await? else {
                return Ok(());
            };
            let version = &there.metadata().resource_version;
            let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": version}});
            let path = format!("{}/{name}", collection::path(kind, Some(namespace)));
            // A conflict is caused by a newer decision, which the index receives and handles.
            ask(client, Method::DELETE, &path, Some(body.to_string())).await?;
            Ok(())
        }
    }
}

/// A held Secret is stored as a Secret.
fn record_kind(held: ObjectKind) -> ObjectKind {
    if held == ObjectKind::Secret { ObjectKind::Secret } else { ObjectKind::ConfigMap }
}

/// A record as it is written.
pub(super) fn record(name: &str, namespace: &str, object: &Object, version: Option<&str>) -> String {
    let kind = record_kind(object.kind());
    let (key, value) = source::pack(json::source(object));
    let value = if kind == ObjectKind::Secret { STANDARD.encode(value) } else { value };
    let mut metadata = json!({"name": name, "namespace": namespace, "labels": {LABEL.0: LABEL.1}});
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
    }
    json!({"apiVersion": "v1", "kind": kind.as_str(), "metadata": metadata, "data": {key: value}}).to_string()
}

#[cfg(test)]
mod tests;
