//! Sends what the object watches report to the index, and tracks when a kind is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shared::name::ObjectName;

use super::KubeError;
use super::follow::{Sink, Without};
use super::watch::{Change, Item};
use super::wire::Decoded;
use crate::event::{Event, Input, Inputs, Way};
use crate::freshness::Freshness;
use crate::objects::{ObjectKind, ObjectRef};

/// The channel to the index, shared by all tasks.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    inputs: Inputs,
    freshness: Freshness,
}

impl Sender {
    /// Sends to the channels of `inputs`.
    pub(super) fn new(inputs: Inputs, freshness: Freshness) -> Self {
        Self { inputs, freshness }
    }

    /// Sends events of one kind.
    pub(super) async fn events(&self, kind: ObjectKind, events: Vec<Event>) -> Result<(), KubeError> {
        if events.is_empty() {
            return Ok(());
        }
        for _ in events.iter().filter(|event| matches!(event, Event::Broken { .. })) {
            self.freshness.note_broken(kind);
        }
        self.channel(kind).send(Input::Events(events)).await.map_err(|_| KubeError::Closed)
    }

    /// The first list of a kind is complete.
    pub(super) async fn synced(&self, kind: ObjectKind) -> Result<(), KubeError> {
        self.channel(kind).send(Input::Synced(kind)).await.map_err(|_| KubeError::Closed)?;
        self.freshness.note_synced(kind);
        Ok(())
    }

    /// Listing a kind is forbidden.
    async fn forbidden(&self, kind: ObjectKind) -> Result<(), KubeError> {
        self.channel(kind).send(Input::Forbidden(kind)).await.map_err(|_| KubeError::Closed)
    }

    fn channel(&self, kind: ObjectKind) -> &Way {
        match kind {
            ObjectKind::EndpointSlice => &self.inputs.endpoints,
            _ => &self.inputs.objects,
        }
    }
}

/// The event for a change of an object that is read completely.
pub(super) fn event(kind: ObjectKind, change: Change<Decoded>) -> Event {
    match change {
        Change::Put(Item { value: Decoded::Good(object), .. }) => {
            Event::Applied { object, location: "".into() }
        }
        Change::Put(Item { name, uid, value: Decoded::Bad(problem), .. }) => {
            Event::Broken { object: ObjectRef { kind, name }, uid, problem }
        }
        Change::Gone(name) => deleted(kind, name),
    }
}

/// The event for a deleted object.
pub(super) fn deleted(kind: ObjectKind, name: ObjectName) -> Event {
    Event::Deleted(ObjectRef { kind, name })
}

/// Sends everything of one kind. A kind in several parts (ConfigMaps: each by its name, and decisions) is complete with
/// the last of them.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    sender: Sender,
    kind: ObjectKind,
    parts: Arc<AtomicUsize>,
    complete: bool,
    /// It was reported that listing is forbidden.
    told_forbidden: bool,
}

impl Objects {
    /// A kind in one part.
    pub(super) fn new(sender: Sender, kind: ObjectKind) -> Self {
        Self { sender, kind, parts: Arc::new(AtomicUsize::new(1)), complete: false, told_forbidden: false }
    }

    /// One more part of the kind.
    pub(super) fn part(&self) -> Self {
        self.parts.fetch_add(1, Ordering::AcqRel);
        self.clone()
    }

    /// Sends events of this part.
    pub(super) async fn events(&self, events: Vec<Event>) -> Result<(), KubeError> {
        self.sender.events(self.kind, events).await
    }

    /// How a part with decisions is handled that may not be read.
    pub(super) fn without_decisions(&self) -> Without {
        if self.complete { Without::DecisionsStay } else { Without::Waits }
    }

    /// This part is complete. Takes effect once, however often it is called.
    pub(super) async fn part_complete(&mut self) -> Result<(), KubeError> {
        if !std::mem::replace(&mut self.complete, true) && self.parts.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.sender.synced(self.kind).await?;
        }
        Ok(())
    }
}

impl Sink<Decoded> for Objects {
    async fn changes(&mut self, changes: Vec<Change<Decoded>>, _afresh: bool) -> Result<(), KubeError> {
        self.events(changes.into_iter().map(|change| event(self.kind, change)).collect()).await
    }

    async fn synced(&mut self) -> Result<(), KubeError> {
        self.part_complete().await
    }

    /// Without IngressClasses, Ingresses are selected by annotation alone, as in ingress-nginx, and if one depends on a
    /// class nothing is served (`docs/adr/038-classes-that-may-not-be-read.md`). Any other missing kind would change
    /// what is served.
    async fn forbidden(&mut self) -> Result<Without, KubeError> {
        if self.complete {
            return Ok(Without::Stays);
        }
        if self.kind != ObjectKind::IngressClass {
            return Ok(Without::Waits);
        }
        if !std::mem::replace(&mut self.told_forbidden, true) {
            self.sender.forbidden(self.kind).await?;
        }
        Ok(Without::ByAnnotation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Receivers;

    #[tokio::test]
    async fn a_kind_is_listed_once_all_of_its_parts_are() {
        let (inputs, Receivers { objects: mut told, .. }) = Inputs::channel(8);
        let one = Objects::new(Sender::new(inputs, Freshness::default()), ObjectKind::ConfigMap);
        let mut parts = [one.part(), one.part(), one];
        for place in [0, 0, 1, 1, 2] {
            assert!(told.try_recv().is_err());
            parts[place].part_complete().await.unwrap();
        }
        assert_eq!(told.try_recv().ok(), Some(Input::Synced(ObjectKind::ConfigMap)));
        parts[0].part_complete().await.unwrap();
        assert!(told.try_recv().is_err(), "once");
    }
}
