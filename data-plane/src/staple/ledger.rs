//! The OCSP responses by certificate, which one to fetch next, and when. Without I/O.
//!
//! Tenants determine the responders and the number of certificates, so requests in flight and known certificates are
//! shared fairly between their owners ([`Shares`]). So is the memory for responses: if it is full, the namespace that
//! holds most of it makes room for one that holds less.
//!
//! **Invariant:** an expired response is never sent, even if there is no newer one; no certificate waits for another
//! one's responder; and a namespace lacks memory only if no other one holds more.

use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::answer::Good;
use super::question::Question;
use crate::local::shares::{Shares, namespace};
use crate::table::certified::Certified;

/// Maximum number of certificates.
const KNOWN: usize = 16_384;
/// Maximum total size of stored responses in bytes, each counted once more for every Secret with its certificate.
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

/// The size of a namespace's responses: of all, and of each.
type Pile = (usize, Vec<(usize, Id)>);

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
    /// Since [`Self::lost`].
    lost: Lost,
}

/// Valid responses for which there was no memory.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Lost {
    /// Their number, of which some were sent until now.
    pub(super) number: u64,
    /// The namespace of the last one.
    pub(super) namespace: Box<str>,
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
            lost: Lost::default(),
        }
    }
}

impl Ledger {
    /// A certificate is used for the first time.
    pub(super) fn shown(&mut self, certified: &Arc<Certified>, now: Instant) {
        let Some(mut question) = Question::of(&certified.shown().cert) else { return };
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
        let Some(known) = self.known.get_mut(&id) else { return };
        known.holders.retain(|holder| holder.strong_count() > 0);
        known.holders.push(Arc::downgrade(certified));
        let holders = known.holders.len();
        let Some(held) = &known.held else { return };
        // Holders that are gone count no more.
        let (before, each) = (held.bytes, held.der.len());
        let bytes = (before + each).min(each * (1 + holders));
        if self.make_room(id, bytes.saturating_sub(before))
            && let Some(held) = self.known.get_mut(&id).and_then(|known| known.held.as_mut())
        {
            self.bytes = self.bytes - before + bytes;
            held.bytes = bytes;
            certified.staple(Some(&held.der));
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
        let bytes = der.len() * (1 + known.holders().count());
        let before = known.held.as_ref().map_or(0, |held| held.bytes);
        let has_room = self.make_room(*id, bytes.saturating_sub(before));
        let Some(known) = self.known.get_mut(id) else { return };
        if has_room {
            self.bytes = self.bytes - before + bytes;
            known.holders().for_each(|it| it.staple(Some(&der)));
            known.held = Some(Held { der, until: now + left, bytes });
        }
        let over = known.held.as_ref().map(|held| held.until);
        self.set(*id, Some(over.map_or(again, |over| over.min(again))));
    }

    /// The responses for which there was no memory since the last call.
    pub(super) fn lost(&mut self) -> Lost {
        std::mem::take(&mut self.lost)
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

    /// Makes room for this many bytes more for a certificate. `false`: no other namespace holds more than its own would.
    fn make_room(&mut self, id: Id, more: usize) -> bool {
        let dropped = self.to_drop(id, more);
        for id in dropped.as_deref().unwrap_or(&[id]) {
            let Some(known) = self.known.get_mut(id) else { continue };
            self.lost.number += 1;
            self.lost.namespace = namespace(&known.question.owner).into();
            if dropped.is_some() {
                self.bytes -= known.let_go();
            }
        }
        dropped.is_some()
    }

    /// Whose responses have to be dropped for that: of the namespace that holds most, the largest first.
    fn to_drop(&self, id: Id, more: usize) -> Option<Vec<Id>> {
        let (mut lacking, mut dropped) = ((self.bytes + more).saturating_sub(BYTES), Vec::new());
        if lacking == 0 {
            return Some(dropped);
        }
        let mut of: HashMap<&str, Pile> = HashMap::new();
        for (id, known) in &self.known {
            let Some(held) = &known.held else { continue };
            let (sum, each) = of.entry(namespace(&known.question.owner)).or_default();
            *sum += held.bytes;
            each.push((held.bytes, *id));
        }
        let own = namespace(&self.known.get(&id)?.question.owner);
        let wanted = more + of.get(own).map_or(0, |(sum, _)| *sum);
        of.values_mut().for_each(|(_, each)| each.sort_unstable());
        let mut most: BinaryHeap<_> = of.into_values().collect();
        while lacking > 0 {
            let (sum, mut each) = most.pop().filter(|(sum, _)| *sum > wanted)?;
            let (bytes, id) = each.pop()?;
            lacking = lacking.saturating_sub(bytes);
            dropped.push(id);
            most.push((sum - bytes, each));
        }
        Some(dropped)
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

/// Varies a time by a tenth, so that proxies of a fleet do not all ask at once.
fn spread(time: Duration) -> Duration {
    time.mul_f64(fastrand::f64().mul_add(0.2, 0.9))
}

#[cfg(test)]
mod tests;
