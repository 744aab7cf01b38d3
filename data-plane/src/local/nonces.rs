//! Nonces of digest authentication (RFC 7616 section 3.3): given out without a trace, remembered from their first use on.
//!
//! A nonce carries its time and a proof that this process made it. So whoever asks and never answers costs nothing, and
//! memory is held only of who has shown a right digest. Lifetimes are those of the module that ingress-nginx has built in.
//!
//! **Invariant:** no count is taken twice of one nonce, whichever worker is asked.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs::default_provider;
use subtle::ConstantTimeEq as _;

/// A nonce may wait so long for its first use: `auth_digest_timeout`.
const TIMEOUT: Duration = Duration::from_secs(60);
/// It serves so long from then on: `auth_digest_expires`.
const EXPIRES: Duration = Duration::from_secs(10);
/// And for so many requests: `auth_digest_replays`.
const REPLAYS: u32 = 20;
/// Independent parts of what is remembered, each with its own lock.
const SHARDS: usize = 16;
/// Nonces in use of one part.
const IN_USE: usize = 1024;

/// Time in milliseconds, then randomness.
const OWN: usize = 16;
const LENGTH: usize = OWN + 16;

/// Gives out nonces and counts their uses. A clone is the same one.
#[derive(Clone, Default)]
pub struct Nonces(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Made up at the first use; `None`: there is no randomness, and nobody gets in.
    made: OnceLock<Option<Made>>,
    used: [Mutex<HashMap<[u8; OWN], Uses>>; SHARDS],
}

struct Made {
    key: [u8; 32],
    since: Instant,
}

struct Uses {
    until: Instant,
    /// A bit for each count.
    counts: u32,
}

impl fmt::Debug for Nonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nonces").finish_non_exhaustive()
    }
}

impl Nonces {
    /// A new one, of hexadecimal digits; `None` where there is no randomness.
    pub(crate) fn issue(&self, now: Instant) -> Option<String> {
        let made = self.0.made(now)?;
        let mut own = [0; OWN];
        default_provider().secure_random.fill(&mut own).ok()?;
        let age = u64::try_from(now.saturating_duration_since(made.since).as_millis()).ok()?;
        own[..8].copy_from_slice(&age.to_be_bytes());
        let proof = made.proof(&own);
        Some(own.iter().chain(&proof).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Whether a nonce may be used with this count: it is one of ours, of now, and was not used with it before.
    pub(crate) fn take(&self, nonce: &str, count: u32, now: Instant) -> bool {
        let Some((own, issued)) = self.0.own(nonce, now) else { return false };
        let Some(bit) = count.checked_sub(1).filter(|bit| *bit < REPLAYS).map(|bit| 1 << bit) else {
            return false;
        };
        let mut used =
            self.0.used[usize::from(own[OWN - 1]) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uses) = used.get_mut(&own) {
            let fresh = now < uses.until && uses.counts & bit == 0;
            uses.counts |= bit;
            return fresh;
        }
        if now.saturating_duration_since(issued) >= TIMEOUT {
            return false;
        }
        if used.len() >= IN_USE {
            // One that could be used again for the first time is not forgotten.
            used.retain(|_, uses| now < uses.until + TIMEOUT);
        }
        let room = used.len() < IN_USE;
        if room {
            used.insert(own, Uses { until: now + EXPIRES, counts: bit });
        }
        room
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

    /// What a nonce of this process says, and when it was given out.
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

    #[test]
    fn a_nonce_serves_for_a_while_and_each_count_once() {
        let (nonces, start) = (Nonces::default(), Instant::now());
        let nonce = nonces.issue(start).unwrap();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        assert!(nonces.take(&nonce, 1, at(59.0)));
        assert!(!nonces.take(&nonce, 1, at(59.0)), "a replay");
        assert!(nonces.take(&nonce, REPLAYS, at(60.0)) && nonces.take(&nonce, 3, at(68.9)), "in any order");
        assert!(!nonces.take(&nonce, 0, at(60.0)) && !nonces.take(&nonce, REPLAYS + 1, at(60.0)));
        assert!(!nonces.take(&nonce, 4, at(69.0)), "its time is over");
        let late = nonces.issue(start).unwrap();
        assert!(!nonces.take(&late, 1, at(60.0)), "it waited too long");
    }

    #[test]
    fn only_ours_count() {
        let (nonces, now) = (Nonces::default(), Instant::now());
        let nonce = nonces.issue(now).unwrap();
        assert_ne!(nonce, nonces.issue(now).unwrap());
        assert!(!Nonces::default().take(&nonce, 1, now), "another process'");
        for at in 0..nonce.len() {
            let mut forged = nonce.clone().into_bytes();
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            assert!(!nonces.take(str::from_utf8(&forged).unwrap(), 1, now), "{at}");
        }
        for other in ["", "00", &nonce[1..], &"ä".repeat(LENGTH), &"+1".repeat(LENGTH)] {
            assert!(!nonces.take(other, 1, now), "{other}");
        }
        assert!(nonces.take(&nonce, 1, now));
    }

    #[test]
    fn a_table_of_nonces_is_bounded_and_forgets_nothing_that_counts() {
        let (nonces, now) = (Nonces::default(), Instant::now());
        let mut taken = Vec::new();
        for _ in 0..2 * SHARDS * IN_USE {
            let nonce = nonces.issue(now).unwrap();
            if nonces.take(&nonce, 1, now) {
                taken.push(nonce);
            }
        }
        assert_eq!(taken.len(), SHARDS * IN_USE);
        assert!(taken.iter().all(|nonce| !nonces.take(nonce, 1, now)));
        let later = now + TIMEOUT + EXPIRES;
        let nonce = nonces.issue(later).unwrap();
        assert!(nonces.take(&nonce, 1, later), "there is room again");
        assert!(!nonces.take(&taken[0], 2, later));
    }
}
