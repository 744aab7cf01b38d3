//! Finding out what a proxy has: digests of all its buckets, then what is in those that differ.
//!
//! **Invariant:** what comes of it leads from what the proxy said it has to one state of the lane, and nothing was sent in
//! between. What is kept of it is bounded.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::delta::{Delta, Removal};
use shared::kind::ResourceKey;
use shared::snapshot::{BUCKETS, bucket_of, root_of};
use shared::version::{Root, Version};

use crate::serve::message::{End, Inventory};
use crate::store::LaneState;

/// Buckets that may differ: with more, everything is sent.
const DIFFERING: usize = 256;
/// Buckets that are asked for at a time.
const LOT: usize = 64;
/// Entries that are kept.
const ENTRIES: usize = 4_096;

/// How far it is.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// A question is under way: these buckets, none for the digests of all.
    asked: Option<Vec<u16>>,
    found: Option<Found>,
}

/// What is known once there are digests.
#[derive(Debug)]
struct Found {
    /// Of all that the proxy has.
    base: Root,
    /// With what it is compared, from here on.
    state: LaneState,
    /// Buckets that differ, and those of them that are still to be asked for.
    differing: Vec<u16>,
    left: Vec<u16>,
    entries: BTreeMap<ResourceKey, Version>,
}

/// What an answer means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// It goes on.
    On,
    /// So much differs that everything is sent.
    Full,
}

impl Exchange {
    /// The next question, where none is under way and one is left.
    pub(super) fn ask(&mut self) -> Option<Vec<u16>> {
        if self.asked.is_some() {
            return None;
        }
        let buckets = match &mut self.found {
            None => Vec::new(),
            Some(found) if found.left.is_empty() => return None,
            Some(found) => found.left.split_off(found.left.len().saturating_sub(LOT)),
        };
        self.asked = Some(buckets.clone());
        Some(buckets)
    }

    /// Whether an answer is due.
    pub(super) fn waits(&self) -> bool {
        self.asked.is_some()
    }

    /// Takes in an answer. The first one is compared with `state`.
    pub(super) fn answer(&mut self, inventory: Inventory, state: &LaneState) -> Result<Step, End> {
        let Some(asked) = self.asked.take() else {
            return Err(End::Protocol("got an inventory that was not asked for".into()));
        };
        let Some(found) = &mut self.found else {
            return self.digests(&inventory, state);
        };
        if inventory.cut || found.entries.len() + inventory.entries.len() > ENTRIES {
            return Ok(Step::Full);
        }
        for (key, version) in inventory.entries {
            if key.kind.lane() != inventory.lane || !asked.contains(&bucket_of(&key)) {
                return Err(End::Protocol(format!("got an inventory with {key}, which was not asked for")));
            }
            found.entries.insert(key, version);
        }
        Ok(Step::On)
    }

    fn digests(&mut self, inventory: &Inventory, state: &LaneState) -> Result<Step, End> {
        let digests = &inventory.digests;
        let base = root_of(digests).ok_or_else(|| {
            End::Protocol(format!("expected an inventory of {BUCKETS} digests, got {}", digests.len()))
        })?;
        let buckets = 0..BUCKETS as u16;
        let differing: Vec<_> = buckets
            .filter(|bucket| state.snapshot.bucket_digest(*bucket) != digests[usize::from(*bucket)])
            .collect();
        if differing.len() > DIFFERING {
            return Ok(Step::Full);
        }
        let (left, state) = (differing.clone(), state.clone());
        self.found = Some(Found { base, state, differing, left, entries: BTreeMap::new() });
        Ok(Step::On)
    }

    /// Where it leads, and the way there, once all is known.
    pub(super) fn finish(&self) -> Option<(&LaneState, Root, Delta)> {
        let found = self.found.as_ref().filter(|found| self.asked.is_none() && found.left.is_empty())?;
        let mut delta = Delta::default();
        let mut there = found.entries.clone();
        for entry in found.differing.iter().flat_map(|bucket| found.state.snapshot.bucket(*bucket)) {
            if there.remove(&entry.key) != Some(entry.version) {
                delta.up.push(Arc::clone(entry));
            }
        }
        // Of the objects behind them nothing is known.
        delta.removed = there.into_keys().map(|key| Removal { key, gone: false }).collect();
        Some((&found.state, found.base, delta))
    }
}
