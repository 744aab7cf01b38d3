//! Batches: chunks are checked, CONFIG is staged until its last one, additions of LIVE are applied as they come.
//!
//! **Invariant:** what is served changes only by what was verified: each chunk against its own digest, each resource
//! against its version, and what the proxy would have after the last chunk against the root that it was told. What
//! leaves, and the last chunk, waits for that.
//!
//! A batch that begins at no place in the log may be a whole lane, and the stream may break in the middle, again and again.
//! What came of LIVE is applied; what came of CONFIG is put aside, and counts as there where an inventory asks what is
//! left to be sent. So each stream brings it further, however short it is.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

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

/// Resources of a batch that came corrupt and are told of, at most.
const CORRUPT: usize = 256;

/// A batch on its way.
#[derive(Debug)]
pub(super) struct Staged {
    from: Seq,
    to: Seq,
    root_after: Root,
    /// What it applies to, where that is no place in the log.
    base: Option<Root>,
    chunks: u32,
    /// It applies to something that this proxy does not have: nothing is taken of it.
    stray: bool,
    /// CONFIG until its last chunk; of LIVE what came last, the chunks before are applied.
    up: Vec<Arc<Entry>>,
    /// Nothing leaves before the root of all is known to be right.
    removed: Vec<Removal>,
    /// LIVE only, where it replaces everything: what it brought.
    brought: HashSet<ResourceKey>,
}

impl Staged {
    /// Whether it replaces all that the proxy has.
    pub(super) fn replaces(&self) -> bool {
        self.is_anew() && self.base.is_none()
    }

    /// Whether it begins at no place in the log: cut short, it leaves the proxy at none.
    pub(super) fn is_anew(&self) -> bool {
        self.from == Seq::default()
    }
}

/// What a chunk brings.
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
        let mut staged = self.staged(lane, &batch, self.there(lane, writer).root())?;
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
                // Each was hashed by itself, and an addition takes nothing from anybody.
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

    /// The batch that a chunk belongs to: the one that is open, or a new one that begins where this proxy is.
    fn staged(&mut self, lane: Lane, batch: &config::Batch, actual: Root) -> Result<Staged, Close> {
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
            up: Vec::new(),
            removed: Vec::new(),
            brought: HashSet::new(),
        })
    }

    /// What this proxy has, with what came of a batch that was cut: what an inventory tells, and what is sent after one
    /// applies to.
    pub(super) fn there<'a>(&'a self, lane: Lane, writer: &'a impl Holdings) -> &'a Snapshot {
        match (lane, &self.begun) {
            (Lane::Config, Some(begun)) => begun,
            _ => writer.has(lane),
        }
    }

    /// The stream is over. A batch that went on from a place in the log is sent again from there. Of one that did not, what
    /// came of LIVE is applied, and so the proxy is at no place any more; what came of CONFIG is put aside.
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

    /// All chunks are there: what the proxy would have is compared with what it was told, and only then served.
    fn finish<H: Holdings>(&mut self, lane: Lane, staged: Staged, writer: &mut H) -> Result<(), Close> {
        let (replaces, anew) = (staged.replaces(), staged.is_anew());
        let Staged { to, root_after: expected, up, removed, brought, .. } = staged;
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
        let lineage = self.lineage;
        let state = self.lane_mut(lane);
        state.position = lineage.map(|lineage| (lineage, to));
        (state.complete, state.kept, state.astray, state.torn) = (true, false, false, false);
        state.target = state.target.filter(|target| *target > to);
        self.settle(writer);
        Ok(())
    }

    /// A batch is over of which nothing was taken. The answer says what this proxy has instead, or that it has all of it.
    fn pass(&mut self, lane: Lane, staged: &Staged, writer: &impl Holdings) {
        if writer.root(lane) != staged.root_after {
            return self.lose(lane);
        }
        let lineage = self.lineage;
        let state = self.lane_mut(lane);
        state.position = lineage.map(|lineage| (lineage, staged.to));
        (state.astray, state.torn) = (false, false);
    }

    /// This proxy is at no place in the log: what it has is something else.
    fn lose(&mut self, lane: Lane) {
        let state = self.lane_mut(lane);
        (state.position, state.astray) = (None, true);
    }
}

/// Checks what a chunk brings: kinds of its lane, and versions that are the hash of what came.
fn read(lane: Lane, batch: config::Batch) -> Result<Chunk, Close> {
    let mut chunk = Chunk::default();
    for resource in batch.up {
        let kind = kind(resource.kind)?;
        on_lane(kind, lane)?;
        let came = Version::from_slice(&resource.version);
        let key = ResourceKey::new(kind, resource.key.as_str());
        let entry = Entry::from_body(key, resource.min_schema, resource.body.clone());
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

/// Kinds of a later schema included: what cannot be served is had all the same.
fn kind(kind: i32) -> Result<Kind, Close> {
    Kind::any_from_wire(kind).ok_or_else(|| protocol(format!("expected a kind, got {kind}")))
}

fn on_lane(kind: Kind, lane: Lane) -> Result<(), Close> {
    if kind.lane() == lane {
        return Ok(());
    }
    Err(protocol(format!("got {kind} on the lane {}", lane.as_str())))
}
