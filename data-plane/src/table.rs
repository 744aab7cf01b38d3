//! What requests are matched against: hosts with compiled paths, and the cells with endpoints that they refer to.
//!
//! The control thread writes through [`Writer`]; workers read through a [`TableReader`] each.
//!
//! ```text
//! Writer ──▶ ArcSwap<HostTable> ──▶ HostEntry ──▶ PathEntry ──▶ Upstream ──▶ BackendCell ──▶ ArcSwap<EndpointSet>
//! ```
//!
//! A change of CONFIG is one pointer store of the host table. A change of endpoints or of a certificate is one store
//! in its cell, and touches no host.
//!
//! **Invariant:** a request sees one host table. Endpoints and certificates may be newer than it, never older.

pub mod addresses;
pub mod aliases;
pub mod apply;
pub mod backend_tls;
pub mod canary;
pub mod cell;
pub mod certified;
pub mod client_auth;
pub mod client_tls;
pub mod directory;
pub mod endpoints;
pub mod host;
mod keys;
pub mod location;
pub mod lookup;
pub mod material;
pub mod paths;
pub mod patterns;
pub mod policy;
pub mod proxy_protocol;
pub mod reader;
pub mod retire;
pub mod sizes;
pub mod sticky;
pub mod streams;
mod sync;
pub mod ticket_keys;
pub mod timeouts;
pub mod trust;
mod upstream;
pub mod users;
pub(crate) mod version1;

use std::sync::Arc;

use certified::Certified;

pub use apply::Writer;
pub use backend_tls::BackendTls;
pub use canary::CompiledCanary;
pub use cell::{BackendCell, CertificateCell};
pub use client_auth::ClientAuth;
pub use endpoints::{Endpoint, EndpointSet};
pub use host::{Action, Alternative, DEFAULT_UPSTREAM, HostEntry, Match, PathEntry, Upstream};
pub use keys::UpstreamName;
pub use material::MaterialCell;
pub use policy::Policy;
pub use policy::protocol::Protocol;
pub use reader::{TableReader, Tables};
pub use sizes::Sizes;
pub use sticky::Sticky;
pub use timeouts::Timeouts;

use addresses::Addresses;
use aliases::Aliases;
use client_tls::ClientTls;
use directory::Directory;
use proxy_protocol::ProxyProtocol;
use streams::Streams;
use ticket_keys::TicketKeysCell;

/// All hosts as of one moment: immutable, and sharing structure with earlier and later tables.
#[derive(Debug, Default)]
pub struct HostTable {
    generation: u64,
    hosts: Directory,
    aliases: Aliases,
    /// Number of hosts that also redirect their name with or without `www.`.
    www: usize,
    default_certificate: Option<Arc<CertificateCell>>,
    policy: Arc<Policy>,
    client_tls: Arc<ClientTls>,
    ticket_keys: Arc<TicketKeysCell>,
    proxy_protocol: Arc<ProxyProtocol>,
    addresses: Arc<Addresses>,
    streams: Arc<Streams>,
    /// The location of requests that no other location takes, if the fleet has a default backend.
    unclaimed: Option<Arc<PathEntry>>,
}

impl HostTable {
    /// The entry for a request's host: exact, an exact alias, a wildcard alias, an alias pattern or the wildcard one
    /// label up, else the catch-all (as in ingress-nginx). `name` is lower-case, without port and trailing dot, and
    /// not one that [`Self::www`] redirects.
    pub fn host(&self, name: &str) -> Option<&Arc<HostEntry>> {
        let exact = self.hosts.exact(name);
        let found = exact.or_else(|| self.alias_of(name)).or_else(|| self.pattern_of(name));
        found.or_else(|| self.catch_all())
    }

    /// The host that requests for `name` are redirected to: the same name without `www.`, or with it. A host of
    /// exactly this name has precedence (as in ingress-nginx).
    pub fn www(&self, name: &str) -> Option<&Arc<HostEntry>> {
        if self.www == 0 || self.hosts.exact(name).is_some() {
            return None;
        }
        let bare = name.strip_prefix("www.").and_then(|bare| self.hosts.exact(bare));
        let longer = self.hosts.exact(&format!("www.{name}"));
        let asking = [bare, longer].into_iter().flatten().filter(|host| host.has_www());
        asking.min_by_key(|host| host.name())
    }

    /// The entry for requests of no other host.
    pub fn catch_all(&self) -> Option<&Arc<HostEntry>> {
        self.hosts.exact(shared::resource::CATCH_ALL)
    }

    /// Whether plain HTTP requests for `name` are redirected by default: its host has TLS, or the wildcard host one
    /// label up does (as in ingress-nginx).
    pub fn redirects_to_tls(&self, name: &str) -> bool {
        self.with_tls(name).is_some()
    }

    /// The certificate for a server name (lower-case, without trailing dot), or `None` if only the proxy's own is
    /// left: that of the host with TLS, exact before wildcard, else the default certificate. An alias and a redirected
    /// name get their host's certificate only if it covers them (as in ingress-nginx).
    pub fn certificate(&self, name: Option<&str>) -> Option<Arc<Certified>> {
        name.and_then(|name| self.with_tls(name))
            .and_then(HostEntry::certificate)
            .or_else(|| self.default_certificate().map(|(_, certificate)| certificate))
    }

    /// The certificate that clients of a host with TLS are shown by its own name, with the name of its Secret; the
    /// default one for [`CATCH_ALL`](shared::resource::CATCH_ALL), as in ingress-nginx.
    pub fn shown<'a>(&'a self, host: &'a HostEntry) -> Option<(&'a str, Arc<Certified>)> {
        let is_other = host.name() == shared::resource::CATCH_ALL;
        let own = host.covered().filter(|_| !is_other);
        let usual = || self.default_certificate().filter(|_| is_other || host.has_tls());
        own.or_else(usual)
    }

    /// The default certificate with the name of its Secret.
    pub fn default_certificate(&self) -> Option<(&str, Arc<Certified>)> {
        let cell = self.default_certificate.as_ref()?;
        Some((&cell.key, cell.certificate()?))
    }

    /// The fleet's policy, for requests that no location takes.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The fleet's TLS settings for clients.
    pub fn client_tls(&self) -> &Arc<ClientTls> {
        &self.client_tls
    }

    /// The fleet's session ticket keys, if the proxy has any.
    pub fn ticket_keys(&self) -> &TicketKeysCell {
        &self.ticket_keys
    }

    /// The fleet's PROXY protocol settings.
    pub fn proxy_protocol(&self) -> &Arc<ProxyProtocol> {
        &self.proxy_protocol
    }

    /// The addresses that clients may connect to.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// TCP and UDP services.
    pub fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// The location of requests that no other takes, while its backend has endpoints.
    pub fn unclaimed(&self) -> Option<&Arc<PathEntry>> {
        self.default_backend().and(self.unclaimed.as_ref())
    }

    /// The fleet's default backend, while it has endpoints.
    pub fn default_backend(&self) -> Option<&Arc<Upstream>> {
        match &self.unclaimed.as_ref()?.action {
            Action::Backend(upstream) => Some(upstream).filter(|it| !it.cell.endpoints().list.is_empty()),
            _ => None,
        }
    }

    /// The number of the published table: 1 for the first, 0 for the empty one at the start.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Number of hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there is no host.
    pub fn is_empty(&self) -> bool {
        self.hosts.len() == 0
    }

    /// All hosts, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<HostEntry>> {
        self.hosts.iter()
    }

    /// The host with TLS that a name belongs to; a host without TLS leaves the name to its wildcard.
    fn with_tls(&self, name: &str) -> Option<&HostEntry> {
        let exact = self.hosts.exact(name);
        let other = || self.www(name).or_else(|| self.named(self.aliases.exact(name)?));
        let below = || self.named(self.aliases.wildcard(parent_of(name)?)?);
        let borrowed = |host: Option<&'_ Arc<HostEntry>>| {
            let certificate = host.and_then(|host| host.certificate());
            certificate.is_some_and(|certificate| certificate.covers(name))
        };
        let one = match exact {
            Some(host) => Some(host).filter(|host| host.has_tls()),
            None => other().filter(|host| borrowed(Some(host))),
        };
        let wildcard = self.wildcard_of(name);
        let one = one.or_else(|| wildcard.filter(|host| host.has_tls()));
        let one = one.or_else(|| below().filter(|host| wildcard.is_none() && borrowed(Some(host))));
        one.map(Arc::as_ref)
    }

    /// The host that has `name` as an alias, not considering patterns.
    fn alias_of(&self, name: &str) -> Option<&Arc<HostEntry>> {
        let is_host = |parent: &str| self.hosts.wildcard(parent).is_some();
        self.named(self.aliases.exact(name).or_else(|| self.aliases.widest(name, is_host))?)
    }

    /// The host of the first matching pattern. Wildcard hosts are patterns in ingress-nginx.
    fn pattern_of(&self, name: &str) -> Option<&Arc<HostEntry>> {
        let wildcard = self.wildcard_of(name);
        let alias = self.aliases.pattern(name, wildcard.map(|host| host.name()));
        alias.and_then(|host| self.named(host)).or(wildcard)
    }

    fn named(&self, host: &Arc<str>) -> Option<&Arc<HostEntry>> {
        self.hosts.named(host)
    }

    fn wildcard_of(&self, name: &str) -> Option<&Arc<HostEntry>> {
        let (label, parent) = name.split_once('.')?;
        let fits = !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        fits.then(|| self.hosts.wildcard(parent)).flatten()
    }
}

/// The name without its first label.
fn parent_of(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, parent)| parent)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::world;
