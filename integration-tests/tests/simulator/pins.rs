//! An operator, who pins versions and ends pins at any replica; each replica stores what it was told step by step, as
//! its writer does.

use std::collections::VecDeque;
use std::sync::Arc;

use control_plane::objects::ObjectKind;
use control_plane::sim::PinRecord;

use super::cluster::Cluster;

/// What a replica was told.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// Store this pin.
    Pin(Box<PinRecord>),
    /// End the pin at this revision.
    Unpin(Arc<str>),
}

/// The decisions that a replica is to store, and how far it is with the first.
#[derive(Default)]
pub(super) struct Writer {
    told: VecDeque<Told>,
    parts: usize,
    /// The Secret of the manifest in the version that is replaced next.
    begun: Option<String>,
    /// Parts that nothing names any more.
    left: Vec<String>,
}

impl Writer {
    pub(super) fn tell(&mut self, told: Told) {
        self.told.push_back(told);
    }

    /// The next request to the API server. False if there is nothing to do.
    pub(super) fn step(&mut self, cluster: &mut Cluster) -> bool {
        if let Some(part) = self.left.pop() {
            // A backup may have brought back the pin that it is of.
            if !cluster.pin_names(&part) {
                cluster.delete(ObjectKind::Secret, &part);
            }
            return true;
        }
        match self.told.front().cloned() {
            None => return false,
            Some(Told::Unpin(revision)) => {
                if cluster.pin_revision().as_deref() == Some(&*revision) {
                    self.left = cluster.unpin();
                }
            }
            Some(Told::Pin(record)) => {
                if let Some((name, part)) = record.parts.get(self.parts) {
                    self.parts += 1;
                    cluster.put(ObjectKind::Secret, name, part.clone());
                    return true;
                }
                if record.parts.iter().any(|(name, _)| cluster.get(ObjectKind::Secret, name).is_none()) {
                    // A backup was restored meanwhile.
                    self.parts = 0;
                    return true;
                }
                let there = cluster.revision_of(ObjectKind::Secret, PinRecord::NAME);
                let is_next = match &self.begun {
                    None => cluster.pin_revision().as_deref() == record.replaces.as_deref(),
                    begun => there == *begun,
                };
                if is_next && there.is_none() {
                    // Its uid is known once it exists.
                    cluster.put(ObjectKind::Secret, PinRecord::NAME, record.manifest(""));
                    self.begun = cluster.revision_of(ObjectKind::Secret, PinRecord::NAME);
                    return true;
                }
                let parts = record.parts.iter().map(|(name, _)| name.clone()).collect();
                self.left = match is_next {
                    true => cluster.pin(|uid| record.manifest(uid), parts),
                    // Another decision was faster.
                    false => parts,
                };
            }
        }
        (self.parts, self.begun) = (0, None);
        self.told.pop_front();
        true
    }
}
