//! TLS sessions that clients may resume, in memory.

use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use std::sync::Arc;

/// Independent parts, each with its own lock: rustls' cache has one lock, which handshakes of all workers would share.
const SHARDS: usize = 16;
/// Sessions of one part. All together they are about as many as in ingress-nginx' 10 MB.
const SESSIONS: usize = 2048;

/// A bounded cache; the oldest session of a part makes room for a new one.
#[derive(Debug)]
pub struct Sessions {
    shards: [Arc<ServerSessionMemoryCache>; SHARDS],
}

impl Default for Sessions {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| ServerSessionMemoryCache::new(SESSIONS)) }
    }
}

impl Sessions {
    /// Keys are random, so that any byte spreads them evenly.
    fn shard(&self, key: &[u8]) -> &ServerSessionMemoryCache {
        let byte = key.last().copied().unwrap_or_default();
        &self.shards[usize::from(byte) % SHARDS]
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.shard(&key).put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.shard(key).get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.shard(key).take(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}
