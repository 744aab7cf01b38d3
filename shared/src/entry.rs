//! A resource as it is stored, hashed and sent: encoded exactly once.

use std::sync::Arc;

use bytes::Bytes;

use crate::kind::{Kind, ResourceKey};
use crate::resource::Resource;
use crate::secret;
use crate::version::Version;

/// Limit of a body in bytes. A resource is one message, or part of one: a proxy accepts messages of twice this size.
pub const MAX_BODY: usize = 4 << 20;

/// One encoded resource.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Kind and key.
    pub key: ResourceKey,
    /// Hash of kind, key and body.
    pub version: Version,
    /// Lowest schema revision that honours every field set in the body.
    pub min_schema: u32,
    /// The encoded message.
    pub body: Bytes,
}

impl Entry {
    /// Encodes a resource under its key.
    pub fn encode(key: impl Into<Arc<str>>, resource: &Resource) -> Self {
        let (min_schema, body) = resource.encode_with_schema();
        Self::from_body(ResourceKey::new(resource.kind(), key), min_schema, body)
    }

    /// From received bytes. Those of secrets are wiped when the last reference is dropped.
    pub fn from_body(key: ResourceKey, min_schema: u32, body: Bytes) -> Self {
        let version = Version::of(key.kind, &key.key, &body);
        let body = if key.kind.is_secret() { secret::kept(body) } else { body };
        Self { key, version, min_schema, body }
    }

    /// Its approximate size on the wire, by which chunks are measured.
    pub fn wire_size(&self) -> usize {
        self.body.len() + self.key.key.len() + 32
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.key.kind
    }
}

/// Shows the key without the body, which may be secret.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{} ({} bytes)", self.key, self.version, self.body.len())
    }
}
