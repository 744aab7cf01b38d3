//! One proxy's stream as a state machine: events go in, actions come out.
//!
//! A session is one cursor per lane into the newest head. What to send next follows from the cursor alone, so a slow
//! proxy skips states that were replaced meanwhile, and nothing queues up for it.
//!
//! A full sync gets a large window only if it has one of a limited number of slots. Without a slot, LIVE proceeds two
//! chunks at a time, and CONFIG waits. A proxy that does not answer for two seconds loses its slot, and one that has
//! never answered cannot wait for one. So silent streams, however many, cannot hold up a proxy that answers.
//!
//! **Invariants:** at most [`lane::WINDOW`] batches of a lane are unacknowledged; CONFIG is not sent before the LIVE
//! state that it relies on; what is sent leads to a state that existed.

mod flight;
mod inventory;
mod lane;

use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::kind::Lane;
use shared::schema::COMPILE_REVISION;
use shared::version::{Claim, Root, Source};

use super::message::{Ack, End, Hello, Position, ProxyMessage, Start, Welcome};
use crate::barrier::Whence;
use crate::store::{Frame, Head};
pub use flight::Mode;
pub use lane::Overclaim;
pub use lane::Standing;
use lane::{Answer, LaneCursor, Terms};

/// Timeout of the Hello.
const HELLO: Duration = Duration::from_secs(10);
/// Interval of heartbeats, regardless of other messages: an idle lane may diverge while the other is busy.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// A stream with unacknowledged chunks ends after this time without progress. A resource is one chunk, however large, so that
/// the proxy receives it is progress, too: the next stream would have to begin it anew.
const PROGRESS: Duration = Duration::from_secs(30);
/// A full sync loses its slot after this time without progress.
const SLOT: Duration = Duration::from_secs(2);
/// Consecutive full syncs of a lane that may end in a wrong root before the stream is given up.
const STRIKES: u32 = 2;

/// Compile revisions of this replica and of others. Builds of two revisions compile the same objects to different
/// bytes, so in a rolling upgrade each move of a proxy between them resends much that did not change. A proxy moves to
/// the newer revision once, and back only if no newer replica is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Revisions {
    /// The revision of this replica.
    pub here: u32,
    /// The newest of the replicas that accept proxies; 0 if there are no others.
    pub newest: u32,
}

impl Default for Revisions {
    fn default() -> Self {
        Self { here: COMPILE_REVISION, newest: 0 }
    }
}

/// Inputs of a session.
#[derive(Clone, Debug)]
pub enum Event {
    /// The proxy sent a message.
    Message(ProxyMessage),
    /// There is a newer head.
    Head(Arc<Head>),
    /// This replica, with the newest head, is not behind what the proxy had when it connected. See [`crate::barrier`].
    Fresh(Arc<Head>),
    /// This stream got a slot for a full sync.
    Slot,
    /// The time of [`Session::deadline`] was reached.
    Tick,
    /// Another stream has replaced this one.
    Replaced,
    /// The process is about to end, or is behind: the proxy should connect elsewhere after the delay. Until then the stream
    /// continues.
    Move(Duration),
    /// The process ends: the proxy should reconnect after the delay.
    Leave(Duration),
}

/// Outgoing messages.
#[derive(Clone, PartialEq, Debug)]
pub enum Out {
    /// The first message.
    Welcome(Welcome),
    /// A chunk of a batch.
    Chunk {
        /// The chunk's lane.
        lane: Lane,
        /// The kind of batch that it belongs to.
        mode: Mode,
        /// The encoded chunk.
        frame: Frame,
    },
    /// Asks what the proxy has on a lane: digests, or the contents of these buckets.
    Ask {
        /// The lane.
        lane: Lane,
        /// If empty, all digests.
        buckets: Vec<u16>,
    },
    /// The stream's positions.
    Heartbeat(Vec<Position>),
    /// Reconnect after the delay.
    Redirect(Duration),
}

/// Reports, to be counted or logged.
#[derive(Clone, PartialEq, Debug)]
pub enum Report {
    /// How a lane begins.
    Started(Lane, Start),
    /// The proxy has acknowledged a batch, this long after its commit.
    Acknowledged {
        /// Its lane.
        lane: Lane,
        /// Time since the commit; `None` for full syncs and resumed cursors, which do not measure one.
        after: Option<Duration>,
    },
    /// The refusals that the proxy reports are impossible.
    Overclaims {
        /// Its lane.
        lane: Lane,
        /// What is wrong.
        it: Overclaim,
    },
    /// The proxy's own root differs from that of the state that it acknowledges.
    Diverged {
        /// Its lane.
        lane: Lane,
        /// The root of that state.
        expected: Root,
        /// The proxy's root.
        came: Root,
    },
}

/// Requests about a slot for a full sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Slot {
    /// Nothing changes.
    #[default]
    Keep,
    /// Get a slot, then send [`Event::Slot`].
    Want,
    /// Give it back.
    Release,
}

/// The proxy's state may be newer than what is offered here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// Its positions; `None` if it has none.
    pub whence: Option<Whence>,
}

/// The actions, in this order: send, then end.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Actions {
    /// Messages to send, in order.
    pub out: Vec<Out>,
    /// Reports to count or log.
    pub reports: Vec<Report>,
    /// The request about a slot.
    pub slot: Slot,
    /// This replica may be behind the proxy: find out, then send [`Event::Fresh`].
    pub doubts: Option<Doubt>,
    /// Ends the stream.
    pub end: Option<End>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    AwaitsHello { until: Instant },
    Streams,
    Over,
}

/// One proxy's stream.
#[derive(Debug)]
pub struct Session {
    group: Arc<str>,
    phase: Phase,
    head: Arc<Head>,
    hello: Option<Hello>,
    live: LaneCursor,
    config: LaneCursor,
    /// The claim with which the proxy can replace this stream.
    claim: Claim,
    source: Option<Source>,
    /// A proxy whose state differs may be ahead of this replica.
    has_barrier: bool,
    revisions: Revisions,
    has_slot: bool,
    wants_slot: bool,
    /// Since when the slot, if there is one, has made no progress.
    slot_idle: Instant,
    /// The proxy has acknowledged a chunk since it connected or last lost a slot.
    answers: bool,
    /// When the last heartbeat was sent, or the stream began.
    last_beat: Instant,
}

impl Session {
    /// A stream that was just opened. `head` must be ready; `claim` is sent to the proxy.
    pub fn new(group: Arc<str>, head: Arc<Head>, claim: Claim, now: Instant) -> Self {
        Self {
            group,
            phase: Phase::AwaitsHello { until: now + HELLO },
            head,
            hello: None,
            live: LaneCursor::new(Lane::Live, now),
            config: LaneCursor::new(Lane::Config, now),
            claim,
            source: None,
            has_barrier: false,
            revisions: Revisions::default(),
            has_slot: false,
            wants_slot: false,
            slot_idle: now,
            answers: false,
            last_beat: now,
        }
    }

    /// Sets the source that this control plane reads, if known.
    #[must_use]
    pub fn with_source(self, source: Option<Source>) -> Self {
        Self { source, ..self }
    }

    /// For one of several replicas, or a restarted one: it finds out whether it is behind.
    #[must_use]
    pub fn with_barrier(self) -> Self {
        Self { has_barrier: true, ..self }
    }

    /// Sets the compile revisions of this replica and others.
    #[must_use]
    pub fn with_revisions(self, revisions: Revisions) -> Self {
        Self { revisions, ..self }
    }

    /// Why this proxy is rejected, if so: it belongs to another group, or see [`Revisions`].
    pub fn turns_away(&self, hello: &Hello) -> Option<End> {
        if *hello.group != *self.group {
            return Some(End::WrongGroup { served: self.group.to_string(), asked: hello.group.clone() });
        }
        let Revisions { here, newest } = self.revisions;
        let is_older = hello.compiled > here && newest > here;
        is_older.then_some(End::Older { here, served: hello.compiled })
    }

    /// Handles an input.
    pub fn on(&mut self, event: Event, now: Instant) -> Actions {
        let mut actions = Actions::default();
        if self.phase != Phase::Over
            && let Err(end) = self.step(event, now, &mut actions)
        {
            self.phase = Phase::Over;
            actions.end = Some(end);
        }
        actions
    }

    /// When [`Event::Tick`] is due.
    pub fn deadline(&self) -> Instant {
        match self.phase {
            Phase::AwaitsHello { until } => until,
            Phase::Streams => [&self.live, &self.config]
                .into_iter()
                .filter_map(|lane| lane.waits_since())
                .map(|since| since + PROGRESS)
                .chain(self.slot_ends())
                .fold(self.last_beat + HEARTBEAT, Instant::min),
            Phase::Over => self.last_beat + HEARTBEAT,
        }
    }

    /// The Hello of the proxy; `None` before it was accepted.
    pub fn hello(&self) -> Option<&Hello> {
        self.hello.as_ref()
    }

    /// What the proxy has acknowledged on a lane.
    pub fn standing(&self, lane: Lane) -> &Standing {
        match lane {
            Lane::Live => &self.live.standing,
            Lane::Config => &self.config.standing,
        }
    }

    /// When the slot is taken away if the proxy does not acknowledge anything.
    fn slot_ends(&self) -> Option<Instant> {
        (self.has_slot && self.waits()).then(|| self.slot_idle + SLOT)
    }

    /// Whether an acknowledgement is due on any lane.
    fn waits(&self) -> bool {
        self.live.waits_since().is_some() || self.config.waits_since().is_some()
    }

    fn step(&mut self, event: Event, now: Instant, actions: &mut Actions) -> Result<(), End> {
        match event {
            Event::Message(message) => self.on_message(message, now, actions)?,
            Event::Head(head) => self.head = head,
            Event::Fresh(head) => {
                self.head = head;
                self.live.release();
                self.config.release();
            }
            Event::Slot => (self.has_slot, self.wants_slot, self.slot_idle) = (true, false, now),
            Event::Tick => self.on_tick(now, actions)?,
            Event::Replaced => return Err(End::Replaced),
            Event::Move(after) => actions.out.push(Out::Redirect(after)),
            Event::Leave(after) => {
                actions.out.push(Out::Redirect(after));
                return Err(End::Redirected);
            }
        }
        if self.phase == Phase::Streams {
            self.pump(now, actions);
        }
        Ok(())
    }

    fn on_message(&mut self, message: ProxyMessage, now: Instant, actions: &mut Actions) -> Result<(), End> {
        match (self.phase, message) {
            (Phase::AwaitsHello { .. }, ProxyMessage::Hello(hello)) => self.on_hello(hello, now, actions),
            (Phase::AwaitsHello { .. }, _) => {
                Err(End::Protocol("expected hello first, got another message".into()))
            }
            (_, ProxyMessage::Hello(_)) => {
                Err(End::Protocol("expected one hello a stream, got a second".into()))
            }
            (_, ProxyMessage::Inventory(inventory)) => {
                let (lane, head) = (inventory.lane, Arc::clone(&self.head));
                (self.answers, self.slot_idle) = (true, now);
                self.lane_mut(lane).inventory(inventory, head.lane(lane), now)
            }
            (_, ProxyMessage::Ack(ack)) => self.on_ack(ack, now, actions),
            (_, ProxyMessage::Receiving) => {
                self.live.receives(now);
                self.config.receives(now);
                Ok(())
            }
            (_, ProxyMessage::Goodbye | ProxyMessage::Status | ProxyMessage::Unknown) => Ok(()),
        }
    }

    fn on_hello(&mut self, mut hello: Hello, now: Instant, actions: &mut Actions) -> Result<(), End> {
        if let Some(end) = self.turns_away(&hello) {
            return Err(end);
        }
        let head = Arc::clone(&self.head);
        let mut lanes = Vec::new();
        let whence = hello.whence();
        for lane in Lane::ALL {
            let terms = Terms { has_slot: self.has_slot, answers_inventory: hello.inventory, now };
            let (resume, has_barrier) = (hello.take(lane), self.has_barrier);
            let has_something = resume.root.is_some();
            let is_of_this_log = resume.lineage == Some(head.lineage);
            let cursor = self.lane_mut(lane);
            let start = cursor.resume(resume, head.lineage, head.lane(lane), terms);
            let overclaim = cursor.overclaim(head.lane(lane));
            // A log never goes back. In another one, an equal state may be a later one: states recur.
            let is_known = match start {
                Start::Cursor => true,
                Start::InSync => is_of_this_log,
                Start::Inventory | Start::Full | Start::Wait => false,
            };
            if has_barrier && has_something && !is_known {
                cursor.hold();
                actions.doubts = Some(Doubt { whence });
            }
            lanes.push((lane, start, head.lane(lane).seq));
            actions.reports.push(Report::Started(lane, start));
            actions.reports.extend(overclaim.map(|it| Report::Overclaims { lane, it }));
        }
        actions.out.push(Out::Welcome(Welcome {
            lineage: head.lineage,
            heartbeat: HEARTBEAT,
            lanes,
            claim: self.claim,
            pinned_until: head.pin.as_ref().map_or(0, |pin| pin.until),
            source: self.source,
            compiled: self.revisions.here,
        }));
        self.hello = Some(hello);
        self.phase = Phase::Streams;
        Ok(())
    }

    fn on_ack(&mut self, ack: Ack, now: Instant, actions: &mut Actions) -> Result<(), End> {
        let (lane, is_whole) = (ack.lane, ack.staged == 0);
        let cursor = self.lane_mut(lane);
        let before = cursor.progress();
        let answer = cursor.answer(ack, now)?;
        let answered = cursor.progress() > before || matches!(answer, Answer::Reached { .. });
        if answered {
            (self.answers, self.slot_idle) = (true, now);
        }
        let head = Arc::clone(&self.head);
        let cursor = self.lane_mut(lane);
        if is_whole && let Some(it) = cursor.overclaim(head.lane(lane)) {
            actions.reports.push(Report::Overclaims { lane, it });
        }
        match answer {
            Answer::Progress => {}
            Answer::Reached { after } => actions.reports.push(Report::Acknowledged { lane, after }),
            Answer::Diverged { expected, came } => {
                actions.reports.push(Report::Diverged { lane, expected, came });
                if cursor.strikes > STRIKES {
                    return Err(End::Diverging);
                }
            }
        }
        Ok(())
    }

    fn on_tick(&mut self, now: Instant, actions: &mut Actions) -> Result<(), End> {
        match self.phase {
            Phase::AwaitsHello { until } if now >= until => return Err(End::Silent),
            Phase::AwaitsHello { .. } | Phase::Over => return Ok(()),
            Phase::Streams => {}
        }
        let lanes = [&self.live, &self.config];
        let stalled = |lane: &&LaneCursor| lane.waits_since().is_some_and(|since| now >= since + PROGRESS);
        if lanes.iter().any(stalled) {
            return Err(End::Stalled);
        }
        if self.slot_ends().is_some_and(|end| now >= end) {
            // Others get it first; this stream continues without, and asks again with the next acknowledgement.
            (self.has_slot, self.answers) = (false, false);
            actions.slot = Slot::Release;
        }
        if now >= self.last_beat + HEARTBEAT {
            self.last_beat = now;
            // A proxy that hears where it is on CONFIG takes it for the one that goes with what it has of LIVE.
            let may_name_config = self.live.delivered() >= self.head.config.relies_on;
            let config = self.config.position().filter(|_| may_name_config);
            let positions = self.live.position().into_iter().chain(config).collect();
            actions.out.push(Out::Heartbeat(positions));
        }
        Ok(())
    }

    /// Sends what the windows permit, LIVE first.
    fn pump(&mut self, now: Instant, actions: &mut Actions) {
        let head = Arc::clone(&self.head);
        self.live.pump(&head.live, self.has_slot, now, &mut actions.out);
        if self.live.delivered() >= head.config.relies_on {
            self.config.pump(&head.config, self.has_slot, now, &mut actions.out);
        } else {
            self.config.pump_unfinished(self.has_slot, &mut actions.out);
            self.config.ask(now, &mut actions.out);
        }
        let needs_slot = self.live.needs_slot() || self.config.needs_slot();
        // A slot requires that the proxy answers; one that was sent nothing yet could not.
        let may_ask = self.answers || !self.waits();
        if needs_slot && may_ask && !self.has_slot && !self.wants_slot {
            self.wants_slot = true;
            actions.slot = Slot::Want;
        } else if !needs_slot && self.has_slot {
            self.has_slot = false;
            actions.slot = Slot::Release;
        }
    }

    fn lane_mut(&mut self, lane: Lane) -> &mut LaneCursor {
        match lane {
            Lane::Live => &mut self.live,
            Lane::Config => &mut self.config,
        }
    }
}

#[cfg(test)]
mod tests;
