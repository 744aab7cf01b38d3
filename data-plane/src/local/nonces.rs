//! Nonces of digest authentication (RFC 7616 section 3.3): issued without storing them, and stored from their first
//! use on.
//!
//! A nonce contains its time and a proof that this process made it. So a client that requests nonces and never
//! responds costs nothing, and memory is used only for clients that have sent a correct digest. Lifetimes are those of
//! the module built into ingress-nginx. The memory is shared fairly between lists of users: someone on one list who
//! uses up nonces leaves no room only for the users of that list.
//!
//! **Invariant:** no nonce count is accepted twice, whichever worker is asked.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs::default_provider;
use subtle::ConstantTimeEq as _;

use super::shares::Shares;

/// Time for the first use of a nonce: `auth_digest_timeout`.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Lifetime from then on: `auth_digest_expires`.
const EXPIRES: Duration = Duration::from_secs(10);
/// Maximum number of requests: `auth_digest_replays`.
const REPLAYS: u32 = 20;
/// Independent parts of the memory, each with its own lock.
const SHARDS: usize = 16;
/// Nonces in use per part.
const IN_USE: usize = 1024;

/// Time in milliseconds, then random bytes.
const OWN: usize = 16;
const LENGTH: usize = OWN + 16;

/// Issues nonces and counts their uses. Clones share the state.
#[derive(Clone, Default)]
pub struct Nonces(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Initialised on first use; `None`: no randomness is available, and nobody is admitted.
    made: OnceLock<Option<Made>>,
    used: [Mutex<Part>; SHARDS],
}

struct Part {
    used: HashMap<[u8; OWN], Uses>,
    /// Of the lists of users.
    shares: Shares,
}

struct Made {
    key: [u8; 32],
    since: Instant,
}

struct Uses {
    until: Instant,
    /// One bit for each nonce count.
    counts: u32,
    list: Arc<str>,
}

impl Default for Part {
    fn default() -> Self {
        Self { used: HashMap::new(), shares: Shares::new(IN_USE) }
    }
}

impl fmt::Debug for Nonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nonces").finish_non_exhaustive()
    }
}

impl Nonces {
    /// A new nonce in hexadecimal digits; `None` if no randomness is available.
    pub(crate) fn issue(&self, now: Instant) -> Option<String> {
        let made = self.0.made(now)?;
        let mut own = [0; OWN];
        default_provider().secure_random.fill(&mut own).ok()?;
        let age = u64::try_from(now.saturating_duration_since(made.since).as_millis()).ok()?;
        own[..8].copy_from_slice(&age.to_be_bytes());
        let proof = made.proof(&own);
        Some(own.iter().chain(&proof).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Whether a nonce is valid with this count: it is one of ours, current, and was not used with this count before.
    /// It takes a slot of a list of users (`namespace/..`).
    pub(crate) fn take(&self, list: &Arc<str>, nonce: &str, count: u32, now: Instant) -> bool {
        let Some((own, issued)) = self.0.own(nonce, now) else { return false };
        let Some(bit) = count.checked_sub(1).filter(|bit| *bit < REPLAYS).map(|bit| 1 << bit) else {
            return false;
        };
        let part = &self.0.used[usize::from(own[OWN - 1]) % SHARDS];
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uses) = part.used.get_mut(&own) {
            let fresh = now < uses.until && uses.counts & bit == 0;
            uses.counts |= bit;
            return fresh;
        }
        if now.saturating_duration_since(issued) >= TIMEOUT {
            return false;
        }
        let room = part.room(list, now);
        if room {
            part.used.insert(own, Uses { until: now + EXPIRES, counts: bit, list: Arc::clone(list) });
        }
        room
    }
}

impl Part {
    /// Reserves a slot for a nonce of a list.
    fn room(&mut self, list: &str, now: Instant) -> bool {
        if self.shares.take(list) {
            return true;
        }
        let Self { used, shares } = self;
        used.retain(|_, uses| {
            // A nonce that could be used again as if for the first time must not be forgotten.
            let stays = now < uses.until + TIMEOUT;
            if !stays {
                shares.give(&uses.list);
            }
            stays
        });
        shares.take(list)
    }
}

impl Shared {
    fn made(&self, now: Instant) -> Option<&Made> {
        let make = || {
            let mut key = [0; 32];
            default_provider().secure_random.fill(&mut key).is_ok().then_some(Made { key, since: now })
        };
        self.made.get_or_init(make).as_ref()
    }

    /// The contents of a nonce of this process, and its time of issue.
    fn own(&self, nonce: &str, now: Instant) -> Option<([u8; OWN], Instant)> {
        let made = self.made(now)?;
        if nonce.len() != 2 * LENGTH || !nonce.is_ascii() {
            return None;
        }
        let mut bytes = [0; LENGTH];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&nonce[at..at + 2], 16).ok()?;
        }
        let own: [u8; OWN] = bytes[..OWN].try_into().ok()?;
        if !bool::from(bytes[OWN..].ct_eq(&made.proof(&own))) {
            return None;
        }
        let age = u64::from_be_bytes(own[..8].try_into().ok()?);
        Some((own, made.since.checked_add(Duration::from_millis(age))?))
    }
}

impl Made {
    fn proof(&self, own: &[u8; OWN]) -> [u8; 16] {
        let mut proof = [0; 16];
        proof.copy_from_slice(&blake3::keyed_hash(&self.key, own).as_bytes()[..16]);
        proof
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Arc<str> {
        "ns/users/auth-file".into()
    }

    #[test]
    fn a_nonce_serves_for_a_while_and_each_count_once() {
        let (nonces, start) = (Nonces::default(), Instant::now());
        let nonce = nonces.issue(start).unwrap();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        assert!(nonces.take(&list(), &nonce, 1, at(59.0)));
        assert!(!nonces.take(&list(), &nonce, 1, at(59.0)), "a replay");
        assert!(
            nonces.take(&list(), &nonce, REPLAYS, at(60.0)) && nonces.take(&list(), &nonce, 3, at(68.9)),
            "in any order"
        );
        assert!(
            !nonces.take(&list(), &nonce, 0, at(60.0))
                && !nonces.take(&list(), &nonce, REPLAYS + 1, at(60.0))
        );
        assert!(!nonces.take(&list(), &nonce, 4, at(69.0)), "its time is over");
        let late = nonces.issue(start).unwrap();
        assert!(!nonces.take(&list(), &late, 1, at(60.0)), "it waited too long");
    }

    #[test]
    fn only_ours_count() {
        let (nonces, now) = (Nonces::default(), Instant::now());
        let nonce = nonces.issue(now).unwrap();
        assert_ne!(nonce, nonces.issue(now).unwrap());
        assert!(!Nonces::default().take(&list(), &nonce, 1, now), "another process'");
        for at in 0..nonce.len() {
            let mut forged = nonce.clone().into_bytes();
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            assert!(!nonces.take(&list(), str::from_utf8(&forged).unwrap(), 1, now), "{at}");
        }
        for other in ["", "00", &nonce[1..], &"ä".repeat(LENGTH), &"+1".repeat(LENGTH)] {
            assert!(!nonces.take(&list(), other, 1, now), "{other}");
        }
        assert!(nonces.take(&list(), &nonce, 1, now));
    }

    /// Uses nonces for a list until no slots are left.
    fn fill(nonces: &Nonces, list: &Arc<str>, now: Instant) -> Vec<String> {
        let fresh = (0..2 * SHARDS * IN_USE).map(|_| nonces.issue(now).unwrap());
        fresh.filter(|nonce| nonces.take(list, nonce, 1, now)).collect()
    }

    #[test]
    fn a_table_of_nonces_is_bounded_and_forgets_nothing_that_counts() {
        let (nonces, now) = (Nonces::default(), Instant::now());
        let lists: [Arc<str>; 2] = [list(), "shop/users/auth-file".into()];
        let taken: Vec<_> = lists.iter().flat_map(|list| fill(&nonces, list, now)).collect();
        assert!(taken.len() < SHARDS * IN_USE);
        assert!(lists.iter().all(|list| taken.iter().all(|nonce| !nonces.take(list, nonce, 1, now))));
        let later = now + TIMEOUT + EXPIRES;
        let nonce = nonces.issue(later).unwrap();
        assert!(nonces.take(&lists[0], &nonce, 1, later), "there is room again");
        assert!(!nonces.take(&lists[0], &taken[0], 2, later));
    }

    #[test]
    fn a_list_that_uses_up_nonces_leaves_room_to_others() {
        let (nonces, now) = (Nonces::default(), Instant::now());
        let taken = fill(&nonces, &list(), now);
        assert!(taken.len() < SHARDS * IN_USE && taken.len() > SHARDS * IN_USE / 2, "{}", taken.len());
        for other in ["ns/other/auth-file", "shop/users/auth-file"] {
            for _ in 0..SHARDS {
                let nonce = nonces.issue(now).unwrap();
                assert!(nonces.take(&other.into(), &nonce, 1, now), "{other}");
            }
        }
        assert!(nonces.take(&list(), &taken[0], 2, now), "what it has goes on");
        assert!(
            !nonces.take(&"shop/users/auth-file".into(), &taken[0], 2, now),
            "and counts wherever it is shown"
        );
    }
}
