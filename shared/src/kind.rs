//! What resources are and how they are called.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// One of the two streams of changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Settings, listeners, hosts, routes, backends: atomic per batch.
    Config,
    /// Endpoints, certificates, secret material: immediate, per resource.
    Live,
}

impl Lane {
    /// Both, in the order in which changes of one moment are sent: LIVE before the CONFIG that relies on it.
    pub const ALL: [Self; 2] = [Self::Live, Self::Config];

    /// `config` or `live`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Live => "live",
        }
    }
}

/// What a resource is. Ordered by the wire's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The fleet's settings.
    Settings,
    /// A named socket.
    Listener,
    /// A virtual host.
    Host,
    /// What one Ingress won on one host.
    Route,
    /// A Service port as it was written.
    Backend,
    /// One EndpointSlice.
    Endpoints,
    /// A leaf certificate and its key.
    Certificate,
    /// Intermediate certificates.
    Chain,
    /// Users, certificate authorities, ticket keys.
    Material,
    /// A kind of a later schema: a proxy keeps such resources, so that its root is right, and refuses to serve them.
    /// Only [`Kind::any_from_wire`] makes one, never with the number of a kind that is known.
    Later(u8),
}

impl Kind {
    /// All kinds that are known, in ascending order.
    pub const ALL: [Self; 9] = [
        Self::Settings,
        Self::Listener,
        Self::Host,
        Self::Route,
        Self::Backend,
        Self::Endpoints,
        Self::Certificate,
        Self::Chain,
        Self::Material,
    ];

    /// The lane on which it travels.
    pub fn lane(self) -> Lane {
        if self.number() < 16 { Lane::Config } else { Lane::Live }
    }

    /// Lower-case name, as the CLI and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Listener => "listener",
            Self::Host => "host",
            Self::Route => "route",
            Self::Backend => "backend",
            Self::Endpoints => "endpoints",
            Self::Certificate => "certificate",
            Self::Chain => "chain",
            Self::Material => "material",
            Self::Later(_) => "later",
        }
    }

    /// The wire's number.
    pub fn number(self) -> u8 {
        match self {
            Self::Settings => 1,
            Self::Listener => 2,
            Self::Host => 3,
            Self::Route => 4,
            Self::Backend => 5,
            Self::Endpoints => 16,
            Self::Certificate => 17,
            Self::Chain => 18,
            Self::Material => 19,
            Self::Later(number) => number,
        }
    }

    /// From its lower-case name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether its body holds secrets, which are never shown. What is not known may.
    pub fn is_secret(self) -> bool {
        matches!(self, Self::Certificate | Self::Material | Self::Later(_))
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number().cmp(&other.number())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later(number) => write!(f, "kind {number}"),
            known => f.write_str(known.as_str()),
        }
    }
}

/// Names one resource: kind and key. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ResourceKey {
    /// What it is.
    pub kind: Kind,
    /// How it is called among its kind, see `proto/firth/config/v1/stream.proto`.
    pub key: Arc<str>,
}

impl ResourceKey {
    /// A key of a kind.
    pub fn new(kind: Kind, key: impl Into<Arc<str>>) -> Self {
        Self { kind, key: key.into() }
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}
