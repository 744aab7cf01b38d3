//! Writes the record of the pin: parts first, then the manifest by compare-and-swap, then what it no longer names goes.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use shared::backoff::Backoff;
use tokio::sync::mpsc;

use super::super::KubeError;
use super::super::ask::{self, Answer};
use super::super::collection;
use super::{LABEL, MANIFEST, NAME, PART, manifest_of};
use crate::event::{PinChange, PinRefused, PinRequest};
use crate::objects::{Object, ObjectKind, Secret, json};
use crate::pin::{self, Manifest, Packed, Pin, Unreadable};

/// A change that is not done after so long is not done. Parts may be many.
const PATIENCE: Duration = Duration::from_secs(18);

/// Writes what is asked, one after another, for ever.
///
/// # Errors
/// None: it ends with the process.
pub(in crate::kube) async fn write(
    client: Client,
    namespace: Arc<str>,
    mut requests: mpsc::Receiver<PinRequest>,
) -> Result<(), KubeError> {
    let writer = Writer { client, namespace };
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    // A pin that is in force and damaged on record is written until that is done, or something else is decided.
    let mut mend: Option<PinChange> = None;
    loop {
        let request = tokio::select! {
            request = requests.recv() => match request {
                Some(request) => request,
                // Nobody asks any more; the task is as long as the process.
                None => return std::future::pending().await,
            },
            () = pause(mend.is_some(), &mut backoff) => match mend.take() {
                Some(change) => PinRequest::new(change).0,
                None => continue,
            },
        };
        let PinRequest { change, reply } = request;
        let done = tokio::time::timeout(PATIENCE, writer.fulfil(&change)).await;
        let done = done.unwrap_or_else(|_| {
            Err(PinRefused::Failed { reason: format!("no answer for {} s", PATIENCE.as_secs()) })
        });
        match (&change, &done) {
            (PinChange::Mend { pin, .. }, Err(error)) => {
                tracing::error!(
                    "the record of the {pin} is damaged and cannot be written again yet: {error}"
                );
                mend = Some(change.clone());
            }
            (_, Ok(_)) => {
                mend = None;
                backoff.reset();
            }
            _ => {}
        }
        // Who asked may have gone.
        let _ = reply.send(done);
    }
}

async fn pause(is_due: bool, backoff: &mut Backoff) {
    match is_due {
        true => tokio::time::sleep(backoff.next_delay()).await,
        false => std::future::pending().await,
    }
}

struct Writer {
    client: Client,
    namespace: Arc<str>,
}

impl Writer {
    /// Does what is asked. What is on record then: its revision.
    async fn fulfil(&self, change: &PinChange) -> Result<Arc<str>, PinRefused> {
        let there = self.find(NAME).await?;
        match change {
            PinChange::Write { pin, replaces } => {
                // One that never came into force counts as none: its writer failed, or is overtaken now.
                let is_void = |secret: &&Arc<Secret>| manifest_of(secret) == Err(Unreadable::Unfinished);
                let seen = there.as_ref().filter(|secret| !is_void(secret));
                if seen.map(|secret| &secret.metadata.resource_version) != replaces.as_ref() {
                    return Err(overtaken(there.as_deref()));
                }
                self.put(pin, there.as_deref()).await
            }
            PinChange::Mend { pin, replaces } => {
                // Ended meanwhile.
                let Some(there) = there else {
                    return Ok("".into());
                };
                // Somebody decided something else, or another replica was quicker: either is read back.
                let revision = &there.metadata.resource_version;
                if revision != replaces || !self.is_damaged(&there).await? {
                    return Ok(Arc::clone(revision));
                }
                tracing::warn!(
                    "the record of the {pin} in {}/{NAME} is damaged: it is written again",
                    self.namespace
                );
                self.put(pin, Some(&there)).await
            }
            PinChange::Erase { revision } => {
                let Some(there) = there else {
                    return Ok("".into());
                };
                if revision.as_ref() != Some(&there.metadata.resource_version) {
                    return Err(overtaken(Some(&there)));
                }
                self.erase(&there).await?;
                Ok("".into())
            }
        }
    }

    /// Puts a pin in the place of what is there.
    async fn put(&self, pin: &Arc<Pin>, there: Option<&Secret>) -> Result<Arc<str>, PinRefused> {
        let packed = Arc::clone(pin);
        let packed = tokio::task::spawn_blocking(move || pin::pack(&packed)).await;
        let packed = packed.map_err(|error| PinRefused::Failed { reason: error.to_string() })?;
        let Packed { mut manifest, parts } = packed.map_err(|reason| PinRefused::TooLarge { reason })?;
        // Names of their own: whoever takes an older record away does not take these.
        let attempt = format!("{NAME}-{:08x}", fastrand::u32(..));
        manifest.parts = (0..parts.len()).map(|place| format!("{attempt}-{place}")).collect();
        let written = self.put_parts(&manifest, &parts).await;
        let written = match written {
            Ok(()) => self.put_manifest(&mut manifest, there).await,
            Err(error) => Err(error),
        };
        match written {
            Ok(revision) => {
                let before = there.and_then(|there| manifest_of(there).ok());
                self.remove_parts(before.map(|before| before.parts).unwrap_or_default()).await;
                Ok(revision)
            }
            Err(error) => {
                self.remove_parts(manifest.parts).await;
                Err(error)
            }
        }
    }

    async fn put_parts(&self, manifest: &Manifest, parts: &[Vec<u8>]) -> Result<(), PinRefused> {
        for (name, part) in manifest.parts.iter().zip(parts) {
            let mut body = self.secret(name, PART, part);
            body["immutable"] = true.into();
            match self.ask(Method::POST, "", Some(&body)).await? {
                Answer::Done(_) => {}
                Answer::Conflict => return Err(failed(format!("there is a Secret {name} already"))),
                Answer::Absent => return Err(failed(format!("there is no namespace {}", self.namespace))),
            }
        }
        Ok(())
    }

    async fn put_manifest(
        &self,
        manifest: &mut Manifest,
        there: Option<&Secret>,
    ) -> Result<Arc<str>, PinRefused> {
        let (uid, version) = match there {
            Some(there) => (Arc::clone(&there.metadata.uid), Arc::clone(&there.metadata.resource_version)),
            // Its uid is known once it is there; until it names that, it decides nothing.
            None => match self.ask(Method::POST, "", Some(&self.manifest(manifest))).await? {
                Answer::Done(made) => {
                    let made = secret_of(&made)?;
                    (Arc::clone(&made.metadata.uid), Arc::clone(&made.metadata.resource_version))
                }
                Answer::Conflict => return Err(overtaken(self.find(NAME).await?.as_deref())),
                Answer::Absent => return Err(failed(format!("there is no namespace {}", self.namespace))),
            },
        };
        manifest.source = uid.to_string();
        let mut body = self.manifest(manifest);
        body["metadata"]["resourceVersion"] = (*version).into();
        match self.ask(Method::PUT, &format!("/{NAME}"), Some(&body)).await? {
            Answer::Done(made) => Ok(Arc::clone(&secret_of(&made)?.metadata.resource_version)),
            Answer::Conflict | Answer::Absent => Err(overtaken(self.find(NAME).await?.as_deref())),
        }
    }

    async fn erase(&self, there: &Secret) -> Result<(), PinRefused> {
        let version = &there.metadata.resource_version;
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": version}});
        match self.ask(Method::DELETE, &format!("/{NAME}"), Some(&body)).await? {
            Answer::Done(_) | Answer::Absent => {}
            Answer::Conflict => return Err(overtaken(self.find(NAME).await?.as_deref())),
        }
        let parts = manifest_of(there).map(|manifest| manifest.parts);
        self.remove_parts(parts.unwrap_or_default()).await;
        Ok(())
    }

    /// Whether a record is one of ours that cannot be read: it may have come to be whole again, and what a newer build
    /// wrote, or somebody writes now, is not damage.
    async fn is_damaged(&self, there: &Secret) -> Result<bool, PinRefused> {
        let manifest = match manifest_of(there) {
            Ok(manifest) => manifest,
            Err(why) => return Ok(why.may_be_mended()),
        };
        let mut parts = Vec::new();
        for name in &manifest.parts {
            parts.push((self.find(name).await?, name.clone()));
        }
        Ok(super::put_together(&manifest, &parts, &"".into()).is_err_and(|why| why.may_be_mended()))
    }

    /// What is left behind does no harm.
    async fn remove_parts(&self, names: Vec<String>) {
        for name in names {
            if let Err(error) = self.ask(Method::DELETE, &format!("/{name}"), None).await {
                tracing::warn!(
                    "a part of an earlier pin, Secret {}/{name}, is left behind: {error}",
                    self.namespace
                );
            }
        }
    }

    fn manifest(&self, manifest: &Manifest) -> Value {
        self.secret(NAME, MANIFEST, manifest.text().as_bytes())
    }

    fn secret(&self, name: &str, key: &str, value: &[u8]) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": &*self.namespace, "labels": {LABEL.0: LABEL.1}},
            "data": {key: STANDARD.encode(value)},
        })
    }

    async fn find(&self, name: &str) -> Result<Option<Arc<Secret>>, PinRefused> {
        let found = ask::find(&self.client, ObjectKind::Secret, &self.namespace, name).await;
        found.map_err(failed)?.map(secret).transpose()
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, PinRefused> {
        let path = format!("{}{path}", collection::path(ObjectKind::Secret, Some(&self.namespace)));
        ask::ask(&self.client, method, &path, body.map(ToString::to_string)).await.map_err(failed)
    }
}

/// The Secret that was answered with.
fn secret_of(text: &str) -> Result<Arc<Secret>, PinRefused> {
    secret(json::decode(ObjectKind::Secret, text).map_err(failed)?)
}

fn secret(object: Object) -> Result<Arc<Secret>, PinRefused> {
    match object {
        Object::Secret(secret) => Ok(secret),
        other => Err(failed(format!("expected a Secret, got {}", other.reference()))),
    }
}

fn overtaken(there: Option<&Secret>) -> PinRefused {
    let there = match there.map(manifest_of) {
        None => "nothing is pinned".to_owned(),
        Some(Ok(manifest)) => manifest.line(),
        Some(Err(why)) => format!("there is a record that cannot be read: {why}"),
    };
    PinRefused::Overtaken { there }
}

fn failed(reason: impl ToString) -> PinRefused {
    PinRefused::Failed { reason: reason.to_string() }
}
