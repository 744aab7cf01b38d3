//! The messages of a session, in both directions, checked and bounded.
//!
//! **Invariant:** nothing here exceeds the limits below, whatever a proxy sends.

use std::sync::Arc;
use std::time::Duration;

use shared::kind::{Kind, Lane, ResourceKey};
use shared::snapshot::Digest;
use shared::version::{Claim, Lineage, Root, Seq, Source, Version};

use super::refusals::Refusals;
use crate::barrier::Whence;

/// Limit of a proxy's id, node, zone or group in bytes.
pub const NAME_MAX: usize = 253;
/// Limit of the refusals that are stored for one lane.
pub const REFUSALS_MAX: usize = 256;
/// Limit of a refusal's key, or reason, in bytes.
pub const TEXT_MAX: usize = 1024;

/// One message of a proxy.
#[derive(Clone, PartialEq, Debug)]
pub enum ProxyMessage {
    /// The first one.
    Hello(Hello),
    /// The acknowledgement of a chunk.
    Ack(Ack),
    /// It shuts down: it must not be relied on any more.
    Goodbye,
    /// It is receiving a long message.
    Receiving,
    /// Counters, which nothing reads yet.
    Status,
    /// What it has on a lane.
    Inventory(Inventory),
    /// A message of a later protocol.
    Unknown,
}

/// The identity of a proxy, and what it has.
#[derive(Clone, PartialEq, Debug)]
pub struct Hello {
    /// Identifies one process.
    pub id: Arc<str>,
    /// Kubernetes node, or host name.
    pub node: Arc<str>,
    /// Topology zone, empty when unknown.
    pub zone: Arc<str>,
    /// The fleet it belongs to.
    pub group: String,
    /// What it has on CONFIG.
    pub config: Resume,
    /// What it has on LIVE.
    pub live: Resume,
    /// It can report what it has on request.
    pub inventory: bool,
    /// The claim from its last Welcome, with which a proxy can replace its own stream.
    pub claim: Option<Claim>,
    /// The compile revision of the control plane that last served it; 0 if unknown.
    pub compiled: u32,
}

impl Hello {
    /// Of a proxy that has nothing, in the group with an empty name.
    #[cfg(test)]
    pub fn of(id: &str) -> Self {
        Self {
            id: id.into(),
            node: "".into(),
            zone: "".into(),
            group: String::new(),
            config: Resume::default(),
            live: Resume::default(),
            inventory: false,
            claim: None,
            compiled: 0,
        }
    }

    /// Takes what it has on a lane.
    pub fn take(&mut self, lane: Lane) -> Resume {
        std::mem::take(match lane {
            Lane::Config => &mut self.config,
            Lane::Live => &mut self.live,
        })
    }

    /// Its position on both lanes; `None` if it has no position on one of them.
    pub fn whence(&self) -> Option<Whence> {
        Some([self.config.place()?, self.live.place()?])
    }
}

/// What a proxy has on one lane when it connects.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Resume {
    /// The process whose log `seq` refers to.
    pub lineage: Option<Lineage>,
    /// Its position in that log.
    pub seq: Seq,
    /// Digest of everything it has; `None`: it has nothing.
    pub root: Option<Root>,
    /// Its state is exactly that of the position.
    pub whole: bool,
    /// The resources that it refuses.
    pub refused: Refusals,
    /// The number of all refusals.
    pub refused_total: u32,
}

impl Resume {
    fn place(&self) -> Option<(Lineage, Seq, Root)> {
        self.whole.then_some((self.lineage?, self.seq, self.root?))
    }
}

/// The acknowledgement of a chunk.
#[derive(Clone, PartialEq, Debug)]
pub struct Ack {
    /// The lane.
    pub lane: Lane,
    /// The proxy's position.
    pub seq: Seq,
    /// Digest of everything it has; may be missing while a batch is unfinished.
    pub root: Option<Root>,
    /// Chunks of an unfinished batch that it holds.
    pub staged: u32,
    /// Time from the last chunk until the new table was published.
    pub apply: Duration,
    /// The resources that it refuses.
    pub refused: Refusals,
    /// The number of all refusals.
    pub refused_total: u32,
}

/// What a proxy has on a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inventory {
    /// The lane.
    pub lane: Lane,
    /// Digests of all buckets, if none was named.
    pub digests: Vec<Digest>,
    /// The contents of the buckets that were named.
    pub entries: Vec<(ResourceKey, Version)>,
    /// The contents do not fit into the message.
    pub cut: bool,
}

/// A resource that a proxy has and refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Its kind.
    pub kind: Kind,
    /// Its key.
    pub key: Box<str>,
    /// The version that is refused.
    pub version: Version,
    /// The reason, for machines.
    pub code: &'static str,
    /// The reason, for people.
    pub reason: Box<str>,
    /// An older version of it is served meanwhile.
    pub serving_last_good: bool,
}

impl Refused {
    /// Bytes that it takes, including allocation overhead.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.key.len() + self.reason.len() + 32
    }
}

/// How a lane begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Start {
    /// The roots are equal: nothing is sent.
    InSync,
    /// The changes since the proxy's position in this log.
    Cursor,
    /// The differences, once they are known.
    Inventory,
    /// Everything.
    Full,
    /// Everything, once a slot is free.
    Wait,
}

impl Start {
    /// Label of the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InSync => "in-sync",
            Self::Cursor => "cursor",
            Self::Inventory => "inventory",
            Self::Full => "full",
            Self::Wait => "wait",
        }
    }
}

/// The first message to a proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// This process' log.
    pub lineage: Lineage,
    /// A heartbeat comes at least this often.
    pub heartbeat: Duration,
    /// How each lane begins, and the current position of its log.
    pub lanes: Vec<(Lane, Start, Seq)>,
    /// The claim with which the proxy can replace this stream.
    pub claim: Claim,
    /// When the pin expires, in seconds since 1970; 0 if there is none.
    pub pinned_until: u64,
    /// The source that this control plane reads, if known.
    pub source: Option<Source>,
    /// The compile revision here.
    pub compiled: u32,
}

/// The position of a stream on a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The lane.
    pub lane: Lane,
    /// Position in the log.
    pub seq: Seq,
    /// The root at that position.
    pub root: Root,
}

/// Why a stream ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The proxy was told to connect again.
    Redirected,
    /// The proxy left.
    Gone,
    /// Another stream of the same proxy took over.
    Replaced,
    /// Another stream uses this id, and this one could not prove that it belongs to the same proxy.
    Taken,
    /// The certificate does not permit this id.
    Stranger {
        /// The name in the certificate.
        name: Box<str>,
        /// The id in the Hello.
        id: Arc<str>,
    },
    /// A replica of a newer compile revision served it before, and one of that revision accepts proxies.
    Older {
        /// The revision here.
        here: u32,
        /// The revision that served it.
        served: u32,
    },
    /// No Hello came in time.
    Silent,
    /// The proxy belongs to another group.
    WrongGroup {
        /// The group that is served.
        served: String,
        /// The group in the Hello.
        asked: String,
    },
    /// The proxy violated the protocol.
    Protocol(String),
    /// Chunks were not acknowledged in time.
    Stalled,
    /// Not even full syncs bring the proxy to the state that was sent.
    Diverging,
}
