//! Resources as types: what the compiler makes and what the proxy builds its tables from.
//!
//! **Invariant:** a value of these types can be served. What came over the wire and cannot is a
//! [`ConvertError`](crate::convert::ConvertError) before it gets here.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;

use crate::kind::Kind;
use crate::policy::{BackendPolicy, HostPolicy, LocationPolicy};

/// Key of the one [`Settings`] resource.
pub const SETTINGS_KEY: &str = "default";

/// Key of the [`Host`] for requests of no other host; the catch-all server of ingress-nginx.
pub const CATCH_ALL: &str = "_";

/// One resource of any kind.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the payloads say it")]
#[allow(clippy::large_enum_variant, reason = "the largest is the one of which there is one")]
pub enum Resource {
    Settings(Settings),
    Listener(Listener),
    Host(Host),
    Route(Route),
    Backend(Backend),
    Endpoints(Endpoints),
    Certificate(Certificate),
    Chain(Chain),
    Material(Material),
}

impl Resource {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Settings(_) => Kind::Settings,
            Self::Listener(_) => Kind::Listener,
            Self::Host(_) => Kind::Host,
            Self::Route(_) => Kind::Route,
            Self::Backend(_) => Kind::Backend,
            Self::Endpoints(_) => Kind::Endpoints,
            Self::Certificate(_) => Kind::Certificate,
            Self::Chain(_) => Kind::Chain,
            Self::Material(_) => Kind::Material,
        }
    }
}

/// What belongs to the fleet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Secret `namespace/name` of the certificate for names that have none; empty: the proxy's own.
    pub default_certificate: String,
    /// What the ConfigMap says of every location.
    pub defaults: LocationPolicy,
    /// What it says of every backend.
    pub backend_defaults: BackendPolicy,
    /// Key of the Backend that answers where nobody else does; empty: the proxy itself, 404.
    pub default_backend: String,
    /// Restrictions of the ConfigMap that are not enforced yet; ascending.
    pub guards: Vec<Guard>,
}

/// A restriction of the ConfigMap that is not enforced yet: what it would guard answers 503.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Guard {
    /// By addresses, referers, user agents or rules of a firewall: all paths.
    Addresses,
}

/// A named socket, and what is spoken on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listener {
    /// Bound by flags.
    Http,
    /// Likewise.
    Https,
    /// A port of its own.
    Service(StreamService),
}

/// A TCP or UDP service: whatever comes to a port goes on to a Backend.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StreamService {
    /// What is spoken on the port.
    pub transport: Transport,
    /// Never 0.
    pub port: u16,
    /// Key of the Backend.
    pub backend: String,
    /// Clients send a header of the PROXY protocol first. Never over UDP.
    pub takes_proxy_header: bool,
    /// Endpoints are sent one. Never over UDP.
    pub sends_proxy_header: bool,
}

impl StreamService {
    /// Key of its Listener: `tcp-5432`.
    pub fn key(&self) -> String {
        format!("{}-{}", self.transport.as_str(), self.port)
    }
}

/// What carries the bytes of a [`StreamService`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// In lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A virtual host.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Host {
    /// Its certificates, where an Ingress has a TLS section for it.
    pub tls: Option<Tls>,
    /// Why all its routes answer 503, if they do.
    pub denied: Option<Denial>,
    /// What the Ingress that decides says of the whole host.
    pub policy: HostPolicy,
}

/// The certificates of a host; having them also turns on the redirect to https.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tls {
    /// Secrets `namespace/name` in order; the first that exists and covers the host's name is shown.
    pub certificates: Vec<String>,
}

/// Why something answers 503 instead of being served.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Denial {
    /// For people: names the object and the field.
    pub reason: String,
}

/// The paths that one object (an Ingress) won on one host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Route {
    /// In the order of the Ingress, the implicit "/" first.
    pub paths: Vec<Path>,
    /// Why all of them answer 503, if they do.
    pub denied: Option<Denial>,
    /// What its annotations say of its locations; lies over [`Settings::defaults`].
    pub policy: LocationPolicy,
}

/// One path of a [`Route`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// Begins with a slash.
    pub path: String,
    /// How it is compared.
    pub kind: PathType,
    /// Key of the Backend; `None`: the fleet's default backend, which answers 404.
    pub backend: Option<String>,
    /// Of a prefix: the Exact path of the same text on the host comes first. Counts where paths are regular expressions.
    pub after_exact: bool,
}

/// How a path is compared with the decoded and normalised path of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PathType {
    /// Equal.
    Exact,
    /// Equal, or below it after a slash. `ImplementationSpecific` is this too.
    Prefix,
}

/// One Service port as an Ingress writes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Backend {
    /// How endpoints' ports are found; `None` when the Service or the port does not exist, and beside a name.
    pub port: Option<PortRule>,
    /// The name whose addresses are the endpoints.
    pub external: Option<ExternalName>,
    /// Where the Service itself listens; `None` for one without an address of its own.
    pub service: Option<SocketAddr>,
    /// Keys of the Backends of canaries, in order; the first one acts.
    pub alternatives: Vec<String>,
    /// What annotations say of it, whoever refers to it.
    pub policy: BackendPolicy,
    /// The Service does not exist.
    pub without_service: bool,
}

/// A name outside of the cluster, or inside of it, that proxies look up.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ExternalName {
    /// As [`crate::name::is_dns_name`] has it.
    pub name: String,
    /// Never 0.
    pub port: u16,
    /// Whether addresses count that lead into the proxy's own machine or its link.
    pub local: bool,
}

/// Which port of an EndpointSlice a Service port leads to (controller.md 5.3 of the reference: name, then number).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortRule {
    /// Name of the Service port; empty: every port of a slice.
    pub name: String,
    /// Numeric targetPort, used when a slice has no port of that name.
    pub target_port: Option<u16>,
    /// Whether it is a port of UDP, and not of TCP.
    pub udp: bool,
}

/// The endpoints of one EndpointSlice that may get requests: every address with every port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endpoints {
    /// `namespace/name` of the Service.
    pub service: String,
    /// TCP and UDP ports of the slice.
    pub ports: Vec<EndpointPort>,
    /// IPv4 addresses without duplicates.
    pub ipv4: Vec<Ipv4Addr>,
    /// IPv6 addresses without duplicates.
    pub ipv6: Vec<Ipv6Addr>,
}

/// One port of an EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointPort {
    /// Empty for none.
    pub name: String,
    /// Never 0.
    pub port: u16,
    /// Whether it is a port of UDP, and not of TCP.
    pub udp: bool,
}

/// A leaf certificate and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// X.509, DER.
    pub leaf: Bytes,
    /// PKCS #8, PKCS #1 or SEC 1, DER.
    pub key: Bytes,
    /// Key of the [`Chain`].
    pub chain: Option<String>,
}

/// Says nothing of the key.
impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { leaf, key: _, chain } = self;
        f.debug_struct("Certificate")
            .field("leaf_bytes", &leaf.len())
            .field("chain", chain)
            .finish_non_exhaustive()
    }
}

/// Intermediate certificates, the one that signed the leaf first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// X.509, DER.
    pub certificates: Vec<Bytes>,
}

impl Chain {
    /// Its key: the BLAKE3-128 of the certificates, each after its length.
    pub fn key(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for certificate in &self.certificates {
            hasher.update(&(certificate.len() as u64).to_le_bytes());
            hasher.update(certificate);
        }
        crate::version::Version(crate::version::first_half(&hasher.finalize())).to_string()
    }
}

/// What a Secret gives for one use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Material {
    /// Who may pass.
    Users(Vec<User>),
    /// Who signs clients' certificates.
    Authorities(Authorities),
    /// Who signs backends' certificates, and the proxy's own for them.
    BackendIdentity(BackendIdentity),
    /// What TLS sessions that clients keep are sealed with.
    TicketKeys(TicketKeys),
}

/// Key of the Material with the fleet's [`TicketKeys`].
pub const TICKET_KEYS: &str = "firth/ticket-keys";

/// Keys of session tickets; at least one.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKeys(pub Vec<Bytes>);

/// Says nothing of the keys.
impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TicketKeys").field(&self.0.len()).finish()
    }
}

/// Certificates that others are verified by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Authorities {
    /// X.509, DER; at least one.
    pub certificates: Vec<Bytes>,
    /// Lists of certificates that are revoked, DER.
    pub revocations: Vec<Bytes>,
}

/// What a Secret gives for TLS towards backends.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct BackendIdentity {
    /// `None`: nothing can be verified.
    pub authorities: Option<Authorities>,
    /// The proxy's own certificate and those that it was signed by, DER; empty: it shows none.
    pub certificates: Vec<Bytes>,
    /// The private key of the first of them, DER; empty without one.
    pub key: Bytes,
}

/// Says nothing of the key.
impl std::fmt::Debug for BackendIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { authorities, certificates, key: _ } = self;
        f.debug_struct("BackendIdentity")
            .field("authorities", authorities)
            .field("certificates", &certificates.len())
            .finish_non_exhaustive()
    }
}

/// A user and what the password hashes to.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// Unique, and without a colon but the one before the realm of a digest.
    pub name: String,
    /// As in an htpasswd file.
    pub hash: String,
}

/// Says nothing of the hash.
impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}
