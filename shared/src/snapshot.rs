//! A set of resources with a Merkle root: the state that a control plane offers, or that a proxy has.
//!
//! Persistent: a clone shares its structure. The root is over 1,024 buckets; a change copies and hashes its own bucket, one
//! group of 32 buckets and the root. A bucket is a sorted list: with 100,000 resources it has a hundred, and a tree takes
//! five times the memory of the pointers in it.
//!
//! **Invariant:** equal sets have equal roots, in whatever order they were built.

use std::sync::Arc;

use crate::entry::Entry;
use crate::kind::ResourceKey;
use crate::version::{Root, Version, first_half};

/// Number of buckets.
pub const BUCKETS: usize = 1024;
const GROUP: usize = 32;

/// Digest of a bucket or of a group of them. All zero: empty.
pub type Digest = [u8; 16];

/// A persistent set of resources, one for each key.
#[derive(Clone)]
pub struct Snapshot {
    /// In groups of 32, shared between clones.
    buckets: [Arc<[Bucket; GROUP]>; BUCKETS / GROUP],
    groups: [Digest; BUCKETS / GROUP],
    len: usize,
}

/// The resources whose keys have the same 10 bits of hash.
#[derive(Clone, Default)]
struct Bucket {
    /// By kind and key.
    entries: Arc<[Arc<Entry>]>,
    digest: Digest,
}

/// One step of a change.
enum Step {
    Remove(ResourceKey),
    Put(Arc<Entry>),
}

impl Default for Snapshot {
    fn default() -> Self {
        let empty: Arc<[Bucket; GROUP]> = Arc::default();
        Self {
            buckets: std::array::from_fn(|_| Arc::clone(&empty)),
            groups: [Digest::default(); BUCKETS / GROUP],
            len: 0,
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
        let removed = removed.into_iter().map(|key| (bucket_of(&key), Step::Remove(key)));
        let up = up.into_iter().map(|entry| (bucket_of(&entry.key), Step::Put(entry)));
        let mut steps: Vec<(u16, Step)> = removed.chain(up).collect();
        // Stable, so that of several changes of a key the last one wins.
        steps.sort_by_key(|(bucket, _)| *bucket);
        let mut touched: Vec<usize> = Vec::new();
        for steps in steps.chunk_by(|(one, _), (other, _)| one == other) {
            let place = usize::from(steps[0].0);
            let bucket = &self.buckets[place / GROUP][place % GROUP];
            let Some(changed) = bucket.changed(steps.iter().map(|(_, step)| step)) else {
                continue;
            };
            self.len = self.len - bucket.entries.len() + changed.entries.len();
            Arc::make_mut(&mut self.buckets[place / GROUP])[place % GROUP] = changed;
            if touched.last() != Some(&(place / GROUP)) {
                touched.push(place / GROUP);
            }
        }
        for group in touched {
            let digests = std::array::from_fn(|place| self.buckets[group][place].digest);
            self.groups[group] = hash_group(&digests);
        }
    }

    /// The resource with a key.
    pub fn get(&self, key: &ResourceKey) -> Option<&Arc<Entry>> {
        let entries = &self.at(bucket_of(key)).entries;
        place(entries, key).ok().map(|at| &entries[at])
    }

    /// The version of the resource with a key.
    pub fn version(&self, key: &ResourceKey) -> Option<Version> {
        self.get(key).map(|entry| entry.version)
    }

    /// All resources, bucket by bucket.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.all().flat_map(|bucket| bucket.entries.iter())
    }

    /// Number of resources.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Digest over all of it.
    pub fn root(&self) -> Root {
        Root(first_half(&blake3::hash(self.groups.as_flattened())))
    }

    /// The resources of a bucket, by kind and key.
    pub fn bucket(&self, bucket: u16) -> impl Iterator<Item = &Arc<Entry>> {
        self.at(bucket).entries.iter()
    }

    /// Digest of a bucket.
    pub fn bucket_digest(&self, bucket: u16) -> Digest {
        self.at(bucket).digest
    }

    /// Digests of all buckets, in order.
    pub fn digests(&self) -> Vec<Digest> {
        self.all().map(|bucket| bucket.digest).collect()
    }

    fn at(&self, bucket: u16) -> &Bucket {
        let bucket = usize::from(bucket);
        &self.buckets[bucket / GROUP][bucket % GROUP]
    }

    fn all(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.iter().flat_map(|group| group.iter())
    }
}

impl Bucket {
    /// The bucket after these steps; `None` if they change nothing.
    fn changed<'a>(&self, steps: impl Iterator<Item = &'a Step>) -> Option<Self> {
        let (mut entries, mut is_changed) = (self.entries.to_vec(), false);
        for step in steps {
            match step {
                Step::Remove(key) => {
                    let Ok(at) = place(&entries, key) else { continue };
                    entries.remove(at);
                }
                Step::Put(entry) => match place(&entries, &entry.key) {
                    Ok(at) => entries[at] = Arc::clone(entry),
                    Err(at) => entries.insert(at, Arc::clone(entry)),
                },
            }
            is_changed = true;
        }
        is_changed.then(|| Self { digest: hash_bucket(&entries), entries: entries.into() })
    }
}

fn place(entries: &[Arc<Entry>], key: &ResourceKey) -> Result<usize, usize> {
    entries.binary_search_by(|entry| entry.key.cmp(key))
}

/// An empty bucket has the digest zero, so that one that lost everything equals one that never had anything.
fn hash_bucket(entries: &[Arc<Entry>]) -> Digest {
    if entries.is_empty() {
        return Digest::default();
    }
    let mut hasher = blake3::Hasher::new();
    for entry in entries {
        // A version covers kind, key and body, so it stands for all three.
        hasher.update(&entry.version.0);
    }
    first_half(&hasher.finalize())
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

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} resources at {}", self.len(), self.root().short())
    }
}

impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}
