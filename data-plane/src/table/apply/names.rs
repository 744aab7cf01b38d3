//! Names whose addresses are endpoints: which one to resolve, and when again.
//!
//! A state machine without I/O: [`Names::next`] says what to resolve, [`Names::answered`] takes the result.
//! ingress-nginx asks every second, through a cache that keeps a response for its TTL.
//!
//! **Invariant:** a name keeps the addresses of its last response until another response replaces them; a failure does
//! not. Names that fail never take all the slots of those that do not.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of addresses used per name: the lowest ones, so that the choice does not depend on the order in a
/// response.
pub const MOST_ADDRESSES: usize = 1024;
/// Minimum time for which a response is used, whatever its TTL: the interval of ingress-nginx' lookups.
const SOONEST: Duration = Duration::from_secs(1);
/// Maximum time for which a response is used.
const LATEST: Duration = Duration::from_secs(3600);
/// A name without an address is retried after a second, then after twice as long each time, up to this.
const PATIENCE: Duration = Duration::from_secs(8);
/// Minimum interval between log messages that a name fails. Recovery is logged only if the failure was.
const TOLD: Duration = Duration::from_secs(60);
/// Maximum number of concurrent lookups.
const ASKED: usize = 64;
/// Maximum number of those for names that failed the last time: they may take long.
const ASKED_FAILING: usize = 32;

/// The result of resolving a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Addresses, and how long they may be used.
    Found {
        /// In any order.
        addresses: Vec<IpAddr>,
        /// The lowest TTL of the records.
        ttl: Duration,
    },
    /// The name does not exist, or has no address.
    Nothing,
    /// No server responded.
    Failed,
}

/// The effect of a result.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Learnt {
    /// The users of the name, if its addresses changed.
    pub users: Vec<Arc<str>>,
    /// The name started, or stopped, having no valid response, and that should be logged now.
    pub turned: bool,
}

/// All names that are in use.
#[derive(Debug, Default)]
pub struct Names {
    known: HashMap<Arc<str>, Name>,
    /// Names by due time; those that were never resolved come first.
    sound: BTreeSet<Due>,
    /// Names whose last lookup failed.
    failing: BTreeSet<Due>,
    /// Names that are being resolved, and whether they were failing.
    asked: BTreeMap<Arc<str>, bool>,
}

type Due = (Option<Instant>, Arc<str>);

#[derive(Debug, Default)]
struct Name {
    users: BTreeSet<Arc<str>>,
    /// Ascending; `None`: not resolved yet.
    addresses: Option<Arc<[IpAddr]>>,
    /// When it is due; while it is being resolved, when it was due.
    due: Option<Instant>,
    /// Number of consecutive results without an address.
    vain: u32,
    told: Told,
}

/// What was logged about a name's results.
#[derive(Debug, Default)]
struct Told {
    is_failing: bool,
    /// When its failure was last logged.
    failed: Option<Instant>,
}

impl Told {
    /// Records whether the name currently resolves. Returns whether to log it: a name that flaps would fill the log.
    /// What is skipped is made up for by a later result, and a failing name is retried soon.
    fn turns(&mut self, is_sound: bool, now: Instant) -> bool {
        let is_due = || self.failed.is_none_or(|failed| now.duration_since(failed) >= TOLD);
        match (self.is_failing, is_sound) {
            (true, true) => self.is_failing = false,
            (false, false) if is_due() => *self = Self { is_failing: true, failed: Some(now) },
            _ => return false,
        }
        true
    }
}

impl Names {
    /// Adds a user of a name.
    pub fn want(&mut self, name: &str, user: &Arc<str>) {
        if let Some(known) = self.known.get_mut(name) {
            known.users.insert(Arc::clone(user));
            return;
        }
        let key: Arc<str> = name.into();
        let users = BTreeSet::from([Arc::clone(user)]);
        self.known.insert(Arc::clone(&key), Name { users, ..Name::default() });
        // A lookup in progress for a former user will do.
        if !self.asked.contains_key(&key) {
            self.sound.insert((None, key));
        }
    }

    /// Removes a user of a name.
    pub fn leave(&mut self, name: &str, user: &str) {
        let Some(known) = self.known.get_mut(name) else {
            return;
        };
        known.users.remove(user);
        if known.users.is_empty()
            && let Some((key, Name { due, .. })) = self.known.remove_entry(name)
        {
            let due = (due, key);
            self.sound.remove(&due);
            self.failing.remove(&due);
        }
    }

    /// The addresses of a name, `None` while it was not resolved yet.
    pub fn addresses(&self, name: &str) -> Option<&[IpAddr]> {
        self.known.get(name)?.addresses.as_deref()
    }

    /// Whether every name was resolved, or failed, at least once.
    pub fn is_settled(&self) -> bool {
        self.known.values().all(|name| name.addresses.is_some())
    }

    /// The next name to resolve now. It is in progress until [`Self::answered`].
    pub fn next(&mut self, now: Instant) -> Option<Arc<str>> {
        let is_due = |(due, _): &Due| due.is_none_or(|due| due <= now);
        let first = |queue: &BTreeSet<Due>| queue.first().filter(|due| is_due(due)).cloned();
        if self.asked.len() >= ASKED {
            return None;
        }
        let sound = first(&self.sound);
        let (is_failing, due) = match sound {
            Some(due) => (false, due),
            None => (true, first(&self.failing).filter(|_| self.asks_failing())?),
        };
        let queue = if is_failing { &mut self.failing } else { &mut self.sound };
        queue.remove(&due);
        let (_, name) = due;
        self.asked.insert(Arc::clone(&name), is_failing);
        Some(name)
    }

    /// When [`Self::next`] may return a name, if nothing else happens before.
    pub fn wake(&self) -> Option<Option<Instant>> {
        let of = |queue: &BTreeSet<Due>| queue.first().map(|(due, _)| *due);
        let failing = of(&self.failing).filter(|_| self.asks_failing());
        let both = [of(&self.sound), failing].into_iter().flatten();
        both.min().filter(|_| self.asked.len() < ASKED)
    }

    /// Processes the result of resolving a name.
    pub fn answered(&mut self, name: &str, answer: Answer, now: Instant) -> Learnt {
        self.asked.remove(name);
        let Some((key, _)) = self.known.get_key_value(name) else {
            return Learnt::default();
        };
        let key = Arc::clone(key);
        let Some(known) = self.known.get_mut(name) else {
            return Learnt::default();
        };
        let before = known.addresses.take();
        let (addresses, again) = match answer {
            Answer::Found { addresses, ttl } if !addresses.is_empty() => {
                known.vain = 0;
                (ordered(addresses), ttl.clamp(SOONEST, LATEST))
            }
            answer => {
                known.vain = known.vain.saturating_add(1);
                let kept = before.clone().filter(|_| answer == Answer::Failed);
                let doubled = SOONEST.saturating_mul(1 << (known.vain - 1).min(16));
                (kept.unwrap_or_default(), doubled.min(PATIENCE))
            }
        };
        let is_sound = known.vain == 0;
        let has_changed = before.as_ref() != Some(&addresses);
        known.addresses = Some(addresses);
        known.due = Some(now + again);
        let turned = known.told.turns(is_sound, now);
        let queue = if is_sound { &mut self.sound } else { &mut self.failing };
        queue.insert((known.due, key));
        let users = if has_changed { known.users.iter().cloned().collect() } else { Vec::new() };
        Learnt { users, turned }
    }

    fn asks_failing(&self) -> bool {
        self.asked.values().filter(|failing| **failing).count() < ASKED_FAILING
    }
}

/// Ascending and unique: a response in another order is equal, and the endpoints keep their places.
fn ordered(mut addresses: Vec<IpAddr>) -> Arc<[IpAddr]> {
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(MOST_ADDRESSES);
    addresses.into()
}

#[cfg(test)]
mod tests;
