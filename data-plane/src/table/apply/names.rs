//! Names whose addresses are endpoints: which of them is to be asked for, and when again.
//!
//! A core without I/O: [`Names::next`] says what to ask, [`Names::answered`] takes in what came of it. The original asks
//! every second through a cache that keeps an answer for its time to live (balancing.md 10).
//!
//! **Invariant:** a name keeps the addresses of its last answer until an answer says otherwise, and a failure is none.
//! Names that fail never take all the places of those that do not.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Addresses of one name that are used: the lowest, so that the same ones are, whatever the order of an answer.
pub const MOST_ADDRESSES: usize = 1024;
/// An answer is used for so long at least, whatever it says. As often as the original looks.
const SOONEST: Duration = Duration::from_secs(1);
/// And for so long at most.
const LATEST: Duration = Duration::from_secs(3600);
/// What gave no address is asked for again after a second, then after twice as long each time, up to this.
const PATIENCE: Duration = Duration::from_secs(8);
/// That a name has no good answer is told so often at most, and that it has one again only where that was told.
const TOLD: Duration = Duration::from_secs(60);
/// Names that are asked for at a time.
const ASKED: usize = 64;
/// Those of them that had no good answer the last time: they may take long.
const ASKED_FAILING: usize = 32;

/// What came of asking for a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Addresses, and how long they may be used.
    Found {
        /// In any order.
        addresses: Vec<IpAddr>,
        /// Of the record that lives shortest.
        ttl: Duration,
    },
    /// The name does not exist, or has no address.
    Nothing,
    /// Nobody could tell.
    Failed,
}

/// What an answer changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Learnt {
    /// Who uses the name, where its addresses are others now.
    pub users: Vec<Arc<str>>,
    /// It has begun, or ceased, to have no good answer, which is to be told now.
    pub turned: bool,
}

/// All names that are in use.
#[derive(Debug, Default)]
pub struct Names {
    known: HashMap<Arc<str>, Name>,
    /// Names by when they are due; those that were never asked for come first.
    sound: BTreeSet<Due>,
    /// Of which the last answer was no good one.
    failing: BTreeSet<Due>,
    /// Names that are being asked for, and whether they were failing.
    asked: BTreeMap<Arc<str>, bool>,
}

type Due = (Option<Instant>, Arc<str>);

#[derive(Debug, Default)]
struct Name {
    users: BTreeSet<Arc<str>>,
    /// Ascending; `None`: nobody has answered yet.
    addresses: Option<Arc<[IpAddr]>>,
    /// When it is asked for again; while it is being asked for, when it was to be.
    due: Option<Instant>,
    /// Answers in a row that gave no address.
    vain: u32,
    told: Told,
}

/// What was told of a name's answers.
#[derive(Debug, Default)]
struct Told {
    is_failing: bool,
    /// When it was told last that it fails.
    failed: Option<Instant>,
}

impl Told {
    /// Takes in whether the name has a good answer now. Whether that is to be told: one that comes and goes would fill a
    /// log. What is left out is made up for by a later answer, and a name that fails is asked for again soon.
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
    /// A name is in use by one more.
    pub fn want(&mut self, name: &str, user: &Arc<str>) {
        if let Some(known) = self.known.get_mut(name) {
            known.users.insert(Arc::clone(user));
            return;
        }
        let key: Arc<str> = name.into();
        let users = BTreeSet::from([Arc::clone(user)]);
        self.known.insert(Arc::clone(&key), Name { users, ..Name::default() });
        // What is on its way for somebody who left will do.
        if !self.asked.contains_key(&key) {
            self.sound.insert((None, key));
        }
    }

    /// One uses it no longer.
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

    /// The addresses of a name, `None` while nobody has answered.
    pub fn addresses(&self, name: &str) -> Option<&[IpAddr]> {
        self.known.get(name)?.addresses.as_deref()
    }

    /// Whether every name was answered, or failed, once.
    pub fn is_settled(&self) -> bool {
        self.known.values().all(|name| name.addresses.is_some())
    }

    /// A name to ask for now. It counts as being asked for until [`Self::answered`].
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

    /// When [`Self::next`] may have one, if nothing else happens before.
    pub fn wake(&self) -> Option<Option<Instant>> {
        let of = |queue: &BTreeSet<Due>| queue.first().map(|(due, _)| *due);
        let failing = of(&self.failing).filter(|_| self.asks_failing());
        let both = [of(&self.sound), failing].into_iter().flatten();
        both.min().filter(|_| self.asked.len() < ASKED)
    }

    /// Takes in what came of asking for a name.
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

/// Ascending, each once: an answer in another order is the same one, and the endpoints keep their places.
fn ordered(mut addresses: Vec<IpAddr>) -> Arc<[IpAddr]> {
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(MOST_ADDRESSES);
    addresses.into()
}

#[cfg(test)]
mod tests;
