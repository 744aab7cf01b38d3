//! The cache of external authentication responses, shared by all workers and bounded in bytes.
//!
//! **Invariant:** a response is found only by the digest of everything that it depends on.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;

/// Independent parts, each with its own lock.
const SHARDS: usize = 16;
/// Bytes of one half of a part: 16 MiB in all.
const BYTES: usize = 512 * 1024;
/// Bytes per response in addition to its fields: the struct, and two table entries, half of which may be empty.
const ENTRY: usize = 256;
/// Bytes per field in addition to name and value: its entry, and the bookkeeping of the allocator and of shared
/// buffers.
const FIELD: usize = size_of::<(Bytes, Option<Bytes>)>() + 2 * 32;

/// The cache key of a request.
pub(crate) type Key = [u8; 32];

/// A response of external authentication.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AuthResponse {
    pub(crate) status: u16,
    /// The headers for the backend and their values; an empty one: the client's is removed.
    pub(crate) fields: Vec<(Bytes, Bytes)>,
    /// Each `WWW-Authenticate` line.
    pub(crate) challenges: Vec<Bytes>,
    pub(crate) cookies: Vec<Bytes>,
    /// The header fields of the request that the response depends on, according to its Vary.
    pub(crate) varies: Option<Bytes>,
}

impl AuthResponse {
    /// All memory that it holds: no part of it refers to something larger.
    fn size(&self) -> usize {
        let fields = self.fields.iter().map(|(name, value)| FIELD + name.len() + value.len());
        let varies = self.varies.as_ref().map_or(0, Bytes::len);
        let lines = self.cookies.iter().chain(&self.challenges).map(|line| FIELD + line.len());
        ENTRY + fields.chain(lines).sum::<usize>() + varies
    }
}

/// The cache. Clones share it.
#[derive(Clone, Default)]
pub struct AuthCache(Arc<[Mutex<Halves>; SHARDS]>);

impl fmt::Debug for AuthCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthCache").finish_non_exhaustive()
    }
}

/// When the newer half is full it becomes the older one.
#[derive(Default)]
struct Halves {
    newer: HashMap<Key, (Instant, Arc<AuthResponse>)>,
    older: HashMap<Key, (Instant, Arc<AuthResponse>)>,
    bytes: usize,
}

impl AuthCache {
    /// The cached response for a key, unless it has expired.
    pub(crate) fn find(&self, key: &Key, now: Instant) -> Option<Arc<AuthResponse>> {
        let halves = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        let (until, response) = halves.newer.get(key).or_else(|| halves.older.get(key))?;
        (now < *until).then(|| Arc::clone(response))
    }

    /// Caches a response, unless it is too long.
    pub(crate) fn keep(&self, key: Key, until: Instant, response: &Arc<AuthResponse>) {
        let size = response.size();
        if size > BYTES / 16 {
            return;
        }
        let mut halves = self.shard(&key).lock().unwrap_or_else(PoisonError::into_inner);
        if halves.bytes + size > BYTES {
            halves.older = std::mem::take(&mut halves.newer);
            halves.bytes = 0;
        }
        halves.bytes += size;
        halves.newer.insert(key, (until, Arc::clone(response)));
    }

    fn shard(&self, key: &Key) -> &Mutex<Halves> {
        &self.0[usize::from(key[0]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_that_is_kept_is_counted() {
        let value = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
        let response = AuthResponse {
            fields: vec![(value(10), value(1_000)), (value(10), Bytes::new())],
            challenges: vec![value(100)],
            cookies: vec![value(500)],
            ..AuthResponse::default()
        };
        let (own, fields) = (size_of::<AuthResponse>(), 2 * size_of::<(Bytes, Bytes)>());
        assert!(
            response.size() >= 1_620 + own + fields + 2 * size_of::<(Key, (Instant, Arc<AuthResponse>))>()
        );
        assert!(response.size() < 1_620 + 1_024);
        assert!(AuthResponse::default().size() >= own + 2 * size_of::<(Key, (Instant, Arc<AuthResponse>))>());
    }

    #[test]
    fn answers_are_kept_for_their_time_and_within_bounds() {
        let cache = AuthCache::default();
        let now = shared::clock::now();
        let response = |bytes: usize| {
            Arc::new(AuthResponse {
                status: 200,
                challenges: vec![vec![b'x'; bytes].into()],
                ..AuthResponse::default()
            })
        };
        let key = |n: u32| {
            let mut key = Key::default();
            key[4..8].copy_from_slice(&n.to_le_bytes());
            key
        };
        cache.keep(key(0), now + Duration::from_secs(5), &response(1));
        assert_eq!(cache.find(&key(0), now).unwrap().status, 200);
        assert!(cache.find(&key(0), now + Duration::from_secs(5)).is_none());
        assert!(cache.find(&key(1), now).is_none());
        cache.keep(key(2), now + Duration::from_secs(5), &response(BYTES));
        assert!(cache.find(&key(2), now).is_none(), "too long");
        for n in 3..5_000 {
            cache.keep(key(n), now + Duration::from_secs(5), &response(1024));
        }
        let halves = cache.shard(&key(0)).lock().unwrap();
        assert!(halves.newer.len() + halves.older.len() < 1_000);
    }
}
