//! One kind's watch as the simulator drives it: the real state machine and decoder.

use std::time::Instant;

use super::decisions::{self, Holding};
use super::pins::Pins;
pub use super::pins::sim::PinRecord;
use super::sink;
use super::watch::{Change, Item, Revision, Todo, Watch, WatchInput, WatchOutput};
use super::wire::{self, Decoded, Whole};
use crate::event::{Event, HoldRequest, Input};
use crate::freshness::ReadTo;
use crate::hold::record_name;
use crate::objects::ObjectKind;

/// The namespace of records and of the fleet's ConfigMap in the simulator.
pub const NAMESPACE: &str = "firth";
/// The name of the fleet's ConfigMap.
pub const SETTINGS: &str = "settings";

/// The next step of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Request a page of a list.
    List {
        /// The continue token.
        more: Option<String>,
    },
    /// Open a watch; without a revision, with a streamed list.
    Open {
        /// The revision to start from.
        from: Option<u64>,
    },
    /// Continue reading.
    Read,
    /// Wait until then.
    Wait(Instant),
}

/// What the server did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Came {
    /// The response to a list.
    Page(String),
    /// A watch is open.
    Opened,
    /// A line of a watch.
    Line(String),
    /// A response with an error status.
    Refused(u16),
    /// No response.
    Failed,
    /// The end of a watch.
    Ended,
    /// The response to a probe.
    Newest(u64),
    /// Another kind saw the history go back.
    Restored,
    /// A round of the freshness barrier begins.
    Refresh(u64),
    /// Time has passed.
    Tick,
}

/// The effects of a step.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Told {
    /// Inputs of the pipeline.
    pub(crate) inputs: Vec<Input>,
    /// A probe is requested.
    pub(crate) probe: bool,
    /// All kinds must list again.
    pub(crate) restored: bool,
    /// The list for this round was sent; if not, it may not be read.
    pub(crate) fresh: Option<(u64, bool)>,
    /// Whether the list may be read, if that was found out: `Err`: it may not, and was read so far.
    pub(crate) may_list: Option<Result<(), ReadTo>>,
}

/// One watch.
#[derive(Debug)]
pub(crate) struct Followed {
    kind: ObjectKind,
    watch: Watch<Decoded>,
    /// ConfigMaps are hold records here, except the fleet's.
    holding: Holding,
    /// Secrets are the record of the pin here.
    pins: Option<Pins>,
}

impl Followed {
    pub(crate) fn new(kind: ObjectKind, now: Instant) -> Self {
        let confirm_empty_list = super::WHOLE.contains(&(kind, true));
        Self {
            kind,
            watch: Watch::new(confirm_empty_list, now),
            holding: Holding::default(),
            pins: (kind == ObjectKind::Secret).then(Pins::detached),
        }
    }

    pub(crate) fn next(&self, now: Instant) -> Next {
        match self.watch.todo(now) {
            Todo::List { more } => Next::List { more },
            // Pages of the simulated server do not expire twice.
            Todo::ListWhole => Next::List { more: None },
            Todo::Open { from } => Next::Open { from: from.map(|from| from.number()) },
            Todo::Read => Next::Read,
            Todo::Wait(until) => Next::Wait(until),
        }
    }

    pub(crate) fn due(&self) -> Instant {
        self.watch.due()
    }

    pub(crate) fn on(&mut self, came: &Came, now: Instant) -> Told {
        let input = match came {
            Came::Page(text) => wire::page(&Whole(self.kind), text).ok().map(|(input, _)| input),
            Came::Line(line) => wire::event(&Whole(self.kind), line.as_bytes()).ok().flatten(),
            Came::Opened => Some(WatchInput::Opened),
            Came::Refused(code) => Some(WatchInput::Refused { code: *code, reason: "simulated".to_owned() }),
            Came::Failed => Some(WatchInput::Failed("simulated".to_owned())),
            Came::Ended => Some(WatchInput::Ended),
            Came::Newest(revision) => Some(WatchInput::Newest(Revision(revision.to_string().into()))),
            Came::Restored => Some(WatchInput::Restored),
            Came::Refresh(round) => Some(WatchInput::Refresh(*round)),
            Came::Tick => Some(WatchInput::Tick),
        };
        let mut told = Told::default();
        for output in input.map(|input| self.watch.on(input, now)).unwrap_or_default() {
            match output {
                WatchOutput::Changes(changes) => {
                    if let Some(pins) = &mut self.pins {
                        told.inputs.extend(pins.event(changes).map(|event| Input::Events(vec![event])));
                        continue;
                    }
                    let events = changes.into_iter().flat_map(|change| match self.kind {
                        ObjectKind::ConfigMap if !is_settings(&change) => self.holding.events(change),
                        kind => vec![sink::event(kind, change)],
                    });
                    told.inputs.push(Input::Events(events.collect()));
                }
                WatchOutput::Synced => told.inputs.push(Input::Synced(self.kind)),
                WatchOutput::Probe => told.probe = true,
                WatchOutput::Restored => told.restored = true,
                WatchOutput::Fresh(round) => told.fresh = Some((round, true)),
                WatchOutput::Unread(round) => told.fresh = Some((round, false)),
                WatchOutput::Forbidden { read_to, .. } => {
                    told.may_list = Some(Err(read_to.unwrap_or_default()));
                }
                WatchOutput::Listed => {
                    told.may_list = Some(Ok(()));
                    if self.kind == ObjectKind::ConfigMap {
                        told.inputs.push(Input::Events(vec![Event::HoldsListed]));
                    }
                }
                WatchOutput::Afresh
                | WatchOutput::Removed { .. }
                | WatchOutput::Failing { .. }
                | WatchOutput::Works
                | WatchOutput::Warning(_) => {}
            }
        }
        told
    }
}

/// Whether it is the fleet's ConfigMap that changed.
fn is_settings(change: &Change<Decoded>) -> bool {
    let (Change::Put(Item { name, .. }) | Change::Gone(name)) = change;
    *name.name == *SETTINGS
}

/// The name of the record that a request is about, and its new content; `None`: it is deleted.
pub(crate) fn record(request: &HoldRequest) -> (String, Option<String>) {
    match request {
        HoldRequest::Write(hold) => {
            let name = record_name(&hold.object.reference());
            let text = decisions::record(&name, NAMESPACE, &hold.object, None);
            (name, Some(text))
        }
        HoldRequest::Erase(object) => (record_name(object), None),
    }
}
