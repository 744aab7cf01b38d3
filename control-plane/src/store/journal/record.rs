//! Records of the history file: 4 bytes of length (little-endian), then 16 bytes of BLAKE3 over the rest, then the
//! rest: milliseconds since 1970 (8 bytes), length of the cause (4 bytes), the cause as JSON, an encoded `Batch` of
//! CONFIG whose `from` is 0 if it replaces everything. A cause that is not JSON is plain text, as earlier builds wrote
//! it. The cause also names the source of the history, which earlier builds ignore.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::{Buf as _, BufMut as _, Bytes};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use shared::delta::{Delta, Removal};
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config;
use shared::snapshot::Snapshot;
use shared::version::{Root, Seq};

use crate::origin::Origin;
use crate::store::history::{Bounds, History, PastVersion};

/// Limit of a cause in bytes.
const CAUSE_MAX: usize = 4 * 1024;

/// The cause of a version.
#[derive(Serialize, Deserialize)]
pub(super) struct Cause {
    pub(super) line: Arc<str>,
    #[serde(flatten)]
    pub(super) origin: Origin,
    /// Left out for versions that were offered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    held_back: bool,
    /// Left out where there are none.
    #[serde(default, skip_serializing_if = "is_none")]
    skipped: usize,
    /// The source of the history. Missing before that is known, and in records of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<Arc<str>>,
}

impl Cause {
    /// Parses a stored cause.
    pub(super) fn read(text: &[u8]) -> Self {
        let line = || String::from_utf8_lossy(text).into();
        let alone =
            |_| Self { line: line(), origin: Origin::default(), held_back: false, skipped: 0, of: None };
        serde_json::from_slice(text).unwrap_or_else(alone)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// Encodes a version as the difference from the previous one; from nothing, it is complete in itself.
pub(super) fn write(before: &Snapshot, version: &PastVersion, of: Option<&Arc<str>>) -> Vec<u8> {
    let delta = Delta::between(before, &version.snapshot);
    let batch = config::Batch {
        lane: Lane::Config.to_wire(),
        from: u64::from(!before.is_empty()),
        to: 1,
        root_after: version.root.to_bytes(),
        more: false,
        up: delta.up.iter().map(|entry| entry.to_wire()).collect(),
        removed: delta.removed.iter().map(Removal::to_wire).collect(),
        ..config::Batch::default()
    };
    let line = &version.cause[..version.cause.floor_char_boundary(CAUSE_MAX)];
    let (origin, held_back) = (version.origin.clone(), !version.released);
    let cause = Cause { line: line.into(), origin, held_back, skipped: version.skipped, of: of.cloned() };
    // Only string keys: these can always be encoded.
    let cause = serde_json::to_vec(&cause).unwrap_or_default();
    let time = version.time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut rest = Vec::new();
    rest.put_u64_le(time.as_millis() as u64);
    rest.put_u32_le(cause.len() as u32);
    rest.put_slice(&cause);
    rest.put_slice(&batch.encode_to_vec());
    let mut record = Vec::with_capacity(rest.len() + 20);
    record.put_u32_le(rest.len() as u32);
    record.put_slice(&blake3::hash(&rest).as_bytes()[..16]);
    record.put_slice(&rest);
    record
}

/// All versions, the oldest first.
pub(super) fn write_all(history: &History, of: Option<&Arc<str>>) -> impl Iterator<Item = Vec<u8>> {
    let mut before = Snapshot::default();
    history.oldest_first().map(move |version| {
        let record = write(&before, version, of);
        before = version.snapshot.clone();
        record
    })
}

/// The contents of a file.
#[derive(Debug)]
pub(super) struct JournalContents {
    /// The valid versions.
    pub(super) history: History,
    /// Their source, from the newest record that has it.
    pub(super) of: Option<Arc<str>>,
    /// Bytes at the end that are not valid.
    pub(super) left: usize,
}

/// Reads a file.
pub(super) fn read_all(bytes: &[u8], bounds: Bounds) -> JournalContents {
    let mut found = JournalContents { history: History::new(bounds), of: None, left: bytes.len() };
    let mut snapshot = Snapshot::default();
    while let Some((version, of, rest)) = read(&bytes[bytes.len() - found.left..], &snapshot) {
        snapshot = version.snapshot.clone();
        found.history.push(version);
        found.of = of.or(found.of);
        found.left = rest.len();
    }
    found
}

type Read<'a> = (PastVersion, Option<Arc<str>>, &'a [u8]);

fn read<'a>(mut bytes: &'a [u8], before: &Snapshot) -> Option<Read<'a>> {
    let length = bytes.try_get_u32_le().ok()? as usize;
    let (digest, bytes) = bytes.split_at_checked(16)?;
    let (mut record, left) = bytes.split_at_checked(length)?;
    if blake3::hash(record).as_bytes()[..16] != *digest {
        return None;
    }
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(record.try_get_u64_le().ok()?))?;
    let cause_length = record.try_get_u32_le().ok()? as usize;
    let (cause, batch) = record.split_at_checked(cause_length)?;
    let Cause { line, origin, held_back, skipped, of } = Cause::read(cause);
    let batch = config::Batch::decode(Bytes::copy_from_slice(batch)).ok()?;
    let mut snapshot = if batch.from == 0 { Snapshot::default() } else { before.clone() };
    let delta = delta(batch.up, batch.removed)?;
    delta.apply(&mut snapshot);
    let root = Root::from_slice(&batch.root_after).filter(|root| *root == snapshot.root())?;
    let version = PastVersion {
        // A position in the log of a process that has ended: before everything.
        seq: Seq::default(),
        root,
        snapshot,
        time,
        made: None,
        cause: line,
        origin,
        changed: delta.len(),
        bytes: delta.wire_size(),
        released: !held_back,
        skipped,
    };
    Some((version, of, left))
}

fn delta(up: Vec<config::Resource>, removed: Vec<config::Removal>) -> Option<Delta> {
    let up = up.into_iter().map(|up| {
        let key = ResourceKey::new(Kind::from_wire(up.kind)?, up.key);
        Some(Arc::new(Entry::from_body(key, up.min_schema, up.body)))
    });
    let removed = removed.into_iter().map(|removed| {
        let key = ResourceKey::new(Kind::from_wire(removed.kind)?, removed.key);
        Some(Removal { key, gone: removed.gone })
    });
    Some(Delta { up: up.collect::<Option<_>>()?, removed: removed.collect::<Option<_>>()? })
}
