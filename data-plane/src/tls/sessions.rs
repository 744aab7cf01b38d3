//! The in-memory cache of TLS sessions that clients may resume.

use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use std::sync::Arc;

/// Independent parts, each with its own lock: rustls' cache has a single lock, which handshakes of all workers would
/// share.
const SHARDS: usize = 16;
/// Sessions per part. In total about as many as in ingress-nginx' 10 MB.
const SESSIONS: usize = 2048;

/// A bounded cache; a new session evicts the oldest of its part.
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
    /// Keys are random, so any byte spreads them evenly.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_sessions_are_remembered_and_the_oldest_goes() {
        let sessions = Sessions::default();
        // All in one part: the last byte is the same.
        let key = |number: usize| [&number.to_be_bytes()[..], &[7]].concat();
        let most = (0..).take_while(|number| {
            assert!(sessions.put(key(*number), vec![1]));
            sessions.get(&key(0)).is_some()
        });
        let most = most.count();
        assert!((SESSIONS..=2 * SESSIONS).contains(&most), "{most}");
        assert!(sessions.get(&key(1)).is_some() && sessions.get(&key(most)).is_some());
        assert!(
            sessions.put(vec![6], vec![1]) && sessions.get(&key(1)).is_some(),
            "another part has its own"
        );
    }
}
