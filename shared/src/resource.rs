//! Typed resources: what the compiler produces, and what the proxy builds its tables from.
//!
//! **Invariant:** a value of these types can be served. Received bytes that cannot be served are rejected with a
//! [`ConvertError`](crate::convert::ConvertError) before they get here.

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

/// Fleet-wide settings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Secret `namespace/name` of the certificate for names that have none; empty: each proxy's own.
    pub default_certificate: String,
    /// The ConfigMap's defaults for every location.
    pub defaults: LocationPolicy,
    /// The ConfigMap's defaults for every backend.
    pub backend_defaults: BackendPolicy,
    /// Key of the Backend for requests that match nothing; empty: the proxy itself answers 404.
    pub default_backend: String,
    /// Restrictions of the ConfigMap that are not enforced yet; ascending.
    pub guards: Vec<Guard>,
}

/// A restriction of the ConfigMap that is not enforced yet: what it would guard answers 503.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Guard {
    /// By addresses, referers, user agents or firewall rules: applies to all paths.
    Addresses,
}

/// A named socket, and its protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listener {
    /// The HTTP port, whose address is given by flags.
    Http,
    /// The HTTPS port, likewise.
    Https,
    /// A port of its own.
    Service(StreamService),
}

/// A TCP or UDP service: all traffic of a port is forwarded to a Backend.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StreamService {
    /// The port's transport protocol.
    pub transport: Transport,
    /// Never 0.
    pub port: u16,
    /// Key of the Backend.
    pub backend: String,
    /// Clients send a PROXY protocol header first. Never over UDP.
    pub takes_proxy_header: bool,
    /// Endpoints are sent such a header. Never over UDP.
    pub sends_proxy_header: bool,
}

impl StreamService {
    /// Key of its Listener: `tcp-5432`.
    pub fn key(&self) -> String {
        format!("{}-{}", self.transport.as_str(), self.port)
    }
}

/// The transport protocol of a [`StreamService`].
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
    /// Its certificates, if an Ingress has a TLS section for it.
    pub tls: Option<Tls>,
    /// Why all its routes answer 503, if they do.
    pub denied: Option<Denial>,
    /// Host-wide settings of the Ingress that decides them.
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
    /// Policy of its locations, from annotations; overrides [`Settings::defaults`].
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
    /// For a prefix: the host's Exact path with the same text precedes it. Matters if paths are regular expressions.
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
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Backend {
    /// How the endpoints' port is found; `None` if the Service or the port does not exist, and for an external name.
    pub port: Option<PortRule>,
    /// The external name whose addresses are the endpoints.
    pub external: Option<ExternalName>,
    /// The Service's own address; `None` if it has none.
    pub service: Option<SocketAddr>,
    /// Keys of canary Backends, in order; the first one takes effect.
    pub alternatives: Vec<String>,
    /// Its policy, from annotations. It applies to all requests, whichever Ingress they come through.
    pub policy: BackendPolicy,
    /// The Service does not exist.
    pub without_service: bool,
}

/// A DNS name, inside or outside of the cluster, that proxies resolve.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ExternalName {
    /// Valid by [`crate::name::is_dns_name`].
    pub name: String,
    /// Never 0.
    pub port: u16,
    /// Whether addresses of the proxy's own machine or link are allowed.
    pub local: bool,
}

/// The port of an EndpointSlice that a Service port leads to, found by name, then by number (as in ingress-nginx).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortRule {
    /// Name of the Service port; empty: every port of a slice.
    pub name: String,
    /// Numeric targetPort, used if a slice has no port with that name.
    pub target_port: Option<u16>,
    /// Whether it is a UDP port instead of a TCP port.
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
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EndpointPort {
    /// Empty for none.
    pub name: String,
    /// Never 0.
    pub port: u16,
    /// Whether it is a UDP port instead of a TCP port.
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

/// Does not show the key.
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

/// The contents of a Secret for one use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Material {
    /// The users that may pass.
    Users(Vec<User>),
    /// The authorities of clients' certificates.
    Authorities(Authorities),
    /// The authorities of backends' certificates, and the proxy's own certificate.
    BackendIdentity(BackendIdentity),
    /// The keys that encrypt TLS session tickets.
    TicketKeys(TicketKeys),
}

/// Key of the Material with the fleet's [`TicketKeys`].
pub const TICKET_KEYS: &str = "firth/ticket-keys";

/// Session ticket keys; at least one.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKeys(pub Vec<Bytes>);

/// Does not show the keys.
impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TicketKeys").field(&self.0.len()).finish()
    }
}

/// Certificates of authorities, to verify peers with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Authorities {
    /// X.509, DER; at least one.
    pub certificates: Vec<Bytes>,
    /// Certificate revocation lists, DER.
    pub revocations: Vec<Bytes>,
}

/// TLS identity towards backends, from a Secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct BackendIdentity {
    /// `None`: backends cannot be verified.
    pub authorities: Option<Authorities>,
    /// The proxy's own certificate with its chain, DER; empty: it shows none.
    pub certificates: Vec<Bytes>,
    /// The private key of that certificate, DER; empty without one.
    pub key: Bytes,
}

/// Does not show the key.
impl std::fmt::Debug for BackendIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { authorities, certificates, key: _ } = self;
        f.debug_struct("BackendIdentity")
            .field("authorities", authorities)
            .field("certificates", &certificates.len())
            .finish_non_exhaustive()
    }
}

/// A user and the hash of the password.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// Unique, without a colon except before the realm of a digest.
    pub name: String,
    /// As in an htpasswd file.
    pub hash: String,
}

/// Does not show the hash.
impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}
