//! Arbitrary bytes from a control plane: see [`crate::fuzz`].

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config::control_message::Message as Control;
use shared::proto::config::lane_start::Mode;
use shared::proto::config::{Batch, ControlMessage, LaneStart, Resource, Welcome};
use shared::snapshot::Snapshot;
use shared::version::{Lineage, Root};

use super::session::{Identity, Session};
use crate::table::Writer;

/// The longest reply of a proxy in bytes: the contents of 64 buckets, or its digests.
const SAID: usize = 2 << 20;

/// Which fields are repaired, so that more than the first check is reached: one bit each of the first byte.
const VERSIONS: u8 = 1;
const ROOT: u8 = 2;
const PLACE: u8 = 4;
const BASE: u8 = 8;

/// Arbitrary messages from a control plane: what is served changes only to a state whose root the message names, and
/// LIVE also by the additions of a chunk; a message that ends the stream changes nothing, and the next stream can
/// begin.
///
/// # Panics
/// If that does not hold.
pub fn stream(data: &[u8]) {
    let _ = applied(data);
}

/// Number of complete batches that were applied.
fn applied(data: &[u8]) -> usize {
    let mut applied = 0;
    let Some((mends, data)) = data.split_first() else { return applied };
    let messages: Vec<_> = pieces(data).filter_map(|piece| ControlMessage::decode(piece).ok()).collect();
    let mut writer = Writer::new();
    let mut session = Session::new(Identity::default(), shared::clock::now);
    let mut honest = Honest::new(*mends);
    open(&mut session, &mut writer);
    for (place, message) in messages.iter().enumerate() {
        let message = honest.mended(message, &messages[place + 1..], &session, &writer);
        let (before, came) = (roots(&writer), batch(&message));
        let actions = session.on(message, &mut writer);
        for (lane, after) in roots(&writer) {
            let adds = came == Some((lane, None)) && lane == Lane::Live;
            let is_named = came == Some((lane, Some(after)));
            assert!(
                after == before[&lane] || is_named || adds,
                "{} went to {after} by {came:?}",
                lane.as_str()
            );
        }
        let said: usize = actions.say.iter().map(prost::Message::encoded_len).sum();
        assert!(said <= SAID, "{said} bytes were said");
        // A batch with another result is answered, and nothing of it is applied.
        let is_there = |(lane, named): (Lane, Option<Root>)| named == Some(writer.root(lane));
        applied += usize::from(actions.close.is_none() && came.is_some_and(is_there));
        if actions.close.is_some() {
            assert_eq!(before, roots(&writer), "what ends the stream changes nothing");
            honest = Honest::new(*mends);
            open(&mut session, &mut writer);
        }
    }
    applied
}

/// Begins a stream, with a control plane that would send everything.
fn open(session: &mut Session, writer: &mut Writer) {
    let hello = session.hello(writer);
    assert!(hello.encoded_len() <= 64 << 10, "a Hello that no control plane reads");
    let lanes = Lane::ALL.map(|lane| LaneStart { lane: lane.to_wire(), mode: Mode::Full.into(), seq: 1 });
    let welcome = Welcome {
        lineage: Lineage([1; 16]).to_bytes(),
        heartbeat_ms: 5_000,
        lanes: lanes.to_vec(),
        ..Welcome::default()
    };
    let actions = session.on(ControlMessage { message: Some(Control::Welcome(welcome)) }, writer);
    assert_eq!(actions.close, None, "a good Welcome after anything");
}

/// Splits the input: two bytes of length before each piece; the last one is the rest.
fn pieces(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk()?;
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
        data = rest;
        Some(piece)
    })
}

fn roots(writer: &Writer) -> BTreeMap<Lane, Root> {
    Lane::ALL.into_iter().map(|lane| (lane, writer.root(lane))).collect()
}

/// The lane of a batch, and the announced root if this is its last chunk.
fn batch(message: &ControlMessage) -> Option<(Lane, Option<Root>)> {
    match &message.message {
        Some(Control::Batch(batch)) => {
            let root = Root::from_slice(&batch.root_after).filter(|_| !batch.more);
            Some((Lane::from_wire(batch.lane)?, root))
        }
        _ => None,
    }
}

/// Repairs messages as an honest control plane would have sent them, in the requested fields.
struct Honest {
    mends: u8,
    /// The resulting roots of the batches that have begun.
    leads_to: BTreeMap<Lane, Root>,
}

impl Honest {
    fn new(mends: u8) -> Self {
        Self { mends, leads_to: BTreeMap::new() }
    }

    fn mended(
        &mut self,
        message: &ControlMessage,
        coming: &[ControlMessage],
        session: &Session,
        writer: &Writer,
    ) -> ControlMessage {
        let mut message = message.clone();
        let Some(Control::Batch(batch)) = &mut message.message else { return message };
        let Some(lane) = Lane::from_wire(batch.lane) else { return message };
        let is = |bit: u8| self.mends & bit != 0;
        if is(PLACE) && batch.from != 0 {
            batch.from = session.seq(lane).0;
        }
        if is(BASE) && !batch.base.is_empty() {
            batch.base = writer.root(lane).to_bytes();
        }
        if is(VERSIONS) {
            for resource in &mut batch.up {
                let Some(entry) = entry(resource) else { continue };
                resource.version = entry.version.to_bytes();
            }
        }
        if is(ROOT) {
            let root = self.leads_to.remove(&lane).unwrap_or_else(|| leads_to(lane, batch, coming, writer));
            batch.root_after = root.to_bytes();
            if batch.more {
                self.leads_to.insert(lane, root);
            }
        }
        if is(VERSIONS) {
            shared::batch::seal(batch);
        }
        message
    }
}

fn entry(resource: &Resource) -> Option<Entry> {
    let key = ResourceKey::new(Kind::any_from_wire(resource.kind)?, &*resource.key);
    Some(Entry::from_body(key, resource.min_schema, Bytes::clone(&resource.body)))
}

/// The root that a proxy should have after a batch that begins here.
fn leads_to(lane: Lane, first: &Batch, coming: &[ControlMessage], writer: &Writer) -> Root {
    let replaces = first.from == 0 && first.base.is_empty();
    let mut next = if replaces { Snapshot::default() } else { writer.has(lane).clone() };
    let rest = coming.iter().filter_map(|message| match &message.message {
        Some(Control::Batch(batch)) if batch.lane == first.lane => Some(batch),
        _ => None,
    });
    for chunk in std::iter::once(first).chain(rest) {
        let removed = chunk.removed.iter();
        let removed =
            removed.filter_map(|it| Some(ResourceKey::new(Kind::any_from_wire(it.kind)?, &*it.key)));
        next.change(chunk.up.iter().filter_map(entry).map(Arc::new), removed);
        if !chunk.more {
            break;
        }
    }
    next.root()
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_seeds_are_applied() {
        for (seed, batches) in [
            (&include_bytes!("../../../fuzz/corpus/stream/full-then-steps")[..], 4),
            (include_bytes!("../../../fuzz/corpus/stream/asked-and-based"), 3),
            (include_bytes!("../../../fuzz/corpus/stream/wrong-root"), 0),
        ] {
            assert_eq!(super::applied(seed), batches);
        }
    }
}
