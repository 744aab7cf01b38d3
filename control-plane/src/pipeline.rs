//! The task that owns the index and writes the store.
//!
//! It takes what is ready (endpoints first), compiles what that touched, commits once, and begins again: whatever came
//! in meanwhile is the next commit, and there is no timer. Nothing is offered before the first lists of all kinds are in.
//! A compile that takes longer than a turn makes way for endpoints: what they change for the configuration that is
//! offered is committed at once, all else waits for the compile's own commit. Configuration that names Secrets which
//! nobody wanted before is offered once the source has read them, or after a second.
//!
//! **Invariant:** one writer. Everybody else reads what it publishes: heads, problems, wants.

mod holds;
mod notices;
mod stash;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use imbl::ordset::DiffItem;
use shared::clock;
use shared::delta::Delta;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info};

use crate::event::{Event, HoldRequest, Input, Receivers, Wants};
use crate::index::{Commit, Index};
use crate::metrics::Metrics;
use crate::objects::ObjectKind;
use crate::problem::Problems;
use crate::store::{Changes, Store};
use holds::Holds;
pub use notices::PortConfigMaps;
use stash::{Stash, squash};

/// Work goes on at most this long before others on the thread get their turn and endpoints are looked at again.
const TURN: Duration = Duration::from_millis(1);

/// What the pipeline publishes beside the store.
#[derive(Debug)]
pub struct Outputs {
    /// Secrets to be read.
    pub wants: watch::Sender<Wants>,
    /// Decisions to be put on record.
    pub holds: mpsc::Sender<HoldRequest>,
    /// What is wrong with objects.
    pub problems: watch::Sender<Problems>,
}

/// Why the pipeline ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// Nobody sends any more.
    #[error("the source of objects is gone")]
    SourceGone,
}

/// Owner of the index and writer of the store.
#[derive(Debug)]
pub struct Pipeline {
    index: Index,
    store: Store,
    inputs: Receivers,
    outputs: Outputs,
    metrics: Arc<Metrics>,
    holds: Holds,
    ports: PortConfigMaps,
    /// Kinds whose first list is not complete.
    unsynced: Vec<ObjectKind>,
    /// What was compiled before all first lists were complete.
    first: Option<Changes>,
    /// What waits for Secrets.
    stash: Option<Stash>,
    /// The newest wants that the source has settled.
    settled: u64,
    /// What the log said of problems.
    said: Problems,
    /// A first list was completed since the last commit.
    list_completed: bool,
    turn: Instant,
}

impl Pipeline {
    /// A pipeline that has seen nothing.
    pub fn new(
        index: Index,
        store: Store,
        inputs: Receivers,
        outputs: Outputs,
        ports: PortConfigMaps,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            index,
            store,
            inputs,
            outputs,
            metrics,
            holds: Holds::default(),
            ports,
            unsynced: ObjectKind::ALL.to_vec(),
            first: Some(Changes::default()),
            stash: None,
            settled: 0,
            said: Problems::default(),
            list_completed: false,
            turn: clock::now(),
        }
    }

    /// Runs as long as there is a source.
    ///
    /// # Errors
    /// Where the source is gone.
    pub async fn run(mut self) -> Result<Infallible, PipelineError> {
        loop {
            let patience = self.stash.as_ref().map(Stash::until);
            let input = tokio::select! {
                biased;
                input = self.inputs.endpoints.recv() => input,
                input = self.inputs.objects.recv() => input,
                () = self.holds.room(&self.outputs.holds) => continue,
                () = sleep_until(patience) => {
                    self.release_stash();
                    continue;
                }
            };
            let input = input.ok_or(PipelineError::SourceGone)?;
            let begun = clock::now();
            self.turn = begun;
            self.take(input).await;
            self.take_ready().await;
            // Before all lists are in, each list is compiled once it is complete, for the wants that follow from it.
            if self.first.is_none() || std::mem::take(&mut self.list_completed) {
                self.compile().await;
                self.commit(begun);
            }
        }
    }

    async fn compile(&mut self) {
        loop {
            let begun = self.turn;
            if self.index.compile(|| begun.elapsed() >= TURN) {
                return;
            }
            self.yield_turn().await;
            self.pass_endpoints().await;
        }
    }

    /// Takes what is waiting now, and not what comes meanwhile: a source that never stops cannot hold up the commit.
    async fn take_ready(&mut self) {
        self.take_endpoints().await;
        for _ in 0..self.inputs.objects.len() {
            let Ok(input) = self.inputs.objects.try_recv() else {
                return;
            };
            self.take(input).await;
        }
    }

    async fn take_endpoints(&mut self) {
        for _ in 0..self.inputs.endpoints.len() {
            let Ok(input) = self.inputs.endpoints.try_recv() else {
                return;
            };
            for event in self.opened(input) {
                self.apply(event);
                if self.turn_is_over() {
                    self.yield_turn().await;
                }
            }
        }
    }

    async fn take(&mut self, input: Input) {
        for event in self.opened(input) {
            self.apply(event);
            if self.turn_is_over() {
                self.yield_turn().await;
                self.pass_endpoints().await;
            }
        }
    }

    /// Lets the endpoints that wait overtake what is under way. Before anything is offered there is nothing to overtake.
    async fn pass_endpoints(&mut self) {
        if self.first.is_some() {
            return;
        }
        let begun = self.turn;
        self.take_endpoints().await;
        let Commit { live, cause, compiled, .. } = self.index.commit_live();
        if !live.is_empty() {
            if let Some(stash) = &mut self.stash {
                stash.overtaken_by(&live);
            }
            let config = Delta::default();
            self.publish(Changes { config, live, cause }, compiled, begun);
        }
    }

    fn opened(&mut self, input: Input) -> Vec<Event> {
        match input {
            Input::Events(events) => events,
            Input::Synced(kind) => {
                self.unsynced.retain(|unsynced| *unsynced != kind);
                self.list_completed = true;
                debug!(kind = kind.as_str(), missing = self.unsynced.len(), "first list complete");
                if self.first.is_some() && self.unsynced.is_empty() {
                    self.index.lists_complete();
                }
                Vec::new()
            }
            Input::Settled(wants) => {
                self.settled = self.settled.max(wants);
                Vec::new()
            }
        }
    }

    fn apply(&mut self, event: Event) {
        self.ports.look_at(&event);
        self.index.apply(event);
    }

    fn turn_is_over(&self) -> bool {
        self.turn.elapsed() >= TURN
    }

    async fn yield_turn(&mut self) {
        tokio::task::yield_now().await;
        self.turn = clock::now();
    }

    fn commit(&mut self, begun: Instant) {
        let Commit { config, live, cause, holds, problems_changed, wants_changed, compiled } =
            self.index.commit();
        let wants_more = self.publish_wants(wants_changed);
        if problems_changed {
            self.outputs.problems.send_replace(self.index.problems().clone());
        }
        self.holds.ask(holds, &self.outputs.holds);
        let mut changes = Changes { config, live, cause };
        if let Some(first) = self.first.take() {
            changes = squash(first, changes);
            if !self.unsynced.is_empty() {
                self.first = Some(changes);
                return;
            }
            changes.cause = format!("start: {} resources", changes.config.len() + changes.live.len());
        } else {
            changes = self.make_wait(changes, wants_more);
        }
        // Not before: what misses a list that is on its way may have nothing wrong with it.
        notices::log_new(&self.said, self.index.problems());
        self.said = self.index.problems().clone();
        self.publish(changes, compiled, begun);
    }

    /// Tells the source what it is to read. Whether that is more than before: less needs no reading.
    fn publish_wants(&mut self, changed: bool) -> bool {
        let others_synced = self.unsynced.iter().all(|kind| *kind == ObjectKind::Secret);
        let secrets = self.index.wants().clone();
        let (number, wants_more) = {
            let before = self.outputs.wants.borrow();
            if !changed && others_synced == before.others_synced {
                return false;
            }
            let wants_more = before.secrets.diff(&secrets).any(|item| matches!(item, DiffItem::Add(_)));
            (before.number + 1, wants_more)
        };
        self.outputs.wants.send_replace(Wants { secrets, others_synced, number });
        wants_more
    }

    /// Stashes of `changes` what must wait for Secrets, and gives what is to be offered now.
    fn make_wait(&mut self, changes: Changes, wants_more: bool) -> Changes {
        let now = tokio::time::Instant::now();
        let wants = self.outputs.wants.borrow().number;
        let mut stash = match self.stash.take() {
            Some(mut stash) => {
                if wants_more {
                    stash.also_await(wants);
                }
                stash
            }
            None if wants_more => Stash::new(wants, now),
            None => return changes,
        };
        if stash.is_over(self.settled, now) {
            return stash.release(changes);
        }
        let ahead = stash.keep(changes);
        self.stash = Some(stash);
        ahead
    }

    fn release_stash(&mut self) {
        if let Some(stash) = self.stash.take() {
            debug!("some Secrets were not read in time for the configuration that names them");
            self.publish(stash.release(Changes::default()), 0, clock::now());
        }
    }

    fn publish(&mut self, changes: Changes, compiled: usize, begun: Instant) {
        let (config, live) = (changes.config.len(), changes.live.len());
        let cause = changes.cause.clone();
        let changed = self.store.commit(changes, clock::now(), clock::wall());
        let took = begun.elapsed();
        self.metrics.committed(compiled, config, live, took);
        if changed > 0 {
            let version = self.store.version().short();
            let took_us = took.as_micros() as u64;
            // Endpoints change with every rollout of anything: what people look for in a log is the configuration.
            if config > 0 {
                info!(%version, config, live, compiled, took_us, "{cause}");
            } else {
                debug!(%version, live, compiled, took_us, "{cause}");
            }
        }
    }
}

async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
