//! One stream as the simulator drives it: the real session, with messages as on the wire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use shared::budget::Budget;
use shared::proto::config::ProxyMessage;
use shared::version::Claim;

pub use super::session::Revisions;
use super::session::{Actions, Doubt, Event, Report, Session, Slot};
use super::wire;
use crate::barrier::Barrier;
use crate::store::Head;

/// Inputs of a stream.
#[derive(Clone, Debug)]
pub enum Happens {
    /// The proxy sent a message.
    Message(Box<ProxyMessage>),
    /// Time has passed.
    Tick,
    /// The process is to end, and there are other replicas: the proxy should move within this time.
    Move(Duration),
    /// The process ends.
    Leave,
}

/// The effects of an input.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sent {
    /// Messages as on the wire.
    pub frames: Vec<Bytes>,
    /// Number of acknowledged states that differ from what was sent.
    pub diverged: usize,
    /// Why the stream ends.
    pub end: Option<String>,
}

/// One stream.
#[derive(Debug)]
pub struct Stream {
    session: Session,
    refusals: Budget,
    slot: bool,
    wants_slot: bool,
    barrier: Barrier,
    round: Option<u64>,
}

impl Stream {
    pub(crate) fn open(head: Arc<Head>, barrier: Barrier, revisions: Revisions, now: Instant) -> Self {
        let session = Session::new("default".into(), head, Claim::random(), now)
            .with_barrier()
            .with_revisions(revisions);
        let refusals = Budget::new(1 << 20);
        Self { session, refusals, slot: false, wants_slot: false, barrier, round: None }
    }

    /// Whether it waits until its replica knows that it is not behind.
    pub fn is_held(&self) -> bool {
        self.round.is_some()
    }

    /// When a [`Happens::Tick`] is due.
    pub fn due(&self) -> Instant {
        self.session.deadline()
    }

    /// Whether it has a slot for a full sync.
    pub fn has_slot(&self) -> bool {
        self.slot
    }

    /// Whether it waits for a slot.
    pub fn wants_slot(&self) -> bool {
        self.wants_slot
    }

    /// Gives it a slot.
    pub fn give_slot(&mut self, now: Instant) -> Sent {
        (self.slot, self.wants_slot) = (true, false);
        let actions = self.session.on(Event::Slot, now);
        self.act(actions)
    }

    /// Handles an input.
    pub fn on(&mut self, happens: Happens, now: Instant) -> Sent {
        let event = match happens {
            Happens::Message(message) => match wire::read(*message, &self.refusals) {
                Ok(message) => Event::Message(message),
                Err(error) => return Sent { end: Some(error.to_string()), ..Sent::default() },
            },
            Happens::Tick => Event::Tick,
            Happens::Move(within) => Event::Move(within.mul_f64(fastrand::f64())),
            Happens::Leave => Event::Leave(Duration::ZERO),
        };
        let actions = self.session.on(event, now);
        self.act(actions)
    }

    pub(crate) fn head(&mut self, head: Arc<Head>, now: Instant) -> Sent {
        let is_fresh = self.round.is_some_and(|round| self.barrier.has_passed(round));
        let event = match is_fresh {
            true => Event::Fresh(head),
            false => Event::Head(head),
        };
        self.round = self.round.filter(|_| !is_fresh);
        let actions = self.session.on(event, now);
        self.act(actions)
    }

    fn act(&mut self, actions: Actions) -> Sent {
        let Actions { out, reports, slot, doubts, end } = actions;
        if let Some(Doubt { whence }) = doubts {
            self.round = Some(self.barrier.ask(whence));
        }
        match slot {
            Slot::Keep => {}
            Slot::Want => self.wants_slot = true,
            Slot::Release => self.slot = false,
        }
        Sent {
            frames: out.into_iter().map(|out| wire::encode(out).message()).collect(),
            diverged: reports.iter().filter(|report| matches!(report, Report::Diverged { .. })).count(),
            end: end.map(|end| format!("{end:?}")),
        }
    }
}
