//! Reads Secrets and ConfigMaps on demand, if something refers to them. Their metadata is watched; those that the index
//! wants are read completely, and again when they change.
//!
//! So are ConfigMaps with names that those of ingress-nginx usually have: the index tells if one of them seems to be meant.
//!
//! Each want is answered: with the object, with its absence, or with the error for as long as it cannot be read.
//! Objects that no watch reports (those outside the watched namespace, Helm's Secrets, ConfigMaps that may not be
//! listed) are read again at intervals.
//!
//! **Invariant:** no Secret is in memory longer than a minute after the last reference to it was removed. An object is
//! absent only if the API server said so in response to a request for it, or if its name is invalid; never because of a
//! timeout or an error.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt as _};
use imbl::ordset::DiffItem;
use kube::Client;
use shared::backoff::Backoff;
use shared::clock;
use tokio::sync::{mpsc, watch};

use super::KubeError;
use super::ask::{ANSWER, AskError, within};
use super::collection;
use super::follow::{Sink, Without};
use super::rounds::Rounds;
use super::sink::{self, Sender};
use super::watch::{Change, Item, Revision};
use super::wire::{Decode as _, Decoded, Whole};
use crate::event::{Event, Wants};
use crate::objects::{ObjectKind, ObjectRef, usual};

/// Kinds whose metadata is watched.
pub(super) const METADATA: [(ObjectKind, &str); 2] =
    [(ObjectKind::Secret, "secret metadata"), (ObjectKind::ConfigMap, "configmap metadata")];
/// Limit of concurrent reads.
const MAX_READS: usize = 16;
/// Limit of the ConfigMaps with usual names that are read: whoever may make some cannot fill the memory with them.
const MAX_ALIKE: usize = 8;
/// How long an unwanted object is kept, so that removing and restoring a reference costs nothing.
const KEEP: Duration = Duration::from_secs(60);
/// Limit of concurrent repeated reads, which may give nothing new: reads that hang leave room for others.
const MAX_RETRIES: usize = 4;
/// How long the index waits for an object that is wanted anew before it does without.
const IN_TIME: Duration = Duration::from_secs(5);
/// The first and the longest interval between two reads of an object that no watch reports, or that could not be read.
pub(super) const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Messages from a metadata watch to the reading task.
#[derive(Debug)]
pub(super) enum Seen {
    /// Changes of a kind, and whether earlier revisions have become meaningless.
    Changes(ObjectKind, Vec<Change<()>>, bool),
    /// The first list of a kind is complete.
    Synced(ObjectKind),
    /// Listing a kind is forbidden.
    Blind(ObjectKind),
    /// A kind was listed that was forbidden before.
    Again(ObjectKind),
    /// The list of a kind for a round of the freshness barrier was sent; if not `whole`, it may not be read.
    Fresh(ObjectKind, u64, bool),
}

/// The sink of a metadata watch.
#[derive(Debug)]
pub(super) struct Metadata {
    kind: ObjectKind,
    to: mpsc::Sender<Seen>,
    /// It was reported that listing is forbidden.
    blind: bool,
}

impl Metadata {
    /// Reports a kind here.
    pub(super) fn new(kind: ObjectKind, to: mpsc::Sender<Seen>) -> Self {
        Self { kind, to, blind: false }
    }
}

impl Sink<()> for Metadata {
    async fn changes(&mut self, changes: Vec<Change<()>>, afresh: bool) -> Result<(), KubeError> {
        let seen = Seen::Changes(self.kind, changes, afresh);
        self.to.send(seen).await.map_err(|_| KubeError::Closed)
    }

    async fn listed(&mut self) -> Result<(), KubeError> {
        match std::mem::take(&mut self.blind) {
            true => self.to.send(Seen::Again(self.kind)).await.map_err(|_| KubeError::Closed),
            false => Ok(()),
        }
    }

    async fn synced(&mut self) -> Result<(), KubeError> {
        self.to.send(Seen::Synced(self.kind)).await.map_err(|_| KubeError::Closed)
    }

    /// The round ends only after the changed objects were read.
    const IS_PART: bool = false;

    async fn fresh(&mut self, round: u64, is_whole: bool) -> Result<(), KubeError> {
        self.to.send(Seen::Fresh(self.kind, round, is_whole)).await.map_err(|_| KubeError::Closed)
    }

    /// Most fleets refer to no ConfigMap, and referenced ones can be requested one by one.
    async fn forbidden(&mut self) -> Result<Without, KubeError> {
        if self.kind != ObjectKind::ConfigMap {
            return Ok(Without::Waits);
        }
        if !std::mem::replace(&mut self.blind, true) {
            self.to.send(Seen::Blind(self.kind)).await.map_err(|_| KubeError::Closed)?;
        }
        Ok(Without::Polls)
    }
}

/// Which objects exist, are wanted, and were read. Sans-I/O.
#[derive(Debug, Default)]
struct Ledger {
    /// All objects that the watches know, at their newest revision.
    known: HashMap<ObjectRef, Revision>,
    /// What the index wants, and the ConfigMaps with usual names.
    wanted: Wants,
    asked: Wants,
    alike: Wants,
    /// The objects that the index has, with their revision; `None` if it must be read again in any case.
    had: HashMap<ObjectRef, Option<Revision>>,
    /// Reads under way, and whether their results are still valid.
    reading: BTreeMap<ObjectRef, bool>,
    /// To be read as soon as the limit allows.
    due: BTreeSet<ObjectRef>,
    /// Kinds whose list is complete.
    listed: BTreeSet<ObjectKind>,
    /// Kinds that are not watched.
    blind: BTreeSet<ObjectKind>,
    /// The only namespace that is watched, if so.
    namespace: Option<Arc<str>>,
    /// Objects that are watched by name: never dropped.
    fixed: BTreeSet<ObjectRef>,
    /// To be read again later.
    again: HashMap<ObjectRef, Again>,
    /// Those whose time has come.
    ready: BTreeSet<ObjectRef>,
    /// Unwanted objects, each kept until the given time.
    idle: HashMap<ObjectRef, Instant>,
    /// Wanted objects of which nothing was said yet, with the time until which that is in time.
    expected: HashMap<ObjectRef, Instant>,
    /// When to look at an entry of `again`, `idle` or `expected`.
    times: BTreeSet<(Instant, ObjectRef)>,
    /// Reads under way of objects in `again`.
    retries: usize,
    /// The newest barrier round, kinds whose list for it was sent, and what was to be read then.
    round: u64,
    fresh: BTreeSet<ObjectKind>,
    /// Of those, kinds whose list may not be read.
    unlisted: BTreeSet<ObjectKind>,
    unread: Option<BTreeSet<ObjectRef>>,
}

/// An object to be read again.
#[derive(Debug)]
struct Again {
    /// The time that is valid; other entries in `times` are stale.
    at: Instant,
    backoff: Backoff,
    /// Why the last read failed, if it did.
    failure: Option<Arc<str>>,
}

impl Ledger {
    /// A watch reports a change.
    fn change(&mut self, kind: ObjectKind, change: Change<()>) -> Option<Event> {
        match change {
            Change::Put(Item { name, revision, .. }) => {
                let object = ObjectRef { kind, name };
                let is_alike = kind == ObjectKind::ConfigMap && usual::is_usual(&object.name.name);
                if is_alike && self.alike.len() < MAX_ALIKE && !self.fixed.contains(&object) {
                    self.alike.insert(object.clone());
                    self.wanted.insert(object.clone());
                }
                self.known.insert(object.clone(), revision);
                if !self.is_failing(&object) {
                    self.rest(&object);
                }
                self.consider(&object);
                None
            }
            Change::Gone(name) => {
                let object = ObjectRef { kind, name };
                self.known.remove(&object);
                // The read under way may return the deleted object.
                self.reading.entry(object.clone()).and_modify(|counts| *counts = false);
                self.rest(&object);
                self.due.remove(&object);
                let is_wanted = self.wanted.contains(&object);
                if self.alike.remove(&object).is_some() && !self.asked.contains(&object) {
                    self.wanted.remove(&object);
                }
                self.idle.remove(&object);
                self.expected.remove(&object);
                let was_had = self.had.remove(&object).is_some();
                ((was_had || is_wanted) && !self.fixed.contains(&object)).then_some(Event::Deleted(object))
            }
        }
    }

    /// Earlier revisions of a kind have become meaningless.
    fn afresh(&mut self, kind: ObjectKind) {
        self.had
            .iter_mut()
            .filter(|(object, _)| object.kind == kind)
            .for_each(|(_, revision)| *revision = None);
    }

    /// Listing a kind is forbidden: each wanted object is requested.
    fn list_forbidden(&mut self, kind: ObjectKind) {
        self.list_complete(kind);
        self.blind.insert(kind);
        // Those that a list showed are not watched any more either.
        for object in self.wanted.clone().iter().filter(|object| object.kind == kind) {
            if !self.is_failing(object) {
                self.due.insert(object.clone());
            }
        }
    }

    /// The list of a kind is complete: wanted objects that are not in it are requested.
    fn list_complete(&mut self, kind: ObjectKind) {
        self.listed.insert(kind);
        self.blind.remove(&kind);
        for object in self.wanted.clone().iter().filter(|object| object.kind == kind) {
            self.consider(object);
        }
    }

    fn want(&mut self, asked: Wants, now: Instant) {
        self.asked = asked.clone();
        let wanted = asked.union(self.alike.clone());
        let before = std::mem::replace(&mut self.wanted, wanted.clone());
        for change in before.diff(&wanted) {
            match change {
                DiffItem::Remove(object) => {
                    self.due.remove(object);
                    self.rest(object);
                    self.expected.remove(object);
                    if self.had.contains_key(object) {
                        let until = now + KEEP;
                        self.idle.insert(object.clone(), until);
                        self.times.insert((until, object.clone()));
                    }
                }
                DiffItem::Add(object) => {
                    let was_kept = self.idle.remove(object).is_some();
                    if was_kept && !self.is_watched(object) {
                        self.due.insert(object.clone());
                    }
                    if !self.had.contains_key(object) {
                        self.expect(object, now + IN_TIME);
                    }
                    self.consider(object);
                }
            }
        }
    }

    fn expect(&mut self, object: &ObjectRef, until: Instant) {
        self.expected.insert(object.clone(), until);
        self.times.insert((until, object.clone()));
    }

    /// Whether a watch reports all changes of this object.
    fn is_watched(&self, object: &ObjectRef) -> bool {
        let is_within = self.namespace.as_ref().is_none_or(|namespace| *namespace == object.name.namespace);
        !self.blind.contains(&object.kind) && (is_within || self.known.contains_key(object))
    }

    fn is_failing(&self, object: &ObjectRef) -> bool {
        self.again.get(object).is_some_and(|again| again.failure.is_some())
    }

    /// Whether the lists of a round include an object: not so for Helm's Secrets, which were read and are in no list.
    fn is_listed(&self, object: &ObjectRef) -> bool {
        self.is_watched(object) && (self.known.contains_key(object) || !self.had.contains_key(object))
    }

    /// Decides whether an object must be read.
    fn consider(&mut self, object: &ObjectRef) {
        if !self.wanted.contains(object) || self.is_failing(object) {
            return;
        }
        let had = self.had.get(object);
        let is_due = match self.known.get(object) {
            // A read may be newer than the watch, which catches up.
            Some(known) => {
                let had = had.and_then(Option::as_ref);
                !had.is_some_and(|had| had == known || had.number() > known.number())
            }
            // The watch may be behind the one that led to the want.
            None => self.listed.contains(&object.kind) && had.is_none(),
        };
        if is_due {
            self.due.insert(object.clone());
        }
    }

    /// The next object to read, which is marked as being read. Repeated reads come last.
    fn next(&mut self) -> Option<ObjectRef> {
        let is_free = |object: &&ObjectRef| !self.reading.contains_key(*object);
        let due = self.due.iter().find(is_free).cloned();
        let object = due.or_else(|| {
            let may_retry = self.retries < MAX_RETRIES;
            self.ready.iter().filter(|_| may_retry).find(is_free).cloned()
        })?;
        self.due.remove(&object);
        self.ready.remove(&object);
        self.retries += usize::from(self.again.contains_key(&object));
        self.reading.insert(object.clone(), true);
        Some(object)
    }

    /// Handles the result of a read; `None` if the object does not exist.
    fn read(&mut self, object: &ObjectRef, found: Option<Item<Decoded>>, now: Instant) -> Option<Event> {
        let counts = self.end_read(object);
        if !self.wanted.contains(object) {
            return None;
        }
        // Even the version that the index has is news to it then.
        let was_failing = self.is_failing(object);
        if !counts {
            self.consider(object);
            return None;
        }
        self.expected.remove(object);
        let is_confirmed = self.known.contains_key(object) == found.is_some() && self.is_watched(object);
        if is_confirmed {
            self.rest(object);
        } else {
            // The watch has not caught up, or there is none for it.
            self.read_again(object, None, now);
        }
        match found {
            Some(item) => {
                let revision = Some(item.revision.clone());
                let is_same = self.had.insert(object.clone(), revision.clone()) == Some(revision);
                self.consider(object);
                (!is_same || was_failing).then(|| sink::event(object.kind, Change::Put(item)))
            }
            None => {
                self.had.remove(object);
                Some(Event::Deleted(object.clone()))
            }
        }
    }

    /// Handles a failed read, which is retried later. Returns the event to send if it is news, and whether it is the
    /// first failure.
    fn failed(&mut self, object: &ObjectRef, reason: String, now: Instant) -> Option<(Event, bool)> {
        self.end_read(object);
        if !self.wanted.contains(object) {
            self.rest(object);
            return None;
        }
        self.expected.remove(object);
        let before = self.again.get(object).and_then(|again| again.failure.clone());
        let reason = Arc::<str>::from(reason);
        self.due.remove(object);
        self.read_again(object, Some(Arc::clone(&reason)), now);
        let is_first = before.is_none();
        (before.as_ref() != Some(&reason))
            .then(|| (Event::Unreadable { object: object.clone(), reason }, is_first))
    }

    /// Ends a read; returns whether its result is valid.
    fn end_read(&mut self, object: &ObjectRef) -> bool {
        if self.again.contains_key(object) {
            self.retries = self.retries.saturating_sub(1);
        }
        self.reading.remove(object).unwrap_or(false)
    }

    fn read_again(&mut self, object: &ObjectRef, failure: Option<Arc<str>>, now: Instant) {
        let again = self.again.entry(object.clone()).or_insert_with(|| Again {
            at: now,
            backoff: Backoff::new(AGAIN.0, AGAIN.1),
            failure: None,
        });
        again.failure = failure;
        again.at = now + again.backoff.next_delay();
        self.times.insert((again.at, object.clone()));
    }

    /// Cancels reading it again.
    fn rest(&mut self, object: &ObjectRef) {
        if self.again.remove(object).is_some() && self.reading.contains_key(object) {
            self.retries = self.retries.saturating_sub(1);
        }
        self.ready.remove(object);
    }

    /// The list of a kind for a round was sent. Objects that are in no list are read for the round.
    fn note_fresh(&mut self, kind: ObjectKind, round: u64, is_whole: bool) {
        if self.round != round {
            (self.round, self.unread) = (round, None);
            self.fresh.clear();
        }
        self.fresh.insert(kind);
        match is_whole {
            true => _ = self.unlisted.remove(&kind),
            false => _ = self.unlisted.insert(kind),
        }
        if self.fresh.len() == METADATA.len() {
            // For objects in no list, this read shows what others know. A read under way may have been answered before
            // the round.
            for object in &self.wanted.clone() {
                if !self.is_listed(object) && !self.is_failing(object) {
                    self.due.insert(object.clone());
                }
            }
            self.unread = Some(self.due.iter().chain(self.reading.keys()).cloned().collect());
        }
    }

    /// The round that has ended: everything that its lists showed was read, as far as possible; and whether all of them may
    /// be read. Returned once.
    fn round_over(&mut self) -> Option<(u64, bool)> {
        let (due, reading, again) = (&self.due, &self.reading, &self.again);
        let failing = |object: &ObjectRef| again.get(object).is_some_and(|again| again.failure.is_some());
        let unread = self.unread.as_mut()?;
        unread.retain(|object| (due.contains(object) || reading.contains_key(object)) && !failing(object));
        let is_over = unread.is_empty();
        is_over.then(|| {
            self.unread = None;
            (self.round, self.unlisted.is_empty())
        })
    }

    /// The next time at which something is due.
    fn next_time(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Starts what is due: repeated reads, dropping what has been unwanted for long enough, and saying what is late.
    fn wake(&mut self, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((at, object)) = self.times.first().filter(|(at, _)| *at <= now).cloned() {
            self.times.pop_first();
            if self.again.get(&object).is_some_and(|again| again.at == at) {
                self.ready.insert(object.clone());
            }
            if self.idle.get(&object) == Some(&at) {
                self.idle.remove(&object);
                self.had.remove(&object);
                if !self.fixed.contains(&object) {
                    events.push(Event::Dropped(object));
                }
            } else if self.expected.get(&object) == Some(&at) {
                self.expected.remove(&object);
                match self.listed.contains(&object.kind) {
                    true => events.push(Event::Late(object)),
                    // Nothing is read before the first list.
                    false => self.expect(&object, now + IN_TIME),
                }
            }
        }
        events
    }
}

/// Which objects are read on demand, and what is watched.
#[derive(Debug)]
pub(super) struct Scope {
    /// The only namespace that is watched.
    pub(super) namespace: Option<String>,
    /// Objects that are watched by name.
    pub(super) fixed: BTreeSet<ObjectRef>,
}

/// Reads what is wanted, forever.
///
/// # Errors
/// If a watch or the index has ended.
pub(super) async fn run(
    client: Client,
    sender: Sender,
    scope: Scope,
    (mut seen, mut wants): (mpsc::Receiver<Seen>, watch::Receiver<Wants>),
    rounds: Rounds,
) -> Result<(), KubeError> {
    let namespace = scope.namespace.map(Arc::from);
    let mut ledger = Ledger { namespace, fixed: scope.fixed, ..Ledger::default() };
    let mut reads = FuturesUnordered::new();
    let mut publishing = true;
    wants.mark_changed();
    loop {
        if let Some((round, is_whole)) = ledger.round_over() {
            rounds.reported(round, is_whole).await?;
        }
        while reads.len() < MAX_READS {
            let Some(object) = ledger.next() else { break };
            reads.push(read(client.clone(), object));
        }
        let (kind, events) = tokio::select! {
            heard = seen.recv() => match heard.ok_or(KubeError::Closed)? {
                Seen::Changes(kind, changes, afresh) => {
                    if afresh {
                        ledger.afresh(kind);
                    }
                    (kind, changes.into_iter().filter_map(|change| ledger.change(kind, change)).collect())
                }
                Seen::Synced(kind) => {
                    ledger.list_complete(kind);
                    if kind == ObjectKind::Secret {
                        sender.synced(kind).await?;
                    }
                    continue;
                }
                Seen::Again(kind) => {
                    ledger.list_complete(kind);
                    continue;
                }
                Seen::Blind(kind) => {
                    ledger.list_forbidden(kind);
                    continue;
                }
                Seen::Fresh(kind, round, is_whole) => {
                    ledger.note_fresh(kind, round, is_whole);
                    continue;
                }
            },
            changed = wants.changed(), if publishing => {
                publishing = changed.is_ok();
                let now = wants.borrow_and_update().clone();
                ledger.want(now, clock::now());
                continue;
            }
            Some((object, found)) = reads.next() => match found {
                Ok(found) => (object.kind, ledger.read(&object, found, clock::now()).into_iter().collect()),
                Err(reason) => {
                    let failed = ledger.failed(&object, reason.clone(), clock::now());
                    if matches!(failed, Some((_, true))) {
                        tracing::warn!("{object} cannot be read, and is tried again until it can: {reason}");
                    }
                    (object.kind, failed.map(|(event, _)| event).into_iter().collect())
                }
            },
            // All kinds that are read on demand share one channel.
            () = clock::sleep_until(ledger.next_time()) => (ObjectKind::Secret, ledger.wake(clock::now())),
        };
        sender.events(kind, events).await?;
    }
}

/// Reads one object; `None` if there is none with that name. An invalid name cannot exist, and must not become part of
/// a path.
async fn read(client: Client, object: ObjectRef) -> (ObjectRef, Result<Option<Item<Decoded>>, String>) {
    let found = async {
        let ObjectRef { kind, name } = &object;
        if !name.is_possible() {
            return Ok(None);
        }
        let request =
            collection::get(*kind, &name.namespace, &name.name).map_err(|error| error.to_string())?;
        match within(ANSWER, client.request_text(request)).await {
            // An object without a readable name is not a response to the request.
            Ok(text) => match Whole(*kind).decode(&text) {
                Some(item) => Ok(Some(item)),
                None => Err("expected an object, got something without a name".to_owned()),
            },
            Err(AskError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    };
    let found = found.await;
    (object, found)
}

#[cfg(test)]
mod tests;
