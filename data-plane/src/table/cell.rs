//! What changes without a new host table: the endpoints of a backend, the certificate of a Secret.
//!
//! The control thread stores, workers load. A cell is interned by the key of its resource and never replaced while a
//! table refers to it, so that entries that were not rebuilt see new values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use shared::budget::Budget;
use shared::resource::Backend;

use super::certified::Certified;
use super::endpoints::{Endpoint, EndpointSet};
use crate::balance::Moment;

/// The endpoints of one backend.
#[derive(Debug)]
pub struct BackendCell {
    /// Never reused; pools and counters of workers refer to it.
    pub id: u64,
    /// Key of the Backend: `namespace/service/port`.
    pub key: Arc<str>,
    /// Counts the connections to its endpoints.
    pub links: Budget,
    /// Counts those of all backends of its namespace.
    pub namespace_links: Budget,
    endpoints: ArcSwap<EndpointSet>,
    /// How many of the endpoints are ejected.
    out: AtomicU32,
    /// How often `out` has changed.
    turns: AtomicU32,
    /// The Backend that it was built from, for admin pages.
    configured: ArcSwapOption<Backend>,
}

impl BackendCell {
    /// A cell without endpoints.
    pub fn new(id: u64, key: Arc<str>) -> Self {
        Self::with(id, key, Budget::new(usize::MAX), EndpointSet::default())
    }

    /// A cell with these endpoints. Its connections count in `namespace_links` too.
    pub fn with(id: u64, key: Arc<str>, namespace_links: Budget, endpoints: EndpointSet) -> Self {
        let endpoints = ArcSwap::from_pointee(endpoints);
        let (out, turns) = Default::default();
        let (links, configured) = (Budget::new(usize::MAX), ArcSwapOption::empty());
        Self { id, key, links, namespace_links, endpoints, out, turns, configured }
    }

    /// The current endpoints. The guard must not be held across an await.
    pub fn endpoints(&self) -> Guard<Arc<EndpointSet>> {
        self.endpoints.load()
    }

    /// The name that ingress-nginx gives to its Service when that serves as another one's error backend.
    pub fn name_in_place(&self) -> String {
        let mut parts = self.key.splitn(3, '/');
        let (namespace, service) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        format!("custom-default-backend-{namespace}-{service}")
    }

    /// The Backend resource.
    pub fn configured(&self) -> Option<Arc<Backend>> {
        self.configured.load_full()
    }

    /// Stores the Backend resource. For the control thread.
    pub(in crate::table) fn describe(&self, configured: Arc<Backend>) {
        self.configured.store(Some(configured));
    }

    /// Replaces the endpoints and returns the old ones. For the control thread, and for tests without one.
    pub fn store(&self, endpoints: EndpointSet) -> Arc<EndpointSet> {
        let before = self.endpoints.swap(Arc::new(endpoints));
        // Removed endpoints are not ejected any more.
        if self.out.load(Ordering::Relaxed) != 0 {
            self.count_out();
        }
        before
    }

    /// Whether ejected endpoints are avoided: as long as they are no more than half of all. Beyond that the others
    /// could not bear the load, and the cause is probably not an endpoint.
    pub fn avoids(&self) -> bool {
        let out = self.out.load(Ordering::Relaxed);
        out != 0 && out as usize * 2 <= self.endpoints().list.len()
    }

    /// Ejects a failed endpoint, unless too many are. Returns whether this call ejected it.
    pub fn eject(&self, endpoint: &Endpoint, now: Moment) -> bool {
        let fits = (self.out.load(Ordering::Relaxed) as usize + 1) * 2 <= self.endpoints().list.len();
        let ejected = fits && endpoint.health.eject(now);
        if ejected {
            self.count_out();
        }
        ejected
    }

    /// Records a response of an endpoint. Returns whether it was ejected until now.
    pub fn answered(&self, endpoint: &Endpoint) -> bool {
        let is_back = endpoint.health.answered();
        if is_back {
            self.count_out();
        }
        is_back
    }

    /// Counts the ejected endpoints. Called rarely, because it looks at all of them. A concurrent change triggers
    /// another count, so that the last number is right.
    fn count_out(&self) {
        let mut turn = self.turns.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        loop {
            let out = self.endpoints().list.iter().filter(|endpoint| endpoint.health.is_out()).count();
            self.out.store(u32::try_from(out).unwrap_or(u32::MAX), Ordering::Release);
            let now = self.turns.load(Ordering::Acquire);
            if now == turn {
                return;
            }
            turn = now;
        }
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
    /// A cell without a certificate.
    pub fn new(key: Arc<str>) -> Self {
        Self { key, certificate: ArcSwapOption::empty() }
    }

    /// The current certificate.
    pub fn certificate(&self) -> Option<Arc<Certified>> {
        self.certificate.load_full()
    }

    /// Replaces the certificate.
    pub(crate) fn store(&self, certificate: Option<Arc<Certified>>) {
        self.certificate.store(certificate);
    }
}
