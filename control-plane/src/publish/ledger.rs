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
use crate::placed::Places;

/// Requests are at least so far apart, but for the first few.
const GAP: Duration = Duration::from_millis(20);
/// So many may follow each other at once.
const BURST: u32 = 50;
/// After one that failed nothing is asked for so long; after the next in a row for twice as long, and so on.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest that grows to.
const PAUSE_MOST: Duration = Duration::from_secs(10);
/// One that fails again and again is tried so often at least: it may be the server.
const FAILED_MOST: Duration = Duration::from_secs(60);
/// One that may not be written is left alone for so long; so is a namespace where none may be.
const SHUT: Duration = Duration::from_secs(600);
/// So many of a namespace in a row, and none of it may be. Of one alone it may be said by an admission webhook.
const FORBIDDEN: u32 = 3;
/// One that somebody else changed is written again after this time; after twice of it the next time, and so on.
const AGAIN: Duration = Duration::from_secs(10);
/// The longest that grows to.
const AGAIN_MOST: Duration = Duration::from_secs(600);
/// Writes of one that somebody else undid, and it is said.
const FIGHT: u32 = 3;

/// What an Ingress has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The version that has it.
    pub revision: Arc<str>,
    /// The addresses in it.
    pub addresses: Addresses,
}

/// A status that is to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Of which Ingress.
    pub name: ObjectName,
    /// Over which version.
    pub revision: Arc<str>,
    /// What it is to have.
    pub addresses: Addresses,
    /// Somebody else has changed it so often since this process wrote it; said once.
    pub fought: Option<u32>,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    Write(Write),
    Wait(Duration),
    Nothing,
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// This is its version now.
    Written(Arc<str>),
    /// It is another version by now, or gone: that is heard of.
    Overtaken,
    /// Statuses may not be written there.
    Forbidden,
    /// Asked again it would be answered again.
    Refused,
    Failed,
}

#[derive(Debug)]
struct Written {
    addresses: Addresses,
    at: Instant,
    times: u32,
}

/// One that could not be written.
#[derive(Debug)]
struct Aside {
    /// That version of it.
    revision: Arc<str>,
    at: Instant,
    /// When it is tried again as it is.
    until: Instant,
    times: u32,
}

impl Aside {
    /// When this version of it is tried. Another one is another matter, the first time.
    fn not_before(&self, revision: &str) -> Instant {
        match (&*self.revision == revision, self.times) {
            (true, _) => self.until,
            (false, 1) => self.at,
            (false, _) => self.until.min(self.at + AGAIN),
        }
    }
}

/// A namespace where some may not be written.
#[derive(Clone, Copy, Debug)]
struct Shut {
    /// So many since one was written.
    count: u32,
    until: Instant,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Ledger {
    wanted: Option<Addresses>,
    places: Places,
    statuses: HashMap<ObjectName, Status>,
    /// To be looked at.
    ready: BTreeSet<ObjectName>,
    /// Those put aside that are to be looked at, after all others.
    doubtful: BTreeSet<ObjectName>,
    /// To be looked at later.
    later: BTreeSet<(Instant, ObjectName)>,
    written: HashMap<ObjectName, Written>,
    aside: HashMap<ObjectName, Aside>,
    shut: HashMap<Arc<str>, Shut>,
    paused: Option<Instant>,
    /// So many failed in a row.
    failed: u32,
    /// When all that was asked would be asked at one each [`GAP`].
    even: Option<Instant>,
}

impl Ledger {
    /// What each Ingress of ours is to have; `None`: that is not known, and nothing is written.
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

    /// It is to be looked at.
    fn look_at(&mut self, name: ObjectName) {
        let is_aside = self.aside.contains_key(&name);
        let queue = if is_aside { &mut self.doubtful } else { &mut self.ready };
        queue.insert(name);
    }

    /// What is wanted.
    pub fn wanted(&self) -> Option<&Addresses> {
        self.wanted.as_ref()
    }

    /// An Ingress has this status now; `None`: it is gone.
    pub fn hear(&mut self, name: ObjectName, status: Option<Status>) {
        let Some(mut status) = status else {
            self.statuses.remove(&name);
            self.written.remove(&name);
            self.aside.remove(&name);
            self.ready.remove(&name);
            self.doubtful.remove(&name);
            return;
        };
        // One copy of what nearly all have.
        if let Some(wanted) = self.wanted.as_ref().filter(|wanted| **wanted == status.addresses) {
            status.addresses = Arc::clone(wanted);
        }
        self.statuses.insert(name.clone(), status);
        self.look_at(name);
    }

    /// Which Ingresses are ours.
    pub fn place(&mut self, places: &Places) {
        for name in self.places.differs(places, ObjectKind::Ingress) {
            self.look_at(name);
        }
        self.places = places.clone();
    }

    /// The next that is to be written, or how long to wait for one.
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

    /// What is to be written of an Ingress.
    fn due(&self, name: &ObjectName) -> Option<Write> {
        let addresses = Arc::clone(self.wanted.as_ref()?);
        let status = self.statuses.get(name)?;
        let object = ObjectRef { kind: ObjectKind::Ingress, name: name.clone() };
        let is_ours = self.places.get(&object).is_some_and(|placed| placed.made.is_served);
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

    /// Takes in what became of a write.
    pub fn done(&mut self, write: Write, outcome: Outcome, now: Instant) {
        self.failed = if outcome == Outcome::Failed { self.failed.saturating_add(1) } else { 0 };
        match outcome {
            Outcome::Written(revision) => return self.note(write, revision, now),
            Outcome::Overtaken | Outcome::Refused => {}
            Outcome::Forbidden => {
                let shut = self.shut.entry(Arc::clone(&write.name.namespace));
                let shut = shut.or_insert(Shut { count: 0, until: now });
                shut.count = shut.count.saturating_add(1);
                shut.until = if shut.count >= FORBIDDEN { now + SHUT } else { now };
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
        // What was heard meanwhile is looked at after the others, too.
        self.ready.remove(&name);
        self.aside.insert(name.clone(), Aside { revision, at: now, until: now + wait, times });
        self.look_at(name);
    }

    /// It is written, and this is its version.
    fn note(&mut self, write: Write, revision: Arc<str>, now: Instant) {
        let Write { name, addresses, .. } = write;
        self.shut.remove(&name.namespace);
        self.aside.remove(&name);
        let same = self.written.get(&name).filter(|it| it.addresses == addresses);
        let lasted = same.is_none_or(|it| now.saturating_duration_since(it.at) > AGAIN_MOST * 2);
        let times = if lasted { 1 } else { same.map_or(0, |it| it.times) + 1 };
        let written = Written { addresses: Arc::clone(&addresses), at: now, times };
        self.written.insert(name.clone(), written);
        // What was heard meanwhile may be newer: then it is looked at again.
        if !self.ready.contains(&name) && !self.doubtful.contains(&name) {
            self.statuses.insert(name, Status { revision, addresses });
        }
    }

    /// What to write where nobody is left to be reached: all of ours that have what was wanted have nothing.
    pub fn farewell(&mut self) -> Vec<Write> {
        let Some(wanted) = self.wanted.take() else { return Vec::new() };
        let nothing: Addresses = Arc::new([]);
        self.wanted = Some(Arc::clone(&nothing));
        let those = self.statuses.iter().filter(|(_, status)| status.addresses == wanted);
        let those: Vec<_> = those.map(|(name, _)| name.clone()).collect();
        those.iter().filter_map(|name| self.due(name)).collect()
    }
}

/// A time that doubles each time but the first.
fn grown(first: Duration, times: u32, most: Duration) -> Duration {
    (first * 2_u32.saturating_pow(times.saturating_sub(1))).min(most)
}

#[cfg(test)]
mod tests;
