//! Which Ingresses have another status than they should, and at which pace that is mended.
//!
//! **Invariant:** pure and bounded by the Ingresses that there are. One is written that is ours, was heard of, and differs; over the
//! version that was heard. Whoever else writes one again and again is answered ever more seldom, and told of.

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
/// After one that failed nothing is asked for so long.
const RETRY: Duration = Duration::from_secs(10);
/// A namespace where statuses may not be written is left alone for so long.
const SHUT: Duration = Duration::from_secs(600);
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

/// All of it.
#[derive(Debug, Default)]
pub struct Ledger {
    wanted: Option<Addresses>,
    places: Places,
    statuses: HashMap<ObjectName, Status>,
    /// To be looked at.
    ready: BTreeSet<ObjectName>,
    /// To be looked at later.
    later: BTreeSet<(Instant, ObjectName)>,
    written: HashMap<ObjectName, Written>,
    shut: HashMap<Arc<str>, Instant>,
    paused: Option<Instant>,
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
        self.ready.extend(self.statuses.keys().cloned());
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
            self.ready.remove(&name);
            return;
        };
        // One copy of what nearly all have.
        if let Some(wanted) = self.wanted.as_ref().filter(|wanted| **wanted == status.addresses) {
            status.addresses = Arc::clone(wanted);
        }
        self.statuses.insert(name.clone(), status);
        self.ready.insert(name);
    }

    /// Which Ingresses are ours.
    pub fn place(&mut self, places: &Places) {
        self.ready.extend(self.places.differs(places, ObjectKind::Ingress));
        self.places = places.clone();
    }

    /// The next that is to be written, or how long to wait for one.
    pub fn next(&mut self, now: Instant) -> Next {
        self.shut.retain(|_, until| *until > now);
        while let Some((at, name)) = self.later.pop_first() {
            if at > now {
                self.later.insert((at, name));
                break;
            }
            self.ready.insert(name);
        }
        let paced = self.even.and_then(|even| even.checked_sub(GAP * (BURST - 1)));
        let not_before = self.paused.max(paced).filter(|at| *at > now);
        while let Some(name) = self.ready.pop_first() {
            let Some(write) = self.due(&name) else { continue };
            if let Some(at) = self.not_before(&name, &write).filter(|at| *at > now) {
                self.later.insert((at, name));
                continue;
            }
            if let Some(at) = not_before {
                self.ready.insert(name);
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
        let shut = self.shut.get(&name.namespace).copied();
        let same = self.written.get(name).filter(|it| it.addresses == write.addresses);
        let again = same.map(|it| it.at + (AGAIN * 2_u32.saturating_pow(it.times - 1)).min(AGAIN_MOST));
        shut.max(again)
    }

    /// Takes in what became of a write.
    pub fn done(&mut self, write: Write, outcome: Outcome, now: Instant) {
        let Write { name, addresses, .. } = write;
        match outcome {
            Outcome::Written(revision) => {
                let same = self.written.get(&name).filter(|it| it.addresses == addresses);
                let lasted = same.is_none_or(|it| now.saturating_duration_since(it.at) > AGAIN_MOST * 2);
                let times = if lasted { 1 } else { same.map_or(0, |it| it.times) + 1 };
                let written = Written { addresses: Arc::clone(&addresses), at: now, times };
                self.written.insert(name.clone(), written);
                // What was heard meanwhile may be newer: then it is looked at again.
                if !self.ready.contains(&name) {
                    self.statuses.insert(name, Status { revision, addresses });
                }
            }
            Outcome::Overtaken | Outcome::Refused => {}
            Outcome::Forbidden => {
                let until = now + SHUT;
                self.shut.insert(Arc::clone(&name.namespace), until);
                self.later.insert((until, name));
            }
            Outcome::Failed => {
                self.paused = Some(now + RETRY);
                self.ready.insert(name);
            }
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

#[cfg(test)]
mod tests;
