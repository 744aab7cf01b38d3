//! What requests are matched against: hosts with compiled paths, and the cells with endpoints that they point at.
//!
//! The control thread writes through [`Writer`]; workers read through a [`TableReader`] each.
//!
//! ```text
//! Writer ──▶ ArcSwap<HostTable> ──▶ HostEntry ──▶ PathEntry ──▶ Upstream ──▶ BackendCell ──▶ ArcSwap<EndpointSet>
//! ```
//!
//! A change of CONFIG is one pointer store of the host table. A change of endpoints or of a certificate is one store in
//! the cell that it belongs to, and touches no host.
//!
//! **Invariant:** a request sees one host table. Endpoints and certificates may be newer than it, never older.

pub mod apply;
pub mod canary;
pub mod cell;
pub mod certified;
pub mod directory;
pub mod host;
pub mod paths;
pub mod patterns;
pub mod policy;
pub mod reader;
pub mod retire;
pub mod sizes;
pub mod sticky;
mod sync;
pub mod timeouts;
pub mod users;

use std::sync::Arc;

use certified::Certified;

pub use apply::Writer;
pub use canary::CompiledCanary;
pub use cell::{BackendCell, CertificateCell, Endpoint, EndpointSet};
pub use host::{Action, Alternative, DEFAULT_UPSTREAM, HostEntry, Match, PathEntry, Upstream};
pub use policy::Policy;
pub use policy::protocol::Protocol;
pub use reader::{TableReader, Tables};
pub use sizes::Sizes;
pub use sticky::Sticky;
pub use timeouts::Timeouts;

use directory::Directory;

/// All hosts of one moment: immutable, sharing its structure with the tables before and after it.
#[derive(Debug, Default)]
pub struct HostTable {
    generation: u64,
    hosts: Directory,
    default_certificate: Option<Arc<CertificateCell>>,
    policy: Arc<Policy>,
}

impl HostTable {
    /// The entry of a request's host: exact, else the wildcard one label up, else the catch-all (ingress-nginx
    /// behaviour, annotations.md 3.6). `name` is lower-case, without port and trailing dot.
    pub fn host(&self, name: &str) -> Option<&Arc<HostEntry>> {
        self.hosts.exact(name).or_else(|| self.wildcard_of(name)).or_else(|| self.catch_all())
    }

    /// The entry for requests of no other host.
    pub fn catch_all(&self) -> Option<&Arc<HostEntry>> {
        self.hosts.exact(shared::resource::CATCH_ALL)
    }

    /// Whether plain requests for `name` are redirected by default: its host has TLS, or the wildcard host one label up
    /// has (ingress-nginx behaviour, annotations.md 6.3).
    pub fn redirects_to_tls(&self, name: &str) -> bool {
        self.with_tls(name).is_some()
    }

    /// The certificate for a server name (lower-case, without trailing dot), `None` where only the proxy's own is left:
    /// the host's that has TLS, exact else wildcard, else the default one (ingress-nginx behaviour, balancing.md 8).
    pub fn certificate(&self, name: Option<&str>) -> Option<Arc<Certified>> {
        name.and_then(|name| self.with_tls(name))
            .and_then(HostEntry::certificate)
            .or_else(|| self.default_certificate.as_ref()?.certificate())
    }

    /// How requests are treated that no location takes: what the fleet says.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Counts the tables that were published; the first has 1, the empty one of the start 0.
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
        let candidates = [self.hosts.exact(name), self.wildcard_of(name)];
        candidates.into_iter().flatten().map(Arc::as_ref).find(|host| host.has_tls())
    }

    fn wildcard_of(&self, name: &str) -> Option<&Arc<HostEntry>> {
        let (label, parent) = name.split_once('.')?;
        let fits = !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        fits.then(|| self.hosts.wildcard(parent)).flatten()
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod world;
