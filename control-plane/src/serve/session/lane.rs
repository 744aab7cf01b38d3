//! One lane of a stream: what was sent to the proxy, what it has acknowledged, and what is in flight.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use shared::kind::{Lane, ResourceKey};
use shared::version::{Lineage, Root, Seq};

use super::Out;
use super::flight::{Flight, Mode, Source};
use super::inventory::{Exchange, Step};
use crate::serve::message::{Ack, End, Inventory, Position, Refused, Resume, Start};
use crate::serve::refusals::Refusals;
use crate::store::LaneState;

/// Limit of unacknowledged batches of a lane.
pub const WINDOW: usize = 2;
/// Limit of unacknowledged chunks of one batch: 1 MiB. Chunks are encoded only when they are sent.
pub const CHUNK_WINDOW: usize = 16;
/// The same for chunks encoded for one stream only, without a slot for a full sync, or before any was acknowledged. The
/// first chunks of a full sync are encoded for all.
pub(super) const CHUNK_WINDOW_ALONE: usize = 2;
const _: () = assert!(CHUNK_WINDOW_ALONE <= LaneState::BEGUN);

/// What a proxy has acknowledged on a lane, and what it reports about it.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Position in the log. 0: nothing yet.
    pub seq: Seq,
    /// The root there; `None`: nothing yet.
    pub root: Option<Root>,
    /// Up to 256 of the resources that it refuses.
    pub refused: Refusals,
    /// The number of all refusals: as reported, but never more than it can have.
    pub refused_total: u32,
    /// Its root differed from that of the state, and has not been corrected yet.
    pub diverged: bool,
    /// How long it took to apply the last batch.
    pub apply: Duration,
}

/// What an acknowledgement means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// Some more chunks, or nothing new.
    Progress,
    /// A batch is applied.
    Reached { after: Option<Duration> },
    /// The proxy's state differs from what was sent.
    Diverged { expected: Root, came: Root },
}

/// What decides how a lane begins, besides what the proxy has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The proxy may be sent a full state now.
    pub(super) has_slot: bool,
    /// The proxy can report what it has.
    pub(super) answers_inventory: bool,
    pub(super) now: Instant,
}

/// The number of resources that a proxy has.
#[derive(Clone, Copy, Debug, Default)]
struct Holding {
    most: usize,
    /// It has acknowledged a state with exactly this many. Otherwise its state is not known here.
    is_exact: bool,
}

/// An impossible report of refusals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overclaim {
    /// The number of refusals that the proxy reports.
    pub claimed: u32,
    /// The number of resources that it has.
    pub has: usize,
    /// The number of listed refusals of resources, or versions, that it does not have.
    pub strange: usize,
}

/// One lane of a stream.
#[derive(Debug)]
pub(super) struct LaneCursor {
    lane: Lane,
    pub(super) standing: Standing,
    holding: Holding,
    /// Its last report was impossible, and that was reported.
    overclaims: bool,
    /// Where the next batch begins: the end of the newest one in flight.
    cursor: Seq,
    /// The state after the last batch that was sent completely.
    delivered: (Seq, Root),
    flights: VecDeque<Flight>,
    /// The next batch replaces everything.
    needs_full: bool,
    /// The next batch contains the differences, once those are known.
    exchange: Option<Exchange>,
    /// The proxy's state may be newer: nothing is sent before that is known.
    held: bool,
    /// The proxy can report what it has.
    answers_inventory: bool,
    /// When an acknowledgement last made progress, the first chunk was sent, or the proxy said that it is receiving.
    progress: Instant,
    /// Consecutive full syncs that ended in a wrong root.
    pub(super) strikes: u32,
}

impl LaneCursor {
    pub(super) fn new(lane: Lane, now: Instant) -> Self {
        Self {
            lane,
            standing: Standing::default(),
            holding: Holding::default(),
            overclaims: false,
            cursor: Seq::default(),
            delivered: (Seq::default(), Root::default()),
            flights: VecDeque::new(),
            needs_full: true,
            exchange: None,
            held: false,
            answers_inventory: false,
            progress: now,
            strikes: 0,
        }
    }

    /// Decides how a lane begins ("Never back" in ARCHITECTURE.md).
    pub(super) fn resume(
        &mut self,
        resume: Resume,
        lineage: Lineage,
        state: &LaneState,
        terms: Terms,
    ) -> Start {
        let Terms { has_slot, answers_inventory, now } = terms;
        self.answers_inventory = answers_inventory;
        self.progress = now;
        self.standing.refused_total = resume.refused_total;
        self.standing.refused = resume.refused;
        self.holding = Holding { most: state.snapshot.len(), is_exact: false };
        let Some(root) = resume.root else {
            return self.start_full(has_slot);
        };
        if root == state.root {
            self.holding.is_exact = true;
            self.begin_at(state.seq, root);
            Start::InSync
        } else if resume.lineage == Some(lineage) && resume.seq < state.seq && state.reaches(resume.seq) {
            self.begin_at(resume.seq, root);
            Start::Cursor
        } else if answers_inventory {
            self.demand_again();
            Start::Inventory
        } else {
            self.start_full(has_slot)
        }
    }

    /// Holds the lane until it is known that this replica is not behind the proxy.
    pub(super) fn hold(&mut self) {
        self.held = true;
    }

    /// Releases a held lane.
    pub(super) fn release(&mut self) {
        self.held = false;
    }

    fn begin_at(&mut self, seq: Seq, root: Root) {
        self.needs_full = false;
        self.cursor = seq;
        self.delivered = (seq, root);
        (self.standing.seq, self.standing.root) = (seq, Some(root));
    }

    fn start_full(&mut self, has_slot: bool) -> Start {
        self.needs_full = true;
        // Endpoints and certificates do not wait for a slot.
        if has_slot || self.lane == Lane::Live { Start::Full } else { Start::Wait }
    }

    /// Sends what the windows permit.
    pub(super) fn pump(&mut self, state: &LaneState, has_slot: bool, now: Instant, out: &mut Vec<Out>) {
        while !self.held {
            self.pump_unfinished(has_slot, out);
            self.ask(now, out);
            let unfinished = self.flights.back().is_some_and(|flight| !flight.complete);
            if unfinished || self.flights.len() >= WINDOW {
                return;
            }
            let Some(flight) = self.next_flight(state, has_slot) else {
                return;
            };
            if self.flights.is_empty() {
                self.progress = now;
            }
            self.cursor = flight.to;
            self.flights.push_back(flight);
        }
    }

    /// Continues a batch that has begun.
    pub(super) fn pump_unfinished(&mut self, has_slot: bool, out: &mut Vec<Out>) {
        let lane = self.lane;
        let Some(flight) = self.flights.back_mut().filter(|flight| !flight.complete) else {
            return;
        };
        let window = match (flight.mode, lane) {
            // Its frames are shared by all streams.
            (Mode::Commit, _) => CHUNK_WINDOW,
            // Doubles with each acknowledged round.
            _ if has_slot => (2 * flight.answered).clamp(CHUNK_WINDOW_ALONE, CHUNK_WINDOW),
            (Mode::Full, Lane::Config) => 0,
            (Mode::Full, Lane::Live) | (Mode::Coalesced | Mode::Inventory, _) => CHUNK_WINDOW_ALONE,
        };
        while !flight.complete && flight.sent.saturating_sub(flight.answered) < window {
            let Some(frame) = flight.next() else {
                break;
            };
            out.push(Out::Chunk { lane: self.lane, mode: flight.mode, frame });
        }
        if flight.complete {
            self.delivered = (flight.to, flight.root);
        }
    }

    /// Asks what the proxy has, once nothing is in flight that would change it.
    pub(super) fn ask(&mut self, now: Instant, out: &mut Vec<Out>) {
        if self.held || !self.flights.is_empty() {
            return;
        }
        if let Some(buckets) = self.exchange.as_mut().and_then(Exchange::ask) {
            self.progress = now;
            out.push(Out::Ask { lane: self.lane, buckets });
        }
    }

    /// Handles the proxy's report of what it has.
    pub(super) fn inventory(
        &mut self,
        inventory: Inventory,
        state: &LaneState,
        now: Instant,
    ) -> Result<(), End> {
        let Some(exchange) = &mut self.exchange else {
            return Err(End::Protocol("got an inventory that was not asked for".into()));
        };
        self.progress = now;
        if exchange.answer(inventory, state)? == Step::Full {
            self.demand_full();
        }
        Ok(())
    }

    fn next_flight(&mut self, state: &LaneState, has_slot: bool) -> Option<Flight> {
        if self.exchange.is_some() {
            let (state, base, delta) = self.exchange.take_if(|it| it.is_over())?.finish()?;
            let source = Source::Lazy(Box::new(state.differing(base, delta)));
            return Some(Flight::new(&state, Mode::Inventory, source));
        }
        let flight = |mode, source| Flight::new(state, mode, source);
        if !self.needs_full {
            if self.cursor >= state.seq {
                return None;
            }
            if self.cursor.next() == state.seq
                && let Some(frames) = state.last_frames()
            {
                return Some(flight(Mode::Commit, Source::Shared(frames)));
            }
            if let Some(chunks) = state.after(self.cursor) {
                return Some(flight(Mode::Coalesced, Source::Lazy(Box::new(chunks))));
            }
            // The log does not reach back to this cursor any more.
            self.demand_full();
        }
        if !has_slot && self.lane == Lane::Config {
            return None;
        }
        self.needs_full = false;
        Some(flight(Mode::Full, Source::Lazy(Box::new(state.full()))))
    }

    /// The proxy's state differs from what it was sent: the differences are determined, else everything is sent. If
    /// sending the differences did not lead to the state, that is not tried again.
    fn demand_again(&mut self) {
        self.demand_full();
        if self.answers_inventory && self.strikes <= 1 {
            self.needs_full = false;
            self.exchange = Some(Exchange::default());
        }
    }

    fn demand_full(&mut self) {
        self.needs_full = true;
        self.exchange = None;
        self.delivered = (Seq::default(), Root::default());
    }

    /// Handles an acknowledgement.
    pub(super) fn answer(&mut self, ack: Ack, now: Instant) -> Result<Answer, End> {
        if ack.staged > 0 {
            return self.answer_chunk(ack.staged as usize, now);
        }
        let Some(came) = ack.root else {
            return Err(End::Protocol("expected a root of 16 bytes with an ack".into()));
        };
        self.standing.refused = ack.refused;
        let answer = self.answer_whole(ack.seq, came, ack.apply, now)?;
        self.standing.refused_total = ack.refused_total;
        Ok(answer)
    }

    /// What is wrong with the refusals that the proxy reports, if anything; `state` is the newest one. Returned once,
    /// until a report is correct again. Also caps the reported number at what the proxy can have.
    pub(super) fn overclaim(&mut self, state: &LaneState) -> Option<Overclaim> {
        let Holding { most, is_exact } = self.holding;
        let claimed = self.standing.refused_total;
        let listed = self.standing.refused.len();
        // How much another state has is not known, but whether more is refused than is listed.
        let least = listed + usize::from(!is_exact && claimed as usize > listed);
        self.standing.refused_total = claimed.min(u32::try_from(most.max(least)).unwrap_or(u32::MAX));
        let has = |it: &Refused| {
            let key = ResourceKey::new(it.kind, &*it.key);
            state.snapshot.version(&key) == Some(it.version)
        };
        // The contents of older states are not known here.
        let is_newest = self.standing.root == Some(state.root) && !self.standing.diverged;
        let strange = match is_newest {
            true => self.standing.refused.iter().filter(|it| !has(it)).count(),
            false => 0,
        };
        let is_wrong = strange > 0 || (is_exact && claimed as usize > most);
        let is_told = std::mem::replace(&mut self.overclaims, is_wrong);
        (is_wrong && !is_told).then_some(Overclaim { claimed, has: most, strange })
    }

    fn answer_whole(&mut self, seq: Seq, came: Root, apply: Duration, now: Instant) -> Result<Answer, End> {
        let reached = |flight: &Flight| flight.to == seq && flight.complete;
        if let Some(place) = self.flights.iter().position(reached) {
            self.standing.apply = apply;
            return Ok(self.answer_batch(place, came, now));
        }
        // Before its first batch a proxy may speak of a place in another process' log.
        if seq > self.cursor && self.standing.root.is_some() {
            let cursor = self.cursor;
            return Err(End::Protocol(format!("expected an ack of at most {cursor}, got {seq}")));
        }
        // Sent again, perhaps after a heartbeat that did not match.
        match self.standing.root {
            Some(expected) if self.standing.seq == seq && expected != came && !self.is_resyncing() => {
                self.standing.diverged = true;
                self.holding.is_exact = false;
                self.strikes += 1;
                self.demand_again();
                Ok(Answer::Diverged { expected, came })
            }
            _ => Ok(Answer::Progress),
        }
    }

    fn answer_chunk(&mut self, staged: usize, now: Instant) -> Result<Answer, End> {
        let Some(flight) = self.flights.front_mut() else {
            return Ok(Answer::Progress);
        };
        if staged > flight.sent {
            return Err(End::Protocol(format!(
                "expected at most {} chunks staged, got {staged}",
                flight.sent
            )));
        }
        if staged > flight.answered {
            flight.answered = staged;
            self.progress = now;
        }
        Ok(Answer::Progress)
    }

    /// The batch at `place`, and those before it, are acknowledged.
    fn answer_batch(&mut self, place: usize, came: Root, now: Instant) -> Answer {
        self.progress = now;
        let Some(flight) = self.flights.drain(..=place).next_back() else {
            return Answer::Progress;
        };
        if flight.root == came {
            self.holding = Holding { most: flight.count, is_exact: true };
            self.strikes = 0;
            self.standing.seq = flight.to;
            self.standing.root = Some(came);
            self.standing.diverged = false;
            let after =
                (flight.mode == Mode::Commit).then(|| now.saturating_duration_since(flight.committed));
            return Answer::Reached { after };
        }
        self.holding = Holding { most: self.holding.most.max(flight.count), is_exact: false };
        if self.is_resyncing() {
            // Sent before the full sync that is under way, which will correct it.
            return Answer::Progress;
        }
        self.standing.diverged = true;
        self.strikes += 1;
        self.demand_again();
        Answer::Diverged { expected: flight.root, came }
    }

    fn is_resyncing(&self) -> bool {
        let anew = |flight: &Flight| matches!(flight.mode, Mode::Full | Mode::Inventory);
        self.needs_full || self.exchange.is_some() || self.flights.iter().any(anew)
    }

    /// Whether a full sync, or the rest of one, is needed or under way.
    pub(super) fn needs_slot(&self) -> bool {
        let is_long = |flight: &Flight| match flight.mode {
            Mode::Full => true,
            Mode::Inventory => !flight.complete,
            Mode::Commit | Mode::Coalesced => false,
        };
        !self.held && (self.needs_full || self.flights.iter().any(is_long))
    }

    /// The position up to which everything was sent.
    pub(super) fn delivered(&self) -> Seq {
        self.delivered.0
    }

    /// Since when an acknowledgement is due; `None` if nothing is in flight.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        let awaits = |flight: &Flight| flight.complete || flight.sent > flight.answered;
        let asks = self.exchange.as_ref().is_some_and(Exchange::waits);
        (asks || self.flights.iter().any(awaits)).then_some(self.progress)
    }

    /// The proxy receives what was sent, on this lane or the other.
    pub(super) fn receives(&mut self, now: Instant) {
        self.progress = now;
    }

    /// When an acknowledgement last made progress, or the proxy said that one will.
    pub(super) fn progress(&self) -> Instant {
        self.progress
    }

    /// The position of a proxy that has read all that was sent; `None` in the middle of a batch, and while it is not known
    /// whether the proxy is ahead.
    pub(super) fn position(&self) -> Option<Position> {
        let whole = !self.held
            && self.flights.iter().all(|flight| flight.complete)
            && self.delivered.0 > Seq::default();
        whole.then_some(Position { lane: self.lane, seq: self.delivered.0, root: self.delivered.1 })
    }
}
