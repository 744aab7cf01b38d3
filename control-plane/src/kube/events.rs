//! Writes Events, where the owner of an object looks first.
//!
//! The name of an Event is derived from its object and message, so all replicas produce the same one: the second to
//! write it learns that it exists. A repetition increments its series.
//!
//! **Invariant:** nothing waits for it, and the API server gets a bounded number of requests a second, however many
//! Events there are. If Events may not be written they are skipped, and the log says so once.

mod backlog;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use shared::clock;
use shared::telemetry::Seldom;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::ask::{Answer, AskError, ask, merge};
use super::now;
use crate::objects::ObjectRef;
use backlog::{Backlog, Next, Outcome, Task};

/// Minimum interval of warnings.
const WARNINGS: Duration = Duration::from_secs(60);
/// Limit of the object's part of an Event's name, in characters (RFC 1123 allows 253 in all).
const NAME: usize = 253 - 17;
/// Limit of a note in bytes (validation of events.k8s.io/v1).
const NOTE: usize = 1_024;
/// The reporting controller (a qualified name, as the API server requires).
const CONTROLLER: &str = "firth.dev/control-plane";

/// The subject of an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventReason {
    /// The version is rejected because of an annotation: the reason that ingress-nginx uses.
    AnnotationParsingFailed,
    /// The version is rejected.
    Rejected,
    /// Proxies refuse what was compiled from it.
    Refused,
    /// It is one of many that were removed without a deletion that was seen.
    Removed,
    /// After a rejection, the newest version is served.
    Accepted,
    /// After a refusal, it is served.
    Served,
}

impl EventReason {
    /// One word, to filter by.
    fn as_str(self) -> &'static str {
        match self {
            Self::AnnotationParsingFailed => "AnnotationParsingFailed",
            Self::Rejected => "Rejected",
            Self::Refused => "Refused",
            Self::Removed => "Removed",
            Self::Accepted | Self::Served => "Accepted",
        }
    }

    /// The action that was attempted.
    fn action(self) -> &'static str {
        match self {
            Self::AnnotationParsingFailed | Self::Rejected | Self::Accepted => "Compile",
            Self::Refused | Self::Served => "Serve",
            Self::Removed => "List",
        }
    }

    /// Whether it revokes an earlier Event.
    fn is_good(self) -> bool {
        matches!(self, Self::Accepted | Self::Served)
    }
}

/// An announcement about an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// The object.
    pub object: ObjectRef,
    /// The object's uid.
    pub uid: Arc<str>,
    /// The version that it is about.
    pub resource_version: Arc<str>,
    /// The subject.
    pub reason: EventReason,
    /// The text. It must not contain anything that changes while the meaning is the same: the API server never changes
    /// a note.
    pub note: String,
    /// Identifies repetitions of the same announcement for this object.
    pub same: String,
}

impl Announcement {
    /// 16 hex digits that are the same for repetitions.
    fn digest(&self) -> String {
        let Self { object, uid, reason, same, .. } = self;
        let text = format!("{object} {uid} {} {} {same}", reason.as_str(), reason.action());
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }

    /// A DNS subdomain: cutting the name may leave a trailing dot or hyphen, which is not allowed (RFC 1123).
    fn name(&self) -> String {
        let name = &*self.object.name.name;
        let name = name[..name.floor_char_boundary(NAME)].trim_end_matches(['-', '.']);
        format!("{name}.{}", self.digest())
    }

    fn collection(&self) -> String {
        format!("/apis/events.k8s.io/v1/namespaces/{}/events", self.object.name.namespace)
    }
}

/// Writes the announcements that it receives, until the channel is closed. `instance`: the name of this pod or host.
///
/// # Errors
/// Never: failures are logged.
pub(super) async fn run(
    client: Client,
    instance: String,
    mut announcements: mpsc::Receiver<Announcement>,
) -> Result<(), Infallible> {
    let mut teller = Teller { client, instance, warning: Seldom::new(WARNINGS), forbidden: false };
    let mut backlog = Backlog::new(now());
    loop {
        let wait = match backlog.next(now()) {
            Next::Say(task) => {
                let outcome = teller.say(&task).await;
                backlog.done(*task, outcome, now());
                continue;
            }
            Next::Wait(wait) => Some(wait),
            Next::Nothing => None,
        };
        tokio::select! {
            announcement = announcements.recv() => match announcement {
                Some(announcement) => {
                    let lost = backlog.push(announcement, now());
                    teller.lost(lost);
                }
                // All senders are gone, so the process is ending.
                None => return std::future::pending().await,
            },
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

/// The writer of Events.
struct Teller {
    client: Client,
    instance: String,
    warning: Seldom,
    /// It was logged that Events may not be written.
    forbidden: bool,
}

impl Teller {
    async fn say(&mut self, task: &Task) -> Outcome {
        let answer = match task.count {
            1 => self.create(task).await,
            // Events expire after an hour by default: then a new one is created.
            _ => match self.count_up(task).await {
                Ok(Answer::Absent) => self.create(task).await,
                answer => answer,
            },
        };
        let error = match answer {
            // Another replica was faster; or the namespace was deleted, together with its readers.
            Ok(Answer::Done(_) | Answer::Conflict | Answer::Absent) => return Outcome::Recorded,
            Err(error) => error,
        };
        let object = &task.announcement.object;
        match &error {
            AskError::Refused { code: 403, message } if message.contains("being terminated") => {
                Outcome::Recorded
            }
            AskError::Refused { code: 403, message } => {
                if !std::mem::replace(&mut self.forbidden, true) {
                    warn!(
                        %object,
                        "Events may not be written, so owners of objects are not told there what is wrong with them: \
                         allow create and patch of events in the group events.k8s.io: {message}"
                    );
                }
                Outcome::Forbidden
            }
            // A permanent error: a retry would fail again.
            AskError::Refused { code: 400..=428 | 430..=499, .. } => {
                self.warn(object, &error);
                Outcome::Recorded
            }
            _ => {
                self.warn(object, &error);
                Outcome::Failed
            }
        }
    }

    async fn create(&self, task: &Task) -> Result<Answer, AskError> {
        let body = event(&task.announcement, &self.instance, clock::wall()).to_string();
        ask(&self.client, Method::POST, &task.announcement.collection(), Some(body)).await
    }

    async fn count_up(&self, task: &Task) -> Result<Answer, AskError> {
        let path = format!("{}/{}", task.announcement.collection(), task.announcement.name());
        let series = json!({"series": {"count": task.count, "lastObservedTime": micros(clock::wall())}});
        match merge(&self.client, &path, &series).await {
            Ok(text) => Ok(Answer::Done(text)),
            Err(AskError::Refused { code: 404, .. }) => Ok(Answer::Absent),
            Err(error) => Err(error),
        }
    }

    fn warn(&mut self, object: &ObjectRef, error: &AskError) {
        match self.warning.now(clock::now()) {
            Some(before) => warn!(%object, before, "an Event cannot be written: {error}"),
            None => debug!(%object, "an Event cannot be written: {error}"),
        }
    }

    fn lost(&mut self, lost: Option<Announcement>) {
        let Some(lost) = lost else { return };
        if let Some(before) = self.warning.now(clock::now()) {
            warn!(object = %lost.object, before, "too many Events are waiting: the oldest is dropped");
        }
    }
}

fn event(announcement: &Announcement, instance: &str, now: SystemTime) -> Value {
    let Announcement { object, uid, resource_version, reason, note, .. } = announcement;
    let (namespace, name) = (&*object.name.namespace, &*object.name.name);
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": announcement.name()},
        "regarding": {
            "apiVersion": object.kind.api_version(),
            "kind": object.kind.as_str(),
            "namespace": namespace,
            "name": name,
            "uid": &**uid,
            "resourceVersion": &**resource_version,
        },
        "type": if reason.is_good() { "Normal" } else { "Warning" },
        "reason": reason.as_str(),
        "action": reason.action(),
        "note": &note[..note.floor_char_boundary(NOTE)],
        "eventTime": micros(now),
        "reportingController": CONTROLLER,
        "reportingInstance": &instance[..instance.floor_char_boundary(128)],
    })
}

/// As a MicroTime.
fn micros(time: SystemTime) -> String {
    format!("{:.6}", jiff::Timestamp::try_from(time).unwrap_or_default())
}

#[cfg(test)]
mod tests;
