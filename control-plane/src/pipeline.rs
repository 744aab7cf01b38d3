//! The task that owns the index and writes the store.
//!
//! It takes what is ready (endpoints first), compiles what that touched, commits once, and begins again: whatever came
//! in meanwhile is the next commit, and there is no timer. Nothing is offered before the first lists of all kinds are in.
//!
//! **Invariant:** one writer. Everybody else reads what it publishes: heads, problems, wants.

mod holds;
mod notices;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use imbl::{OrdMap, OrdSet};
use shared::clock;
use shared::delta::Delta;
use shared::name::ObjectName;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info};

use crate::event::{Event, HoldRequest, Input};
use crate::index::{Commit, Index};
use crate::metrics::Metrics;
use crate::objects::{ObjectKind, ObjectRef};
use crate::problem::Problem;
use crate::store::{Changes, Store};
use holds::Holds;
pub use notices::PortConfigMaps;

/// Work goes on at most this long before others on the thread get their turn and endpoints are looked at again.
const TURN: Duration = Duration::from_millis(1);

/// Where a source sends what it sees. Endpoints have a channel of their own, which is drained first.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// EndpointSlices alone.
    pub endpoints: mpsc::Sender<Input>,
    /// All other kinds, and decisions.
    pub objects: mpsc::Sender<Input>,
}

/// The receiving ends of [`Inputs`].
#[derive(Debug)]
pub struct Receivers {
    /// EndpointSlices alone.
    pub endpoints: mpsc::Receiver<Input>,
    /// All other kinds, and decisions.
    pub objects: mpsc::Receiver<Input>,
}

impl Inputs {
    /// Both channels. A source waits when `capacity` inputs were not taken yet.
    pub fn channel(capacity: usize) -> (Self, Receivers) {
        let (endpoints, from_endpoints) = mpsc::channel(capacity);
        let (objects, from_objects) = mpsc::channel(capacity);
        let receivers = Receivers {
            endpoints: from_endpoints,
            objects: from_objects,
        };
        (Self { endpoints, objects }, receivers)
    }
}

/// What the index wants the source to read: published over a watch channel, before the first commit too.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Wants {
    /// Secrets whose contents are needed, whether they exist or not.
    pub secrets: OrdSet<ObjectName>,
}

/// What is wrong with objects. A clone is cheap.
pub type Problems = OrdMap<ObjectRef, Arc<[Problem]>>;

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
            let input = tokio::select! {
                biased;
                input = self.inputs.endpoints.recv() => input,
                input = self.inputs.objects.recv() => input,
                () = self.holds.room(&self.outputs.holds) => continue,
            };
            let input = input.ok_or(PipelineError::SourceGone)?;
            let begun = clock::now();
            self.turn = begun;
            self.take(input).await;
            self.take_ready().await;
            // Before all lists are in, each list is compiled once it is complete, for the wants that follow from it.
            if self.first.is_none() || std::mem::take(&mut self.list_completed) {
                self.commit(begun);
            }
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
                Box::pin(self.take_endpoints()).await;
            }
        }
    }

    fn opened(&mut self, input: Input) -> Vec<Event> {
        match input {
            Input::Events(events) => events,
            Input::Synced(kind) => {
                self.unsynced.retain(|unsynced| *unsynced != kind);
                self.list_completed = true;
                debug!(
                    kind = kind.as_str(),
                    missing = self.unsynced.len(),
                    "first list complete"
                );
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
        let Commit {
            config,
            live,
            cause,
            holds,
            problems_changed,
            wants_changed,
            compiled,
        } = self.index.commit();
        if wants_changed {
            let secrets = self.index.wants().clone();
            self.outputs.wants.send_replace(Wants { secrets });
        }
        if problems_changed {
            let problems = self.index.problems().clone();
            notices::log_new(&self.outputs.problems.borrow(), &problems);
            self.outputs.problems.send_replace(problems);
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
        }
        self.publish(changes, compiled, begun);
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
            info!(%version, config, live, compiled, took_us, "{cause}");
        }
    }
}

fn squash(first: Changes, then: Changes) -> Changes {
    let join = |first: Delta, then: Delta| first.squash(then);
    Changes {
        config: join(first.config, then.config),
        live: join(first.live, then.live),
        cause: then.cause,
    }
}

#[cfg(test)]
mod tests;
