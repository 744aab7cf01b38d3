//! One proxy's stream as a state machine: events go in, actions come out.
//!
//! A session is one cursor per lane into the newest head. What to send next follows from the cursor alone, so a slow proxy skips states
//! that were replaced meanwhile, and nothing queues up for it.
//!
//! A full sync gets a large window only if it has one of a limited number of slots. Without a slot, LIVE proceeds two chunks at a time, and
//! CONFIG waits. A proxy that does not answer for two seconds loses its slot, and one that has never answered cannot wait for one. So silent
//! streams, however many, cannot hold up a proxy that answers.
//!
//! **Invariants:** at most [`lane::WINDOW`] batches of a lane are unanswered; CONFIG is not sent before the LIVE state that it
//! relies on; what is sent leads to a state that existed.

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
use lane::{Answer, LaneCursor};

/// A proxy introduces itself within this time.
const HELLO: Duration = Duration::from_secs(10);
/// A stream gets a heartbeat this often, however much else it is sent: a lane that is still may differ while the other is busy.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// A stream with unanswered chunks ends after this time without an answer.
const PROGRESS: Duration = Duration::from_secs(30);
/// A full sync has its slot for so long without an answer; then others have it first.
const SLOT: Duration = Duration::from_secs(2);
/// Full syncs of a lane that may end in a wrong root before the stream is given up.
const STRIKES: u32 = 2;

/// Compile revisions of this replica and of others. Builds of two revisions make other bytes of the same objects, so in a rolling
/// upgrade each move of a proxy from one to the other changes much that did not change. Forward that is once; back it is
/// only where nobody newer is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Revisions {
    /// Of this one.
    pub here: u32,
    /// The newest of those that take proxies; 0: there are no others.
    pub newest: u32,
}

impl Default for Revisions {
    fn default() -> Self {
        Self { here: COMPILE_REVISION, newest: 0 }
    }
}

/// What happens to a session.
#[derive(Clone, Debug)]
pub enum Event {
    /// The proxy said something.
    Message(ProxyMessage),
    /// There is a newer head.
    Head(Arc<Head>),
    /// This replica is not behind what the proxy had when it came, with the newest head. See [`crate::barrier`].
    Fresh(Arc<Head>),
    /// One of the slots for full syncs is this stream's.
    Slot,
    /// The time of [`Session::deadline`] has come.
    Tick,
    /// Another stream has the same id now.
    Replaced,
    /// This process is about to end: connect elsewhere after the delay. Until then the stream goes on.
    Move(Duration),
    /// This process ends: connect again after the delay.
    Leave(Duration),
}

/// What is to be sent.
#[derive(Clone, PartialEq, Debug)]
pub enum Out {
    /// The first message.
    Welcome(Welcome),
    /// A chunk of a batch.
    Chunk {
        /// Its lane.
        lane: Lane,
        /// What kind of batch it belongs to.
        mode: Mode,
        /// It, encoded.
        frame: Frame,
    },
    /// What the proxy has of a lane: digests, or what is in these buckets.
    Ask {
        /// The lane.
        lane: Lane,
        /// None: all digests.
        buckets: Vec<u16>,
    },
    /// Where this stream is.
    Heartbeat(Vec<Position>),
    /// Connect again.
    Redirect(Duration),
}

/// What is to be counted or logged.
#[derive(Clone, PartialEq, Debug)]
pub enum Report {
    /// A lane begins.
    Started(Lane, Start),
    /// The proxy has acknowledged a batch, this long after its commit.
    Acknowledged {
        /// Its lane.
        lane: Lane,
        /// Since the commit; `None` for what does not measure one: full syncs and resumed cursors.
        after: Option<Duration>,
    },
    /// What the proxy says that it refuses cannot be so.
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
        /// The proxy's.
        came: Root,
    },
}

/// What a session wants about one of the slots for full syncs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Slot {
    /// As it is.
    #[default]
    Keep,
    /// Get one, then say [`Event::Slot`].
    Want,
    /// Give it back.
    Release,
}

/// What the proxy has may be newer than what is offered here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// Where it comes from with that; `None`: from no place in the log of a process.
    pub whence: Option<Whence>,
}

/// What is to be done, in this order: send, then end.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Actions {
    /// To be sent in order.
    pub out: Vec<Out>,
    /// To be counted or logged.
    pub reports: Vec<Report>,
    /// About the slot.
    pub slot: Slot,
    /// This replica may be behind what the proxy has: find out, then say [`Event::Fresh`].
    pub doubts: Option<Doubt>,
    /// The stream ends.
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
    /// What the proxy is given to take over from this stream.
    claim: Claim,
    source: Option<Source>,
    /// What a proxy has that is not offered here may be newer.
    has_barrier: bool,
    revisions: Revisions,
    has_slot: bool,
    wants_slot: bool,
    /// Since when the slot, if there is one, brings nothing.
    slot_idle: Instant,
    /// The proxy has answered a chunk since it last lost a slot, or connected.
    answers: bool,
    /// When the last heartbeat was sent, or the stream began.
    last_beat: Instant,
}

impl Session {
    /// A stream that was just opened. `head` is ready; `claim` goes to the proxy.
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

    /// Of a control plane that reads this, where that is known.
    #[must_use]
    pub fn reading(self, source: Option<Source>) -> Self {
        Self { source, ..self }
    }

    /// Of one of several replicas, or of one that was another process before: it finds out whether it is behind.
    #[must_use]
    pub fn behind_barrier(self) -> Self {
        Self { has_barrier: true, ..self }
    }

    /// Of a replica among others of these compile revisions.
    #[must_use]
    pub fn among(self, revisions: Revisions) -> Self {
        Self { revisions, ..self }
    }

    /// Why this proxy is not served here, where it is not: it is of another group, or see [`Revisions`].
    pub fn turns_away(&self, hello: &Hello) -> Option<End> {
        if *hello.group != *self.group {
            return Some(End::WrongGroup { served: self.group.to_string(), asked: hello.group.clone() });
        }
        let Revisions { here, newest } = self.revisions;
        let is_older = hello.compiled > here && newest > here;
        is_older.then_some(End::Older { here, served: hello.compiled })
    }

    /// Takes in what happened.
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

    /// Who is at the other end; `None` before the Hello was accepted.
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

    /// When the slot goes to others, if the proxy does not answer.
    fn slot_ends(&self) -> Option<Instant> {
        (self.has_slot && self.waits()).then(|| self.slot_idle + SLOT)
    }

    /// Whether an answer is due on any lane.
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
            let proxy = (self.has_slot, hello.inventory);
            let (resume, has_barrier) = (hello.take(lane), self.has_barrier);
            let has_something = resume.root.is_some();
            let cursor = self.lane_mut(lane);
            let start = cursor.resume(resume, head.lineage, head.lane(lane), proxy, now);
            if has_barrier && has_something && !matches!(start, Start::InSync | Start::Cursor) {
                cursor.hold();
                actions.doubts = Some(Doubt { whence });
            }
            lanes.push((lane, start, head.lane(lane).seq));
            actions.reports.push(Report::Started(lane, start));
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
            // Others have it first; this stream goes on without, and asks again with the next answer.
            (self.has_slot, self.answers) = (false, false);
            actions.slot = Slot::Release;
        }
        let lanes = [&self.live, &self.config];
        if now >= self.last_beat + HEARTBEAT {
            self.last_beat = now;
            let positions = lanes.iter().filter_map(|lane| lane.position()).collect();
            actions.out.push(Out::Heartbeat(positions));
        }
        Ok(())
    }

    /// Sends what the windows allow, LIVE first.
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
        // A slot is for who answers. Who has been sent nothing yet could not.
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
