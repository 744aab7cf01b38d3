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

/// Bytes of a proxy's id, node, zone or group at most.
pub const NAME_MAX: usize = 253;
/// Refusals that are recorded of one lane at most.
pub const REFUSALS_MAX: usize = 256;
/// Bytes of a refusal's key, or reason, at most.
pub const TEXT_MAX: usize = 1024;

/// One message of a proxy.
#[derive(Clone, PartialEq, Debug)]
pub enum ProxyMessage {
    /// The first one.
    Hello(Hello),
    /// The answer to a chunk.
    Ack(Ack),
    /// It ends: nobody is to count on it.
    Goodbye,
    /// Counters, which nothing reads yet.
    Status,
    /// What it has of a lane.
    Inventory(Inventory),
    /// Of a later protocol.
    Unknown,
}

/// Who a proxy is and what it has.
#[derive(Clone, PartialEq, Debug)]
pub struct Hello {
    /// One process.
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
    /// It answers when it is asked what it has.
    pub inventory: bool,
    /// What the last Welcome gave it: with it a proxy takes over from its own stream.
    pub claim: Option<Claim>,
    /// The compile revision of the control plane that has served it; 0: nobody said one.
    pub compiled: u32,
}

impl Hello {
    /// Of a proxy that has nothing, in the group without a name.
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

    /// Takes out what it has on a lane.
    pub fn take(&mut self, lane: Lane) -> Resume {
        std::mem::take(match lane {
            Lane::Config => &mut self.config,
            Lane::Live => &mut self.live,
        })
    }

    /// Where it is on both lanes; `None` where that is no place in a log on one of them.
    pub fn whence(&self) -> Option<Whence> {
        Some([self.config.place()?, self.live.place()?])
    }
}

/// What a proxy has on one lane when it connects.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Resume {
    /// The process that `seq` belongs to.
    pub lineage: Option<Lineage>,
    /// Where in that process' log.
    pub seq: Seq,
    /// Over everything it has; `None`: it has nothing.
    pub root: Option<Root>,
    /// It has exactly what there was at that place.
    pub whole: bool,
    /// What it could not serve.
    pub refused: Refusals,
    /// How many there are in all.
    pub refused_total: u32,
}

impl Resume {
    fn place(&self) -> Option<(Lineage, Seq, Root)> {
        self.whole.then_some((self.lineage?, self.seq, self.root?))
    }
}

/// The answer to a chunk.
#[derive(Clone, PartialEq, Debug)]
pub struct Ack {
    /// The lane.
    pub lane: Lane,
    /// Where the proxy is.
    pub seq: Seq,
    /// Over everything it has; may be missing while a batch is unfinished.
    pub root: Option<Root>,
    /// Chunks of an unfinished batch in hand.
    pub staged: u32,
    /// From the last chunk to the last pointer stored.
    pub apply: Duration,
    /// What it has and cannot serve.
    pub refused: Refusals,
    /// How many there are in all.
    pub refused_total: u32,
}

/// What a proxy has of a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inventory {
    /// The lane.
    pub lane: Lane,
    /// Of all buckets, where none was named.
    pub digests: Vec<Digest>,
    /// What is in those that were named.
    pub entries: Vec<(ResourceKey, Version)>,
    /// There is too much in them to be said.
    pub cut: bool,
}

/// A resource that a proxy has and cannot serve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Its kind.
    pub kind: Kind,
    /// Its key.
    pub key: Box<str>,
    /// The version that is refused.
    pub version: Version,
    /// Why, for machines.
    pub code: &'static str,
    /// Why, for people.
    pub reason: Box<str>,
    /// An older version of it is served meanwhile.
    pub serving_last_good: bool,
}

impl Refused {
    /// Bytes that it takes, with what memory is handed out in.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.key.len() + self.reason.len() + 32
    }
}

/// How a lane begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Start {
    /// The roots are equal: nothing is sent.
    InSync,
    /// The changes since the proxy's place in this log.
    Cursor,
    /// What differs, once it is known.
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

/// The first thing that a proxy is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// This process' log.
    pub lineage: Lineage,
    /// A heartbeat comes at least this often.
    pub heartbeat: Duration,
    /// How each lane begins, and where its log is.
    pub lanes: Vec<(Lane, Start, Seq)>,
    /// What the proxy shows to take over from this stream.
    pub claim: Claim,
    /// When the pin ends, in seconds since 1970; 0 where there is none.
    pub pinned_until: u64,
    /// What this control plane reads, where that is known.
    pub source: Option<Source>,
    /// The compile revision here.
    pub compiled: u32,
}

/// Where a stream is on a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The lane.
    pub lane: Lane,
    /// Place in the log.
    pub seq: Seq,
    /// Root there.
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
    /// There is a stream with this id, and this one could not show that it is the same proxy's.
    Taken,
    /// The id is not one of whoever the certificate names.
    Stranger {
        /// Whom it names.
        name: Box<str>,
        /// What the proxy calls itself.
        id: Arc<str>,
    },
    /// It was served by a replica of a newer compile revision, and one of those takes proxies.
    Older {
        /// The revision here.
        here: u32,
        /// The one it was served by.
        served: u32,
    },
    /// No Hello came in time.
    Silent,
    /// The proxy belongs to another group.
    WrongGroup {
        /// The group that is served here.
        served: String,
        /// The one it asked for.
        asked: String,
    },
    /// The proxy broke a rule of the protocol.
    Protocol(String),
    /// Chunks were not answered in time.
    Stalled,
    /// Even full syncs do not bring the proxy to the state that was sent.
    Diverging,
}
