//! Which Ingresses need their status corrected, and at what rate.
//!
//! **Invariant:** pure, and bounded by the number of Ingresses. An Ingress is written only if it is ours, has been read, and differs, over the
//! version that was read. If something else keeps overwriting it, it is corrected less and less often, and that is logged. One that cannot be
//! written is tried after all others, and delays none of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::name::ObjectName;

use super::addresses::Addresses;
use crate::objects::{ObjectKind, ObjectRef};
use crate::placement::Placements;

/// Minimum interval of requests, after the burst.
const GAP: Duration = Duration::from_millis(20);
/// Requests that may follow each other without delay.
const BURST: u32 = 50;
/// Pause after a failure, doubled with each consecutive one.
const PAUSE: Duration = Duration::from_secs(1);
/// Limit of that pause.
const PAUSE_MOST: Duration = Duration::from_secs(10);
/// Longest retry interval of an Ingress that keeps failing: the server may be the cause.
const FAILED_MOST: Duration = Duration::from_secs(60);
/// How long an Ingress that may not be written is skipped; the same for a namespace.
const SHUT: Duration = Duration::from_secs(60);
/// Ingresses that may not be written, and none that may, after which a whole namespace is skipped. A single one may
/// be refused by an admission webhook, however often it is tried.
const FORBIDDEN: usize = 3;
/// Delay before an Ingress is written again that something else changed; doubled each time.
const AGAIN: Duration = Duration::from_secs(10);
/// Limit of that delay.
const AGAIN_MOST: Duration = Duration::from_secs(600);
/// Number of overwritten writes after which that is logged.
const FIGHT: u32 = 3;

/// The status of an Ingress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The version that has it.
    pub revision: Arc<str>,
    /// The addresses in it.
    pub addresses: Addresses,
}

/// A status to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The Ingress.
    pub name: ObjectName,
    /// The version that is replaced.
    pub revision: Arc<str>,
    /// The new addresses.
    pub addresses: Addresses,
    /// How often something else has changed it since this process wrote it; reported once.
    pub fought: Option<u32>,
}

/// The next action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    Write(Write),
    Wait(Duration),
    Nothing,
}

/// The result of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is written; this is its new version.
    Written(Arc<str>),
    /// It has another version by now, or was deleted: the watch reports that.
    Overtaken,
    /// Writing statuses is forbidden there.
    Forbidden,
    /// A permanent error: a retry would fail again.
    Refused,
    Failed,
}

#[derive(Debug)]
struct Written {
    addresses: Addresses,
    at: Instant,
    times: u32,
}

/// An Ingress that could not be written.
#[derive(Debug)]
struct Aside {
    /// The version that could not be written.
    revision: Arc<str>,
    at: Instant,
    /// When that version is retried.
    until: Instant,
    times: u32,
}

impl Aside {
    /// The earliest time to write this version. Another version is tried at once, the first time.
    fn not_before(&self, revision: &str) -> Instant {
        match (&*self.revision == revision, self.times) {
            (true, _) => self.until,
            (false, 1) => self.at,
            (false, _) => self.until.min(self.at + AGAIN),
        }
    }
}

/// A namespace in which some writes were forbidden.
#[derive(Debug)]
struct Shut {
    /// The first that may not be written since one could be.
    those: BTreeSet<ObjectName>,
    until: Instant,
}

/// The ledger.
#[derive(Debug, Default)]
pub struct Ledger {
    wanted: Option<Addresses>,
    places: Placements,
    statuses: HashMap<ObjectName, Status>,
    /// To be examined.
    ready: BTreeSet<ObjectName>,
    /// Failed ones to be examined, after all others.
    doubtful: BTreeSet<ObjectName>,
    /// To be examined later.
    later: BTreeSet<(Instant, ObjectName)>,
    written: HashMap<ObjectName, Written>,
    aside: HashMap<ObjectName, Aside>,
    shut: HashMap<Arc<str>, Shut>,
    paused: Option<Instant>,
    /// Consecutive failures.
    failed: u32,
    /// When all requests so far would be done at one per [`GAP`].
    even: Option<Instant>,
}

impl Ledger {
    /// Sets the addresses that our Ingresses should have; `None`: unknown, and nothing is written.
    pub fn want(&mut self, addresses: Option<Addresses>) {
        if self.wanted == addresses {
            return;
        }
        self.wanted = addresses;
        let is_aside = |name: &ObjectName| self.aside.contains_key(name);
        let (aside, others): (Vec<_>, Vec<_>) = self.statuses.keys().cloned().partition(is_aside);
        self.doubtful.extend(aside);
        self.ready.extend(others);
    }

    /// Marks an Ingress to be examined.
    fn look_at(&mut self, name: ObjectName) {
        let is_aside = self.aside.contains_key(&name);
        let queue = if is_aside { &mut self.doubtful } else { &mut self.ready };
        queue.insert(name);
    }

    /// The addresses that Ingresses should have.
    pub fn wanted(&self) -> Option<&Addresses> {
        self.wanted.as_ref()
    }

    /// Takes in the status of an Ingress; `None`: it was deleted.
    pub fn hear(&mut self, name: ObjectName, status: Option<Status>) {
        let Some(mut status) = status else {
            self.statuses.remove(&name);
            self.written.remove(&name);
            self.aside.remove(&name);
            self.ready.remove(&name);
            self.doubtful.remove(&name);
            return;
        };
        // Nearly all have the same addresses, which are shared.
        if let Some(wanted) = self.wanted.as_ref().filter(|wanted| **wanted == status.addresses) {
            status.addresses = Arc::clone(wanted);
        }
        self.statuses.insert(name.clone(), status);
        self.look_at(name);
    }

    /// Sets which Ingresses are ours.
    pub fn place(&mut self, places: &Placements) {
        for name in self.places.differs(places, ObjectKind::Ingress) {
            self.look_at(name);
        }
        self.places = places.clone();
    }

    /// The next write, or how long to wait for one.
    pub fn next(&mut self, now: Instant) -> Next {
        self.shut.retain(|_, shut| shut.until + SHUT * 2 > now);
        while let Some((at, name)) = self.later.pop_first() {
            if at > now {
                self.later.insert((at, name));
                break;
            }
            self.look_at(name);
        }
        let paced = self.even.and_then(|even| even.checked_sub(GAP * (BURST - 1)));
        let not_before = self.paused.max(paced).filter(|at| *at > now);
        while let Some(name) = self.ready.pop_first().or_else(|| self.doubtful.pop_first()) {
            let Some(write) = self.due(&name) else {
                self.aside.remove(&name);
                continue;
            };
            if let Some(at) = self.not_before(&name, &write).filter(|at| *at > now) {
                self.later.insert((at, name));
                continue;
            }
            if let Some(at) = not_before {
                self.look_at(name);
                return Next::Wait(at - now);
            }
            self.even = Some(self.even.map_or(now, |even| even.max(now)) + GAP);
            return Next::Write(write);
        }
        match self.later.first() {
            Some((at, _)) => Next::Wait(*at - now),
            None => Next::Nothing,
        }
    }

    /// The write that an Ingress needs.
    fn due(&self, name: &ObjectName) -> Option<Write> {
        let addresses = Arc::clone(self.wanted.as_ref()?);
        let status = self.statuses.get(name)?;
        let object = ObjectRef { kind: ObjectKind::Ingress, name: name.clone() };
        let is_ours = self.places.get(&object).is_some_and(|placed| placed.compiled.is_served);
        if !is_ours || status.addresses == addresses {
            return None;
        }
        let before = self.written.get(name).filter(|it| it.addresses == addresses);
        let fought = before.map(|it| it.times).filter(|times| *times == FIGHT);
        Some(Write { name: name.clone(), revision: Arc::clone(&status.revision), addresses, fought })
    }

    fn not_before(&self, name: &ObjectName, write: &Write) -> Option<Instant> {
        let shut = self.shut.get(&name.namespace).map(|it| it.until);
        let aside = self.aside.get(name).map(|it| it.not_before(&write.revision));
        let same = self.written.get(name).filter(|it| it.addresses == write.addresses);
        let again = same.map(|it| it.at + grown(AGAIN, it.times, AGAIN_MOST));
        shut.max(aside).max(again)
    }

    /// Records the result of a write.
    pub fn done(&mut self, write: Write, outcome: Outcome, now: Instant) {
        self.failed = if outcome == Outcome::Failed { self.failed.saturating_add(1) } else { 0 };
        match outcome {
            Outcome::Written(revision) => return self.note(write, revision, now),
            Outcome::Overtaken | Outcome::Refused => {}
            Outcome::Forbidden => {
                let shut = self.shut.entry(Arc::clone(&write.name.namespace));
                let shut = shut.or_insert(Shut { those: BTreeSet::new(), until: now });
                if shut.those.len() < FORBIDDEN {
                    shut.those.insert(write.name.clone());
                }
                shut.until = if shut.those.len() >= FORBIDDEN { now + SHUT } else { now };
            }
            Outcome::Failed => self.paused = Some(now + grown(PAUSE, self.failed, PAUSE_MOST)),
        }
        let Write { name, revision, .. } = write;
        let times = self.aside.get(&name).map_or(0, |it| it.times).saturating_add(1);
        let wait = match outcome {
            Outcome::Forbidden => SHUT,
            Outcome::Failed => grown(AGAIN, times, FAILED_MOST),
            _ => grown(AGAIN, times, AGAIN_MOST),
        };
        // Changes received meanwhile are examined after the others, too.
        self.ready.remove(&name);
        self.aside.insert(name.clone(), Aside { revision, at: now, until: now + wait, times });
        self.look_at(name);
    }

    /// Records a successful write and the new version.
    fn note(&mut self, write: Write, revision: Arc<str>, now: Instant) {
        let Write { name, addresses, .. } = write;
        self.shut.remove(&name.namespace);
        self.aside.remove(&name);
        let same = self.written.get(&name).filter(|it| it.addresses == addresses);
        let lasted = same.is_none_or(|it| now.saturating_duration_since(it.at) > AGAIN_MOST * 2);
        let times = if lasted { 1 } else { same.map_or(0, |it| it.times) + 1 };
        let written = Written { addresses: Arc::clone(&addresses), at: now, times };
        self.written.insert(name.clone(), written);
        // Changes received meanwhile may be newer: then it is examined again.
        if !self.ready.contains(&name) && !self.doubtful.contains(&name) {
            self.statuses.insert(name, Status { revision, addresses });
        }
    }

    /// The writes that clear the statuses of our Ingresses that have the wanted addresses, once no proxy is left.
    pub fn farewell(&mut self) -> Vec<Write> {
        let Some(wanted) = self.wanted.take() else { return Vec::new() };
        let nothing: Addresses = Arc::new([]);
        self.wanted = Some(Arc::clone(&nothing));
        let those = self.statuses.iter().filter(|(_, status)| status.addresses == wanted);
        let those: Vec<_> = those.map(|(name, _)| name.clone()).collect();
        those.iter().filter_map(|name| self.due(name)).collect()
    }
}

/// A delay that doubles with each repetition after the first, up to a limit.
fn grown(first: Duration, times: u32, most: Duration) -> Duration {
    (first * 2_u32.saturating_pow(times.saturating_sub(1))).min(most)
}

#[cfg(test)]
mod tests;
