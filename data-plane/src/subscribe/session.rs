//! The proxy's end of the stream as a state machine: messages in, replies out. The counterpart of the control plane's
//! session.
//!
//! It outlives a stream: the position on each lane is kept when a stream ends, and the next one resumes from there.
//! The resources are stored in [`Holdings`]: the writer of the tables.
//!
//! **Invariants:** received resources are applied only after their bytes were hashed; the root that the proxy would
//! have after a batch is computed from them and compared before any of it is served. If it differs, the proxy reports
//! to the control plane what it has, and the difference is sent on the same stream; meanwhile what is served stays the
//! same.

mod batch;
mod holdings;
mod inventory;
mod wire;

use std::time::{Duration, Instant};

use shared::kind::Lane;
use shared::proto::config;
use shared::proto::config::control_message::Message as Control;
use shared::proto::config::lane_start::Mode;
use shared::proto::config::proxy_message::Message as FromProxy;
use shared::schema;
use shared::snapshot::Snapshot;
use shared::version::{Claim, Lineage, Root, Seq, Source};
use thiserror::Error;
use tracing::{error, info};

use batch::Staged;

pub(crate) use holdings::Holdings;

/// The capability to report what it has by bucket.
const INVENTORY: &str = "inventory";

/// The identity that this proxy reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Identity {
    /// Pod or host name and 64 random bits.
    pub(crate) proxy_id: String,
    /// Kubernetes node, or host name.
    pub(crate) node: String,
    /// Topology zone, empty when unknown.
    pub(crate) zone: String,
    /// The fleet it belongs to.
    pub(crate) group: String,
}

/// Why this side ends a stream.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub(crate) enum Close {
    /// The complete batch does not have the announced root. The lane is requested in full next time.
    #[error("lane {}: expected root {expected}, got {actual}", lane.as_str())]
    Diverged {
        /// Which lane.
        lane: Lane,
        /// The control plane's root.
        expected: Root,
        /// The root of what the proxy has.
        actual: Root,
    },
    /// A chunk does not match its digest or one of its versions. The lane is requested in full next time.
    #[error("lane {}: a chunk of the batch to {to} came corrupt", lane.as_str())]
    Corrupt {
        /// Which lane.
        lane: Lane,
        /// The position that the batch leads to.
        to: Seq,
    },
    /// The control plane violates the protocol.
    #[error("protocol: {0}")]
    Protocol(String),
}

/// What to do after a message: send replies, then possibly move elsewhere, or close.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Actions {
    /// Replies, in order.
    pub(crate) say: Vec<config::ProxyMessage>,
    /// The control plane asks to connect to another replica, not before this delay, for this reason.
    pub(crate) moves: Option<(Duration, String)>,
    /// The stream has to be closed.
    pub(crate) close: Option<Close>,
}

/// The state of one lane.
#[derive(Debug, Default)]
struct LaneState {
    /// Position in a log. `None`: nothing to resume from.
    position: Option<(Lineage, Seq)>,
    /// The lane was complete once.
    complete: bool,
    /// The state came from disk, and was not confirmed by a control plane yet.
    kept: bool,
    /// A batch from that position was applied partially and did not end.
    torn: bool,
    /// The position of the control plane's log at the beginning of this stream, until that is reached.
    target: Option<Seq>,
    /// A batch whose last chunk has not arrived.
    staged: Option<Staged>,
    /// What it has is what another process offered when a stream began, which may have been behind: not confirmed by this
    /// one since, so that its log is not a place to resume from.
    unsure: bool,
    /// A batch did not have the announced result, and the control plane was told. Until it sends the difference,
    /// batches from a position in the log apply to another state.
    astray: bool,
}

impl LaneState {
    /// Position in the log; 0 for none.
    fn seq(&self) -> Seq {
        self.position.map_or(Seq(0), |(_, seq)| seq)
    }

    /// Whether it has reached the position that the control plane had when the stream began.
    fn has_arrived(&self) -> bool {
        self.position.is_some() && self.target.is_none()
    }
}

/// The positions on both lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    /// On CONFIG.
    pub(crate) config: (Lineage, Seq),
    /// On LIVE.
    pub(crate) live: (Lineage, Seq),
}

/// The proxy's end of the stream.
#[derive(Debug)]
pub(crate) struct Session {
    identity: Identity,
    clock: fn() -> Instant,
    /// For taking over the position of this proxy's own last stream.
    claim: Option<Claim>,
    /// The compile revision of the control plane that served it last.
    compiled: u32,
    /// The control-plane process at the other end, once its Welcome has arrived.
    lineage: Option<Lineage>,
    heartbeat: Duration,
    /// The source that the control plane reads, if known.
    source: Option<Source>,
    config: LaneState,
    live: LaneState,
    /// A full sync of LIVE was applied, but not the CONFIG that belongs to it.
    unsettled: bool,
    /// What left LIVE up to this mark went with a CONFIG that is applied as soon as both lanes have arrived.
    leaving: Option<u64>,
    /// CONFIG is what another process offered when this stream began, which may have been behind: the CONFIG that goes with
    /// LIVE may be on its way.
    doubted: bool,
    /// The state with the received part of an interrupted CONFIG batch: see [`batch`].
    begun: Option<Snapshot>,
}

impl Session {
    /// For a proxy that was never connected. The clock measures how long applying takes.
    pub(crate) fn new(identity: Identity, clock: fn() -> Instant) -> Self {
        Self {
            identity,
            clock,
            claim: None,
            compiled: 0,
            lineage: None,
            heartbeat: Duration::ZERO,
            source: None,
            config: LaneState::default(),
            live: LaneState::default(),
            unsettled: false,
            leaving: None,
            doubted: false,
            begun: None,
        }
    }

    /// A lane continues from the state on disk. `complete`: all of it was there.
    pub(crate) fn resume(&mut self, lane: Lane, position: Option<(Lineage, Seq)>, complete: bool) {
        *self.lane_mut(lane) = LaneState { position, complete, kept: true, ..LaneState::default() };
    }

    /// Begins a stream: returns the first message to send.
    pub(crate) fn hello(&mut self, writer: &impl Holdings) -> config::ProxyMessage {
        self.lineage = None;
        let mut resume = Vec::new();
        for lane in Lane::ALL {
            self.put_aside(lane, writer);
            let has_begun = lane == Lane::Config && self.begun.is_some();
            let state = self.lane_mut(lane);
            (state.target, state.astray) = (None, false);
            // Resources without a position in a log are useful too: an inventory finds the difference.
            if state.position.is_none() && writer.has(lane).is_empty() && !has_begun {
                continue;
            }
            let (lineage, seq) = state.position.filter(|_| !state.unsure).unzip();
            let (refused, refused_total) = wire::refusals(writer, lane, &[], wire::HELLO_TEXT);
            resume.push(config::Resume {
                lane: lane.to_wire(),
                lineage: lineage.map(Lineage::to_bytes).unwrap_or_default(),
                seq: seq.unwrap_or_default().0,
                root: writer.root(lane).to_bytes(),
                refused,
                whole: !self.lane(lane).torn,
                refused_total,
            });
        }
        let Identity { proxy_id, node, zone, group } = self.identity.clone();
        wire::message(FromProxy::Hello(config::Hello {
            proxy_id,
            node,
            zone,
            group,
            schema: schema::CURRENT,
            capabilities: vec![INVENTORY.to_owned()],
            resume,
            claim: self.claim.map(Claim::to_bytes).unwrap_or_default(),
            compile_revision: self.compiled,
        }))
    }

    /// Uses the name from its certificate, keeping the number that distinguishes processes of one name.
    pub(crate) fn called(&mut self, name: &str) {
        let id = &mut self.identity.proxy_id;
        if let Some((before, number)) = id.rsplit_once('-')
            && before != name
        {
            *id = format!("{name}-{number}");
        }
    }

    /// Processes a message from the control plane.
    pub(crate) fn on(&mut self, message: config::ControlMessage, writer: &mut impl Holdings) -> Actions {
        let mut actions = Actions::default();
        if let Err(close) = self.step(message, writer, &mut actions) {
            if let Close::Diverged { lane, .. } | Close::Corrupt { lane, .. } = &close {
                self.lane_mut(*lane).position = None;
                self.begun = self.begun.take().filter(|_| *lane != Lane::Config);
            }
            actions.close = Some(close);
        }
        actions
    }

    /// States again what is refused on a lane, because that has changed by itself. `None`: the next Hello, or the answer
    /// to what is under way, will state it.
    pub(crate) fn restate(&self, lane: Lane, writer: &impl Holdings) -> Option<config::ProxyMessage> {
        let state = self.lane(lane);
        let (lineage, seq) = state.position?;
        let is_between = state.staged.is_some() || state.astray || Some(lineage) != self.lineage;
        (!is_between).then(|| wire::ack(lane, seq, 0, Duration::ZERO, &[], writer))
    }

    /// Whether the Welcome of this stream has arrived.
    pub(crate) fn is_welcome(&self) -> bool {
        self.lineage.is_some()
    }

    /// Whether both lanes were complete once: the proxy knows everything that it needs.
    pub(crate) fn is_complete(&self) -> bool {
        self.config.complete && self.live.complete
    }

    /// Whether both lanes are complete, and have reached the control plane's positions at the beginning of this
    /// stream.
    #[cfg(feature = "sim")]
    pub(crate) fn has_arrived(&self) -> bool {
        self.is_welcome() && self.is_complete() && self.config.has_arrived() && self.live.has_arrived()
    }

    /// Whether what is served came from disk and was not confirmed since.
    pub(crate) fn is_kept(&self) -> bool {
        self.config.kept || self.live.kept
    }

    /// The source that the control plane reads, if known.
    pub(crate) fn source(&self) -> Option<Source> {
        self.source
    }

    /// The positions on both lanes, if a proxy can start from the current state: nothing is partially applied, and the
    /// lanes belong together.
    pub(crate) fn places(&self) -> Option<Places> {
        let staged = self.config.staged.is_some() || self.live.staged.is_some();
        let is_between = staged || self.live.torn || self.unsettled;
        if is_between || !self.is_complete() {
            return None;
        }
        Some(Places { config: self.config.position?, live: self.live.position? })
    }

    /// How long the control plane may be silent; `None` until it has said.
    pub(crate) fn silence_limit(&self) -> Option<Duration> {
        let heartbeat = (self.is_welcome() && !self.heartbeat.is_zero()).then_some(self.heartbeat)?;
        Some(heartbeat.saturating_mul(3).max(Duration::from_secs(10)))
    }

    /// The position on a lane; 0 for none.
    pub(crate) fn seq(&self, lane: Lane) -> Seq {
        self.lane(lane).seq()
    }

    fn step(
        &mut self,
        message: config::ControlMessage,
        writer: &mut impl Holdings,
        actions: &mut Actions,
    ) -> Result<(), Close> {
        match (message.message, self.is_welcome()) {
            (Some(Control::Welcome(welcome)), false) => self.on_welcome(&welcome, writer),
            (Some(Control::Welcome(_)), true) => Err(protocol("expected one welcome a stream, got a second")),
            // The stream continues until there is another one, or the control plane ends it.
            (Some(Control::Redirect(redirect)), _) => {
                actions.moves = Some((Duration::from_millis(redirect.after_ms.into()), redirect.reason));
                Ok(())
            }
            (_, false) => Err(protocol("expected a welcome first, got another message")),
            (Some(Control::Batch(batch)), true) => self.on_batch(batch, writer, actions),
            (Some(Control::Heartbeat(heartbeat)), true) => self.on_heartbeat(&heartbeat, writer, actions),
            // Messages of a later revision that need no reply.
            (None, true) => Ok(()),
            (Some(Control::InventoryRequest(request)), true) => {
                let lane = wire::lane(request.lane)?;
                actions.say.push(inventory::answer(&request, lane, self.there(lane, writer))?);
                Ok(())
            }
        }
    }

    fn on_welcome(&mut self, welcome: &config::Welcome, writer: &mut impl Holdings) -> Result<(), Close> {
        let lineage = Lineage::from_slice(&welcome.lineage).ok_or_else(|| {
            protocol(format!("expected a lineage of 16 bytes, got {}", welcome.lineage.len()))
        })?;
        if welcome.pinned_until > 0 {
            info!(
                until = welcome.pinned_until,
                "the configuration is pinned: changes of it are not released"
            );
        }
        self.leaving = Some(writer.mark());
        for start in &welcome.lanes {
            let lane = wire::lane(start.lane)?;
            if lane == Lane::Config && !matches!(start.mode(), Mode::Inventory) {
                self.begun = None;
            }
            let state = self.lane_mut(lane);
            let seq = Seq(start.seq);
            let is_of_this_log = state.position.is_some_and(|(ours, _)| ours == lineage);
            match Mode::try_from(start.mode).unwrap_or_default() {
                Mode::InSync => {
                    state.unsure |= !is_of_this_log;
                    state.position = Some((lineage, seq));
                    (state.complete, state.kept, state.torn) = (true, false, false);
                }
                Mode::Cursor => {
                    let resumed = state.position.filter(|(ours, _)| *ours == lineage);
                    let Some((_, ours)) = resumed else {
                        return Err(protocol("a lane goes on from a cursor that this proxy does not have"));
                    };
                    // An earlier state of the same process, whose log never goes back.
                    (state.complete, state.kept) = (true, false);
                    state.target = (ours < seq).then_some(seq);
                }
                // First comes a batch that replaces everything, or one based on an inventory.
                Mode::Full | Mode::Wait | Mode::Inventory => {
                    state.position = None;
                    state.target = Some(seq);
                    if lane == Lane::Live {
                        // The next sync may bring what the last one lacked.
                        self.unsettled = false;
                    }
                }
                Mode::Unspecified => {
                    return Err(protocol(format!("a lane begins in the unknown mode {}", start.mode)));
                }
            }
            let state = self.lane_mut(lane);
            state.unsure &= start.mode() == Mode::InSync;
            let unsure = state.unsure;
            if lane == Lane::Config {
                self.doubted = unsure;
            }
            let mode = Mode::try_from(start.mode).unwrap_or_default().as_str_name();
            let mode = mode.trim_start_matches("MODE_").to_lowercase().replace('_', "-");
            info!(lane = lane.as_str(), mode, seq = start.seq, "lane begins");
        }
        self.lineage = Some(lineage);
        self.compiled = welcome.compile_revision;
        self.source = Source::from_slice(&welcome.source);
        // An older control plane sends none.
        self.claim = welcome.claim[..].try_into().ok().map(Claim);
        self.heartbeat = Duration::from_millis(welcome.heartbeat_ms.into());
        self.settle(writer);
        Ok(())
    }

    fn on_heartbeat(
        &mut self,
        heartbeat: &config::Heartbeat,
        writer: &mut impl Holdings,
        actions: &mut Actions,
    ) -> Result<(), Close> {
        for place in &heartbeat.lanes {
            let lane = wire::lane(place.lane)?;
            let state = self.lane(lane);
            let here = state.staged.is_none() && state.position.map(|(_, seq)| seq) == Some(Seq(place.seq));
            let (expected, actual) = (wire::root(&place.root)?, writer.root(lane));
            if here && expected != actual {
                error!(lane = lane.as_str(), %expected, %actual, "the state of this proxy differs from what it was sent; telling the control plane");
                actions.say.push(wire::ack(lane, Seq(place.seq), 0, Duration::ZERO, &[], writer));
            }
            self.lane_mut(lane).unsure &= !here;
            // A CONFIG that goes with what came of LIVE would have been sent before this.
            self.doubted &= !(lane == Lane::Config && here && self.live.has_arrived());
        }
        self.settle(writer);
        Ok(())
    }

    /// Once the CONFIG that belongs to a full sync of LIVE is applied, what that sync lacked goes out of use. Not
    /// while LIVE is behind: missing resources may be on their way again, for a CONFIG that has changed back. So does
    /// what nothing referred to before that CONFIG, if it is named again: it would have come again if it existed.
    fn settle(&mut self, writer: &mut impl Holdings) {
        if self.doubted || !self.config.has_arrived() || !self.live.has_arrived() {
            return;
        }
        if let Some(mark) = self.leaving.take() {
            writer.leave(mark);
        }
        if std::mem::take(&mut self.unsettled) {
            writer.settle();
        }
    }

    fn lane(&self, lane: Lane) -> &LaneState {
        match lane {
            Lane::Config => &self.config,
            Lane::Live => &self.live,
        }
    }

    fn lane_mut(&mut self, lane: Lane) -> &mut LaneState {
        match lane {
            Lane::Config => &mut self.config,
            Lane::Live => &mut self.live,
        }
    }
}

fn protocol(what: impl Into<String>) -> Close {
    Close::Protocol(what.into())
}

#[cfg(test)]
mod tests;
