//! The contents of journal frames. The first is a [`Header`]; then [`Change`]s, one or more of which form a step from
//! one state to the next. The first step starts from nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use prost::Message;
use shared::delta::Delta;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config;
use shared::version::{Lineage, Root, Seq, Source};

use super::state::{Binding, StoredLane, StoredState};

/// Body bytes after which a step continues in another frame.
const FRAME: usize = 1 << 20;

/// Identifies the owner of a state.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    /// The source that the control plane reads; empty if unknown.
    #[prost(bytes = "bytes", tag = "1")]
    source: Bytes,
    #[prost(string, tag = "2")]
    group: String,
    /// What the proxy knew that control plane by.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    known: Vec<Bytes>,
}

/// A step, or part of one.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Change {
    /// The step continues in the next frame.
    #[prost(bool, tag = "1")]
    pub(super) more: bool,
    /// Milliseconds since 1970.
    #[prost(uint64, tag = "2")]
    written: u64,
    /// The resulting position and root.
    #[prost(message, optional, tag = "3")]
    config: Option<Place>,
    #[prost(message, optional, tag = "4")]
    live: Option<Place>,
    /// Added or changed resources. Those with secrets have no body here.
    #[prost(message, repeated, tag = "5")]
    pub(super) up: Vec<config::Resource>,
    #[prost(message, repeated, tag = "6")]
    removed: Vec<config::ResourceKey>,
}

/// A position on a lane, and its contents.
#[derive(Clone, PartialEq, Message)]
struct Place {
    #[prost(bytes = "bytes", tag = "1")]
    lineage: Bytes,
    #[prost(uint64, tag = "2")]
    seq: u64,
    #[prost(bytes = "bytes", tag = "3")]
    root: Bytes,
}

impl Header {
    /// The frame of a binding.
    pub(super) fn of(binding: &Binding) -> Self {
        Self {
            source: binding.source.map(Source::to_bytes).unwrap_or_default(),
            group: binding.group.clone(),
            known: binding.known.iter().map(|known| Bytes::copy_from_slice(known)).collect(),
        }
    }

    /// The binding in a frame.
    pub(super) fn read(payload: &[u8]) -> Option<Binding> {
        let header = Self::decode(payload).ok()?;
        let known = header.known.iter().map(|known| known[..].try_into().ok());
        Some(Binding {
            source: Source::from_slice(&header.source),
            group: header.group,
            known: known.collect::<Option<_>>()?,
        })
    }
}

/// The frames of the step from one state to another, or from nothing.
pub(super) fn step(before: Option<&StoredState>, after: &StoredState, now: SystemTime) -> Vec<Change> {
    let nothing = StoredState::default();
    let before = before.unwrap_or(&nothing);
    let mut changes = vec![Change::default()];
    let mut bytes = 0;
    for lane in Lane::ALL {
        let Delta { up, removed } = Delta::between(&before.lane(lane).has, &after.lane(lane).has);
        for entry in up {
            let mut resource = entry.to_wire();
            if entry.kind().is_secret() {
                resource.body = Bytes::new();
            }
            bytes += resource.key.len() + resource.body.len() + 32;
            if let Some(last) = changes.last_mut() {
                last.up.push(resource);
            }
            if bytes > FRAME {
                bytes = 0;
                changes.push(Change::default());
            }
        }
        if let Some(last) = changes.last_mut() {
            let key =
                |key: ResourceKey| config::ResourceKey { kind: key.kind.to_wire(), key: key.key.to_string() };
            last.removed.extend(removed.into_iter().map(|removal| key(removal.key)));
        }
    }
    let last = changes.len() - 1;
    changes.iter_mut().take(last).for_each(|change| change.more = true);
    if let Some(last) = changes.last_mut() {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        last.written = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        last.config = Some(Place::of(&after.config));
        last.live = Some(Place::of(&after.live));
    }
    changes
}

impl Change {
    /// Decodes a frame.
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        // One copy, of which its fields are slices.
        Self::decode(Bytes::copy_from_slice(payload)).ok()
    }

    /// The result of a step, from its last frame: the root and the position of a lane.
    pub(super) fn place(&self, lane: Lane) -> Option<(Root, Option<(Lineage, Seq)>)> {
        let place = match lane {
            Lane::Config => self.config.as_ref(),
            Lane::Live => self.live.as_ref(),
        }?;
        let lineage = Lineage::from_slice(&place.lineage);
        Some((Root::from_slice(&place.root)?, lineage.map(|lineage| (lineage, Seq(place.seq)))))
    }

    /// Removed resources.
    pub(super) fn removed(&self) -> impl Iterator<Item = Option<ResourceKey>> {
        self.removed.iter().map(|it| Some(ResourceKey::new(Kind::any_from_wire(it.kind)?, it.key.as_str())))
    }

    /// When the step was written.
    pub(super) fn written(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.written)).unwrap_or(UNIX_EPOCH)
    }
}

impl Place {
    fn of(kept: &StoredLane) -> Self {
        let (lineage, seq) = kept.position.unzip();
        Self {
            lineage: lineage.map(Lineage::to_bytes).unwrap_or_default(),
            seq: seq.unwrap_or_default().0,
            root: kept.has.root().to_bytes(),
        }
    }
}
