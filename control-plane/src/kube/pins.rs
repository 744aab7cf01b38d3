//! The pin stored in the cluster: a Secret with the manifest, and one for each part of the resources' bytes.
//!
//! Secrets rather than ConfigMaps: a configuration contains data of all tenants, including header values, and fewer
//! people may read Secrets. Parts are written first and never changed; the manifest names them, and is written by
//! compare-and-swap. It also names its own uid, which a copy in another cluster does not have.
//!
//! **Invariant:** a pin is in force only as it is read back; the manifest alone decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::KubeError;
use super::follow::{Sink, Without};
use super::sink::Objects;
use super::watch::{Change, Item, Revision};
use super::wire::Decoded;
use crate::event::Event;
use crate::objects::{Object, Secret};
use crate::pin::{self, Manifest, Pin, Unreadable};

mod secrets;
#[cfg(feature = "sim")]
pub(super) mod sim;
mod sweep;
mod times;
mod write;

use secrets::PREFIX;
pub(super) use write::write;

/// The label of the manifest and of the parts.
pub(super) const LABEL: (&str, &str) = ("firth.dev/decision", "pin");
/// Name of the Secret with the manifest.
const NAME: &str = "firth-pin";
/// Its key, and that of a part.
const MANIFEST: &str = "manifest";
const PART: &str = "part";

/// Unreferenced parts that are kept: there may be two concurrent writers.
const SPARE: usize = 2 * pin::PARTS;

/// Reads the stored pin.
#[derive(Debug)]
pub(super) struct Pins {
    objects: Objects,
    /// The manifest, the parts that it names, and those of writes under way.
    there: BTreeMap<Arc<str>, Seen>,
    /// The names and versions of the Secrets that were last reported.
    told: Option<Vec<(Arc<str>, Arc<str>)>>,
}

/// A Secret of the stored pin.
#[derive(Debug)]
struct Seen {
    revision: Revision,
    /// `None`: it cannot be decoded.
    secret: Option<Arc<Secret>>,
}

impl Pins {
    /// Sends its events as a part of `objects`.
    pub(super) fn new(objects: Objects) -> Self {
        Self { objects, there: BTreeMap::new(), told: None }
    }

    fn take(&mut self, change: Change<Decoded>) {
        match change {
            Change::Put(Item { name, revision, value, .. }) => {
                let secret = match value {
                    Decoded::Good(Object::Secret(secret)) => Some(secret),
                    _ => None,
                };
                // Anyone who may write Secrets may set the label on others.
                if *name.name == *NAME || name.name.starts_with(PREFIX) {
                    self.there.insert(name.name, Seen { revision, secret });
                }
            }
            Change::Gone(name) => {
                self.there.remove(&name.name);
            }
        }
    }

    /// Drops unreferenced parts, except for the newest: their manifest may not have arrived yet.
    fn forget(&mut self) {
        let is_told = |name: &Arc<str>| self.told.iter().flatten().any(|(told, _)| told == name);
        let spare = self.there.iter().filter(|(name, _)| ***name != *NAME && !is_told(name));
        let mut spare: Vec<_> =
            spare.map(|(name, seen)| (seen.revision.number(), Arc::clone(name))).collect();
        spare.sort_unstable();
        for (_, name) in spare.iter().rev().skip(SPARE) {
            self.there.remove(name);
        }
    }

    /// What to report; `None`: nothing new.
    fn news(&mut self) -> Option<Read> {
        let Some(manifest) = self.there.get(NAME) else {
            return self.told.take().map(|_| Read::Nothing);
        };
        let read = match &manifest.secret {
            Some(secret) => manifest_of(secret),
            None => Err(Unreadable::Damaged { expected: "a Secret with a manifest" }),
        };
        let parts = read.as_ref().map(|manifest| manifest.parts.clone()).unwrap_or_default();
        let parts = parts.into_iter().map(|name| (self.there.get(name.as_str()), name));
        let version =
            |seen: Option<&Seen>| seen.map_or_else(|| "".into(), |seen| Arc::clone(&seen.revision.0));
        let mut told = vec![(NAME.into(), version(Some(manifest)))];
        let mut found = Vec::new();
        for (part, name) in parts {
            told.push((name.as_str().into(), version(part)));
            found.push((part.and_then(|part| part.secret.clone()), name));
        }
        let parts = found;
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

/// What of the stored pin is to be parsed.
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

/// The manifest in a Secret, if it is valid in this cluster.
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
        // Applied together: a list has parts and manifest in any order.
        changes.into_iter().for_each(|change| self.take(change));
        let news = self.news();
        self.forget();
        let Some(news) = news else {
            return Ok(());
        };
        // A large pin takes time.
        let event = tokio::task::spawn_blocking(move || news.event())
            .await
            .map_err(|error| KubeError::Task(error.to_string()))?;
        self.objects.events(vec![event]).await
    }

    async fn synced(&mut self) -> Result<(), KubeError> {
        self.objects.part_complete().await
    }

    async fn forbidden(&mut self) -> Result<Without, KubeError> {
        Ok(self.objects.without_decisions())
    }
}

#[cfg(test)]
mod tests;
