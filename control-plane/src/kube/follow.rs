//! The async edge of one watch: executes what the state machine decides, and passes its results to a sink.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use kube::Client;
use shared::name::ObjectName;
use tokio::sync::{mpsc, watch};

use super::ask::{self, AskError};
use super::collection::{Collection, Ready};
use super::events::{self, Announcement};
use super::rounds::Rounds;
use super::watch::{Change, Revision, Todo, Watch, WatchInput, WatchOutput};
use super::wire::{self, Decode};
use super::{KubeError, now};
use crate::freshness::{Failing, Forbidden, Freshness, ReadTo};
use crate::moment::Since;
use crate::objects::ObjectRef;

/// Timeout of a list, which may be long.
const ANSWER: Duration = Duration::from_secs(60);

/// Receives what a watch reports.
pub(super) trait Sink<T>: Send {
    /// Changes, to be applied together. `afresh`: earlier revisions have become meaningless.
    fn changes(
        &mut self,
        changes: Vec<Change<T>>,
        afresh: bool,
    ) -> impl Future<Output = Result<(), KubeError>> + Send;

    /// A list is complete; what differed was reported before.
    fn listed(&mut self) -> impl Future<Output = Result<(), KubeError>> + Send {
        async { Ok(()) }
    }

    /// The first list is complete.
    fn synced(&mut self) -> impl Future<Output = Result<(), KubeError>> + Send;

    /// Whether the watch is a part of each round; if not, somebody behind the sink is.
    const IS_PART: bool = true;

    /// A list for a round was sent; if not `whole`, it may not be read.
    fn fresh(&mut self, _round: u64, _whole: bool) -> impl Future<Output = Result<(), KubeError>> + Send {
        async { Ok(()) }
    }

    /// The server forbids the list. Returns how the kind is handled.
    fn forbidden(&mut self) -> impl Future<Output = Result<Without, KubeError>> + Send {
        async { Ok(Without::Waits) }
    }
}

/// How a kind is handled that may not be listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Without {
    /// Nothing is served: anything missing would change what is.
    Waits,
    /// What was read before stays in use.
    Stays,
    /// So do the stored decisions that are known; new ones are not seen.
    DecisionsStay,
    /// Nothing is served while anything depends on the kind.
    ByAnnotation,
    /// Referenced objects are requested one by one.
    Polls,
}

/// One watch.
pub(super) struct Follow<D: Decode, S> {
    pub(super) client: Client,
    pub(super) collection: Collection,
    pub(super) decode: D,
    pub(super) sink: S,
    pub(super) freshness: Freshness,
    /// Counts how often any kind saw the server's history go back.
    pub(super) restored: watch::Sender<u64>,
    /// The newest barrier round.
    pub(super) round: watch::Receiver<u64>,
    pub(super) rounds: Rounds,
    /// Receives Events; `None`: they are off.
    pub(super) events: Option<mpsc::Sender<Announcement>>,
    /// Whether an empty first list is read a second time.
    pub(super) confirm_empty_list: bool,
}

type Lines = Pin<Box<dyn AsyncBufRead + Send>>;
type Probe = Pin<Box<dyn Future<Output = Option<Revision>> + Send>>;

/// What a watch has open, and waits for.
struct Open {
    stream: Option<Lines>,
    /// The part of a line that was read.
    line: Vec<u8>,
    probe: Option<Probe>,
    /// Earlier revisions have become meaningless with the input at hand.
    afresh: bool,
    /// Why the list is forbidden, while it is.
    forbidden: Option<Forbidden>,
    /// Another replica may know more of it.
    is_unread: bool,
    restored: watch::Receiver<u64>,
    /// The newest barrier round.
    round: watch::Receiver<u64>,
}

impl<D: Decode, S: Sink<D::Value>> Follow<D, S> {
    /// Follows forever.
    ///
    /// # Errors
    /// If the sink is closed.
    pub(super) async fn run(mut self) -> Result<(), KubeError> {
        let mut state = Watch::new(self.confirm_empty_list, now());
        let mut open = Open {
            stream: None,
            line: Vec::new(),
            probe: None,
            afresh: false,
            forbidden: None,
            is_unread: false,
            restored: self.restored.subscribe(),
            round: self.round.clone(),
        };
        loop {
            let (todo, due) = (state.todo(now()), state.due());
            let Some(input) = self.input(todo, due, &mut open).await else {
                continue;
            };
            open.afresh = false;
            for output in state.on(input, now()) {
                self.perform(output, &mut open).await?;
            }
        }
    }

    /// Does what the state machine asks for, until there is something to tell it. `None`: it has to be asked again.
    /// Reading ends at `due`.
    async fn input(&self, todo: Todo, due: Instant, open: &mut Open) -> Option<WatchInput<D::Value>> {
        if todo != Todo::Read {
            open.stream = None;
            open.line.clear();
        }
        match todo {
            Todo::Wait(until) => tokio::select! {
                () = tokio::time::sleep_until(until.into()) => None,
                () = changed(&mut open.restored) => Some(WatchInput::Restored),
                round = next(&mut open.round) => Some(WatchInput::Refresh(round)),
            },
            Todo::List { more } => Some(self.list(self.collection.list(more.as_deref())).await),
            Todo::ListWhole => Some(self.list(self.collection.list_whole()).await),
            Todo::Open { from } => Some(match self.open(from.as_ref()).await {
                Ok(lines) => {
                    open.stream = Some(lines);
                    WatchInput::Opened
                }
                Err(input) => input,
            }),
            Todo::Read => tokio::select! {
                input = self.read(open.stream.as_mut(), &mut open.line) => input,
                () = tokio::time::sleep_until(due.into()) => Some(WatchInput::Tick),
                newest = answer(&mut open.probe) => newest.map(WatchInput::Newest),
                () = changed(&mut open.restored) => Some(WatchInput::Restored),
                round = next(&mut open.round) => Some(WatchInput::Refresh(round)),
            },
        }
    }

    /// Carries out an output of the state machine.
    async fn perform(&mut self, output: WatchOutput<D::Value>, open: &mut Open) -> Result<(), KubeError> {
        match output {
            WatchOutput::Afresh => open.afresh = true,
            WatchOutput::Changes(changes) => self.sink.changes(changes, open.afresh).await?,
            WatchOutput::Listed => {
                self.freshness.note_relist(self.collection.kind);
                if let Some(again) = open.forbidden.take() {
                    open.is_unread = false;
                    self.freshness.note_read(&self.collection.list_name());
                    self.freshness.note_allowed(&again);
                    tracing::info!(
                        kind = self.collection.kind.as_str(),
                        "{} may be read again, and were",
                        self.collection.right()
                    );
                }
                self.sink.listed().await?;
            }
            WatchOutput::Synced => self.sink.synced().await?,
            WatchOutput::Fresh(round) => {
                self.report(round, true).await?;
            }
            WatchOutput::Unread(round) => {
                // What is read object by object needs no list.
                self.report(round, !open.is_unread).await?;
            }
            WatchOutput::Probe => open.probe = Some(self.probe()),
            WatchOutput::Restored => {
                self.restored.send_modify(|times| *times += 1);
                open.restored.mark_unchanged();
            }
            WatchOutput::Forbidden { reason, read_to } => {
                let without = match self.sink.forbidden().await? {
                    Without::Waits if read_to.is_some() => Without::Stays,
                    without => without,
                };
                if open.forbidden.is_none() {
                    self.note_forbidden(without, reason, read_to, open);
                }
            }
            WatchOutput::Removed { first, uid, gone, before } => self.note_removed(first, uid, gone, before),
            WatchOutput::Failing { since, reason } => {
                let since = Since::earlier(since, now());
                let (kind, list) = (self.collection.kind, self.collection.list_name().into());
                self.freshness.note_failing(Failing { kind, list, since, reason: reason.into() });
            }
            WatchOutput::Works => {
                let list = self.collection.list_name();
                self.freshness.note_working(&list);
                tracing::info!(kind = self.collection.kind.as_str(), "{list} can be read again");
            }
            WatchOutput::Warning(reason) => {
                tracing::warn!(kind = self.collection.kind.as_str(), "{reason}");
            }
        }
        Ok(())
    }

    /// A list for a round was sent, or may not be read.
    async fn report(&mut self, round: u64, is_whole: bool) -> Result<(), KubeError> {
        self.sink.fresh(round, is_whole).await?;
        match S::IS_PART {
            true => self.rounds.reported(round, is_whole).await,
            false => Ok(()),
        }
    }

    fn note_forbidden(&self, without: Without, reason: String, read_to: Option<ReadTo>, open: &mut Open) {
        self.say_forbidden(without, &reason);
        if without != Without::Polls || read_to.is_some() {
            self.freshness.note_unread(self.collection.list_name().into(), read_to.unwrap_or_default());
            open.is_unread = true;
        }
        let it = Forbidden { kind: self.collection.kind, reason: reason.into() };
        // Without the other kinds all goes on as it is meant to.
        if matches!(without, Without::Waits | Without::Stays | Without::DecisionsStay) {
            self.freshness.note_forbidden(it.clone());
        }
        open.forbidden = Some(it);
    }

    /// Reports a large removal in the log, and as an Event on one of the objects. Nothing waits for that.
    fn note_removed(&self, first: ObjectName, uid: Arc<str>, gone: usize, before: usize) {
        let kind = self.collection.kind;
        let note = format!(
            "{gone} of {before} objects of kind {} were removed: two lists lack them, and no deletion was seen",
            kind.as_str()
        );
        tracing::warn!(kind = kind.as_str(), %first, "{note}");
        // Events of objects without a namespace are in one that may not be written to.
        if let Some(events) = self.events.as_ref().filter(|_| !first.namespace.is_empty()) {
            let object = ObjectRef { kind, name: first };
            let (reason, resource_version, same) = (events::EventReason::Removed, "".into(), String::new());
            let _ = events.try_send(Announcement { object, uid, resource_version, reason, note, same });
        }
    }

    fn say_forbidden(&self, without: Without, reason: &str) {
        let (kind, right) = (self.collection.kind.as_str(), self.collection.right());
        match without {
            Without::Stays => tracing::warn!(
                kind,
                "reading this kind is forbidden now; what is known stays in use, changes are not seen, and a replica that starts serves \
                 nothing. Grant get, list and watch of {right}: {reason}"
            ),
            Without::DecisionsStay => tracing::warn!(
                kind,
                "stored decisions may not be read any more: holds and the pin that are known stay in force, and all else goes on. New ones \
                 (firth rollback, pin, unpin) take no effect here, and a replica that starts serves nothing. Grant get, list and watch of \
                 {right}: {reason}"
            ),
            Without::ByAnnotation => tracing::warn!(
                kind,
                "reading this kind is forbidden: only the annotation of Ingresses decides, and nothing is served while one names a class \
                 in spec.ingressClassName. Grant get, list and watch, or ignore classes as ingress-nginx does then \
                 (--ignore-ingress-classes): {reason}"
            ),
            Without::Polls => tracing::warn!(
                kind,
                "listing this kind is forbidden: objects that are referred to are read every {} s: {reason}",
                super::demand::AGAIN.1.as_secs()
            ),
            Without::Waits => tracing::error!(
                kind,
                "reading this kind is forbidden, and this replica serves nothing before it was read. Grant get, list and watch of \
                 {right}: {reason}"
            ),
        }
    }

    async fn list(&self, request: Ready) -> WatchInput<D::Value> {
        let text = match request {
            Ok(request) => within(self.client.request_text(request)).await,
            Err(error) => Err(WatchInput::Failed(format!("a list cannot be asked for: {error}"))),
        };
        match text.map(|text| wire::page(&self.decode, &text)) {
            Ok(Ok((input, nameless))) => {
                self.freshness.note_heard(self.collection.kind);
                for _ in 0..nameless {
                    self.say_nameless();
                }
                input
            }
            Ok(Err(error)) => WatchInput::Failed(format!("expected a list: {error}")),
            Err(input) => input,
        }
    }

    async fn open(&self, from: Option<&Revision>) -> Result<Lines, WatchInput<D::Value>> {
        let request = self
            .collection
            .watch(from)
            .map_err(|error| WatchInput::Failed(format!("a watch cannot be asked for: {error}")))?;
        let lines = within(self.client.request_stream(request)).await?;
        Ok(Box::pin(lines))
    }

    /// Reads the rest of a line. Cancel-safe: what was read stays in `line`.
    async fn read(&self, stream: Option<&mut Lines>, line: &mut Vec<u8>) -> Option<WatchInput<D::Value>> {
        // The state machine reads only a stream that it has opened.
        let Some(stream) = stream else {
            return Some(WatchInput::Ended);
        };
        match stream.read_until(b'\n', line).await {
            Ok(_) if line.last() == Some(&b'\n') => {}
            // A truncated line also means the end of the stream: the event is sent again.
            Ok(_) => return Some(WatchInput::Ended),
            Err(error) => return Some(WatchInput::Failed(format!("a watch broke off: {error}"))),
        }
        let event = wire::event(&self.decode, line);
        line.clear();
        self.freshness.note_heard(self.collection.kind);
        match event {
            Ok(Some(input)) => Some(input),
            Ok(None) => {
                self.say_nameless();
                None
            }
            Err(error) => Some(WatchInput::Failed(format!("expected an event of a watch: {error}"))),
        }
    }

    fn say_nameless(&self) {
        self.freshness.note_broken(self.collection.kind);
        tracing::warn!(kind = self.collection.kind.as_str(), "an object without a readable name is left out");
    }

    fn probe(&self) -> Probe {
        let (client, request) = (self.client.clone(), self.collection.probe());
        Box::pin(async move {
            let text: Result<String, WatchInput<D::Value>> = within(client.request_text(request.ok()?)).await;
            wire::revision(&text.ok()?).ok()
        })
    }
}

async fn within<R, T>(answer: impl Future<Output = kube::Result<R>>) -> Result<R, WatchInput<T>> {
    ask::within(ANSWER, answer).await.map_err(|error| match error {
        AskError::Refused { code, message } => WatchInput::Refused { code, reason: message },
        AskError::Unanswered(reason) => {
            WatchInput::Failed(format!("the API server cannot be asked: {reason}"))
        }
    })
}

/// The response to a pending probe; never resolves if it fails.
async fn answer(probe: &mut Option<Probe>) -> Option<Revision> {
    let Some(under_way) = probe else {
        return std::future::pending().await;
    };
    let revision = under_way.await;
    *probe = None;
    revision
}

async fn changed(restored: &mut watch::Receiver<u64>) {
    if restored.changed().await.is_err() {
        // Every follower holds a sender.
        std::future::pending().await
    }
}

/// The next round.
async fn next(round: &mut watch::Receiver<u64>) -> u64 {
    changed(round).await;
    *round.borrow_and_update()
}

#[cfg(test)]
mod tests;
