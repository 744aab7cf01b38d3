//! Batches as sent on the wire: encoded once, shared by every stream that sends them.
//!
//! **Invariant:** a chunk never exceeds 64 KiB unless a single resource does, and only the last one has `more = false`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use shared::delta::{Delta, Removal};
use shared::entry::Entry;
use shared::kind::Lane;
use shared::proto::config;
use shared::proto::config::control_message::Message;
use shared::version::{Root, Seq};

/// Limit of a chunk in bytes ("The stream" in ARCHITECTURE.md).
pub const CHUNK: usize = 64 * 1024;

/// Estimated size of resources and removals in a chunk; the rest is for the head and for underestimates.
const BUDGET: usize = CHUNK - 4 * 1024;

/// The prefix of each gRPC message: a compression flag, and its length.
const PREFIX: usize = 5;

/// An encoded `ControlMessage`, as gRPC sends it. A clone shares the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame(Bytes);

impl Frame {
    /// Encodes a message.
    pub fn encode(message: Message) -> Self {
        let message = config::ControlMessage { message: Some(message) };
        let length = message.encoded_len();
        let mut bytes = Vec::with_capacity(PREFIX + length);
        bytes.push(0);
        bytes.extend((length as u32).to_be_bytes());
        message.encode_raw(&mut bytes);
        Self(bytes.into())
    }

    /// Decodes the message.
    #[cfg(any(test, feature = "sim"))]
    pub fn message(&self) -> Bytes {
        self.0.slice(PREFIX..)
    }

    /// With the prefix of gRPC (PROTOCOL-HTTP2, "Length-Prefixed-Message").
    pub fn delimited(&self) -> Bytes {
        self.0.clone()
    }

    /// Length of the message in bytes.
    pub fn len(&self) -> usize {
        self.0.len() - PREFIX
    }
}

/// Does not show the content, which may be secret.
impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "frame of {} bytes", self.len())
    }
}

/// The states of a lane that a batch leads from and to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The lane.
    pub lane: Lane,
    /// The position that it applies to; 0 replaces everything.
    pub from: Seq,
    /// The position that it leads to.
    pub to: Seq,
    /// The root after it.
    pub root_after: Root,
    /// The root that it applies to, if that is not a position of this log.
    pub base: Option<Root>,
}

/// The chunks of one batch, encoded as they are requested. There is always at least one. A clone shares the changes,
/// and the chunks that are encoded already.
#[derive(Clone, Debug)]
pub struct Chunks {
    span: Span,
    /// Encoded, but not returned yet.
    begun: VecDeque<Frame>,
    up: Arc<[Arc<Entry>]>,
    /// Number of resources and removals that are in those.
    encoded: usize,
    removed: VecDeque<Removal>,
    over: bool,
}

impl Chunks {
    /// A batch of these changes. Additions come before removals: make before break.
    pub fn new(span: Span, delta: Delta) -> Self {
        let (up, removed) = (delta.up.into(), delta.removed.into());
        Self { span, begun: VecDeque::new(), up, encoded: 0, removed, over: false }
    }

    /// Encodes the first chunks once for all clones.
    #[must_use]
    pub fn begin(mut self, chunks: usize) -> Self {
        self.begun = self.by_ref().take(chunks).collect();
        self
    }

    /// Whether the last chunk was returned.
    pub fn is_over(&self) -> bool {
        self.over && self.begun.is_empty()
    }
}

impl Iterator for Chunks {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        if let Some(frame) = self.begun.pop_front() {
            return Some(frame);
        }
        if self.over {
            return None;
        }
        let mut batch = config::Batch {
            lane: self.span.lane.to_wire(),
            from: self.span.from.0,
            to: self.span.to.0,
            root_after: self.span.root_after.to_bytes(),
            base: self.span.base.map(Root::to_bytes).unwrap_or_default(),
            ..config::Batch::default()
        };
        let mut size = 0;
        while let Some(entry) = self.up.get(self.encoded) {
            size += entry.wire_size();
            if size > BUDGET && !batch.up.is_empty() {
                break;
            }
            batch.up.push(entry.to_wire());
            self.encoded += 1;
        }
        while let Some(removal) = self.removed.front().filter(|_| self.encoded == self.up.len()) {
            size += removal.key.key.len() + 16;
            if size > BUDGET && !(batch.up.is_empty() && batch.removed.is_empty()) {
                break;
            }
            batch.removed.push(removal.to_wire());
            self.removed.pop_front();
        }
        batch.more = !(self.encoded == self.up.len() && self.removed.is_empty());
        self.over = !batch.more;
        shared::batch::seal(&mut batch);
        Some(Frame::encode(Message::Batch(batch)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::kind::{Kind, ResourceKey};

    fn span() -> Span {
        Span { lane: Lane::Live, from: Seq(3), to: Seq(9), root_after: Root([7; 16]), base: None }
    }

    fn decode(frame: &Frame) -> config::Batch {
        match config::ControlMessage::decode(frame.message()).unwrap().message {
            Some(Message::Batch(batch)) => batch,
            other => panic!("expected a batch, got {other:?}"),
        }
    }

    fn entry(index: usize, size: usize) -> Arc<Entry> {
        let key = ResourceKey::new(Kind::Endpoints, format!("default/slice-{index}"));
        Arc::new(Entry::from_body(key, 1, vec![1; size].into()))
    }

    #[test]
    fn a_batch_without_changes_is_one_chunk() {
        let frames: Vec<_> = Chunks::new(span(), Delta::default()).collect();
        assert_eq!(frames.len(), 1);
        let batch = decode(&frames[0]);
        assert_eq!((batch.from, batch.to, batch.more), (3, 9, false));
    }

    #[test]
    fn chunks_stay_below_the_limit_and_carry_everything_once() {
        let delta = Delta {
            up: (0..3_000).map(|index| entry(index, index % 200)).collect(),
            removed: (0..2_000)
                .map(|index| Removal {
                    key: ResourceKey::new(Kind::Endpoints, format!("old/{index}")),
                    gone: index % 2 == 0,
                })
                .collect(),
        };
        let frames: Vec<_> = Chunks::new(span(), delta.clone()).collect();
        assert!(frames.len() > 5);
        assert!(frames.iter().all(|frame| frame.len() <= CHUNK));
        let batches: Vec<_> = frames.iter().map(decode).collect();
        assert!(batches.iter().all(shared::batch::is_whole));
        let more: Vec<_> = batches.iter().map(|batch| batch.more).collect();
        assert_eq!(more.iter().filter(|more| !**more).count(), 1);
        assert_eq!(more.last(), Some(&false));
        let up: Vec<_> = batches.iter().flat_map(|batch| batch.up.clone()).collect();
        assert_eq!(up, delta.up.iter().map(|entry| entry.to_wire()).collect::<Vec<_>>());
        assert_eq!(batches.iter().map(|batch| batch.removed.len()).sum::<usize>(), 2_000);
    }

    /// Removals are as many as a proxy had resources.
    #[test]
    fn removals_alone_and_behind_a_large_resource_are_in_chunks_too() {
        let removal = |index: usize| Removal {
            key: ResourceKey::new(Kind::Endpoints, format!("{index:0100}")),
            gone: false,
        };
        for up in [vec![], vec![entry(0, BUDGET - 200)], vec![entry(0, 2 * CHUNK)]] {
            let delta = Delta { up, removed: (0..3_000).map(removal).collect() };
            let large = delta.up.iter().any(|entry| entry.wire_size() > CHUNK);
            let frames: Vec<_> = Chunks::new(span(), delta).collect();
            let beyond = frames.iter().filter(|frame| frame.len() > CHUNK).count();
            assert_eq!(beyond, usize::from(large), "{frames:?}");
            let batches: Vec<_> = frames.iter().map(decode).collect();
            assert_eq!(batches.iter().map(|batch| batch.removed.len()).sum::<usize>(), 3_000);
            assert!(batches[0].removed.len() < 10 || batches[0].up.is_empty(), "{frames:?}");
        }
    }

    #[test]
    fn a_resource_larger_than_a_chunk_travels_alone() {
        let delta = Delta { up: vec![entry(0, 10), entry(1, 2 * CHUNK), entry(2, 10)], removed: Vec::new() };
        let sizes: Vec<_> = Chunks::new(span(), delta).map(|frame| decode(&frame).up.len()).collect();
        assert_eq!(sizes, [1, 1, 1]);
    }

    /// Room for the resources that come first is none for a removal with a long key.
    #[test]
    fn the_first_removal_goes_behind_resources_that_fill_a_chunk() {
        let key = ResourceKey::new(Kind::Endpoints, "k".repeat(2_000));
        let up = vec![entry(0, BUDGET - 1_000)];
        let delta = Delta { up, removed: vec![Removal { key, gone: false }] };
        let batches: Vec<_> = Chunks::new(span(), delta).map(|frame| decode(&frame)).collect();
        let counts: Vec<_> = batches.iter().map(|batch| (batch.up.len(), batch.removed.len())).collect();
        assert_eq!(counts, [(1, 0), (0, 1)]);
    }
}
