//! A set of resources with a Merkle root: the state that a control plane offers, or that a proxy has.
//!
//! Persistent: a clone shares its structure, a change copies one path. The root is over 1,024 buckets; a change hashes
//! its own bucket, one group of 32 buckets and the root, so that its cost does not grow with the set.
//!
//! **Invariant:** equal sets have equal roots, in whatever order they were built.

use std::ops::RangeInclusive;
use std::sync::Arc;

use imbl::OrdMap;

use crate::entry::Entry;
use crate::kind::{Kind, ResourceKey};
use crate::version::{Root, Version, first_half};

/// Number of buckets.
pub const BUCKETS: usize = 1024;
const GROUP: usize = 32;

/// Digest of a bucket or of a group of them. All zero: empty.
pub type Digest = [u8; 16];

/// The position of a resource: its bucket first, so that a bucket is one range of the map.
type Place = (u16, ResourceKey);

/// A persistent set of resources, one for each key.
#[derive(Clone)]
pub struct Snapshot {
    entries: OrdMap<Place, Arc<Entry>>,
    /// Digests of the buckets in groups of 32, shared between clones.
    buckets: [Arc<[Digest; GROUP]>; BUCKETS / GROUP],
    groups: [Digest; BUCKETS / GROUP],
}

impl Default for Snapshot {
    fn default() -> Self {
        let empty = Arc::new([Digest::default(); GROUP]);
        Self {
            entries: OrdMap::new(),
            buckets: std::array::from_fn(|_| Arc::clone(&empty)),
            groups: [Digest::default(); BUCKETS / GROUP],
        }
    }
}

impl Snapshot {
    /// Inserts resources, each replacing the one with its key.
    pub fn extend(&mut self, entries: impl IntoIterator<Item = Arc<Entry>>) {
        self.change(entries, []);
    }

    /// Inserts a resource.
    pub fn insert(&mut self, entry: Arc<Entry>) {
        self.change([entry], []);
    }

    /// Removes a resource.
    pub fn remove(&mut self, key: &ResourceKey) {
        self.change([], [key.clone()]);
    }

    /// Removes `removed`, then inserts `up`; hashes each bucket that changed once.
    pub fn change(
        &mut self,
        up: impl IntoIterator<Item = Arc<Entry>>,
        removed: impl IntoIterator<Item = ResourceKey>,
    ) {
        let mut touched = Vec::new();
        for key in removed {
            let place = (bucket_of(&key), key);
            if self.entries.remove(&place).is_some() {
                touched.push(place.0);
            }
        }
        for entry in up {
            let place = (bucket_of(&entry.key), entry.key.clone());
            touched.push(place.0);
            self.entries.insert(place, entry);
        }
        self.rehash(touched);
    }

    /// The resource with a key.
    pub fn get(&self, key: &ResourceKey) -> Option<&Arc<Entry>> {
        self.entries.get(&(bucket_of(key), key.clone()))
    }

    /// The version of the resource with a key.
    pub fn version(&self, key: &ResourceKey) -> Option<Version> {
        self.get(key).map(|entry| entry.version)
    }

    /// All resources, bucket by bucket.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }

    /// Number of resources.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Digest over all of it.
    pub fn root(&self) -> Root {
        Root(first_half(&blake3::hash(self.groups.as_flattened())))
    }

    /// The resources of a bucket, by kind and key.
    pub fn bucket(&self, bucket: u16) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.range(range_of(bucket)).map(|(_, entry)| entry)
    }

    /// Digest of a bucket.
    pub fn bucket_digest(&self, bucket: u16) -> Digest {
        let bucket = usize::from(bucket);
        self.buckets[bucket / GROUP][bucket % GROUP]
    }

    /// Digests of all buckets, in order.
    pub fn digests(&self) -> Vec<Digest> {
        self.buckets.iter().flat_map(|group| group.iter().copied()).collect()
    }

    fn rehash(&mut self, mut touched: Vec<u16>) {
        touched.sort_unstable();
        touched.dedup();
        let mut groups: Vec<usize> = Vec::new();
        for bucket in touched {
            let digest = self.hash_bucket(bucket);
            let bucket = usize::from(bucket);
            Arc::make_mut(&mut self.buckets[bucket / GROUP])[bucket % GROUP] = digest;
            if groups.last() != Some(&(bucket / GROUP)) {
                groups.push(bucket / GROUP);
            }
        }
        for group in groups {
            self.groups[group] = hash_group(&self.buckets[group]);
        }
    }

    /// An empty bucket has the digest zero, so that one that lost everything equals one that never had anything.
    fn hash_bucket(&self, bucket: u16) -> Digest {
        let mut hasher = blake3::Hasher::new();
        let mut empty = true;
        for entry in self.bucket(bucket) {
            empty = false;
            // A version covers kind, key and body, so it stands for all three.
            hasher.update(&entry.version.0);
        }
        if empty { Digest::default() } else { first_half(&hasher.finalize()) }
    }
}

/// The root of a set whose buckets have these digests; `None` if their number is wrong.
pub fn root_of(digests: &[Digest]) -> Option<Root> {
    let (groups, rest) = digests.as_chunks::<GROUP>();
    if groups.len() != BUCKETS / GROUP || !rest.is_empty() {
        return None;
    }
    let groups: Vec<Digest> = groups.iter().map(hash_group).collect();
    Some(Root(first_half(&blake3::hash(groups.as_flattened()))))
}

/// Zero for a group without entries, as for a bucket.
fn hash_group(buckets: &[Digest; GROUP]) -> Digest {
    if buckets.iter().all(|digest| *digest == Digest::default()) {
        Digest::default()
    } else {
        first_half(&blake3::hash(buckets.as_flattened()))
    }
}

/// The bucket of a key: 10 bits of the hash of kind and key.
pub fn bucket_of(key: &ResourceKey) -> u16 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[key.kind.number()]);
    hasher.update(key.key.as_bytes());
    let hash = hasher.finalize();
    u16::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]) % BUCKETS as u16
}

fn range_of(bucket: u16) -> RangeInclusive<Place> {
    // Settings is the least kind and "" the least key; no real key has the first position of the next bucket.
    let first = |bucket| (bucket, ResourceKey::new(Kind::Settings, ""));
    first(bucket)..=first(bucket + 1)
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} resources at {}", self.len(), self.root().short())
    }
}

impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}
