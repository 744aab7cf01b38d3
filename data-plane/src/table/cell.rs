//! What changes without the host table: the endpoints of a backend, the certificate of a Secret.
//!
//! The control thread stores, workers load. A cell is interned by the key of what it stands for and never replaced
//! while a table names it, so that entries which were not rebuilt see what is new.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use super::certified::Certified;
use super::sticky::Lookup;

/// The endpoints of one backend.
#[derive(Debug)]
pub struct BackendCell {
    /// Never used again, for pools and counters of workers.
    pub id: u64,
    /// Key of the Backend: `namespace/service/port`.
    pub key: Arc<str>,
    endpoints: ArcSwap<EndpointSet>,
}

impl BackendCell {
    /// Without endpoints.
    pub fn new(id: u64, key: Arc<str>) -> Self {
        let endpoints = ArcSwap::from_pointee(EndpointSet::default());
        Self { id, key, endpoints }
    }

    /// The endpoints now. The guard must not be held across an await.
    pub fn endpoints(&self) -> Guard<Arc<EndpointSet>> {
        self.endpoints.load()
    }

    /// Puts endpoints in place of those it had. For the control thread, and for tests without one.
    pub fn store(&self, endpoints: EndpointSet) {
        self.endpoints.store(Arc::new(endpoints));
    }
}

/// Where requests for a backend may go; immutable.
#[derive(Debug, Default)]
pub struct EndpointSet {
    /// In the order of slices by key, then as the slice lists them; no address twice.
    pub list: Box<[Arc<Endpoint>]>,
    /// For backends with affinity.
    pub(super) lookup: Lookup,
}

impl EndpointSet {
    /// Of these endpoints, none of which has an address of another.
    pub fn new(list: Box<[Arc<Endpoint>]>) -> Self {
        Self { list, lookup: Lookup::default() }
    }
}

/// One address and port of one backend. The same value survives every update of its set that keeps the address, and
/// what is known about it at run time with it.
#[derive(Debug)]
pub struct Endpoint {
    /// Never used again in this process.
    pub id: u64,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Endpoint {
    /// A new endpoint under an id that no other has.
    pub fn new(id: u64, address: SocketAddr) -> Self {
        Self { id, address }
    }
}

/// The certificate of one Secret, while there is one.
#[derive(Debug)]
pub struct CertificateCell {
    /// `namespace/name` of the Secret.
    pub key: Arc<str>,
    certificate: ArcSwapOption<Certified>,
}

impl CertificateCell {
    /// Without certificate.
    pub fn new(key: Arc<str>) -> Self {
        Self { key, certificate: ArcSwapOption::empty() }
    }

    /// The certificate now.
    pub fn certificate(&self) -> Option<Arc<Certified>> {
        self.certificate.load_full()
    }

    /// Puts a certificate in place of the one it had.
    pub(crate) fn store(&self, certificate: Option<Arc<Certified>>) {
        self.certificate.store(certificate);
    }
}
