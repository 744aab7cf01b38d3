//! The kinds of resources, their names and lanes.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// One of the two logs of changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Settings, listeners, hosts, routes, backends: atomic per batch.
    Config,
    /// Endpoints, certificates, secret material: immediate, per resource.
    Live,
}

impl Lane {
    /// Both, in the order in which simultaneous changes are sent: LIVE before the CONFIG that relies on it.
    pub const ALL: [Self; 2] = [Self::Live, Self::Config];

    /// `config` or `live`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Live => "live",
        }
    }
}

/// The table of kinds, one row each, in ascending order of the wire's numbers.
macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident = $number:literal $name:literal, body $body:expr, secret $secret:literal;)+) => {
        /// The kind of a resource. Ordered by the wire's numbers.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Kind {
            $($(#[$doc])+ $kind,)+
            /// A kind of a later schema: a proxy stores such resources, so that its root is right, and refuses to serve
            /// them. Only [`Kind::any_from_wire`] creates one, never with the number of a known kind.
            Later(u8),
        }

        impl Kind {
            /// All known kinds, in ascending order.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$kind),+];

            /// Lower-case name, as used in the CLI and metrics.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                    Self::Later(_) => "later",
                }
            }

            /// The number on the wire.
            pub fn number(self) -> u8 {
                match self {
                    $(Self::$kind => $number,)+
                    Self::Later(number) => number,
                }
            }

            /// Name of its message in `firth.config.v1`; `None` for unknown kinds.
            pub fn message(self) -> Option<&'static str> {
                match self {
                    $(Self::$kind => $body,)+
                    Self::Later(_) => None,
                }
            }

            /// Whether its body contains secrets, which are never shown. True for unknown kinds.
            pub fn is_secret(self) -> bool {
                match self {
                    $(Self::$kind => $secret,)+
                    Self::Later(_) => true,
                }
            }
        }
    };
}

kinds! {
    /// The fleet's settings.
    Settings = 1 "settings", body Some("Settings"), secret false;
    /// A named socket.
    Listener = 2 "listener", body Some("Listener"), secret false;
    /// A virtual host.
    Host = 3 "host", body Some("Host"), secret false;
    /// The paths that one object won on one host.
    Route = 4 "route", body Some("Route"), secret false;
    /// A Service port as an Ingress writes it.
    Backend = 5 "backend", body Some("Backend"), secret false;
    /// One EndpointSlice.
    Endpoints = 16 "endpoints", body Some("Endpoints"), secret false;
    /// A leaf certificate and its key.
    Certificate = 17 "certificate", body Some("Certificate"), secret true;
    /// Intermediate certificates.
    Chain = 18 "chain", body Some("Chain"), secret false;
    /// Users, certificate authorities, ticket keys.
    Material = 19 "material", body Some("Material"), secret true;
}

impl Kind {
    /// The lane that it is sent on.
    pub fn lane(self) -> Lane {
        if self.number() < 16 { Lane::Config } else { Lane::Live }
    }

    /// From its lower-case name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
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

/// Identifies a resource: kind and key. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ResourceKey {
    /// Its kind.
    pub kind: Kind,
    /// Its name within the kind, see `proto/firth/config/v1/stream.proto`.
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
