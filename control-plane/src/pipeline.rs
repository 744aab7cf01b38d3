//! The task that owns the index and writes the store.
//!
//! It takes what is ready (endpoints first), compiles what that touched, commits once, and begins again: whatever
//! arrived meanwhile goes into the next commit, and there is no timer. Nothing is offered before the first lists of all
//! kinds are complete. A compile that takes longer than a turn makes way for endpoints: what they change for the
//! offered configuration is committed at once, all else waits for the compile's own commit. Nor is anything offered
//! before every object that the first lists refer to was read, or is known not to exist: after that the index keeps the
//! previous state of an object until it is read.
//!
//! **Invariant:** one writer. Everybody else reads what it publishes: heads, problems, wants.

mod awaited;
mod expiry;
mod holds;
mod notices;
mod questions;
mod rounds;
mod source_identity;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::clock;
use shared::delta::Delta;
use shared::version::Source;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::Interval;
use tracing::{debug, info, warn};

use crate::barrier::Barrier;
use crate::event::{Event, HoldRequest, Input, PinChange, PinRequest, Receivers, Wants, earlier};
use crate::index::{Commit, Index};
use crate::metrics::Metrics;
use crate::objects::{ObjectKind, ObjectRef};
use crate::origin::Origin;
use crate::placement::{Placements, Report};
use crate::problem::Problems;
use crate::store::{Changes, Committed, Store};
pub use awaited::{Awaited, Start};
use expiry::{Expiry, Next};
use holds::Holds;
pub use questions::Question;
use rounds::Rounds;
use source_identity::SourceIdentity;

/// Limit of the awaited objects that are named.
const SHOWN: usize = 3;
/// Interval of telling the time, for problems that begin at some.
const HOUR: Duration = Duration::from_secs(60 * 60);
/// Longest uninterrupted work, before the task yields and looks at endpoints again.
const TURN: Duration = Duration::from_millis(1);

/// The channels from the source.
const ENDPOINTS: usize = 0;
const OBJECTS: usize = 1;

/// What the pipeline publishes besides the store.
#[derive(Debug)]
pub struct Outputs {
    /// Objects that the source should read.
    pub wants: watch::Sender<Wants>,
    /// What is missing before anything is offered; `None` once something is.
    pub awaited: watch::Sender<Option<Awaited>>,
    /// Decisions to be stored.
    pub holds: mpsc::Sender<HoldRequest>,
    /// Requests to end the pin, or to store it again.
    pub pins: mpsc::Sender<PinRequest>,
    /// What is wrong with objects.
    pub problems: watch::Sender<Problems>,
    /// The placement of objects. Never ahead of the published head.
    pub places: watch::Sender<Placements>,
}

/// Why the pipeline ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// All senders were dropped.
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
    expiry: Expiry,
    /// Questions about Ingresses that do not exist yet.
    questions: Option<mpsc::Receiver<Question>>,
    /// Kinds whose first list is not complete.
    unsynced: Vec<ObjectKind>,
    /// What was compiled before all first lists were complete.
    first: Option<Changes>,
    /// Placement news from commits that were not published yet.
    reports: Vec<(ObjectRef, Report)>,
    /// The problems that were logged.
    logged: Problems,
    /// A first list was completed since the last commit.
    list_completed: bool,
    source_identity: SourceIdentity,
    /// For proxies that wait until everything was listed again.
    fresh: Rounds,
    /// For questions that wait until the folder was read.
    caught_up: Rounds,
    /// For problems that begin at some time.
    hour: Option<Interval>,
    turn: Instant,
}

impl Pipeline {
    /// A pipeline without objects.
    pub fn new(
        index: Index,
        store: Store,
        inputs: Receivers,
        outputs: Outputs,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            index,
            store,
            inputs,
            outputs,
            metrics,
            holds: Holds::default(),
            expiry: Expiry::default(),
            questions: None,
            unsynced: ObjectKind::ALL.to_vec(),
            first: Some(Changes::default()),
            reports: Vec::new(),
            logged: Problems::default(),
            list_completed: false,
            source_identity: SourceIdentity::default(),
            fresh: Rounds::default(),
            caught_up: Rounds::default(),
            hour: None,
            turn: clock::now(),
        }
    }

    /// Also answers the questions from this channel.
    #[must_use]
    pub fn with_questions(self, questions: Option<mpsc::Receiver<Question>>) -> Self {
        Self { questions, ..self }
    }

    /// Reports to this barrier when the results of a round are offered.
    #[must_use]
    pub fn with_barrier(self, barrier: Barrier) -> Self {
        Self { fresh: Rounds::of(barrier), ..self }
    }

    /// Reports to this barrier when what was in the folder is offered.
    #[must_use]
    pub fn with_questions_of_folder(self, barrier: Barrier) -> Self {
        Self { caught_up: Rounds::of(barrier), ..self }
    }

    /// Looks at the clock every hour, for problems that begin at some time. Called within a runtime.
    #[must_use]
    pub fn with_clock(self) -> Self {
        Self { hour: Some(tokio::time::interval(HOUR)), ..self }
    }

    /// Sets the source and group that the history belongs to.
    #[must_use]
    pub fn with_source(self, source: watch::Receiver<Option<Source>>, group: &str) -> Self {
        Self { source_identity: SourceIdentity::new(source, group), ..self }
    }

    /// Runs as long as there is a source.
    ///
    /// # Errors
    /// If the source has ended.
    pub async fn run(mut self) -> Result<Infallible, PipelineError> {
        loop {
            let (input, is_endpoints) = tokio::select! {
                biased;
                // Must come before any commit, which would be added to the history of another source.
                of = self.source_identity.known() => {
                    self.store.is_of(of);
                    continue;
                }
                input = self.inputs.endpoints.recv() => (input, true),
                input = self.inputs.objects.recv() => (input, false),
                () = self.holds.room(&self.outputs.holds) => continue,
                question = questions::next(&mut self.questions) => {
                    let is_complete = self.first.is_none();
                    question.judge(|ingress| is_complete.then(|| self.index.review(ingress)));
                    continue;
                }
                change = due(&mut self.expiry) => {
                    ask(&self.outputs.pins, change);
                    continue;
                }
                () = tick(self.hour.as_mut()) => {
                    self.index.set_time(clock::wall());
                    if self.first.is_none() {
                        self.turn = clock::now();
                        self.compile().await;
                        self.commit(self.turn);
                    }
                    continue;
                }
            };
            let input = input.ok_or(PipelineError::SourceGone)?;
            let begun = clock::now();
            self.turn = begun;
            match is_endpoints {
                true => self.take_whole(input).await,
                false => self.take(input).await,
            }
            self.take_ready().await;
            // Before all lists are complete, each is compiled once it is, for the wants that follow from it.
            if self.first.is_none() || self.unsynced.is_empty() || std::mem::take(&mut self.list_completed) {
                self.compile().await;
                self.commit(begun);
                self.pass();
            }
        }
    }

    async fn compile(&mut self) {
        self.index.pass_time(clock::wall());
        loop {
            let begun = self.turn;
            if self.index.compile(|| begun.elapsed() >= TURN) {
                return;
            }
            self.yield_turn().await;
            self.pass_endpoints().await;
        }
    }

    /// Takes what is waiting now, not what arrives meanwhile: otherwise a busy source could delay the commit forever.
    async fn take_ready(&mut self) {
        self.take_endpoints().await;
        for _ in 0..self.inputs.objects.waiting() {
            let Ok(input) = self.inputs.objects.try_recv() else {
                return;
            };
            self.take(input).await;
        }
    }

    async fn take_endpoints(&mut self) {
        for _ in 0..self.inputs.endpoints.waiting() {
            let Ok(input) = self.inputs.endpoints.try_recv() else {
                return;
            };
            self.take_whole(input).await;
        }
    }

    /// Endpoint changes that a source sends together were true together, and half of them never was: a Service may have
    /// an endpoint less in one slice and one more in another. So all of them are taken in before anything is offered.
    async fn take_whole(&mut self, input: Input) {
        for event in self.opened(input, ENDPOINTS) {
            self.apply(event);
            if self.turn_is_over() {
                self.yield_turn().await;
            }
        }
    }

    async fn take(&mut self, input: Input) {
        for event in self.opened(input, OBJECTS) {
            self.apply(event);
            if self.turn_is_over() {
                self.yield_turn().await;
                self.pass_endpoints().await;
            }
        }
    }

    /// Lets waiting endpoint events overtake the compile under way. Before anything is offered there is nothing to
    /// overtake.
    async fn pass_endpoints(&mut self) {
        if self.first.is_some() {
            return;
        }
        let begun = self.turn;
        self.take_endpoints().await;
        // The compile under way has a commit of its own, later.
        let heard = self.inputs.endpoints.first();
        let Commit { live, cause, origin, reports, pin, on_record, compiled, looked_at, .. } =
            self.index.commit_live();
        self.reports.extend(reports);
        self.metrics.looked_at(looked_at);
        if !live.is_empty() {
            let config = Delta::default();
            self.publish(Changes { config, live, cause, origin, pin, on_record, heard }, compiled, begun);
        }
    }

    /// The events of an input that came this way.
    fn opened(&mut self, input: Input, way: usize) -> Vec<Event> {
        match input {
            Input::Events(events) => events,
            Input::Synced(kind) => {
                if kind == ObjectKind::IngressClass {
                    self.index.set_classes_unreadable(false);
                }
                self.complete(kind);
                Vec::new()
            }
            Input::Forbidden(kind) => {
                self.index.set_classes_unreadable(true);
                self.complete(kind);
                Vec::new()
            }
            Input::Fresh { round, is_whole } => {
                self.fresh.arrived(way, (round, is_whole));
                Vec::new()
            }
            Input::CaughtUp(round) => {
                self.caught_up.arrived(way, (round, true));
                Vec::new()
            }
        }
    }

    /// Notes that the first list of a kind is complete.
    fn complete(&mut self, kind: ObjectKind) {
        self.unsynced.retain(|unsynced| *unsynced != kind);
        self.list_completed = true;
        debug!(kind = kind.as_str(), missing = self.unsynced.len(), "first list complete");
        if self.first.is_some() && self.unsynced.is_empty() {
            self.index.lists_complete();
        }
    }

    /// Ends the rounds whose results are offered, and so is what follows from them, except for what cannot be read: its
    /// last good version is kept.
    fn pass(&mut self) {
        for rounds in [&mut self.fresh, &mut self.caught_up] {
            if rounds.have_arrived()
                && self.first.is_none()
                && self.index.awaited().values().all(Option::is_some)
            {
                rounds.pass();
            }
        }
    }

    fn apply(&mut self, event: Event) {
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
            origin,
            reports,
            pin,
            on_record,
            mend,
            holds,
            problems_changed,
            wants_changed,
            compiled,
            looked_at,
        } = self.index.commit();
        self.metrics.looked_at(looked_at);
        self.reports.extend(reports);
        if wants_changed {
            self.outputs.wants.send_replace(self.index.wants().clone());
        }
        if problems_changed {
            self.outputs.problems.send_replace(self.index.problems().clone());
        }
        self.holds.ask(holds, &self.outputs.holds);
        if let Some(mend) = mend {
            ask(&self.outputs.pins, mend);
        }
        let heard = self.inputs.first();
        let mut changes = Changes { config, live, cause, origin, pin, on_record, heard };
        if let Some(first) = self.first.take() {
            changes = squash(first, changes);
            let awaited = self.awaited();
            let is_ready = awaited.is_none();
            self.outputs.awaited.send_replace(awaited);
            if !is_ready {
                self.first = Some(changes);
                return;
            }
            changes.cause = format!("start: {} resources", changes.config.len() + changes.live.len());
            changes.origin = Origin::default();
        }
        // Not before the first commit: an object that another list still lacks may be fine.
        notices::log_new(&self.logged, self.index.problems());
        self.logged = self.index.problems().clone();
        self.publish(changes, compiled, begun);
    }

    /// Publishes the placement of objects, after the head that has them.
    fn place(&mut self) {
        let reports = std::mem::take(&mut self.reports);
        let head = self.store.head();
        self.outputs.places.send_if_modified(|places| places.settle(reports, head.log_positions()));
    }

    /// What is missing before the first commit; `None`: nothing is.
    fn awaited(&self) -> Option<Awaited> {
        let objects = self.index.awaited();
        let undecided = self.index.undecided();
        let is_all_there = self.unsynced.is_empty() && undecided.is_none() && objects.is_empty();
        (!is_all_there).then(|| Awaited {
            kinds: self.unsynced.clone(),
            undecided,
            objects: objects.iter().take(SHOWN).map(|(object, why)| (object.clone(), why.clone())).collect(),
            count: objects.len(),
        })
    }

    fn publish(&mut self, changes: Changes, compiled: usize, begun: Instant) {
        let told = changes.cause.clone();
        self.expiry.set(changes.pin.as_ref());
        let done = self.store.commit(changes, clock::now(), clock::wall());
        self.place();
        let took = begun.elapsed();
        self.metrics.committed(compiled, done.config, done.live, took);
        let Committed { config, live, held_back, is_pin_news, cause } = done;
        let version = self.store.version().short();
        let took_us = took.as_micros() as u64;
        // Endpoints change with every rollout; in a log, people look for configuration changes.
        match (is_pin_news, config, live) {
            (true, ..) => warn!(%version, config, live, "{cause}"),
            (_, 0, 0) => {}
            (_, 0, _) => debug!(%version, live, compiled, took_us, "{cause}"),
            _ => info!(%version, config, live, compiled, took_us, "{cause}"),
        }
        if held_back > 0 {
            info!(%version, held_back, compiled, "not released while the version is pinned: {told}");
        }
    }
}

/// Waits for the next hour.
async fn tick(hour: Option<&mut Interval>) {
    match hour {
        Some(hour) => _ = hour.tick().await,
        None => std::future::pending().await,
    }
}

/// Waits until the pin expires.
async fn due(expiry: &mut Expiry) -> PinChange {
    loop {
        match expiry.next(clock::now(), clock::wall()) {
            Next::Nothing => std::future::pending().await,
            Next::Wait(left) => tokio::time::sleep(left).await,
            Next::Ask(change) => return change,
        }
    }
}

/// Requests a change of the stored pin. The result is not awaited: it is read back.
fn ask(pins: &mpsc::Sender<PinRequest>, change: PinChange) {
    let (request, _) = PinRequest::new(change);
    if pins.try_send(request).is_err() {
        warn!("the record of the pin cannot be changed now: too many decisions wait");
    }
}

/// Merges two sets of changes.
fn squash(first: Changes, then: Changes) -> Changes {
    let (cause, origin) = match then.cause.is_empty() {
        true => (first.cause, first.origin),
        false => (then.cause, then.origin),
    };
    let (config, live) = (first.config.squash(then.config), first.live.squash(then.live));
    let heard = earlier(first.heard, then.heard);
    Changes { config, live, cause, origin, pin: then.pin, on_record: then.on_record, heard }
}

#[cfg(test)]
mod tests;
