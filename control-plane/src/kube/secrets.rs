//! Secrets: which there are is watched by metadata alone; those that the index wants are read whole, and again when
//! they change.
//!
//! **Invariant:** no Secret that nobody refers to is in memory, but for a minute after the last reference went.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt as _};
use imbl::OrdSet;
use kube::Client;
use shared::backoff::Backoff;
use shared::clock;
use shared::name::ObjectName;
use tokio::sync::{mpsc, watch};

use super::KubeError;
use super::collection;
use super::follow::{Sink, chain};
use super::sink::{self, Sender};
use super::watch::{Change, Item, Revision};
use super::wire::{Decode as _, Decoded, Whole};
use crate::event::Event;
use crate::event::Wants;
use crate::objects::ObjectKind;

/// Reads under way at once.
const MAX_READS: usize = 16;
/// A read without an answer for so long has none.
const ANSWER: Duration = Duration::from_secs(10);
/// What is no longer wanted is kept so long: a reference that moves to and fro costs nothing.
const KEEP: Duration = Duration::from_secs(60);
/// The first reads are waited for as long as one of them succeeds this often.
const PATIENCE: Duration = Duration::from_secs(5);
/// Reads under way at once of names that could not be read before: those that hang leave room for others.
const MAX_RETRIES: usize = 4;

/// What the metadata watch tells the task that reads.
#[derive(Debug)]
pub(super) enum Seen {
    /// Changes, and whether revisions of before mean nothing.
    Changes(Vec<Change<()>>, bool),
    /// The first list is complete.
    Synced,
}

/// Carries it there.
#[derive(Debug)]
pub(super) struct Metadata(pub(super) mpsc::Sender<Seen>);

impl Sink<()> for Metadata {
    async fn changes(&mut self, changes: Vec<Change<()>>, afresh: bool) -> Result<(), KubeError> {
        self.0.send(Seen::Changes(changes, afresh)).await.map_err(|_| KubeError::Closed)
    }

    async fn synced(&mut self) -> Result<(), KubeError> {
        self.0.send(Seen::Synced).await.map_err(|_| KubeError::Closed)
    }
}

/// Which Secrets there are, are wanted, are had. Sans-I/O.
#[derive(Debug, Default)]
struct Ledger {
    /// All that exist, at their newest revision.
    known: HashMap<ObjectName, Revision>,
    wanted: OrdSet<ObjectName>,
    /// What the index has, at which revision; `None` where that is to be read again whatever it is.
    had: HashMap<ObjectName, Option<Revision>>,
    reading: BTreeSet<ObjectName>,
    due: BTreeSet<ObjectName>,
    /// Wanted since all were listed, and not among them: a watch may be behind the one that led to the want, so these are
    /// asked for once.
    unheard: BTreeSet<ObjectName>,
    /// Those of them that exist: the watch will say so.
    expected: BTreeSet<ObjectName>,
    /// Whether all that exist are known.
    listed: bool,
    /// Could not be read: when each is tried again.
    failing: BTreeMap<ObjectName, Retry>,
    /// Had and no longer wanted: until when it is kept.
    idle: BTreeMap<ObjectName, Instant>,
}

/// A Secret that could not be read.
#[derive(Debug)]
struct Retry {
    /// `None` while it is being read, or its turn has come.
    at: Option<Instant>,
    backoff: Backoff,
}

impl Retry {
    fn new() -> Self {
        Self { at: None, backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(10)) }
    }
}

impl Ledger {
    fn change(&mut self, change: Change<()>) -> Option<Event> {
        match change {
            Change::Put(Item { name, revision, .. }) => {
                self.unheard.remove(&name);
                self.expected.remove(&name);
                self.known.insert(name.clone(), revision);
                self.consider(&name);
                None
            }
            Change::Gone(name) => {
                self.known.remove(&name);
                self.drop_reads(&name);
                self.forget(name)
            }
        }
    }

    /// Revisions of before mean nothing.
    fn afresh(&mut self) {
        self.had.values_mut().for_each(|revision| *revision = None);
    }

    fn want(&mut self, wanted: OrdSet<ObjectName>, now: Instant) {
        let before = std::mem::replace(&mut self.wanted, wanted.clone());
        for name in before.iter().filter(|name| !wanted.contains(*name)) {
            self.drop_reads(name);
            if self.had.contains_key(name) {
                self.idle.insert(name.clone(), now + KEEP);
            }
        }
        for name in wanted.iter().filter(|name| !before.contains(*name)) {
            self.idle.remove(name);
            self.consider(name);
            if self.listed && !self.known.contains_key(name) {
                self.unheard.insert(name.clone());
            }
        }
    }

    fn drop_reads(&mut self, name: &ObjectName) {
        self.due.remove(name);
        self.unheard.remove(name);
        self.expected.remove(name);
        self.failing.remove(name);
    }

    /// Whether a Secret is to be read.
    fn consider(&mut self, name: &ObjectName) {
        let Some(known) = self.known.get(name) else { return };
        let had = self.had.get(name).and_then(Option::as_ref);
        // A read may be newer than the watch, which will come to it.
        let current = had.is_some_and(|had| had == known || had.number() > known.number());
        if self.wanted.contains(name) && !current {
            self.due.insert(name.clone());
        }
    }

    /// The next to be read, which then is. Those that failed before come last.
    fn next(&mut self) -> Option<ObjectName> {
        let retries = self.reading.iter().filter(|name| self.failing.contains_key(*name));
        let may_retry = retries.count() < MAX_RETRIES;
        let is_free = |name: &&ObjectName| {
            let waits = self.failing.get(*name).map(|retry| retry.at.is_some() || !may_retry);
            !self.reading.contains(*name) && !waits.unwrap_or(false)
        };
        let due = self.due.iter().filter(|name| !self.failing.contains_key(*name)).find(is_free);
        let name = due
            .or_else(|| self.unheard.iter().find(is_free))
            .or_else(|| self.failing.keys().filter(|name| self.due.contains(*name)).find(is_free))?
            .clone();
        self.due.remove(&name);
        self.unheard.remove(&name);
        self.reading.insert(name.clone());
        Some(name)
    }

    /// What a read found; `None` for nothing.
    fn read(&mut self, name: &ObjectName, found: Option<Item<Decoded>>) -> Option<Event> {
        self.reading.remove(name);
        self.failing.remove(name);
        if !self.known.contains_key(name) && self.wanted.contains(name) && found.is_some() {
            // Not taken in: if it went meanwhile, nobody would ever say so.
            self.expected.insert(name.clone());
        }
        // Gone meanwhile, or no longer wanted: the watch, or the next want, says more.
        if !self.known.contains_key(name) || !self.wanted.contains(name) {
            return None;
        }
        let item = found?;
        self.had.insert(name.clone(), Some(item.revision.clone()));
        self.consider(name);
        Some(sink::event(ObjectKind::Secret, Change::Put(item)))
    }

    /// A read failed: it is tried again after a while, alone. Whether that is news.
    fn failed(&mut self, name: &ObjectName, now: Instant) -> bool {
        self.reading.remove(name);
        self.consider(name);
        if !self.due.contains(name) {
            self.failing.remove(name);
            return false;
        }
        let is_news = !self.failing.contains_key(name);
        let retry = self.failing.entry(name.clone()).or_insert_with(Retry::new);
        retry.at = Some(now + retry.backoff.next_delay());
        is_news
    }

    /// What failed and has waited long enough may be read.
    fn wake(&mut self, now: Instant) {
        for retry in self.failing.values_mut() {
            retry.at = retry.at.filter(|at| *at > now);
        }
    }

    /// When something is to be done by the clock.
    fn next_time(&self) -> Option<Instant> {
        let retries = self.failing.values().filter_map(|retry| retry.at);
        retries.chain(self.idle.values().copied()).min()
    }

    /// What was not wanted for long enough.
    fn expire(&mut self, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((name, _)) = self.idle.iter().find(|(_, until)| **until <= now) {
            let name = name.clone();
            events.extend(self.forget(name));
        }
        events
    }

    fn forget(&mut self, name: ObjectName) -> Option<Event> {
        self.idle.remove(&name);
        self.had.remove(&name).map(|_| sink::deleted(ObjectKind::Secret, name))
    }

    /// Whether all that is wanted was read, does not exist, or could not be read for now.
    fn is_settled(&self) -> bool {
        let mut open = self.due.iter().chain(&self.reading);
        self.unheard.is_empty()
            && self.expected.is_empty()
            && open.all(|name| self.failing.contains_key(name))
    }
}

/// When the wants that follow from the first lists are read, and Secrets count as complete.
///
/// Proxies that had certificates must not be answered without them by a control plane that has just started.
#[derive(Debug, Default)]
struct Start {
    /// All Secrets that exist are known.
    listed: bool,
    /// Since all are listed and wanted: the last success, or the beginning.
    progress: Option<Instant>,
}

impl Start {
    /// Something was heard.
    fn note(&mut self, others_synced: bool, has_read: bool, now: Instant) {
        if self.listed && others_synced && (has_read || self.progress.is_none()) {
            self.progress = Some(now);
        }
    }

    fn until(&self) -> Option<Instant> {
        self.progress.map(|at| at + PATIENCE)
    }

    fn is_over(&self, settled: bool, now: Instant) -> bool {
        self.until().is_some_and(|until| settled || now >= until)
    }
}

/// Reads what is wanted, for ever.
///
/// # Errors
/// Where the watch or the index is gone.
pub(super) async fn run(
    client: Client,
    sender: Sender,
    mut seen: mpsc::Receiver<Seen>,
    mut wants: watch::Receiver<Wants>,
) -> Result<(), KubeError> {
    let mut ledger = Ledger::default();
    let mut start = Some(Start::default());
    let mut reads = FuturesUnordered::new();
    let mut publishing = true;
    let Wants { secrets, mut others_synced, number } = wants.borrow_and_update().clone();
    ledger.want(secrets, clock::now());
    // The wants that the index was told to be settled, and those that it has.
    let (mut settled, mut wanted) = (number, number);
    loop {
        while reads.len() < MAX_READS {
            let Some(name) = ledger.next() else { break };
            reads.push(read(client.clone(), name));
        }
        let due = [ledger.next_time(), start.as_ref().and_then(Start::until)];
        let due = due.into_iter().flatten().min();
        let mut has_read = false;
        let events = tokio::select! {
            heard = seen.recv() => match heard.ok_or(KubeError::Closed)? {
                Seen::Changes(changes, afresh) => {
                    if afresh {
                        ledger.afresh();
                    }
                    changes.into_iter().filter_map(|change| ledger.change(change)).collect()
                }
                Seen::Synced => {
                    ledger.listed = true;
                    start.iter_mut().for_each(|start| start.listed = true);
                    Vec::new()
                }
            },
            changed = wants.changed(), if publishing => {
                publishing = changed.is_ok();
                let now = wants.borrow_and_update().clone();
                (others_synced, wanted) = (now.others_synced, now.number);
                ledger.want(now.secrets, clock::now());
                Vec::new()
            }
            Some((name, found)) = reads.next() => match found {
                Ok(found) => {
                    has_read = true;
                    ledger.read(&name, found).into_iter().collect()
                }
                Err(reason) => {
                    if ledger.failed(&name, clock::now()) {
                        tracing::warn!("the Secret {name} cannot be read, and is tried again until it can: {reason}");
                    }
                    Vec::new()
                }
            },
            () = sleep_until(due) => {
                let now = clock::now();
                ledger.wake(now);
                ledger.expire(now)
            }
        };
        sender.events(ObjectKind::Secret, events).await?;
        if let Some(begun) = &mut start {
            let now = clock::now();
            begun.note(others_synced, has_read, now);
            if begun.is_over(ledger.is_settled(), now) {
                if !ledger.is_settled() {
                    tracing::warn!("the first Secrets are not all read, and no more are waited for");
                }
                start = None;
                sender.synced(ObjectKind::Secret).await?;
            }
        }
        // After what was read: the index hears of both in this order.
        if settled != wanted && start.is_none() && ledger.is_settled() {
            settled = wanted;
            sender.settled(wanted).await?;
        }
    }
}

/// Reads one Secret; `None` where there is none of that name.
async fn read(client: Client, name: ObjectName) -> (ObjectName, Result<Option<Item<Decoded>>, String>) {
    let found = async {
        let request = collection::get(ObjectKind::Secret, &name.namespace, &name.name)
            .map_err(|error| error.to_string())?;
        match tokio::time::timeout(ANSWER, client.request_text(request)).await {
            Ok(Ok(text)) => Ok(Whole(ObjectKind::Secret).decode(&text)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(kube::Error::Api(status))) => Err(format!("{}: {}", status.code, status.message)),
            Ok(Err(error)) => Err(chain(&error)),
            Err(_) => Err(format!("no answer for {} s", ANSWER.as_secs())),
        }
    };
    let found = found.await;
    (name, found)
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
