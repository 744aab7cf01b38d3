//! What is known of one proxy, and how long one without a stream is waited for.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use shared::kind::Lane;
use shared::version::Claim;
use tokio::sync::Notify;

use super::missed::name_of;
use crate::serve::admission::Caller;
use crate::serve::message::{End, Refused};
use crate::serve::session::Standing;
use crate::store::Head;

/// How long a proxy may take to reconnect before it is silent. It retries at most 3 s after its stream was cut and has 5 s
/// to connect (ADR 035); this is longer, so that one of its attempts may fail.
pub const RETURNS: Duration = Duration::from_secs(15);
/// How long a proxy that left for another replica as told may take to connect there.
pub(super) const MOVES: Duration = Duration::from_secs(2);
/// How long a proxy that vanished is kept: its node may still exist.
pub(super) const VANISHED: Duration = Duration::from_secs(3600);

/// What the end of a stream says about the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parting {
    /// Its connection or stream was closed: its process has ended, or reconnects soon.
    Cut,
    /// It left for another replica as told: it keeps serving what it has acknowledged.
    Moved,
    /// Its fate is unknown.
    Vanished,
}

impl Parting {
    /// What the end of a stream alone says of its proxy; `None`: its connection says more.
    pub fn by(end: &End) -> Option<Self> {
        match end {
            // Alive, but not in the state that it was sent.
            End::Stalled | End::Diverging | End::Protocol(_) => Some(Self::Vanished),
            End::Gone => None,
            _ => Some(Self::Cut),
        }
    }
}

/// A proxy without a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// Since when.
    pub since: Instant,
    pub(super) parting: Parting,
}

impl Silence {
    /// The silence as of now: a proxy that moves and does not arrive becomes as silent as others.
    pub(super) fn lasted(self, now: Instant) -> Self {
        let is_late = self.parting == Parting::Moved && now.saturating_duration_since(self.since) >= MOVES;
        Self { parting: if is_late { Parting::Cut } else { self.parting }, ..self }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        let lasts = match self.parting {
            Parting::Cut | Parting::Moved => RETURNS,
            Parting::Vanished => VANISHED,
        };
        now.saturating_duration_since(self.since) >= lasts
    }
}

/// One proxy.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Identifies one process.
    pub id: Arc<str>,
    /// Kubernetes node, or host name.
    pub node: Arc<str>,
    /// Topology zone, empty when unknown.
    pub zone: Arc<str>,
    /// The address it connects from.
    pub address: Arc<str>,
    /// When it connected.
    pub connected: SystemTime,
    /// When it connected, on the monotonic clock.
    pub entered: Instant,
    /// When its last message came, or anything over the connection of its last stream.
    pub(super) last: Instant,
    /// The connection of its stream.
    pub(super) caller: Option<Caller>,
    /// What it has acknowledged on CONFIG.
    pub config: Standing,
    /// What it has acknowledged on LIVE.
    pub live: Standing,
    /// It has no stream; what it acknowledged is as of the end of its last one.
    pub silence: Option<Silence>,
    /// Whether what it has acknowledged is known: it is not listed between its Hello and that.
    pub(super) is_known: bool,
    pub(super) claim: Claim,
    pub(super) stream: u64,
    pub(super) replaced: Arc<Notify>,
}

impl Proxy {
    /// What it has acknowledged on a lane.
    pub fn standing(&self, lane: Lane) -> &Standing {
        match lane {
            Lane::Config => &self.config,
            Lane::Live => &self.live,
        }
    }

    /// Whether its root differed on a lane and has not been corrected yet.
    pub fn is_diverged(&self) -> bool {
        self.config.diverged || self.live.diverged
    }

    /// How long ago anything was heard from it. One that is in sync has nothing to say, and answers the transport's pings.
    pub fn unheard(&self, now: Instant) -> Duration {
        let of_messages = now.saturating_duration_since(self.last);
        self.caller.as_ref().map_or(of_messages, |caller| of_messages.min(caller.silence()))
    }

    /// Number of resources that it refuses.
    pub fn refused_total(&self) -> u32 {
        self.config.refused_total.saturating_add(self.live.refused_total)
    }

    /// The refusals that are stored.
    pub fn refused(&self) -> impl Iterator<Item = &Refused> {
        self.config.refused.iter().chain(self.live.refused.iter())
    }

    /// Whether it has acknowledged the newest state of both lanes.
    pub fn is_in_sync(&self, head: &Head) -> bool {
        let lane = |lane| self.standing(lane).root == Some(head.lane(lane).root);
        lane(Lane::Config) && lane(Lane::Live) && !self.is_diverged() && !self.is_silent()
    }

    /// Pod or host name, without the suffix that distinguishes processes.
    pub fn name(&self) -> &str {
        name_of(&self.id)
    }

    /// Whether it has no stream, and its place is unknown.
    pub fn is_silent(&self) -> bool {
        self.silent_since().is_some()
    }

    /// Since when it is silent.
    pub fn silent_since(&self) -> Option<Instant> {
        self.silence.filter(|silence| silence.parting != Parting::Moved).map(|silence| silence.since)
    }

    /// Until it acknowledges more, the same process has what it had acknowledged before.
    pub(super) fn follow(&mut self, before: &Self) {
        self.config = before.config.clone();
        self.live = before.live.clone();
        self.is_known |= before.is_known;
    }

    /// Whether it has a stream to this replica.
    pub(super) fn is_here(&self) -> bool {
        self.silence.is_none()
    }

    /// Since when it lacks something of the newest state; `None`: it has all. A proxy that has acknowledged nothing has
    /// lacked it since it connected: nothing is known of before.
    pub fn behind_since(&self, head: &Head) -> Option<Instant> {
        let place = |lane| match self.standing(lane) {
            standing if standing.root == Some(head.lane(lane).root) => head.lane(lane).seq,
            standing => standing.seq,
        };
        let since = head.commits.beyond(place(Lane::Config), place(Lane::Live))?;
        let begins = self.config.root.is_none() || self.live.root.is_none();
        Some(if begins { since.max(self.entered) } else { since })
    }
}
