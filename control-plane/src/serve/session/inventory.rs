//! Finds out what a proxy has: it compares digests of all buckets, then the contents of those that differ.
//!
//! A full sync that was interrupted resumes in the same way, since the proxy already has most of the resources.
//!
//! **Invariant:** the resulting batch leads from what the proxy reported to one state of the lane, and nothing is sent in between. Its memory
//! is bounded.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::delta::{Delta, Removal};
use shared::kind::ResourceKey;
use shared::snapshot::{BUCKETS, Digest, bucket_of, root_of};
use shared::version::{Root, Version};

use crate::serve::message::{End, Inventory};
use crate::store::LaneState;

/// Limit of the buckets that are requested at a time.
const LOT: usize = 64;
/// Limit of the resources in them by our own count, so that the answer fits into one message.
const LOT_RESOURCES: usize = 2_048;
/// Limit of the keys to be removed, in bytes: with more, everything is sent.
const REMOVED: usize = 1024 * 1024;

/// The state of the exchange.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// A request is under way: these buckets, if empty the digests of all.
    asked: Option<Vec<u16>>,
    found: Option<Found>,
}

/// What is known once there are digests.
#[derive(Debug)]
struct Found {
    /// Root of what the proxy has.
    base: Root,
    /// The state that it is compared with.
    state: LaneState,
    /// Buckets that differ and have not been requested, the next one last.
    left: Vec<u16>,
    /// Limit of the buckets in a request: reduced after an answer that did not fit.
    lot: usize,
    /// The differences found so far.
    delta: Delta,
    /// Bytes of the keys to be removed.
    removed: usize,
}

/// What follows from an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The exchange continues.
    On,
    /// Everything is sent.
    Full,
}

impl Exchange {
    /// The next request, if none is under way and one is needed.
    pub(super) fn ask(&mut self) -> Option<Vec<u16>> {
        if self.asked.is_some() {
            return None;
        }
        let buckets = match &mut self.found {
            None => Vec::new(),
            Some(found) if found.left.is_empty() => return None,
            Some(found) => found.next_lot(),
        };
        self.asked = Some(buckets.clone());
        Some(buckets)
    }

    /// Whether an answer is due.
    pub(super) fn waits(&self) -> bool {
        self.asked.is_some()
    }

    /// Handles an answer. The first one is compared with `state`.
    pub(super) fn answer(&mut self, inventory: Inventory, state: &LaneState) -> Result<Step, End> {
        let Some(asked) = self.asked.take() else {
            return Err(End::Protocol("got an inventory that was not asked for".into()));
        };
        match &mut self.found {
            None => self.digests(&inventory.digests, state),
            Some(found) if inventory.cut => Ok(found.ask_for_less(asked)),
            Some(found) => found.compare(&asked, inventory),
        }
    }

    fn digests(&mut self, digests: &[Digest], state: &LaneState) -> Result<Step, End> {
        let base = root_of(digests).ok_or_else(|| {
            End::Protocol(format!("expected an inventory of {BUCKETS} digests, got {}", digests.len()))
        })?;
        if digests.iter().all(|digest| *digest == Digest::default()) {
            // Its first chunks are already encoded for all proxies that have nothing.
            return Ok(Step::Full);
        }
        let ours = |bucket: u16| state.snapshot.bucket_digest(bucket);
        let theirs = |bucket: u16| digests[usize::from(bucket)];
        let differing = (0..BUCKETS as u16).rev().filter(|bucket| ours(*bucket) != theirs(*bucket));
        let is_known = |bucket: &u16| theirs(*bucket) == Digest::default();
        let (lacking, left): (Vec<_>, Vec<_>) = differing.partition(is_known);
        // Buckets that are empty at the proxy need not be requested.
        let up = lacking.into_iter().rev().flat_map(|bucket| state.snapshot.bucket(bucket)).cloned();
        let delta = Delta { up: up.collect(), removed: Vec::new() };
        let state = state.clone();
        self.found = Some(Found { base, state, left, lot: LOT, delta, removed: 0 });
        Ok(Step::On)
    }

    /// Whether all differences are known.
    pub(super) fn is_over(&self) -> bool {
        self.asked.is_none() && self.found.as_ref().is_some_and(|found| found.left.is_empty())
    }

    /// The target state, the proxy's root, and the differences, once all are known.
    pub(super) fn finish(self) -> Option<(LaneState, Root, Delta)> {
        let found = self.found.filter(|found| self.asked.is_none() && found.left.is_empty())?;
        Some((found.state, found.base, found.delta))
    }
}

impl Found {
    fn next_lot(&mut self) -> Vec<u16> {
        let (mut lot, mut resources) = (Vec::new(), 0);
        while let Some(bucket) = self.left.last() {
            resources += self.state.snapshot.bucket(*bucket).count();
            if lot.len() == self.lot || (!lot.is_empty() && resources > LOT_RESOURCES) {
                break;
            }
            lot.extend(self.left.pop());
        }
        lot
    }

    /// The contents of these buckets do not fit into an answer.
    fn ask_for_less(&mut self, asked: Vec<u16>) -> Step {
        if asked.len() == 1 {
            return Step::Full;
        }
        self.lot = asked.len() / 2;
        self.left.extend(asked.into_iter().rev());
        Step::On
    }

    /// Compares the contents of the requested buckets with what they should be.
    fn compare(&mut self, asked: &[u16], inventory: Inventory) -> Result<Step, End> {
        let mut there: BTreeMap<ResourceKey, Version> = BTreeMap::new();
        for (key, version) in inventory.entries {
            if key.kind.lane() != inventory.lane || !asked.contains(&bucket_of(&key)) {
                return Err(End::Protocol(format!("got an inventory with {key}, which was not asked for")));
            }
            there.insert(key, version);
        }
        for entry in asked.iter().flat_map(|bucket| self.state.snapshot.bucket(*bucket)) {
            if there.remove(&entry.key) != Some(entry.version) {
                self.delta.up.push(Arc::clone(entry));
            }
        }
        self.removed += there.keys().map(|key| size_of::<Removal>() + key.key.len()).sum::<usize>();
        // Whether their objects still exist is unknown.
        self.delta.removed.extend(there.into_keys().map(|key| Removal { key, gone: false }));
        Ok(if self.removed > REMOVED { Step::Full } else { Step::On })
    }
}
