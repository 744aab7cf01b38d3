//! The OCSP responses by certificate, which one to fetch next, and when. Without I/O.
//!
//! Tenants determine the responders and the number of certificates, so requests in flight and stored responses are
//! shared fairly between their owners ([`Shares`]).
//!
//! **Invariant:** an expired response is never sent, even if there is no newer one; and no certificate waits for
//! another one's responder.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::answer::Good;
use super::question::Question;
use crate::local::shares::Shares;
use crate::table::certified::Certified;

/// Maximum number of certificates.
const KNOWN: usize = 16_384;
/// Maximum total size of stored responses in bytes, including the certificates that they are sent with.
const BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of concurrent requests.
const AT_ONCE: usize = 16;
/// Maximum number of those to one responder.
const OF_ONE: usize = 4;
/// Delay before checking again if all slots are taken.
const TURN: Duration = Duration::from_secs(1);
/// Delay after a failed request, doubled each time.
const FIRST: Duration = Duration::from_secs(60);
/// Maximum of that delay. A valid response is refreshed at least this often, too.
const LAST: Duration = Duration::from_secs(43_200);

type Id = [u8; 32];

/// All certificates that were used in handshakes.
#[derive(Debug)]
pub(super) struct Ledger {
    known: HashMap<Id, Known>,
    /// Slots of these certificates by owner.
    room: Shares,
    /// When something is due for each: a request, or expiry.
    due: BTreeSet<(Instant, Id)>,
    /// Requests in progress.
    asked: HashMap<Id, Arc<Question>>,
    asking: Shares,
    bytes: usize,
}

#[derive(Debug)]
struct Known {
    question: Arc<Question>,
    /// The same certificate may be in many Secrets.
    holders: Vec<Weak<Certified>>,
    held: Option<Held>,
    due: Instant,
    failures: u32,
}

/// A response while it is valid.
#[derive(Debug)]
struct Held {
    der: Vec<u8>,
    until: Instant,
    bytes: usize,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            room: Shares::new(KNOWN),
            due: BTreeSet::new(),
            asked: HashMap::new(),
            asking: Shares::new(AT_ONCE),
            bytes: 0,
        }
    }
}

impl Ledger {
    /// A certificate is used for the first time.
    pub(super) fn shown(&mut self, certified: &Arc<Certified>, now: Instant) {
        let Some(mut question) = Question::of(&certified.key().cert) else { return };
        question.owner = Arc::clone(certified.owner());
        let id = question.id;
        if !self.known.contains_key(&id) {
            if !self.room.take(&question.owner) {
                self.forget_unused();
                if !self.room.take(&question.owner) {
                    // Retried with the next handshake.
                    return certified.unstaple();
                }
            }
            let known = Known {
                question: Arc::new(question),
                holders: Vec::new(),
                held: None,
                due: now,
                failures: 0,
            };
            self.due.insert((now, id));
            self.known.insert(id, known);
        }
        if let Some(known) = self.known.get_mut(&id) {
            known.holders.retain(|holder| holder.strong_count() > 0);
            known.holders.push(Arc::downgrade(certified));
            if let Some(held) = &mut known.held
                && self.bytes + cost(certified, &held.der) <= BYTES
            {
                let more = cost(certified, &held.der);
                self.bytes += more;
                held.bytes += more;
                certified.staple(Some(&held.der));
            }
        }
    }

    /// Does what is due without I/O; returns the next request that is due.
    pub(super) fn next(&mut self, now: Instant) -> Option<Arc<Question>> {
        while let Some((due, id)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            let Some(known) = self.known.get_mut(&id) else {
                self.due.remove(&(due, id));
                continue;
            };
            if known.held.as_ref().is_some_and(|held| held.until <= now) {
                self.bytes -= known.let_go();
            }
            if known.holders().next().is_none() {
                self.forget(id);
                continue;
            }
            if self.asked.contains_key(&id) {
                // Its response determines what is due next.
                self.due.remove(&(due, id));
                continue;
            }
            // The stored response may expire before there is a new one.
            let over = known.held.as_ref().map(|held| held.until);
            let question = Arc::clone(&known.question);
            if !self.begin(&question) {
                self.set(id, Some(now + TURN));
                continue;
            }
            self.set(id, over);
            return Some(question);
        }
        None
    }

    /// A responder has sent a valid response.
    pub(super) fn answered(&mut self, id: &Id, der: Vec<u8>, good: Good, (now, wall): (Instant, u64)) {
        self.end(id);
        let Some(known) = self.known.get_mut(id) else { return };
        let left = Duration::from_secs(good.until.saturating_sub(wall));
        known.failures = 0;
        // Refreshed at half of its lifetime: then as much is left for retries.
        let half = Duration::from_secs(good.until.saturating_sub(good.since.max(wall)) / 2);
        let again = now + spread(half.clamp(FIRST, LAST)).min(left);
        let bytes = der.len() + known.holders().map(|it| cost(&it, &der)).sum::<usize>();
        let others = self.bytes - known.held.as_ref().map_or(0, |held| held.bytes);
        if others + bytes <= BYTES {
            self.bytes = others + bytes;
            known.holders().for_each(|it| it.staple(Some(&der)));
            known.held = Some(Held { der, until: now + left, bytes });
        }
        let over = known.held.as_ref().map(|held| held.until);
        self.set(*id, Some(over.map_or(again, |over| over.min(again))));
    }

    /// A responder has sent no valid response. `revoked`: it has, but the certificate was revoked. Returns whether
    /// that is new.
    pub(super) fn failed(&mut self, id: &Id, revoked: bool, now: Instant) -> bool {
        self.end(id);
        let Some(known) = self.known.get_mut(id) else { return false };
        let again = now + spread(FIRST.saturating_mul(1 << known.failures.min(16)).min(LAST));
        known.failures = known.failures.saturating_add(1);
        let is_first = known.failures == 1;
        let over = known.held.as_ref().map(|held| held.until);
        if revoked {
            self.bytes -= known.let_go();
        }
        self.set(*id, Some(over.map_or(again, |over| over.min(again))));
        is_first
    }

    /// When something is due.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Stops all requests, and removes all responses.
    pub(super) fn clear(&mut self) {
        for known in self.known.values_mut() {
            known.let_go();
            known.holders().for_each(|it| it.unstaple());
        }
        // Requests in progress keep their slots.
        let Self { asked, asking, .. } = std::mem::take(self);
        (self.asked, self.asking) = (asked, asking);
    }

    /// Number of certificates with a response.
    pub(super) fn stapled(&self) -> usize {
        self.known.values().filter(|known| known.held.is_some()).count()
    }

    /// Takes a slot for a request, if its responder and owner have one left.
    fn begin(&mut self, question: &Arc<Question>) -> bool {
        let is_same = |other: &&Arc<Question>| other.host.eq_ignore_ascii_case(&question.host);
        let has_place =
            self.asked.values().filter(is_same).count() < OF_ONE && self.asking.take(&question.owner);
        if has_place {
            self.asked.insert(question.id, Arc::clone(question));
        }
        has_place
    }

    /// A request has ended.
    fn end(&mut self, id: &Id) {
        if let Some(question) = self.asked.remove(id) {
            self.asking.give(&question.owner);
        }
    }

    fn set(&mut self, id: Id, due: Option<Instant>) {
        let Some(known) = self.known.get_mut(&id) else { return };
        self.due.remove(&(known.due, id));
        if let Some(due) = due {
            known.due = due;
            self.due.insert((due, id));
        }
    }

    fn forget(&mut self, id: Id) {
        if let Some(mut known) = self.known.remove(&id) {
            self.due.remove(&(known.due, id));
            self.bytes -= known.let_go();
            self.room.give(&known.question.owner);
        }
    }

    fn forget_unused(&mut self) {
        let Self { known, due, bytes, room, .. } = self;
        known.retain(|id, known| {
            let stays = known.holders().next().is_some();
            if !stays {
                due.remove(&(known.due, *id));
                *bytes -= known.let_go();
                room.give(&known.question.owner);
            }
            stays
        });
    }
}

impl Known {
    fn holders(&self) -> impl Iterator<Item = Arc<Certified>> {
        self.holders.iter().filter_map(Weak::upgrade)
    }

    /// Removes the certificate's response; returns the bytes that it held.
    fn let_go(&mut self) -> usize {
        let Some(held) = self.held.take() else { return 0 };
        self.holders().for_each(|it| it.staple(None));
        held.bytes
    }
}

/// The memory held by a certificate with a response: its chain is stored once more.
fn cost(certified: &Certified, answer: &[u8]) -> usize {
    certified.key().cert.iter().map(|der| der.len()).sum::<usize>() + answer.len()
}

/// Varies a time by a tenth, so that proxies of a fleet do not all ask at once.
fn spread(time: Duration) -> Duration {
    time.mul_f64(fastrand::f64().mul_add(0.2, 0.9))
}

#[cfg(test)]
mod tests;
