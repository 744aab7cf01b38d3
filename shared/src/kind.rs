//! What resources are and how they are called.

use std::fmt;
use std::sync::Arc;

use crate::proto::config;

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

    /// From the wire.
    pub fn from_wire(lane: i32) -> Option<Self> {
        match config::Lane::try_from(lane).ok()? {
            config::Lane::Unspecified => None,
            config::Lane::Config => Some(Self::Config),
            config::Lane::Live => Some(Self::Live),
        }
    }

    /// For the wire.
    pub fn to_wire(self) -> i32 {
        match self {
            Self::Config => config::Lane::Config.into(),
            Self::Live => config::Lane::Live.into(),
        }
    }
}

/// What a resource is. The numbers are the wire's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The fleet's settings.
    Settings = 1,
    /// A named socket.
    Listener = 2,
    /// A virtual host.
    Host = 3,
    /// What one Ingress won on one host.
    Route = 4,
    /// A Service port as it was written.
    Backend = 5,
    /// One EndpointSlice.
    Endpoints = 16,
    /// A leaf certificate and its key.
    Certificate = 17,
    /// Intermediate certificates.
    Chain = 18,
    /// Users, certificate authorities, ticket keys.
    Material = 19,
}

impl Kind {
    /// All kinds, in ascending order.
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
        if (self as u8) < 16 {
            Lane::Config
        } else {
            Lane::Live
        }
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
        }
    }

    /// From its lower-case name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// From the wire; `None` for a kind of a later schema.
    pub fn from_wire(kind: i32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|known| i32::from(*known as u8) == kind)
    }

    /// For the wire.
    pub fn to_wire(self) -> i32 {
        i32::from(self as u8)
    }

    /// Whether its body holds secrets, which are never shown.
    pub fn is_secret(self) -> bool {
        matches!(self, Self::Certificate | Self::Material)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
        Self {
            kind,
            key: key.into(),
        }
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}
