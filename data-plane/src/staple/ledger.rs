//! The OCSP responses by certificate, which one to fetch next, and when. Without I/O.
//!
//! Tenants determine the responders and the number of certificates, so requests in flight and stored responses are shared fairly between
//! their owners ([`Shares`]).
//!
//! **Invariant:** an expired response is never sent, even if there is no newer one; and no certificate waits for another one's responder.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::answer::Good;
use super::question::Question;
use crate::local::shares::Shares;
use crate::table::certified::Certified;

/// Certificates that are known.
const KNOWN: usize = 16_384;
/// Answers that are held, in bytes, each with the certificates that are shown with it.
const BYTES: usize = 16 * 1024 * 1024;
/// Questions at a time.
const AT_ONCE: usize = 16;
/// Those of them to one responder.
const OF_ONE: usize = 4;
/// Who finds all of them taken looks again after this.
const TURN: Duration = Duration::from_secs(1);
/// Who gave no answer is asked again after this, twice as late each time.
const FIRST: Duration = Duration::from_secs(60);
/// But not later than this. As late at most is asked whether something good still is.
const LAST: Duration = Duration::from_secs(43_200);

type Id = [u8; 32];

/// All certificates that were shown to somebody.
#[derive(Debug)]
pub(super) struct Ledger {
    known: HashMap<Id, Known>,
    /// Of those, whose they are.
    room: Shares,
    /// When something is to be done about each: it is asked for, or over.
    due: BTreeSet<(Instant, Id)>,
    /// Questions under way, and whose they are.
    asked: HashMap<Id, Arc<Question>>,
    asking: Shares,
    bytes: usize,
}

#[derive(Debug)]
struct Known {
    question: Arc<Question>,
    /// The same certificate may stand in many Secrets.
    holders: Vec<Weak<Certified>>,
    held: Option<Held>,
    due: Instant,
    failures: u32,
}

/// An answer while it is good.
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
    /// A certificate is shown for the first time.
    pub(super) fn shown(&mut self, certified: &Arc<Certified>, now: Instant) {
        let Some(mut question) = Question::of(&certified.key().cert) else { return };
        question.owner = Arc::clone(certified.owner());
        let id = question.id;
        if !self.known.contains_key(&id) {
            if !self.room.take(&question.owner) {
                self.forget_unused();
                if !self.room.take(&question.owner) {
                    // With the next handshake it is tried again.
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

    /// Does what is due without asking anybody; gives the next question that is.
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
                // Its answer says when the next thing is due.
                self.due.remove(&(due, id));
                continue;
            }
            // What is held may be over before there is an answer.
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

    /// A responder has said something good.
    pub(super) fn answered(&mut self, id: &Id, der: Vec<u8>, good: Good, (now, wall): (Instant, u64)) {
        self.end(id);
        let Some(known) = self.known.get_mut(id) else { return };
        let left = Duration::from_secs(good.until.saturating_sub(wall));
        known.failures = 0;
        // Half of its time is a good moment for another one: then there is as much left to try again in.
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

    /// A responder has said nothing that could be shown. `revoked`: but that what is shown is not good any more. Gives whether that is
    /// the first time.
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

    /// Nobody is to be asked any more, and nothing is shown.
    pub(super) fn clear(&mut self) {
        for known in self.known.values_mut() {
            known.let_go();
            known.holders().for_each(|it| it.unstaple());
        }
        // Questions under way keep their places.
        let Self { asked, asking, .. } = std::mem::take(self);
        (self.asked, self.asking) = (asked, asking);
    }

    /// Certificates with an answer.
    pub(super) fn stapled(&self) -> usize {
        self.known.values().filter(|known| known.held.is_some()).count()
    }

    /// Takes a place for a question, where its responder and its owner may have one.
    fn begin(&mut self, question: &Arc<Question>) -> bool {
        let is_same = |other: &&Arc<Question>| other.host.eq_ignore_ascii_case(&question.host);
        let has_place =
            self.asked.values().filter(is_same).count() < OF_ONE && self.asking.take(&question.owner);
        if has_place {
            self.asked.insert(question.id, Arc::clone(question));
        }
        has_place
    }

    /// A question has come to its end.
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

    /// Shows the certificate without; gives the bytes that were held.
    fn let_go(&mut self) -> usize {
        let Some(held) = self.held.take() else { return 0 };
        self.holders().for_each(|it| it.staple(None));
        held.bytes
    }
}

/// What a certificate holds that is shown with an answer: its chain once more.
fn cost(certified: &Certified, answer: &[u8]) -> usize {
    certified.key().cert.iter().map(|der| der.len()).sum::<usize>() + answer.len()
}

/// A tenth sooner or later, so that a fleet does not ask at once.
fn spread(time: Duration) -> Duration {
    time.mul_f64(fastrand::f64().mul_add(0.2, 0.9))
}

#[cfg(test)]
mod tests;
