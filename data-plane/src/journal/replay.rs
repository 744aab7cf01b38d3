//! Recovers the newest state from the bytes of a journal.
//!
//! **Invariant:** the result is a complete state that was stored, whatever happened to the bytes since: each frame is
//! compared with its digest, each body with its version, each lane with its root.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config;
use shared::version::Version;
use thiserror::Error;

use super::frame::{self, Chain, FORMAT, Magic, PREAMBLE};
use super::record::{Change, Header};
use super::state::StoredState;

/// The magic number of a journal.
pub(super) const MAGIC: Magic = *b"firth-js";

/// Why a file has no state.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(super) enum NoState {
    #[error("it is not a journal of this program")]
    Foreign,
    #[error("it has format {0}, and this program reads format {FORMAT}")]
    Format(u32),
    #[error("it is damaged from its beginning on")]
    Damaged,
}

/// The newest state of a file, and its end position.
#[derive(Clone, Debug)]
pub(super) struct Replayed {
    /// The resources. Those with secrets lack the body.
    pub(super) state: StoredState,
    pub(super) written: SystemTime,
    /// Digest up to the end of this state.
    pub(super) chain: Chain,
    /// Bytes up to the end of this state.
    pub(super) good: u64,
    /// Bytes up to the end of the first state.
    pub(super) base: u64,
    /// Number of steps.
    pub(super) records: u64,
}

/// Reads as far as possible.
pub(super) fn replay(bytes: &[u8]) -> Result<Replayed, NoState> {
    match frame::format(MAGIC, bytes) {
        Some(FORMAT) => {}
        Some(other) => return Err(NoState::Format(other)),
        None => return Err(NoState::Foreign),
    }
    let mut chain = Chain::new(MAGIC);
    let (header, mut rest) = chain.open(&bytes[PREAMBLE..]).ok_or(NoState::Damaged)?;
    let binding = Header::read(header).ok_or(NoState::Damaged)?;
    let mut state = StoredState { binding: Arc::new(binding), ..StoredState::default() };
    let mut last: Option<Replayed> = None;
    let mut open = Vec::new();
    while let Some((payload, behind)) = chain.open(rest) {
        rest = behind;
        let Some(change) = Change::read(payload) else { break };
        let is_last = !change.more;
        open.push(change);
        if !is_last {
            continue;
        }
        let Some((next, written)) = follow(&state, &open) else { break };
        open.clear();
        state = next;
        let good = (bytes.len() - rest.len()) as u64;
        last = Some(Replayed {
            state: state.clone(),
            written,
            chain: chain.clone(),
            good,
            base: last.as_ref().map_or(good, |last| last.base),
            records: last.as_ref().map_or(1, |last| last.records + 1),
        });
    }
    last.ok_or(NoState::Damaged)
}

/// The state after a step; `None` if the result does not match.
fn follow(before: &StoredState, step: &[Change]) -> Option<(StoredState, SystemTime)> {
    let mut state = before.clone();
    let last = step.last()?;
    for lane in Lane::ALL {
        let mut removed = Vec::new();
        let mut up = Vec::new();
        for change in step {
            let on_lane = |key: &ResourceKey| key.kind.lane() == lane;
            let keys = change.removed().collect::<Option<Vec<_>>>()?;
            removed.extend(keys.into_iter().filter(on_lane));
            for resource in &change.up {
                let kind = Kind::any_from_wire(resource.kind)?;
                if kind.lane() == lane {
                    up.push(entry(kind, resource)?);
                }
            }
        }
        let kept = state.lane_mut(lane);
        kept.has.change(up, removed);
        let (root, position) = last.place(lane)?;
        if kept.has.root() != root {
            return None;
        }
        kept.position = position;
    }
    Some((state, last.written()))
}

/// A resource whose bytes match its version, or one with a secret that is stored elsewhere.
fn entry(kind: Kind, resource: &config::Resource) -> Option<Arc<Entry>> {
    let version = Version::from_slice(&resource.version)?;
    let key = ResourceKey::new(kind, resource.key.as_str());
    // Copied, so that it does not keep the input alive.
    let entry = Entry::from_body(key, resource.min_schema, Bytes::copy_from_slice(&resource.body));
    if entry.version == version {
        return Some(Arc::new(entry));
    }
    let is_elsewhere = kind.is_secret() && resource.body.is_empty();
    is_elsewhere.then(|| Arc::new(Entry { version, ..entry }))
}

/// Whether a resource of a replayed state lacks its body.
pub(super) fn is_elsewhere(entry: &Entry) -> bool {
    // One that is complete but empty is later restored from nothing.
    entry.kind().is_secret() && entry.body.is_empty()
}

/// Adds the missing bodies to the resources of a lane, and returns those that are unavailable.
pub(super) fn complete(
    state: &mut StoredState,
    lane: Lane,
    bodies: &HashMap<Version, Arc<Entry>>,
) -> Vec<ResourceKey> {
    let kept = state.lane_mut(lane);
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for entry in kept.has.iter().filter(|entry| is_elsewhere(entry)) {
        match bodies.get(&entry.version) {
            // `min_schema` is not part of the version: the value in the journal is used.
            Some(whole) => found.push(Arc::new(Entry { min_schema: entry.min_schema, ..(**whole).clone() })),
            None if Version::of(entry.kind(), &entry.key.key, &[]) == entry.version => {}
            None => missing.push(entry.key.clone()),
        }
    }
    kept.has.change(found, missing.iter().cloned());
    if !missing.is_empty() {
        // Cannot be resumed: these resources are not a state of any log.
        kept.position = None;
    }
    missing
}

#[cfg(test)]
mod tests;
