//! What changes without the host table: the endpoints of a backend, the certificate of a Secret.
//!
//! The control thread stores, workers load. A cell is interned by the key of what it stands for and never replaced
//! while a table names it, so that entries which were not rebuilt see what is new.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use shared::resource::Backend;

use super::certified::Certified;
use super::endpoints::{Endpoint, EndpointSet};
use crate::balance::Moment;

/// The endpoints of one backend.
#[derive(Debug)]
pub struct BackendCell {
    /// Never used again, for pools and counters of workers.
    pub id: u64,
    /// Key of the Backend: `namespace/service/port`.
    pub key: Arc<str>,
    endpoints: ArcSwap<EndpointSet>,
    /// How many of them are out.
    out: AtomicUsize,
    /// How often that has changed.
    turns: AtomicU64,
    /// What it was made of, for pages that tell people.
    said: ArcSwapOption<Backend>,
}

impl BackendCell {
    /// Without endpoints.
    pub fn new(id: u64, key: Arc<str>) -> Self {
        let endpoints = ArcSwap::from_pointee(EndpointSet::default());
        let (out, turns) = Default::default();
        Self { id, key, endpoints, out, turns, said: ArcSwapOption::empty() }
    }

    /// The endpoints now. The guard must not be held across an await.
    pub fn endpoints(&self) -> Guard<Arc<EndpointSet>> {
        self.endpoints.load()
    }

    /// What the original calls its Service where that answers for another one's errors (annotations.md 6.14).
    pub fn name_in_place(&self) -> String {
        let mut parts = self.key.splitn(3, '/');
        let (namespace, service) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        format!("custom-default-backend-{namespace}-{service}")
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
        let before = self.endpoints.swap(Arc::new(endpoints));
        // Those who left are out no more.
        if self.out.load(Ordering::Relaxed) != 0 {
            self.count_out();
        }
        before
    }

    /// Whether endpoints that are out are left alone: as long as they are no more than half of all. Beyond that the others
    /// could not bear what there is to do, and what fails is probably not an endpoint.
    pub fn avoids(&self) -> bool {
        let out = self.out.load(Ordering::Relaxed);
        out != 0 && out * 2 <= self.endpoints().list.len()
    }

    /// Takes an endpoint out that has failed, where not too many are. Whether this was who did it.
    pub fn eject(&self, endpoint: &Endpoint, now: Moment) -> bool {
        let fits = (self.out.load(Ordering::Relaxed) + 1) * 2 <= self.endpoints().list.len();
        let ejected = fits && endpoint.health.eject(now);
        if ejected {
            self.count_out();
        }
        ejected
    }

    /// An endpoint has answered. Whether it was out until now.
    pub fn answered(&self, endpoint: &Endpoint) -> bool {
        let is_back = endpoint.health.answered();
        if is_back {
            self.count_out();
        }
        is_back
    }

    /// Counts those that are out. Seldom: it looks at all of them. Whoever changes something meanwhile has it counted once
    /// more, so that the last number is right.
    fn count_out(&self) {
        let mut turn = self.turns.fetch_add(1, Ordering::AcqRel) + 1;
        loop {
            let out = self.endpoints().list.iter().filter(|endpoint| endpoint.health.is_out()).count();
            self.out.store(out, Ordering::Release);
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
