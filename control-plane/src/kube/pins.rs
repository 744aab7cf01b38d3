//! The pin on record in the cluster: a Secret with the manifest, and one for each part of the resources' bytes.
//!
//! Secrets and not ConfigMaps: a configuration has what all tenants say, header values included, and fewer people may
//! read Secrets. Parts are written first and never changed; the manifest names them, and is written by compare-and-swap.
//! It names its own uid, too, which a copy in another cluster does not have.
//!
//! **Invariant:** a pin is in force only as it is read back; the manifest alone decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::KubeError;
use super::follow::Sink;
use super::sink::Objects;
use super::watch::Change;
use super::wire::Decoded;
use crate::event::Event;
use crate::objects::{Object, Secret};
use crate::pin::{self, Manifest, Pin, Unreadable};

mod secrets;
mod sweep;
mod write;

pub(super) use write::write;

/// The label of the manifest and of the parts.
pub(super) const LABEL: (&str, &str) = ("firth.dev/decision", "pin");
/// Name of the Secret with the manifest.
const NAME: &str = "firth-pin";
/// Its key, and that of a part.
const MANIFEST: &str = "manifest";
const PART: &str = "part";

/// Reads the record back.
#[derive(Debug)]
pub(super) struct Pins {
    objects: Objects,
    /// All Secrets with the label; `None` for one that cannot be read.
    there: BTreeMap<Arc<str>, Option<Arc<Secret>>>,
    /// What was told last, and of which versions of which Secrets.
    told: Option<Vec<(Arc<str>, Arc<str>)>>,
}

impl Pins {
    /// Tells of it as a part of what `objects` tells.
    pub(super) fn new(objects: Objects) -> Self {
        Self { objects, there: BTreeMap::new(), told: None }
    }

    fn take(&mut self, change: Change<Decoded>) {
        let (name, secret) = match change {
            Change::Put(item) => match item.value {
                Decoded::Good(Object::Secret(secret)) => (item.name.name, Some(Some(secret))),
                _ => (item.name.name, Some(None)),
            },
            Change::Gone(name) => (name.name, None),
        };
        match secret {
            Some(secret) => self.there.insert(name, secret),
            None => self.there.remove(&name),
        };
    }

    /// What there is to tell; `None`: nothing new.
    fn news(&mut self) -> Option<Read> {
        let manifest = self.there.get(NAME).cloned();
        let read = match &manifest {
            Some(Some(secret)) => manifest_of(secret),
            Some(None) => Err(Unreadable::Damaged { expected: "a Secret with a manifest" }),
            None => {
                return self.told.take().map(|_| Read::Nothing);
            }
        };
        let parts = read.as_ref().map(|manifest| manifest.parts.clone()).unwrap_or_default();
        let parts: Vec<_> =
            parts.into_iter().map(|name| (self.there.get(name.as_str()).cloned().flatten(), name)).collect();
        let version = |secret: &Option<Arc<Secret>>| match secret {
            Some(secret) => Arc::clone(&secret.metadata.resource_version),
            None => "".into(),
        };
        let told = parts.iter().map(|(part, name)| (name.as_str().into(), version(part)));
        let told: Vec<_> = std::iter::once((NAME.into(), version(&manifest.flatten()))).chain(told).collect();
        if self.told.as_ref() == Some(&told) {
            return None;
        }
        let revision = Arc::clone(&told[0].1);
        self.told = Some(told);
        Some(match read {
            Ok(manifest) => Read::Record { manifest: Box::new(manifest), parts, revision },
            Err(why) => Read::Unreadable(why, revision),
        })
    }
}

/// What of the record there is to be read.
enum Read {
    Nothing,
    Unreadable(Unreadable, Arc<str>),
    Record { manifest: Box<Manifest>, parts: Vec<(Option<Arc<Secret>>, String)>, revision: Arc<str> },
}

impl Read {
    fn event(self) -> Event {
        match self {
            Self::Nothing => Event::Unpinned,
            Self::Unreadable(why, revision) => Event::PinUnreadable { why, revision },
            Self::Record { manifest, parts, revision } => match put_together(&manifest, &parts, &revision) {
                Ok(pin) => Event::Pinned(Arc::new(pin)),
                Err(why) => Event::PinUnreadable { why, revision },
            },
        }
    }
}

/// The manifest of a Secret, if it decides anything here.
fn manifest_of(secret: &Secret) -> Result<Manifest, Unreadable> {
    let manifest = Manifest::read(&text_of(secret)?)?;
    manifest.check_source(&secret.metadata.uid)?;
    Ok(manifest)
}

fn text_of(secret: &Secret) -> Result<String, Unreadable> {
    let text = bytes(secret, MANIFEST).and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or(Unreadable::Damaged { expected: "a key manifest" })
}

fn put_together(
    manifest: &Manifest,
    parts: &[(Option<Arc<Secret>>, String)],
    revision: &Arc<str>,
) -> Result<Pin, Unreadable> {
    let mut packed = Vec::new();
    for (part, name) in parts {
        let part = part.as_ref().ok_or_else(|| Unreadable::Missing { name: name.clone() })?;
        packed.extend(bytes(part, PART).ok_or(Unreadable::Damaged { expected: "a key part" })?);
    }
    pin::unpack(manifest, &packed, revision)
}

fn bytes(secret: &Secret, key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(secret.data.get(key)?).ok()
}

impl Sink<Decoded> for Pins {
    async fn changes(&mut self, changes: Vec<Change<Decoded>>, _afresh: bool) -> Result<(), KubeError> {
        // Together: a list has parts and manifest in any order.
        changes.into_iter().for_each(|change| self.take(change));
        let Some(news) = self.news() else {
            return Ok(());
        };
        // Of a large one that takes its time.
        let event = tokio::task::spawn_blocking(move || news.event())
            .await
            .map_err(|error| KubeError::Task(error.to_string()))?;
        self.objects.events(vec![event]).await
    }

    async fn synced(&mut self) -> Result<(), KubeError> {
        self.objects.part_complete().await
    }
}

#[cfg(test)]
mod tests;
