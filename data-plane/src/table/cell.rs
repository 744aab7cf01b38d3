//! What changes without the host table: the endpoints of a backend, the certificate of a Secret.
//!
//! The control thread stores, workers load. A cell is interned by the key of what it stands for and never replaced
//! while a table names it, so that entries which were not rebuilt see what is new.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use shared::resource::Backend;

use super::certified::Certified;
use super::endpoints::EndpointSet;

/// The endpoints of one backend.
#[derive(Debug)]
pub struct BackendCell {
    /// Never used again, for pools and counters of workers.
    pub id: u64,
    /// Key of the Backend: `namespace/service/port`.
    pub key: Arc<str>,
    endpoints: ArcSwap<EndpointSet>,
    /// What it was made of, for pages that tell people.
    said: ArcSwapOption<Backend>,
}

impl BackendCell {
    /// Without endpoints.
    pub fn new(id: u64, key: Arc<str>) -> Self {
        let endpoints = ArcSwap::from_pointee(EndpointSet::default());
        Self { id, key, endpoints, said: ArcSwapOption::empty() }
    }

    /// The endpoints now. The guard must not be held across an await.
    pub fn endpoints(&self) -> Guard<Arc<EndpointSet>> {
        self.endpoints.load()
    }

    /// What is said of the Backend.
    pub fn said(&self) -> Option<Arc<Backend>> {
        self.said.load_full()
    }

    /// Notes that. For the control thread.
    pub(in crate::table) fn describe(&self, said: Arc<Backend>) {
        self.said.store(Some(said));
    }

    /// Puts endpoints in place of those it had, which are given back. For the control thread, and for tests without one.
    pub fn store(&self, endpoints: EndpointSet) -> Arc<EndpointSet> {
        self.endpoints.swap(Arc::new(endpoints))
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
