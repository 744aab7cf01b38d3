//! The state machine of one kind's list and watch: takes what was received, and returns what to report and what to do
//! next.
//!
//! The first list is a stream of events if the server supports that (WatchList), else paged; both are consistent reads,
//! so no list is older than what was seen. Every list is buffered completely and compared once with what is known;
//! meanwhile nothing is removed. An interrupted watch resumes at its revision; one that is too old begins with a list.
//!
//! **Invariant:** sans-I/O. Whatever is lost, rejected or repeated, what was reported equals what the server has, once
//! it has responded; and no existing object is reported as deleted in between.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::name::ObjectName;

use crate::freshness::ReadTo;
use crate::removal::{self, SECOND_LOOK};

mod delays;
mod doubted;
mod trouble;
mod types;

use self::delays::{AGAIN, Delays};
use self::doubted::Doubted;
use self::trouble::{Is, Trouble};
pub(super) use self::types::{Change, Item, Revision, Todo, WatchInput, WatchOutput};

/// The server ends a watch after this long; the next resumes at its revision.
pub(super) const WATCH_LIFE: Duration = Duration::from_secs(290);
/// A watch that is open this much longer is dead.
const MARGIN: Duration = Duration::from_secs(10);
/// A streamed list without a line for this long, or without an end after [`STREAMED_LIST`], is not supported properly.
const STREAM_SILENCE: Duration = Duration::from_secs(10);
/// See [`STREAM_SILENCE`].
const STREAMED_LIST: Duration = Duration::from_secs(120);
/// Interval of probes for the newest revision.
const PROBE: Duration = Duration::from_secs(60);
/// A watch without a line for this long, although there were changes, is dead. Bookmarks come every 60 s or a little
/// later, and so do probes: what is older than the previous probe may be as old as one bookmark.
const SILENCE: Duration = Duration::from_secs(90);
/// A watch lags if it has not reached the newest revision after this long: bookmarks come about every minute. Doubled
/// each time a reconnect did not help: a store may be slow to report its progress to the API server.
const LAG: Duration = Duration::from_secs(120);
/// Limit of that time.
const MAX_LAG: Duration = Duration::from_secs(3600);
/// Consecutive rejections after which the revision itself is taken for the cause.
const STUBBORN: u32 = 5;

/// The state of one kind's watch.
#[derive(Debug)]
pub(super) struct Watch<T> {
    phase: Phase<T>,
    /// Whether the server streams lists, as far as known.
    streams: bool,
    /// Whether an empty first list is read again before it is trusted.
    confirm_empty_list: bool,
    known: HashMap<ObjectName, (Arc<str>, Revision)>,
    /// The revision to resume the watch at; `None`: list first.
    at: Option<Revision>,
    /// The highest revision seen.
    highest: u64,
    synced: bool,
    /// Until when an empty list is not trusted, and objects that a list lacked, each with its time.
    empty_until: Option<Instant>,
    doubted: Doubted,
    wait: Option<Instant>,
    delays: Delays,
    failures: u32,
    opened: Instant,
    last_input: Instant,
    /// Whether this stream has sent anything.
    spoke: bool,
    probe_at: Option<Instant>,
    /// The highest revision when the probe was sent.
    probed_above: u64,
    /// When the newest probe was sent, and the one before.
    probed: [Option<Instant>; 2],
    /// The newest revision that must be reached, and since when.
    expected: Option<(u64, Instant)>,
    /// How long that may take.
    lag: Duration,
    /// The next list follows a known step back of the history.
    told_restored: bool,
    /// The rest of the newest list expired before it was read.
    expired: bool,
    /// The round that the next list is for.
    round: Option<u64>,
    /// The newest round that was reported as unread.
    unread: Option<u64>,
    /// A digest of what is known, once it was asked for.
    content: Option<u64>,
    trouble: Trouble,
    /// When the request that the input at hand is about was sent, and the time of that input.
    asked: Instant,
    stepped: Instant,
}

#[derive(Debug)]
enum Phase<T> {
    /// No request is under way.
    Idle,
    /// A paged list under way.
    Listing { items: Vec<Item<T>>, more: Option<String> },
    /// A streamed list under way.
    Streaming(HashMap<ObjectName, Item<T>>),
    /// Up to date, and watching.
    Following,
}

impl<T> Watch<T> {
    /// Nothing is known yet. `confirm_empty_list`: an empty first list is read a second time before it is trusted.
    pub(super) fn new(confirm_empty_list: bool, now: Instant) -> Self {
        Self {
            phase: Phase::Idle,
            streams: true,
            confirm_empty_list,
            known: HashMap::new(),
            at: None,
            highest: 0,
            synced: false,
            empty_until: None,
            doubted: Doubted::default(),
            wait: None,
            delays: Delays::default(),
            failures: 0,
            opened: now,
            last_input: now,
            spoke: false,
            probe_at: None,
            probed_above: 0,
            probed: [None; 2],
            expected: None,
            lag: LAG,
            told_restored: false,
            expired: false,
            round: None,
            unread: None,
            content: None,
            trouble: Trouble::default(),
            asked: now,
            stepped: now,
        }
    }

    /// The next step of the edge.
    pub(super) fn todo(&self, now: Instant) -> Todo {
        if let Some(wait) = self.wait.filter(|wait| *wait > now) {
            return Todo::Wait(wait);
        }
        match (&self.phase, &self.at) {
            (Phase::Listing { more, .. }, _) => Todo::List { more: more.clone() },
            (Phase::Streaming(_) | Phase::Following, _) => Todo::Read,
            (Phase::Idle, None) if !self.streams && self.expired => Todo::ListWhole,
            (Phase::Idle, None) if !self.streams => Todo::List { more: None },
            (Phase::Idle, from) => Todo::Open { from: from.clone() },
        }
    }

    /// When the edge, while reading, must send [`WatchInput::Tick`].
    pub(super) fn due(&self) -> Instant {
        let life = match self.phase {
            Phase::Streaming(_) => (self.last_input + STREAM_SILENCE).min(self.opened + STREAMED_LIST),
            _ => self.opened + WATCH_LIFE + MARGIN,
        };
        let others = [self.doubted.next(), self.waits_for_more(), self.probe_at, self.works_at()];
        others.into_iter().flatten().fold(life, Instant::min)
    }

    /// Handles an input.
    pub(super) fn on(&mut self, input: WatchInput<T>, now: Instant) -> Vec<WatchOutput<T>> {
        let mut outputs = Vec::new();
        // What breaks off worked until now.
        let is_open = matches!(self.phase, Phase::Streaming(_) | Phase::Following);
        self.asked = if is_open { now } else { self.stepped };
        self.stepped = now;
        match input {
            WatchInput::Page { items, revision, more } => self.page(items, revision, more, now, &mut outputs),
            WatchInput::Opened => {
                (self.opened, self.last_input, self.spoke) = (now, now, false);
                self.phase = match self.at {
                    None => Phase::Streaming(HashMap::new()),
                    Some(_) => Phase::Following,
                };
                self.probe_at.get_or_insert(now + PROBE);
            }
            WatchInput::Put(item) => self.put(item, now, &mut outputs),
            WatchInput::Gone(name, revision) => self.gone(name, &revision, now, &mut outputs),
            WatchInput::Bookmark { revision, complete } => {
                self.bookmark(revision, complete, now, &mut outputs)
            }
            WatchInput::Refused { code, reason } => self.refused(code, reason, now, &mut outputs),
            WatchInput::Failed(reason) => {
                self.fail(reason, Is::Odd, now, &mut outputs);
            }
            WatchInput::Ended => self.ended(now, &mut outputs),
            WatchInput::Newest(revision) => self.newest(&revision, now, &mut outputs),
            WatchInput::Restored => {
                self.told_restored = true;
                self.relist();
            }
            WatchInput::Refresh(round) => {
                self.round = Some(round);
                // A proxy is waiting: retry now what failed or was forbidden.
                self.wait = None;
                self.relist();
            }
            WatchInput::Tick => self.tick(now, &mut outputs),
        }
        outputs
    }

    fn page(
        &mut self,
        items: Vec<Item<T>>,
        revision: Revision,
        more: Option<String>,
        now: Instant,
        outputs: &mut Vec<WatchOutput<T>>,
    ) {
        let mut all = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Listing { items, .. } => items,
            _ => Vec::new(),
        };
        all.extend(items);
        if more.is_some() {
            self.phase = Phase::Listing { items: all, more };
        } else {
            self.listed(all, revision, now, outputs);
        }
    }

    fn put(&mut self, item: Item<T>, now: Instant, outputs: &mut Vec<WatchOutput<T>>) {
        if self.is_past(&item.revision) {
            return self.went_back("an event", &item.revision, now, outputs);
        }
        self.spoke(now);
        match &mut self.phase {
            Phase::Streaming(items) => {
                items.insert(item.name.clone(), item);
            }
            Phase::Following => {
                self.advance(&item.revision);
                self.known.insert(item.name.clone(), (Arc::clone(&item.uid), item.revision.clone()));
                self.doubted.forget(&item.name);
                outputs.push(WatchOutput::Changes(vec![Change::Put(item)]));
                self.sync_if_believed(now, outputs);
                self.trouble.ends(outputs);
            }
            // The edge reads only while a stream is open.
            Phase::Idle | Phase::Listing { .. } => {}
        }
    }

    fn gone(
        &mut self,
        name: ObjectName,
        revision: &Revision,
        now: Instant,
        outputs: &mut Vec<WatchOutput<T>>,
    ) {
        if self.is_past(revision) {
            return self.went_back("an event", revision, now, outputs);
        }
        self.spoke(now);
        match &mut self.phase {
            Phase::Streaming(items) => {
                items.remove(&name);
            }
            Phase::Following => {
                self.advance(revision);
                self.doubted.forget(&name);
                self.trouble.ends(outputs);
                if self.known.remove(&name).is_some() {
                    outputs.push(WatchOutput::Changes(vec![Change::Gone(name)]));
                }
            }
            Phase::Idle | Phase::Listing { .. } => {}
        }
    }

    fn bookmark(
        &mut self,
        revision: Revision,
        complete: bool,
        now: Instant,
        outputs: &mut Vec<WatchOutput<T>>,
    ) {
        if self.is_past(&revision) {
            return self.went_back("a bookmark", &revision, now, outputs);
        }
        self.spoke(now);
        match &mut self.phase {
            Phase::Streaming(items) if complete => {
                let items = std::mem::take(items).into_values().collect();
                self.phase = Phase::Following;
                self.listed(items, revision, now, outputs);
                self.trouble.ends(outputs);
            }
            Phase::Following => {
                self.advance(&revision);
                self.trouble.ends(outputs);
            }
            _ => {}
        }
    }

    /// Whether an event is older than what the watch has reported. One without a revision is not.
    fn is_past(&self, revision: &Revision) -> bool {
        matches!(self.phase, Phase::Following) && (1..self.highest).contains(&revision.number())
    }

    /// The server's history went back, so what is known cannot be trusted: a list is needed. A server may continue like
    /// this.
    fn went_back(&mut self, what: &str, to: &Revision, now: Instant, outputs: &mut Vec<WatchOutput<T>>) {
        let reason = format!("{what} went back from {} to {to}", self.highest);
        outputs.push(WatchOutput::Warning(reason.clone()));
        self.relist();
        self.fail(reason, Is::Usual, now, outputs);
    }

    /// Handles a complete list: the only place that infers deletions.
    fn listed(
        &mut self,
        items: Vec<Item<T>>,
        revision: Revision,
        now: Instant,
        outputs: &mut Vec<WatchOutput<T>>,
    ) {
        self.content = None;
        self.delays.allowed();
        self.expired = false;
        let went_back = revision.number() < self.highest;
        if went_back && !self.told_restored {
            outputs.push(WatchOutput::Warning(format!(
                "revisions went back from {} to {revision}",
                self.highest
            )));
            outputs.push(WatchOutput::Restored);
        }
        // After a step back the same revision may be another version: everything is taken for changed.
        let differ = std::mem::take(&mut self.told_restored) || went_back;
        if differ {
            outputs.push(WatchOutput::Afresh);
        }
        let mut present = HashSet::with_capacity(items.len());
        let before = self.known.len();
        let mut changes = Vec::new();
        for item in items {
            present.insert(item.name.clone());
            let version = (Arc::clone(&item.uid), item.revision.clone());
            let was = self.known.insert(item.name.clone(), version.clone());
            if differ || was != Some(version) {
                changes.push(Change::Put(item));
            }
        }
        let absent: Vec<_> = self.known.keys().filter(|name| !present.contains(*name)).cloned().collect();
        let verdict = removal::judge(absent, before, |name| self.doubted.is_over(name, now));
        if let Some(first) = verdict.doubtful.iter().find(|name| !self.doubted.has(name)) {
            outputs.push(WatchOutput::Warning(format!(
                "{} of {before} objects are missing from a list, {first} among them: they stay unless a second list in 5 s agrees",
                verdict.doubtful.len()
            )));
        } else if removal::is_doubtful(verdict.gone.len(), before)
            // The same one on each replica, so that all of them report one Event.
            && let Some(first) = verdict.gone.iter().min()
            && let Some((uid, _)) = self.known.get(first)
        {
            let (first, uid) = (first.clone(), Arc::clone(uid));
            outputs.push(WatchOutput::Removed { first, uid, gone: verdict.gone.len(), before });
        }
        self.doubted.are(verdict.doubtful, now);
        for name in verdict.gone {
            self.known.remove(&name);
            changes.push(Change::Gone(name));
        }
        if !changes.is_empty() {
            outputs.push(WatchOutput::Changes(changes));
        }
        outputs.push(WatchOutput::Listed);
        self.highest = revision.number();
        self.at = Some(revision);
        self.expected = None;
        if !self.synced && self.known.is_empty() && self.confirm_empty_list && self.empty_until.is_none() {
            self.empty_until = Some(now + SECOND_LOOK);
        }
        self.sync_if_believed(now, outputs);
        // Objects that the list lacked and that are still kept differ from what others know, so the round waits for the
        // second list.
        if self.doubted.is_empty() {
            outputs.extend(self.round.take().map(WatchOutput::Fresh));
        }
    }

    /// Completes the first list: at once if it is not empty, else after a second list.
    fn sync_if_believed(&mut self, now: Instant, outputs: &mut Vec<WatchOutput<T>>) {
        let waits = self.known.is_empty() && self.empty_until.is_some_and(|until| until > now);
        if !self.synced && !waits {
            self.synced = true;
            outputs.push(WatchOutput::Synced);
        }
    }

    /// Until when an empty first list is not trusted.
    fn waits_for_more(&self) -> Option<Instant> {
        self.empty_until.filter(|_| !self.synced)
    }

    fn refused(&mut self, code: u16, reason: String, now: Instant, outputs: &mut Vec<WatchOutput<T>>) {
        let (listing, opened) = match self.phase {
            Phase::Listing { .. } => (true, false),
            Phase::Idle => (self.at.is_none() && !self.streams, false),
            Phase::Streaming(_) | Phase::Following => (false, true),
        };
        let transient = matches!(code, 401 | 408 | 429 | 500..);
        // Only for a list. Before one has succeeded, nothing is known about permissions.
        if code == 403 && self.at.is_none() && self.highest > 0 && !self.delays.is_forbidden(now) {
            return self.fail(format!("what was allowed is forbidden: {reason}"), Is::Odd, now, outputs);
        }
        if listing {
            if code == 403 {
                self.trouble.ends(outputs);
                let read_to = self.synced.then(|| self.read_to());
                outputs.push(WatchOutput::Forbidden { reason, read_to });
                // Another replica may have read more of it before it was forbidden.
                let round = self.round.filter(|round| self.unread != Some(*round));
                self.unread = round.or(self.unread);
                outputs.extend(round.map(WatchOutput::Unread));
                self.relist();
                self.wait = Some(now + AGAIN.1);
                return;
            }
            // The rest of a paged list has expired: nothing of it is used. Where pages take longer than the server keeps a
            // version, that would go on forever, so that the next one is read in one piece (as by client-go).
            self.expired = code == 410 && matches!(self.phase, Phase::Listing { .. });
            self.relist();
            let is = if code == 410 { Is::Usual } else { Is::Odd };
            return self.fail(format!("a list was refused with {code}: {reason}"), is, now, outputs);
        }
        let reason = format!("a watch was refused with {code}: {reason}");
        if self.at.is_none() {
            if opened || !transient {
                self.list_paged();
            } else {
                self.fail(reason, Is::Odd, now, outputs);
            }
            return;
        }
        self.failures += 1;
        if code == 410 || self.failures >= STUBBORN {
            // About the stream that this ends. A rejected one may be rejected forever.
            let calm = opened && self.spoke;
            self.relist();
            if !calm {
                self.fail(reason, Is::Usual, now, outputs);
            }
            return;
        }
        self.fail(reason, Is::Odd, now, outputs);
    }

    /// How far the list was read. Called while no watch is open.
    fn read_to(&mut self) -> ReadTo {
        let content = *self.content.get_or_insert_with(|| {
            let digest = |it: (&ObjectName, &(Arc<str>, Revision))| {
                // Without a random key: the same on each replica.
                let mut hasher = DefaultHasher::new();
                it.hash(&mut hasher);
                hasher.finish()
            };
            self.known.iter().map(digest).fold(1, u64::wrapping_add)
        });
        ReadTo { revision: self.highest, content }
    }

    fn ended(&mut self, now: Instant, outputs: &mut Vec<WatchOutput<T>>) {
        match self.phase {
            Phase::Streaming(_) => {
                let reason = "a streamed list ended before it was complete";
                outputs.push(WatchOutput::Warning(reason.to_owned()));
                self.list_paged();
                self.fail(reason.to_owned(), Is::Usual, now, outputs);
            }
            // The normal end of a watch.
            _ if self.spoke || now >= self.opened + STREAM_SILENCE => self.phase = Phase::Idle,
            _ => self.fail("a watch ended at once".to_owned(), Is::Usual, now, outputs),
        }
    }

    /// When a watch that is open works although nothing happens on it, if something failed before.
    fn works_at(&self) -> Option<Instant> {
        let is_open = matches!(self.phase, Phase::Following);
        (is_open && self.trouble.is_any()).then(|| self.opened + STREAM_SILENCE)
    }

    fn newest(&mut self, revision: &Revision, now: Instant, outputs: &mut Vec<WatchOutput<T>>) {
        let newest = revision.number();
        if !matches!(self.phase, Phase::Following) {
            return;
        }
        if newest < self.probed_above {
            outputs.push(WatchOutput::Warning(format!(
                "the newest revision went back from {} to {newest}",
                self.probed_above
            )));
            return self.relist();
        }
        // Bookmarks come about every minute, and a dead connection sends nothing either.
        let is_silent = self.probed[1].is_some_and(|before| self.last_input < before);
        let over = self.last_input + SILENCE;
        if is_silent && newest > self.highest && now < over {
            // Probe again then, so that a dead connection is noticed within two probes.
            self.probe_at = Some(over);
        } else if is_silent && newest > self.highest {
            outputs.push(WatchOutput::Warning(format!(
                "a watch at {} is silent although the server is at {newest}: it is opened again",
                self.highest
            )));
            self.expected = None;
            self.phase = Phase::Idle;
            return;
        }
        match self.expected {
            None => self.expected = Some((newest, now)),
            Some((expected, _)) if self.highest >= expected => {
                self.expected = Some((newest, now));
                self.lag = LAG;
            }
            Some((expected, since)) if now >= since + self.lag => {
                outputs.push(WatchOutput::Warning(format!(
                    "a watch lags at {} and should have reached {expected}: it is opened again",
                    self.highest
                )));
                self.expected = None;
                self.lag = (self.lag * 2).min(MAX_LAG);
                self.phase = Phase::Idle;
            }
            Some(_) => {}
        }
    }

    fn tick(&mut self, now: Instant, outputs: &mut Vec<WatchOutput<T>>) {
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe_at = Some(now + PROBE);
            self.probed_above = self.highest;
            self.probed = [Some(now), self.probed[0]];
            outputs.push(WatchOutput::Probe);
        }
        if self.works_at().is_some_and(|at| at <= now) {
            self.trouble.ends(outputs);
        }
        match self.phase {
            Phase::Streaming(_)
                if now >= self.last_input + STREAM_SILENCE || now >= self.opened + STREAMED_LIST =>
            {
                outputs.push(WatchOutput::Warning(
                    "the server does not stream lists: lists are read in pages".to_owned(),
                ));
                return self.list_paged();
            }
            Phase::Following if now >= self.opened + WATCH_LIFE + MARGIN => {
                outputs.push(WatchOutput::Warning(
                    "a watch did not end at its timeout, and is closed".to_owned(),
                ));
                self.phase = Phase::Idle;
            }
            _ => {}
        }
        let doubt = self.doubted.next().is_some_and(|until| until <= now);
        let empty = self.waits_for_more().is_some_and(|until| until <= now);
        if (doubt || empty) && matches!(self.phase, Phase::Idle | Phase::Following) {
            self.relist();
        }
    }

    /// Lists everything again; what is known stays until that list is complete.
    fn relist(&mut self) {
        self.at = None;
        self.phase = Phase::Idle;
    }

    fn list_paged(&mut self) {
        self.streams = false;
        self.relist();
    }

    /// Retries after a delay.
    fn fail(&mut self, reason: String, is: Is, now: Instant, outputs: &mut Vec<WatchOutput<T>>) {
        self.trouble.note(reason, is, (self.asked, now), outputs);
        self.phase = Phase::Idle;
        self.wait = Some(now + self.delays.again());
    }

    fn spoke(&mut self, now: Instant) {
        self.last_input = now;
        if matches!(self.phase, Phase::Following) {
            self.spoke = true;
            self.failures = 0;
            self.delays.reset();
        }
    }

    fn advance(&mut self, revision: &Revision) {
        if revision.number() >= self.highest {
            self.highest = revision.number();
            self.at = Some(revision.clone());
        }
    }
}

#[cfg(test)]
mod tests;
