//! Applies batches: chunks are checked, CONFIG is staged until its last chunk, and additions to LIVE are applied as
//! they arrive.
//!
//! **Invariant:** only verified data changes what is served: each chunk is checked against its own digest, each
//! resource against its version, and the state after the last chunk against the root that was announced. Removals, and
//! the last chunk, wait for that.
//!
//! A batch without a start position in the log may be a whole lane, and the stream may break in the middle,
//! repeatedly. What arrived of LIVE is applied; what arrived of CONFIG is set aside, and is reported as present when
//! an inventory asks what is left to be sent. So each stream makes progress, however short it is.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shared::delta::Removal;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config;
use shared::snapshot::Snapshot;
use shared::version::{Root, Seq, Version};
use tracing::error;

use super::wire;
use super::{Actions, Close, Holdings, Session, protocol};
use crate::table::apply::Code;

/// Maximum number of corrupt resources of a batch that are reported.
const CORRUPT: usize = 256;

/// A batch in progress.
#[derive(Debug)]
pub(super) struct Staged {
    from: Seq,
    to: Seq,
    root_after: Root,
    /// The root that it applies to, if that is not a position in the log.
    base: Option<Root>,
    chunks: u32,
    /// It applies to a state that this proxy does not have: nothing of it is used.
    stray: bool,
    /// What had left LIVE when it began.
    mark: u64,
    /// CONFIG: everything until the last chunk; LIVE: the last chunk, because earlier ones were applied.
    up: Vec<Arc<Entry>>,
    /// Removals wait until the final root was verified.
    removed: Vec<Removal>,
    /// Only for LIVE, if it replaces everything: the keys that it contained.
    brought: HashSet<ResourceKey>,
}

impl Staged {
    /// Whether it replaces everything that the proxy has.
    pub(super) fn replaces(&self) -> bool {
        self.is_anew() && self.base.is_none()
    }

    /// Whether it has no start position in the log: if it is interrupted, the proxy has no position either.
    pub(super) fn is_anew(&self) -> bool {
        self.from == Seq::default()
    }
}

/// The contents of a chunk.
#[derive(Default)]
struct Chunk {
    up: Vec<Arc<Entry>>,
    removed: Vec<Removal>,
    corrupt: Vec<config::Refusal>,
}

impl Session {
    pub(super) fn on_batch(
        &mut self,
        batch: config::Batch,
        writer: &mut impl Holdings,
        actions: &mut Actions,
    ) -> Result<(), Close> {
        let began = (self.clock)();
        let lane = wire::lane(batch.lane)?;
        let mut staged = self.staged(lane, &batch, self.there(lane, writer).root(), writer.mark())?;
        let more = batch.more;
        let is_whole = shared::batch::is_whole(&batch);
        let mut chunk = read(lane, batch)?;
        staged.chunks += 1;
        if !is_whole || !chunk.corrupt.is_empty() {
            chunk.corrupt.truncate(CORRUPT);
            actions.say.push(wire::ack(lane, staged.to, 0, Duration::ZERO, &chunk.corrupt, writer));
            return Err(Close::Corrupt { lane, to: staged.to });
        }
        if staged.stray {
            (chunk.up, chunk.removed) = (Vec::new(), Vec::new());
        }
        if lane == Lane::Live && staged.replaces() {
            staged.brought.extend(chunk.up.iter().map(|entry| entry.key.clone()));
        }
        staged.up.append(&mut chunk.up);
        staged.removed.append(&mut chunk.removed);
        if more {
            if lane == Lane::Live {
                // Each was hashed by itself, and additions harm nothing.
                let change = writer.live_after(std::mem::take(&mut staged.up), &[]);
                writer.apply(change);
                self.live.torn = true;
            }
            let seq = self.seq(lane);
            let took = (self.clock)().saturating_duration_since(began);
            actions.say.push(wire::ack(lane, seq, staged.chunks, took, &[], writer));
            self.lane_mut(lane).staged = Some(staged);
            return Ok(());
        }
        let to = staged.to;
        if staged.stray {
            self.pass(lane, &staged, writer);
            actions.say.push(wire::ack(lane, to, 0, Duration::ZERO, &[], writer));
            return Ok(());
        }
        let finished = self.finish(lane, staged, writer);
        let took = (self.clock)().saturating_duration_since(began);
        actions.say.push(wire::ack(lane, to, 0, took, &[], writer));
        finished
    }

    /// The batch that a chunk belongs to: the current one, or a new one that begins at this proxy's position.
    fn staged(
        &mut self,
        lane: Lane,
        batch: &config::Batch,
        actual: Root,
        mark: u64,
    ) -> Result<Staged, Close> {
        let (from, to) = (Seq(batch.from), Seq(batch.to));
        let root_after = wire::root(&batch.root_after)?;
        let base = if batch.base.is_empty() { None } else { Some(wire::root(&batch.base)?) };
        let lineage = self.lineage;
        let state = self.lane_mut(lane);
        if let Some(open) = state.staged.take() {
            if (open.from, open.to, open.root_after, open.base) != (from, to, root_after, base) {
                return Err(protocol(format!(
                    "the batch {from} to {to} interrupts {} to {}",
                    open.from, open.to
                )));
            }
            return Ok(open);
        }
        let is_here = state.position.is_some_and(|(ours, seq)| Some(ours) == lineage && seq == from);
        // Sent before the control plane knew.
        let mut stray = state.astray && from != Seq::default();
        if from != Seq::default() && !is_here && !stray {
            let here = state.seq();
            return Err(protocol(format!(
                "the batch {from} to {to} does not begin at {here}, where this proxy is"
            )));
        }
        if let Some(expected) = base.filter(|base| *base != actual) {
            error!(lane = lane.as_str(), %expected, %actual, "the difference was computed from another state; not applied");
            stray = true;
        }
        if base.is_some() && from != Seq::default() {
            return Err(protocol(format!("the batch {from} to {to} has a base as well")));
        }
        if to <= from {
            return Err(protocol(format!("the batch {from} to {to} leads nowhere")));
        }
        Ok(Staged {
            from,
            to,
            root_after,
            base,
            chunks: 0,
            stray,
            mark,
            up: Vec::new(),
            removed: Vec::new(),
            brought: HashSet::new(),
        })
    }

    /// What this proxy has, including the received part of an interrupted batch: this is what an inventory reports,
    /// and what the following batch applies to.
    pub(super) fn there<'a>(&'a self, lane: Lane, writer: &'a impl Holdings) -> &'a Snapshot {
        match (lane, &self.begun) {
            (Lane::Config, Some(begun)) => begun,
            _ => writer.has(lane),
        }
    }

    /// Called at the end of a stream. A batch from a position in the log is sent again from there. Of any other, what
    /// arrived of LIVE is applied, so the proxy has no position any more; what arrived of CONFIG is set aside.
    pub(super) fn put_aside(&mut self, lane: Lane, writer: &impl Holdings) {
        let Some(cut) = self.lane_mut(lane).staged.take().filter(Staged::is_anew) else {
            return;
        };
        match lane {
            Lane::Live => self.live.position = None,
            Lane::Config => {
                let begun = self.begun.take().filter(|_| !cut.replaces());
                let mut begun = begun.unwrap_or_else(|| writer.has(lane).clone());
                begun.extend(cut.up);
                self.begun = Some(begun);
            }
        }
    }

    /// All chunks have arrived: compares the resulting root with the announced one, and only then serves it.
    fn finish<H: Holdings>(&mut self, lane: Lane, staged: Staged, writer: &mut H) -> Result<(), Close> {
        let (replaces, anew) = (staged.replaces(), staged.is_anew());
        let Staged { to, root_after: expected, mark, up, removed, brought, .. } = staged;
        let begun = if lane == Lane::Config { self.begun.take() } else { None };
        let candidate = match (lane, replaces) {
            (Lane::Config, true) => writer.config_of(up),
            (Lane::Config, false) => match begun {
                Some(begun) => writer.config_from(begun, up, removed),
                None => writer.config_after(up, removed),
            },
            (Lane::Live, true) => writer.live_of(up, |key| brought.contains(key)),
            (Lane::Live, false) if anew => writer.live_differing(up, &removed),
            (Lane::Live, false) => writer.live_after(up, &removed),
        };
        let actual = H::leads_to(&candidate);
        if expected != actual {
            error!(lane = lane.as_str(), %expected, %actual, "a batch does not lead to the root that it announces; not applied");
            if replaces {
                // There is nothing more that could be sent.
                return Err(Close::Diverged { lane, expected, actual });
            }
            self.lose(lane);
            return Ok(());
        }
        writer.apply(candidate);
        self.unsettled |= lane == Lane::Live && anew;
        // On a stream, LIVE goes before the CONFIG that relies on it. Of one anew, it may be a later LIVE.
        if lane == Lane::Config && !anew {
            self.leaving = Some(mark);
        }
        self.arrive(lane, to, writer);
        Ok(())
    }

    /// This proxy has what the control plane had at a position in the log.
    fn arrive(&mut self, lane: Lane, to: Seq, writer: &mut impl Holdings) {
        let lineage = self.lineage;
        if lane == Lane::Config {
            (self.begun, self.doubted) = (None, false);
        }
        let state = self.lane_mut(lane);
        state.position = lineage.map(|lineage| (lineage, to));
        (state.complete, state.kept, state.astray, state.torn) = (true, false, false, false);
        state.unsure = false;
        state.target = state.target.filter(|target| *target > to);
        self.settle(writer);
    }

    /// A batch has ended of which nothing was used. The reply says what this proxy has instead, or that it has all of
    /// it.
    fn pass(&mut self, lane: Lane, staged: &Staged, writer: &mut impl Holdings) {
        if writer.root(lane) == staged.root_after {
            self.arrive(lane, staged.to, writer);
        } else {
            self.lose(lane);
        }
    }

    /// This proxy has no position in the log any more: its state is another one.
    fn lose(&mut self, lane: Lane) {
        let state = self.lane_mut(lane);
        (state.position, state.astray) = (None, true);
    }
}

/// Validates a chunk: its kinds must belong to the lane, and its versions must be the hashes of the bytes.
fn read(lane: Lane, batch: config::Batch) -> Result<Chunk, Close> {
    let mut chunk = Chunk::default();
    for resource in batch.up {
        let kind = kind(resource.kind)?;
        on_lane(kind, lane)?;
        let came = Version::from_slice(&resource.version);
        let key = ResourceKey::new(kind, resource.key.as_str());
        // Copied, so that it does not keep the whole chunk alive.
        let entry = Entry::from_body(key, resource.min_schema, Bytes::copy_from_slice(&resource.body));
        if came == Some(entry.version) {
            chunk.up.push(Arc::new(entry));
        } else {
            error!(%kind, key = resource.key, hash = %entry.version, "resource came corrupt");
            let reason =
                format!("expected bytes of the version that was said, got those of {}", entry.version);
            chunk.corrupt.push(wire::refusal_of(&resource, Code::Corrupt, &reason));
        }
    }
    for removal in batch.removed {
        let kind = kind(removal.kind)?;
        on_lane(kind, lane)?;
        chunk.removed.push(Removal { key: ResourceKey::new(kind, removal.key), gone: removal.gone });
    }
    Ok(chunk)
}

/// Including kinds of a later schema: what cannot be served is stored all the same.
fn kind(kind: i32) -> Result<Kind, Close> {
    Kind::any_from_wire(kind).ok_or_else(|| protocol(format!("expected a kind, got {kind}")))
}

fn on_lane(kind: Kind, lane: Lane) -> Result<(), Close> {
    if kind.lane() == lane {
        return Ok(());
    }
    Err(protocol(format!("got {kind} on the lane {}", lane.as_str())))
}
