//! The stored pin as the simulator drives it: the real reader, and a record as the Secrets that its store takes.
//!
//! **Invariant:** no record is made here that the writer would not write.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use shared::snapshot::Snapshot;

use super::super::sink::{Objects, Sender};
use super::super::watch::Change;
use super::super::wire::Decoded;
use super::secrets::PREFIX;
use super::{LABEL, MANIFEST, NAME, PART, Pins};
use crate::event::{Event, Inputs};
use crate::freshness::Freshness;
use crate::objects::ObjectKind;
use crate::pin::{self, Packed, Pin};

impl Pins {
    /// One whose events are returned, not sent.
    pub(in crate::kube) fn detached() -> Self {
        let (inputs, _) = Inputs::channel(1);
        Self::new(Objects::new(Sender::new(inputs, Freshness::default()), ObjectKind::Secret))
    }

    /// What changes of Secrets say about the pin.
    pub(in crate::kube) fn event(&mut self, changes: Vec<Change<Decoded>>) -> Option<Event> {
        changes.into_iter().for_each(|change| self.take(change));
        let news = self.news();
        self.forget();
        news.map(super::Read::event)
    }
}

/// A pin that is to be stored.
#[derive(Clone, Debug)]
pub struct PinRecord {
    /// The revision of the record that it replaces; `None`: there is none.
    pub replaces: Option<Arc<str>>,
    /// Names and Secrets of its parts.
    pub parts: Vec<(String, Value)>,
    /// The resources of the pinned version.
    pub config: Snapshot,
    packed: Packed,
}

impl PinRecord {
    /// The name of the Secret with the manifest.
    pub const NAME: &str = NAME;

    /// A record of a pin. `number` distinguishes the names of its parts from those of others.
    pub(crate) fn of(pin: &Pin, replaces: Option<Arc<str>>, number: u64) -> Result<Self, String> {
        let mut packed = pin::pack(pin)?;
        let parts = packed.parts.iter().enumerate();
        let parts: Vec<_> =
            parts.map(|(place, part)| (format!("{PREFIX}{number}-{place}"), secret(PART, part))).collect();
        packed.manifest.parts = parts.iter().map(|(name, _)| name.clone()).collect();
        Ok(Self { replaces, parts, config: pin.config.clone(), packed })
    }

    /// The Secret with the manifest; `uid`: its own, empty as long as it is not known. Until then the pin is not in
    /// force.
    pub fn manifest(&self, uid: &str) -> Value {
        let mut manifest = self.packed.manifest.clone();
        manifest.source = uid.to_owned();
        secret(MANIFEST, manifest.text().as_bytes())
    }
}

fn secret(key: &str, value: &[u8]) -> Value {
    json!({"metadata": {"labels": {LABEL.0: LABEL.1}}, "data": {key: STANDARD.encode(value)}})
}
