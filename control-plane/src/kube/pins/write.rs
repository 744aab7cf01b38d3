//! Writes the stored pin: parts first, then the manifest by compare-and-swap, then unreferenced parts are deleted.
//!
//! Each request has a timeout, the whole has none: nothing is left half done for lack of time. A request that is not
//! known to have failed may have taken effect, or may do so later: the result is read back, and while it is unknown,
//! nothing that it would need is deleted. What is left behind in this way, or by a crash, is swept later.
//!
//! **Invariant:** no part is deleted that the manifest in the API server names.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use shared::backoff::Backoff;
use shared::clock;
use shared::telemetry::Seldom;
use tokio::sync::mpsc;
use tokio::time::{self, MissedTickBehavior};

use super::super::KubeError;
use super::super::ask::{Answer, AskError};
use super::secrets::{PREFIX, Secrets, is_labelled, is_part, manifest_in, secret_of};
use super::sweep::{self, Leftovers};
use super::times;
use super::{MANIFEST, NAME, bytes, manifest_of};
use crate::event::{PinChange, PinRefused, PinRequest};
use crate::objects::Secret;
use crate::pin::{self, Manifest, Packed, Pin, Unreadable};

/// Minimum interval of warnings about the clock here.
const WARNINGS: Duration = Duration::from_secs(600);
/// How often the result of a change without a response is read back, and the interval.
const LOOKS: u32 = 3;
const LOOK: Duration = Duration::from_secs(1);

/// Executes requests, one after another, forever.
///
/// # Errors
/// Never: it ends with the process.
pub(in crate::kube) async fn write(
    client: Client,
    namespace: Arc<str>,
    mut requests: mpsc::Receiver<PinRequest>,
) -> Result<(), KubeError> {
    let writer = Writer { secrets: Secrets { client, namespace } };
    let mut early = Seldom::new(WARNINGS);
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    // A pin that is in force and whose record is damaged is written until that succeeds, or there is another decision.
    let mut mend: Option<PinChange> = None;
    let mut leftovers = Leftovers::default();
    let mut sweep = time::interval_at(time::Instant::now() + sweep::EVERY, sweep::EVERY);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let request = tokio::select! {
            request = requests.recv() => match request {
                Some(request) => request,
                // No requests can arrive any more; the task lives as long as the process.
                None => return std::future::pending().await,
            },
            () = pause(mend.is_some(), &mut backoff) => match mend.take() {
                Some(change) => PinRequest::new(change).0,
                None => continue,
            },
            _ = sweep.tick() => {
                writer.sweep(&mut leftovers).await;
                continue;
            }
        };
        let PinRequest { change, reply } = request;
        let done = writer.fulfil(&change).await;
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
            // Asked again soon; clocks that are hardly apart are no news.
            (PinChange::Expire { pin }, Err(error @ PinRefused::Early { left })) => {
                if *left > times::APART
                    && let Some(before) = early.now(clock::now())
                {
                    tracing::warn!(before, "the {pin} is not ended: {error}");
                }
            }
            _ => {}
        }
        // The requester may not be waiting any more.
        let _ = reply.send(done);
    }
}

async fn pause(is_due: bool, backoff: &mut Backoff) {
    match is_due {
        true => time::sleep(backoff.next_delay()).await,
        false => std::future::pending().await,
    }
}

struct Writer {
    secrets: Secrets,
}

/// Why the manifest is not known to be stored.
enum Unwritten {
    /// It is not, and will not be.
    Refused(PinRefused),
    /// It may be stored, now or later.
    Unknown(PinRefused),
}

impl Writer {
    /// Executes a request. Returns the revision of the stored pin.
    async fn fulfil(&self, change: &PinChange) -> Result<Arc<str>, PinRefused> {
        let there = self.find().await?;
        match change {
            PinChange::Write { pin, replaces } => {
                // A pin that was never completed is treated as missing: its writer failed, or is overtaken now.
                let is_void = |secret: &&Arc<Secret>| manifest_of(secret) == Err(Unreadable::Unfinished);
                let seen = there.as_ref().filter(|secret| !is_void(secret));
                if seen.map(|secret| &secret.metadata.resource_version) != replaces.as_ref() {
                    return Err(overtaken(there.as_deref()));
                }
                self.put(&times::dated(&self.secrets.client, pin).await, there.as_deref()).await
            }
            PinChange::Mend { pin, replaces } => {
                // Removed meanwhile.
                let Some(there) = there else {
                    return Ok("".into());
                };
                // There is another decision, or another replica was faster: either is read back.
                let revision = &there.metadata.resource_version;
                if revision != replaces || !self.is_damaged(&there).await? {
                    return Ok(Arc::clone(revision));
                }
                // A decision that was not heard of here, perhaps because this replica was cut off: it is mended by those
                // that have it, and no earlier one takes its place.
                if manifest_of(&there).is_ok_and(|manifest| !manifest.is_of(pin)) {
                    return Ok(Arc::clone(revision));
                }
                tracing::warn!(
                    "the record of the {pin} in {}/{NAME} is damaged: it is written again",
                    self.secrets.namespace
                );
                self.put(pin, Some(&there)).await
            }
            PinChange::Erase { .. } | PinChange::Expire { .. } => {
                let Some(there) = there else {
                    return Ok("".into());
                };
                if change.deletes() != Some(&there.metadata.resource_version) {
                    return Err(overtaken(Some(&there)));
                }
                if let PinChange::Expire { pin } = change
                    && let Some(left) = times::left(&self.secrets.client, pin).await.map_err(failed)?
                {
                    return Err(PinRefused::Early { left });
                }
                self.erase(&there).await?;
                Ok("".into())
            }
        }
    }

    /// Replaces the stored pin.
    async fn put(&self, pin: &Arc<Pin>, there: Option<&Secret>) -> Result<Arc<str>, PinRefused> {
        let packed = Arc::clone(pin);
        let packed = tokio::task::spawn_blocking(move || pin::pack(&packed)).await;
        let packed = packed.map_err(failed)?;
        let Packed { mut manifest, parts } = packed.map_err(|reason| PinRefused::TooLarge { reason })?;
        manifest.parts = names(&manifest, &parts, there);
        let written = match self.put_parts(&manifest, &parts).await {
            Ok(()) => self.put_manifest(&mut manifest, there).await,
            // No manifest names the parts.
            Err(refused) => Err(Unwritten::Refused(refused)),
        };
        match written {
            Ok(revision) => {
                let before = there.and_then(|there| manifest_in(there).ok());
                self.remove_parts(before.map(|before| before.parts).unwrap_or_default()).await;
                Ok(revision)
            }
            Err(Unwritten::Refused(refused)) => {
                self.remove_parts(manifest.parts).await;
                Err(refused)
            }
            Err(Unwritten::Unknown(refused)) => Err(refused),
        }
    }

    async fn put_parts(&self, manifest: &Manifest, parts: &[Vec<u8>]) -> Result<(), PinRefused> {
        for (name, part) in manifest.parts.iter().zip(parts) {
            let body = self.secrets.part(name, part);
            match self.secrets.create(&body).await.map_err(failed)? {
                Answer::Done(_) => continue,
                Answer::Absent => return Err(self.no_namespace()),
                Answer::Conflict => {}
            }
            // Of an earlier attempt, or of another replica that writes the same.
            let there = self.secrets.find(name).await.map_err(failed)?;
            if there.as_ref().is_some_and(|there| is_part(there, part)) {
                continue;
            }
            if let Some(there) = there.filter(|there| is_labelled(there)) {
                let version = &there.metadata.resource_version;
                self.secrets.remove(name, version).await.map_err(failed)?;
            }
            if !matches!(self.secrets.create(&body).await.map_err(failed)?, Answer::Done(_)) {
                return Err(failed(format!("Secret {name} exists and does not belong to a pin: delete it")));
            }
        }
        Ok(())
    }

    async fn put_manifest(
        &self,
        manifest: &mut Manifest,
        there: Option<&Secret>,
    ) -> Result<Arc<str>, Unwritten> {
        let (uid, version) = match there {
            Some(there) => (Arc::clone(&there.metadata.uid), Arc::clone(&there.metadata.resource_version)),
            // Its uid is known only once it is created; until the manifest names it, the pin is not valid.
            None => {
                let made = self.begin(manifest).await?;
                (Arc::clone(&made.metadata.uid), Arc::clone(&made.metadata.resource_version))
            }
        };
        manifest.source = uid.to_string();
        let unknown = match self.secrets.replace(NAME, self.secrets.manifest(manifest), &version).await {
            Ok(Answer::Done(made)) => match secret_of(&made) {
                Ok(made) => return Ok(Arc::clone(&made.metadata.resource_version)),
                Err(error) => error,
            },
            Ok(Answer::Conflict | Answer::Absent) => return Err(self.overtaken().await),
            Err(error) if error.is_refusal() => return Err(Unwritten::Refused(failed(error))),
            Err(error) => error,
        };
        let made = self.read_back(manifest, Some(&version), unknown).await?;
        Ok(Arc::clone(&made.metadata.resource_version))
    }

    /// Creates the Secret of the manifest.
    async fn begin(&self, manifest: &Manifest) -> Result<Arc<Secret>, Unwritten> {
        let unknown = match self.secrets.create(&self.secrets.manifest(manifest)).await {
            Ok(Answer::Done(made)) => match secret_of(&made) {
                Ok(made) => return Ok(made),
                Err(error) => error,
            },
            Ok(Answer::Conflict) => return Err(self.overtaken().await),
            Ok(Answer::Absent) => return Err(Unwritten::Refused(self.no_namespace())),
            Err(error) if error.is_refusal() => return Err(Unwritten::Refused(failed(error))),
            Err(error) => error,
        };
        self.read_back(manifest, None, unknown).await
    }

    /// Determines the result of a write without a response, which was to replace a given version.
    async fn read_back(
        &self,
        manifest: &Manifest,
        replaced: Option<&Arc<str>>,
        unanswered: AskError,
    ) -> Result<Arc<Secret>, Unwritten> {
        let text = manifest.text();
        for _ in 0..LOOKS {
            time::sleep(LOOK).await;
            let Ok(there) = self.secrets.find(NAME).await else { continue };
            let is_it = |there: &Secret| bytes(there, MANIFEST).is_some_and(|it| it == text.as_bytes());
            match there {
                Some(there) if is_it(&there) => return Ok(there),
                there if there.as_ref().map(|it| &it.metadata.resource_version) == replaced => {}
                // Later writes fail their comparison.
                there => return Err(Unwritten::Refused(overtaken(there.as_deref()))),
            }
        }
        Err(Unwritten::Unknown(PinRefused::Unknown { reason: unanswered.to_string() }))
    }

    async fn erase(&self, there: &Secret) -> Result<(), PinRefused> {
        match self.secrets.remove(NAME, &there.metadata.resource_version).await {
            Ok(Answer::Done(_) | Answer::Absent) => {}
            Ok(Answer::Conflict) => return Err(overtaken(self.find().await?.as_deref())),
            Err(error) if error.is_refusal() => return Err(failed(error)),
            Err(error) => {
                let is_gone = matches!(self.secrets.find(NAME).await, Ok(None));
                if !is_gone {
                    return Err(PinRefused::Unknown { reason: error.to_string() });
                }
            }
        }
        let parts = manifest_in(there).map(|manifest| manifest.parts);
        self.remove_parts(parts.unwrap_or_default()).await;
        Ok(())
    }

    /// Whether a stored pin is damaged: it may be valid again by now, and a newer build's pin, or one that is being
    /// written, is not damaged.
    async fn is_damaged(&self, there: &Secret) -> Result<bool, PinRefused> {
        let manifest = match manifest_of(there) {
            Ok(manifest) => manifest,
            Err(why) => return Ok(why.may_be_mended()),
        };
        let mut parts = Vec::new();
        for name in &manifest.parts {
            parts.push((self.secrets.find(name).await.map_err(failed)?, name.clone()));
        }
        let pin = super::put_together(&manifest, &parts, &"".into());
        Ok(pin.is_err_and(|why| why.may_be_mended()))
    }

    /// Deletes unreferenced parts. Failures do no harm.
    async fn remove_parts(&self, names: Vec<String>) {
        if names.is_empty() {
            return;
        }
        if let Err(error) = self.try_remove_parts(&names).await {
            let namespace = &self.secrets.namespace;
            tracing::warn!("parts of an earlier pin are left behind in {namespace}: {error}");
        }
    }

    async fn try_remove_parts(&self, names: &[String]) -> Result<(), AskError> {
        let there = self.secrets.parts().await?;
        // After the parts, so that a manifest which names them by now is seen.
        let Some(named) = self.secrets.named().await? else {
            return Ok(());
        };
        let mut last = Ok(());
        for (name, version) in there {
            let is_meant = names.iter().any(|it| **it == *name);
            if is_meant
                && !named.contains(&*name)
                && let Err(error) = self.secrets.remove(&name, &version).await
            {
                last = Err(error);
            }
        }
        last
    }

    /// Deletes leftover parts.
    async fn sweep(&self, leftovers: &mut Leftovers) {
        let swept = async {
            let there = self.secrets.parts().await?;
            let Some(named) = self.secrets.named().await? else {
                return Ok(());
            };
            for (name, version) in leftovers.look(there, &named) {
                self.secrets.remove(&name, &version).await?;
                tracing::info!("Secret {}/{name} was a part of no pin: removed", self.secrets.namespace);
            }
            Ok::<_, AskError>(())
        };
        if let Err(error) = swept.await {
            tracing::warn!("parts that no pin names cannot be looked for: {error}");
        }
    }

    async fn find(&self) -> Result<Option<Arc<Secret>>, PinRefused> {
        self.secrets.find(NAME).await.map_err(failed)
    }

    async fn overtaken(&self) -> Unwritten {
        let there = self.find().await;
        Unwritten::Refused(there.map_or_else(|error| error, |there| overtaken(there.as_deref())))
    }

    fn no_namespace(&self) -> PinRefused {
        failed(format!("there is no namespace {}", self.secrets.namespace))
    }
}

/// Names of parts, derived from the manifest and from the version that it replaces: a retry reuses existing parts, and
/// parts of different pins never share a name.
fn names(manifest: &Manifest, parts: &[Vec<u8>], there: Option<&Secret>) -> Vec<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(there.map_or(&b""[..], |there| there.metadata.resource_version.as_bytes()));
    hasher.update(manifest.text().as_bytes());
    for part in parts {
        hasher.update(part);
    }
    let digest = hasher.finalize().to_hex();
    (0..parts.len()).map(|place| format!("{PREFIX}{}-{place}", &digest[..16])).collect()
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
