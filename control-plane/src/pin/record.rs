//! The stored form of a pin: a manifest that people can read, and the resources' bytes, compressed, in parts that fit
//! into objects of a cluster.
//!
//! The bytes are one encoded `Batch` of CONFIG from nothing. Their digest covers what the root does not (`min_schema`).
//!
//! **Invariant:** what is read back is exactly what was written, or an [`Unreadable`]; no record takes more memory than
//! the limits here, whatever it claims.

use std::collections::BTreeSet;
use std::sync::Arc;

use prost::Message as _;
use serde::{Deserialize, Serialize};
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config;
use shared::snapshot::Snapshot;
use shared::version::Root;

use super::{How, Needs, Pin};
use crate::zlib;

/// The format that this build reads and writes.
const FORMAT: u32 = 1;
/// Size of a part in bytes. A Secret takes 1 MiB (`MaxSecretSize` of Kubernetes), and etcd requests of 1.5 MiB.
const PART: usize = 768 << 10;
/// Limit of the parts of a record: 12 MiB of an etcd of 2 GiB.
pub const PARTS: usize = 16;
/// Limit of the resources in bytes. Configurations are repetitive and shrink to a tenth.
const RAW: usize = 128 << 20;

/// The manifest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    format: u32,
    version: String,
    how: How,
    at: u64,
    until: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    note: String,
    schema: u32,
    compile_revision: u32,
    /// The source it was created for: a copy elsewhere is not in force there. Empty: it is not complete yet.
    pub source: String,
    /// BLAKE3-128 of the resources' bytes before compression.
    digest: String,
    /// Names of the parts, in order.
    pub parts: Vec<String>,
}

/// A pin in its stored form.
#[derive(Clone, PartialEq, Debug)]
pub struct Packed {
    /// The manifest; the writer fills in the names of parts and the source.
    pub manifest: Manifest,
    /// The compressed bytes.
    pub parts: Vec<Vec<u8>>,
}

/// Why a record is not in force.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// It has a newer format.
    #[error("it has format {format}, and this build reads {FORMAT}: it was made by a newer one")]
    Later {
        /// Its format.
        format: u64,
    },
    /// It was decided in another cluster, or of another folder.
    #[error(
        "the pin belongs to another cluster or folder, or was restored from a copy: pin again, or delete it"
    )]
    Elsewhere,
    /// It is being written.
    #[error("it is not complete yet")]
    Unfinished,
    /// A part is missing.
    #[error("expected its part {name}, got none")]
    Missing {
        /// The part.
        name: String,
    },
    /// It is not what was written.
    #[error("expected {expected}, got something else")]
    Damaged {
        /// What differs.
        expected: &'static str,
    },
}

impl Unreadable {
    /// Whether it was a valid record of this source: a replica that still has its pin writes it again.
    pub fn may_be_mended(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Damaged { .. })
    }
}

/// Packs a pin.
///
/// # Errors
/// Its size, if it is too large for a record.
pub fn pack(pin: &Pin) -> Result<Packed, String> {
    let raw = bytes_of(pin);
    if raw.len() > RAW {
        return Err(format!(
            "version {} has {} MiB of resources, and a record holds {}",
            pin.version.short(),
            raw.len() >> 20,
            RAW >> 20
        ));
    }
    let packed = zlib::pack(&raw);
    if packed.len() > PARTS * PART {
        return Err(format!(
            "version {} takes {} MiB compressed, and a record holds {}",
            pin.version.short(),
            packed.len() >> 20,
            (PARTS * PART) >> 20
        ));
    }
    let manifest = Manifest { digest: digest(&raw), ..Manifest::of(pin) };
    Ok(Packed { manifest, parts: packed.chunks(PART).map(<[u8]>::to_vec).collect() })
}

impl Manifest {
    /// What identifies a pin: its manifest without the digest of its bytes, which costs as much as there are.
    pub fn of(pin: &Pin) -> Self {
        Self {
            format: FORMAT,
            version: pin.version.to_string(),
            how: pin.how,
            at: pin.at,
            until: pin.until,
            note: pin.note.clone(),
            schema: pin.schema,
            compile_revision: pin.compile_revision,
            source: String::new(),
            digest: String::new(),
            parts: Vec::new(),
        }
    }

    /// Whether it is that of this pin, wherever it is stored.
    pub fn is_of(&self, pin: &Pin) -> bool {
        let bare = Self { source: String::new(), digest: String::new(), parts: Vec::new(), ..self.clone() };
        bare == Self::of(pin)
    }

    /// Parses the manifest of a record.
    ///
    /// # Errors
    /// If it is invalid, or has a later format.
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Form {
            format: u64,
        }
        let damaged = || Unreadable::Damaged { expected: "a manifest as JSON" };
        let Form { format } = serde_json::from_str(text).map_err(|_| damaged())?;
        if format != u64::from(FORMAT) {
            return Err(Unreadable::Later { format });
        }
        let manifest: Self = serde_json::from_str(text).map_err(|_| damaged())?;
        // Parts are concatenated before they can be verified.
        let distinct: BTreeSet<_> = manifest.parts.iter().collect();
        if manifest.parts.len() > PARTS || distinct.len() < manifest.parts.len() {
            return Err(Unreadable::Damaged { expected: "16 parts at most, each named once" });
        }
        Ok(manifest)
    }

    /// The manifest as text.
    pub fn text(&self) -> String {
        // Only string keys: these can always be encoded.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// A summary for people: `rollback, version 1f3a92c04d7e`.
    pub fn line(&self) -> String {
        let version = &self.version[..self.version.floor_char_boundary(12)];
        format!("{}, version {version}", self.how.as_str())
    }

    /// Whether it belongs to this source.
    ///
    /// # Errors
    /// If it belongs to another one, or is not complete yet.
    pub fn check_source(&self, source: &str) -> Result<(), Unreadable> {
        match &*self.source {
            "" => Err(Unreadable::Unfinished),
            its if its == source => Ok(()),
            _ => Err(Unreadable::Elsewhere),
        }
    }
}

/// The pin of a record; `packed` are its concatenated parts.
///
/// # Errors
/// If they are not what was written.
pub fn unpack(manifest: &Manifest, packed: &[u8], revision: &Arc<str>) -> Result<Pin, Unreadable> {
    let damaged = |expected| Unreadable::Damaged { expected };
    if packed.len() > PARTS * PART {
        return Err(damaged("a record of 12 MiB at most"));
    }
    let raw = zlib::unpack(packed, RAW).map_err(|_| damaged("compressed resources"))?;
    if digest(&raw) != manifest.digest {
        return Err(damaged("resources with the digest of the manifest"));
    }
    let config = resources(&raw).ok_or_else(|| damaged("resources of CONFIG"))?;
    let version = config.root();
    if version.to_string() != manifest.version {
        return Err(damaged("resources with the root of the manifest"));
    }
    Ok(Pin {
        version,
        how: manifest.how,
        at: manifest.at,
        until: manifest.until,
        note: manifest.note.chars().take(super::NOTE_MAX).collect(),
        schema: manifest.schema,
        compile_revision: manifest.compile_revision,
        needs: Arc::new(Needs::of(&config)),
        config,
        revision: Arc::clone(revision),
    })
}

fn bytes_of(pin: &Pin) -> Vec<u8> {
    let mut entries: Vec<_> = pin.config.iter().collect();
    // Sorted by key, similar resources are adjacent and compress better.
    entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    let batch = config::Batch {
        lane: Lane::Config.to_wire(),
        up: entries.into_iter().map(|entry| entry.to_wire()).collect(),
        root_after: pin.version.to_bytes(),
        ..config::Batch::default()
    };
    batch.encode_to_vec()
}

/// Entry by entry, and not as one `Batch`: an entry of two bytes in the input would take fifty times that in memory.
fn resources(raw: &[u8]) -> Option<Snapshot> {
    let mut config = Snapshot::default();
    let (mut root, mut rest) = (None, raw);
    let mut before: Option<ResourceKey> = None;
    while let Some((field, value)) = field(&mut rest)? {
        match field {
            ROOT_AFTER => root = Root::from_slice(value),
            UP => {
                let entry = entry(value)?;
                // Keys must ascend, so none occurs twice: memory is proportional to the input.
                if before.replace(entry.key.clone()).is_some_and(|before| before >= entry.key) {
                    return None;
                }
                config.insert(Arc::new(entry));
            }
            _ => {}
        }
    }
    (root == Some(config.root())).then_some(config)
}

/// A resource with its version: that alone makes it longer than its overhead in a map.
fn entry(bytes: &[u8]) -> Option<Entry> {
    let up = config::Resource::decode(bytes).ok()?;
    // A kind of a later build is kept unchanged.
    let kind = Kind::any_from_wire(up.kind).filter(|kind| kind.lane() == Lane::Config)?;
    // `up.body` is already a copy: nothing is shared with the slice.
    let entry = Entry::from_body(ResourceKey::new(kind, up.key), up.min_schema, up.body);
    (entry.version.to_bytes() == up.version).then_some(entry)
}

/// Numbers of the `Batch` fields that are read, see `stream.proto`.
const ROOT_AFTER: usize = 4;
const UP: usize = 6;

/// The next field of a message, with its bytes if it has any; an inner `None`: there are no more.
fn field<'a>(rest: &mut &'a [u8]) -> Option<Option<(usize, &'a [u8])>> {
    if rest.is_empty() {
        return Some(None);
    }
    let tag = prost::decode_length_delimiter(&mut *rest).ok()?;
    let length = match tag & 7 {
        // A number is skipped.
        0 => prost::decode_length_delimiter(&mut *rest).map(|_| 0).ok()?,
        1 => 8,
        2 => prost::decode_length_delimiter(&mut *rest).ok()?,
        5 => 4,
        _ => return None,
    };
    let (value, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(Some((tag >> 3, value)))
}

fn digest(raw: &[u8]) -> String {
    blake3::hash(raw).to_hex()[..32].to_owned()
}
