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
use super::follow::{Sink, chain};
use super::resource;
use super::told::{self, Told};
use super::watch::{Change, Item, Revision};
use super::wire::{Decode as _, Decoded, Whole};
use crate::event::Event;
use crate::objects::ObjectKind;
use crate::pipeline::Wants;

/// Reads under way at once.
const MAX_READS: usize = 16;
/// A read without an answer for so long has none.
const ANSWER: Duration = Duration::from_secs(10);
/// What is no longer wanted is kept so long: a reference that moves to and fro costs nothing.
const KEEP: Duration = Duration::from_secs(60);
/// The first wants are taken for complete when all else was taken and none came for so long.
const QUIET: Duration = Duration::from_millis(300);
/// The first reads are waited for no longer than this.
const PATIENCE: Duration = Duration::from_secs(5);

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
        self.0
            .send(Seen::Changes(changes, afresh))
            .await
            .map_err(|_| KubeError::Closed)
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
    /// Had and no longer wanted: until when it is kept.
    idle: BTreeMap<ObjectName, Instant>,
}

impl Ledger {
    fn change(&mut self, change: Change<()>) -> Option<Event> {
        match change {
            Change::Put(Item { name, revision, .. }) => {
                self.known.insert(name.clone(), revision);
                self.consider(&name);
                None
            }
            Change::Gone(name) => {
                self.known.remove(&name);
                self.due.remove(&name);
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
            self.due.remove(name);
            if self.had.contains_key(name) {
                self.idle.insert(name.clone(), now + KEEP);
            }
        }
        for name in wanted.iter().filter(|name| !before.contains(*name)) {
            self.idle.remove(name);
            self.consider(name);
        }
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

    /// The next to be read, which then is.
    fn next(&mut self) -> Option<ObjectName> {
        let name = self
            .due
            .iter()
            .find(|name| !self.reading.contains(*name))?
            .clone();
        self.due.remove(&name);
        self.reading.insert(name.clone());
        Some(name)
    }

    /// What a read found; `None` for nothing.
    fn read(&mut self, name: &ObjectName, found: Option<Item<Decoded>>) -> Option<Event> {
        self.reading.remove(name);
        // Gone meanwhile, or no longer wanted: the watch, or the next want, says more.
        if !self.known.contains_key(name) || !self.wanted.contains(name) {
            return None;
        }
        let item = found?;
        self.had.insert(name.clone(), Some(item.revision.clone()));
        self.consider(name);
        Some(told::event(ObjectKind::Secret, Change::Put(item)))
    }

    /// A read failed: it is due again.
    fn failed(&mut self, name: &ObjectName) {
        self.reading.remove(name);
        self.consider(name);
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
        self.had
            .remove(&name)
            .map(|_| told::deleted(ObjectKind::Secret, name))
    }

    fn is_settled(&self) -> bool {
        self.due.is_empty() && self.reading.is_empty()
    }
}

/// When the wants that follow from the first lists are read, and Secrets count as complete.
///
/// Proxies that had certificates must not be answered without them by a control plane that has just started.
#[derive(Debug)]
struct Start {
    listed: bool,
    /// Since when all other kinds are complete and taken in.
    taken: Option<Instant>,
    /// The wants published last after that.
    published: Option<Instant>,
}

impl Start {
    fn is_over(&self, settled: bool, now: Instant) -> bool {
        let Some(taken) = self.taken.filter(|_| self.listed) else {
            return false;
        };
        let quiet = self.published.is_some() || now >= taken + QUIET;
        (settled && quiet) || now >= taken + PATIENCE
    }
}

/// Reads what is wanted, for ever.
///
/// # Errors
/// Where the watch or the index is gone.
pub(super) async fn run(
    client: Client,
    told: Told,
    mut seen: mpsc::Receiver<Seen>,
    mut wants: watch::Receiver<Wants>,
    others: usize,
) -> Result<(), KubeError> {
    const LOOK: Duration = Duration::from_millis(10);
    let mut ledger = Ledger::default();
    let mut start = Some(Start {
        listed: false,
        taken: None,
        published: None,
    });
    let complete = told.complete();
    let mut reads = FuturesUnordered::new();
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    let mut pause: Option<Instant> = None;
    let mut publishing = true;
    ledger.want(wants.borrow_and_update().secrets.clone(), clock::now());
    loop {
        while pause.is_none() && reads.len() < MAX_READS {
            let Some(name) = ledger.next() else { break };
            reads.push(read(client.clone(), name));
        }
        let due = [
            pause,
            ledger.idle.values().min().copied(),
            start.as_ref().map(|_| clock::now() + LOOK),
        ];
        let due = due.into_iter().flatten().min();
        let events = tokio::select! {
            heard = seen.recv() => match heard.ok_or(KubeError::Closed)? {
                Seen::Changes(changes, afresh) => {
                    if afresh {
                        ledger.afresh();
                    }
                    changes.into_iter().filter_map(|change| ledger.change(change)).collect()
                }
                Seen::Synced => {
                    start.iter_mut().for_each(|start| start.listed = true);
                    Vec::new()
                }
            },
            changed = wants.changed(), if publishing => {
                publishing = changed.is_ok();
                ledger.want(wants.borrow_and_update().secrets.clone(), clock::now());
                let taken = start.as_mut().filter(|start| start.taken.is_some());
                taken.into_iter().for_each(|start| start.published = Some(clock::now()));
                Vec::new()
            }
            Some((name, found)) = reads.next() => match found {
                Ok(found) => {
                    backoff.reset();
                    ledger.read(&name, found).into_iter().collect()
                }
                Err(reason) => {
                    tracing::warn!("the Secret {name} cannot be read, and is tried again: {reason}");
                    ledger.failed(&name);
                    pause = Some(clock::now() + backoff.next_delay());
                    Vec::new()
                }
            },
            () = sleep_until(due) => {
                let now = clock::now();
                pause = pause.filter(|until| *until > now);
                ledger.expire(now)
            }
        };
        told.events(ObjectKind::Secret, events).await?;
        if let Some(begun) = &mut start {
            let now = clock::now();
            if begun.taken.is_none() && *complete.borrow() >= others && told.is_taken() {
                begun.taken = Some(now);
            }
            if begun.is_over(ledger.is_settled(), now) {
                start = None;
                told.synced(ObjectKind::Secret).await?;
            }
        }
    }
}

/// Reads one Secret; `None` where there is none of that name.
async fn read(client: Client, name: ObjectName) -> (ObjectName, Result<Option<Item<Decoded>>, String>) {
    let found = async {
        let request = resource::get(ObjectKind::Secret, &name.namespace, &name.name)
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
